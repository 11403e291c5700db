"""The training loop: from a model, a loss function and batches to weights in the folder of a run."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, cast, runtime_checkable

import torch
from torch import nn

from regard.errors import ConfigError, DataError, DivergedError, RegardError, StorageError, as_out_of_memory
from regard.files import DISK_FULL_ERRNOS
from regard.training import checkpoint, distributed
from regard.training.checkpoint import Checkpoint
from regard.training.config import TrainingConfig
from regard.training.display import LogFn
from regard.training.logging import MetricsLogger, NullLogger
from regard.training.optim import make_optimizer, scale_and_clip_gradients, set_learning_rate
from regard.training.progress import Progress
from regard.training.run import RunFolder
from regard.training.trainer import LossFn, Objective, Trainer, ValidateFn

__all__ = ["Batch", "BatchSource", "CompileMode", "TrainingResult", "fit"]

CompileMode = Literal["whole", "step", "off"]


@runtime_checkable
class Batch(Protocol):
    """What the engine needs of a batch."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens (or examples) to predict."""
        ...

    def to(self, device: Any, /) -> Any:
        """The batch on a device."""
        ...

    def shard(self, rank: int, world_size: int, /) -> Any:
        """The examples of one of several processes."""
        ...


@runtime_checkable
class BatchSource(Protocol):
    """An endless source of batches that can start at any position."""

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Batches, each with the position after it; from a position, exactly the batches that follow it."""
        ...


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended.

    Args:
        step: last step
        stop_reason: why it ended
        interrupted: whether it was stopped by a signal
        best: best value of the monitored metric
        best_step: its step
        scores: metrics of the last validation
        seconds: time of training, summed over resumed runs

    Example:
        >>> TrainingResult(step=100, stop_reason="all 100 steps are done", best=0.5, best_step=80).best
        0.5
    """

    step: int
    stop_reason: str
    interrupted: bool = False
    best: float | None = None
    best_step: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def fit(
    model: nn.Module,
    loss_fn: LossFn,
    batches: BatchSource,
    config: TrainingConfig,
    run: RunFolder,
    validate: ValidateFn | None = None,
    log: LogFn | None = None,
    *,
    lower_is_better: bool | None = None,
    compile_mode: CompileMode = "whole",
) -> TrainingResult:
    """Train a model; a run with checkpoints is resumed from the latest one.

        weights <- optimizer(weights, gradient of sum(total) / sum(count))

    where the sums go over `config.grad_accumulation` batches and, under torchrun, over the shards of all processes.

    Args:
        model: trained in place; weight files are its state dict
        loss_fn: `loss_fn(model, batch)` returns a `Loss`. The state of an nn.Module is saved in checkpoints.
        batches: batches to train on, see `BatchSource` and `Batch`
        config: options of the training
        run: folder of checkpoints, weights and metrics
        validate: returns metrics by name, one of them `config.monitor`
        log: receives lines; None: standard error
        lower_is_better: whether smaller values of `config.monitor` are better; only "loss" has a default
        compile_mode: what `config.compile` compiles: the "whole" model, one "step" of it (by its method
            `compile_step`), or nothing ("off")

    Returns:
        The last step, why training ended, and metrics.

    Raises:
        DivergedError: the loss or the gradient is not finite
        StorageError: the disk is full or not writable

    >>> import tempfile
    >>> from regard.training import Loss
    >>> class Noise:
    ...     num_tokens = 8
    ...     def to(self, device):
    ...         return self
    ...     def batches(self, position):
    ...         while True:
    ...             yield self, {}
    >>> def loss_fn(model, batch):
    ...     return Loss(model(torch.ones(8, 2)).square().sum(), count=8)
    >>> config = TrainingConfig(steps=3, device="cpu")
    >>> fit(nn.Linear(2, 1), loss_fn, Noise(), config, RunFolder(tempfile.mkdtemp()), log=lambda line: None).step
    3
    """
    if lower_is_better is None:
        if validate is not None and config.monitor != "loss":
            raise ConfigError(f"monitor={config.monitor}: fit needs lower_is_better for this metric")
        lower_is_better = True
    trainer = Trainer(Objective(model, loss_fn), config, run, validate, lower_is_better)
    with open_trainer(trainer, log, compile_mode), StopSignal() as stop_signal:
        progress, optimizer = trainer.progress, trainer.optimizer
        stream = batches.batches(progress.data_position)
        while not (stop_reason := progress.stop_reason(config)) and not trainer.interrupted:
            trainer.seed()
            items = [_next_batch(stream, progress.step) for _ in range(config.grad_accumulation)]
            sums, count = trainer.backward([batch for batch, _ in items])
            sums, count = trainer.reduce_sums(sums, count, stop_signal.is_set)
            # DistributedDataParallel averages over processes; the sum over all tokens is needed
            factor = trainer.dist_context.world_size / max(count, 1)
            grad_norm = scale_and_clip_gradients(optimizer, factor, config.max_grad_norm)
            _check_finite(sums["loss"], grad_norm, trainer)

            lr = config.learning_rate(progress.step + 1)
            set_learning_rate(optimizer, lr)
            optimizer.step()
            optimizer.zero_grad()
            progress.step, progress.data_position = progress.step + 1, items[-1][1]
            progress.tokens += count
            trainer.logger.log_step(sums, count, grad_norm, lr)

            if progress.step % config.validate_every == 0:
                trainer.validate()
            if progress.step % config.save_every == 0:
                trainer.save()
        trainer.finish(stop_reason)
        best = progress.best, progress.best_step, progress.scores
        reason = stop_reason or "interrupted"
        return TrainingResult(progress.step, reason, not stop_reason, *best, trainer.elapsed_seconds())


def _next_batch(stream: Iterator[tuple[Any, dict[str, Any]]], step: int) -> tuple[Any, dict[str, Any]]:
    for item in stream:
        return item
    raise DataError(f"the batches ended at step {step}; a batch source must start again after its last batch")


def _check_finite(loss: float, grad_norm: float, trainer: Trainer) -> None:
    """Stop before numbers that are not finite reach the weights."""
    if math.isfinite(loss) and math.isfinite(grad_norm):
        return
    what = f"the gradient is {grad_norm}" if math.isfinite(loss) else f"the loss is {loss}"
    config, saved = trainer.config, trainer.last_saved
    advice = [f"lr below {config.lr:g}", f"warmup_steps above {config.warmup_steps}"]
    advice += ["max_grad_norm=1.0"] if config.max_grad_norm is None else []
    advice += ["precision=float32"] if config.precision == "bfloat16" else []
    latest = f"the checkpoint of step {saved[0]:,} is kept" if saved else "there is no checkpoint yet"
    raise DivergedError(f"step {trainer.progress.step + 1:,}: {what}; {latest}; try {', '.join(advice)}")


@contextlib.contextmanager
def open_trainer(trainer: Trainer, log: LogFn | None, compile_mode: CompileMode) -> Iterator[None]:
    """Lock the run, load its latest checkpoint, and make everything ready for the next step.

    Args:
        trainer: its optimizer, progress and logger are made here
        log, compile_mode: as for `fit`
    """
    config, run, objective, device = trainer.config, trainer.run, trainer.objective, trainer.device
    is_main, notes = trainer.dist_context.is_main, list[str]()
    with contextlib.ExitStack() as stack:
        latest: Checkpoint | None = None
        if is_main:
            stack.enter_context(run.lock())
            checkpoint.remove_unfinished(run.checkpoints)
            latest = checkpoint.load_latest(run.checkpoints, notes.append)
        latest = distributed.broadcast_from_rank0(latest)
        _set_threads(config, latest)
        objective.to(device).train()
        trainer.optimizer = make_optimizer(objective, config)
        trainer.progress = progress = Progress() if latest is None else Progress.from_json(latest.state)
        if latest is not None:
            notes.append(f"resumed from step {progress.step:,}")
        metrics_size = 0 if latest is None else int(latest.state["metrics_bytes"])
        logger = MetricsLogger(run, config, progress, metrics_size, log) if is_main else NullLogger()
        trainer.logger = logger
        stack.callback(logger.close)
        for note in notes:
            logger.log_line(note)
        if latest is not None:
            trainer.restore(latest)
        compiled = _maybe_compile(objective, config, device, compile_mode, logger.log_line)
        trainer.parallel_objective = distributed.wrap_ddp(compiled, device)
        trainer.start_time = time.perf_counter() - progress.seconds
        with _log_failures(trainer):
            if latest is None:
                trainer.save()  # so that initial weights survive a crash as well
            yield


@contextlib.contextmanager
def _log_failures(trainer: Trainer) -> Iterator[None]:
    """Write a failure to the log, and add to it what remains and how to resume."""
    try:
        yield
    except StorageError as error:
        step, saved = trainer.progress.step, trainer.last_saved
        intact = f"; the checkpoint of step {saved[0]:,} is intact" if saved else ""
        advice = "free some space" if error.errno in DISK_FULL_ERRNOS else "make it writable"
        message = f"step {step:,}: {error}{intact}; {advice}, then: regard resume {trainer.run.folder}"
        raise StorageError(message, errno=error.errno) from error
    except Exception as error:
        with contextlib.suppress(OSError):
            trainer.logger.log_to_file(f"failed: {error}")
        if not isinstance(error, RegardError) and (memory_error := as_out_of_memory(error)) is not None:
            raise memory_error from error
        raise


def _set_threads(config: TrainingConfig, latest: Checkpoint | None) -> None:
    """Use the same number of threads as before: with another, sums differ in their last bits."""
    threads = config.num_threads or (latest.state["num_threads"] if latest else None)
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def _maybe_compile(
    objective: Objective, config: TrainingConfig, device: torch.device, compile_mode: CompileMode, log: LogFn
) -> nn.Module:
    if not config.compile:
        return objective
    if compile_mode == "off":  # a loop over time steps would be compiled for each length, for minutes
        log("compile=on: this model runs step by step over its inputs, which is not compiled")
        return objective
    try:  # without a compiler the first use fails; better here than in a step
        torch.compile(torch.nn.functional.gelu)(torch.zeros(8, device=device))
    except Exception:
        log("compile=on: there is no working compiler, so the model is not compiled")
        return objective
    if compile_mode == "step":
        cast(Any, objective.model).compile_step()
        return objective
    return cast(nn.Module, torch.compile(objective, dynamic=True))


class StopSignal:
    """Records SIGINT and SIGTERM, so that training stops after the current step; a second signal ends the process.

    Ctrl-C under torchrun arrives twice, from the terminal and from torchrun, so signals within a second count as one.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._received_at = 0.0
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():  # only there Python handles signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *error: object) -> None:
        self._restore()

    def _handle(self, number: int, *frame: object) -> None:
        if not self.is_set:
            self.is_set, self._received_at = True, time.monotonic()
            # not print: it may be what was interrupted
            os.write(2, b"\nstopping after this step; press Ctrl-C again to stop at once\n")
        elif time.monotonic() - self._received_at > 1:
            self._restore()
            signal.raise_signal(number)

    def _restore(self) -> None:
        while self._previous_handlers:
            number, handler = self._previous_handlers.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
