"""The training loop: from a model, a loss function and batches to weights in the folder of a run."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol, runtime_checkable

from torch import nn

from regard.errors import ConfigError, DataError, DtypeError
from regard.training.callbacks import Callback, CallbackList
from regard.training.config import ConfigT, TrainingConfig
from regard.training.distributed import distributed_context
from regard.training.loaders import LoaderBatches, batches_per_epoch
from regard.training.logging import LogFn
from regard.training.optim import scale_and_clip_gradients, set_learning_rate
from regard.training.run import RunFolder
from regard.training.trainer import CompileMode, LossFn, Objective, Trainer, ValidateFn

__all__ = ["Batch", "BatchSource", "CompileMode", "TrainingResult", "fit", "resolve_epochs"]


@runtime_checkable
class Batch(Protocol):
    """A batch that can be divided among processes; with one process, a batch can have any form."""

    @property
    def num_tokens(self) -> int:
        """Number of tokens (or examples) to predict."""

    def to(self, device: Any, /) -> Any:
        """The batch on a device."""

    def shard(self, rank: int, world_size: int, /) -> Any:
        """The examples of one of several processes."""


@runtime_checkable
class BatchSource(Protocol):
    """An endless source of batches that can start at any position."""

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[Any, dict[str, Any]]]:
        """Batches, each with the position after it; from a position, exactly the batches that follow it."""


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
    batches: BatchSource | Iterable[Any],
    config: TrainingConfig,
    run: RunFolder | str | os.PathLike[str],
    validate: ValidateFn | None = None,
    log: LogFn | None = None,
    *,
    callbacks: Iterable[Callback] | Callback = (),
    lower_is_better: bool | None = None,
    compile_mode: CompileMode = "whole",
) -> TrainingResult:
    """Train a model; a run with checkpoints is resumed from the latest one.

        weights <- optimizer(weights, gradient of sum(total) / sum(count))

    where the sums go over `config.grad_accumulation` batches and, under torchrun, over the shards of all processes.

    Args:
        model: trained in place; weight files are its state dict
        loss_fn: `loss_fn(model, batch)` returns a `Loss`. The state of an nn.Module is saved in checkpoints.
        batches: a DataLoader or a list, see `LoaderBatches`, or a `BatchSource`. With several processes, it has a
            DistributedSampler or each batch a method `shard`, see `Batch`.
        config: options of the training
        run: folder of checkpoints, weights and metrics, or its path
        validate: returns metrics by name, one of them `config.monitor`
        log: receives lines; None: standard error
        callbacks: called after steps, after validations and at the end
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
    >>> def loss_fn(model, batch):
    ...     return Loss(model(batch).square().sum(), count=len(batch))
    >>> batches = [torch.ones(8, 2), torch.zeros(8, 2)]
    >>> config = TrainingConfig(epochs=3, device="cpu")
    >>> fit(nn.Linear(2, 1), loss_fn, batches, config, RunFolder(tempfile.mkdtemp()), log=lambda line: None).step
    6
    """
    if lower_is_better is None and validate is not None and config.monitor != "loss":
        raise ConfigError(f"monitor={config.monitor}: fit needs lower_is_better for this metric")
    if isinstance(run, str | os.PathLike):
        run = RunFolder(run)
    elif not isinstance(run, RunFolder):
        raise DtypeError(f"fit: run must be a RunFolder or the path of a folder, got a {type(run).__name__}")
    context, has_epochs = distributed_context(), config.epochs is not None
    source = batches if isinstance(batches, BatchSource) else LoaderBatches(batches, config.seed, context, has_epochs)
    config, is_sharded = resolve_epochs(config, source), isinstance(source, LoaderBatches) and source.is_sharded
    hooks = CallbackList(callbacks, model, run)
    trainer = Trainer(Objective(model, loss_fn), config, run, validate, lower_is_better is not False, hooks, is_sharded)
    with trainer.open(log, compile_mode), StopSignal() as stop_signal:
        progress, optimizer = trainer.progress, trainer.optimizer
        if isinstance(source, LoaderBatches) and progress.data_position is not None:
            trainer.logger.log_line(source.describe_resume(progress.data_position))
        stream = source.batches(progress.data_position)
        while not (stop_reason := progress.stop_reason(config) or hooks.stop_reason) and not trainer.interrupted:
            trainer.seed()
            items = list(islice(stream, config.grad_accumulation))
            if len(items) < config.grad_accumulation:
                raise DataError(f"the batches ended at step {progress.step}; a batch source must start again by itself")
            sums, count = trainer.backward([batch for batch, _ in items])
            sums, count = trainer.reduce_sums(sums, count, stop_signal.is_set)
            # DistributedDataParallel averages over processes; the sum over all tokens is needed
            factor = trainer.dist_context.world_size / max(count, 1)
            grad_norm = scale_and_clip_gradients(optimizer, factor, config.max_grad_norm)
            _check_finite(sums["loss"], grad_norm, trainer)

            lr = config.learning_rate(progress.step + 1)
            set_learning_rate(optimizer, lr)
            optimizer.step()
            progress.step, progress.data_position = progress.step + 1, items[-1][1]
            progress.tokens += count
            trainer.logger.log_step(sums, count, grad_norm, lr)
            if hooks.callbacks:
                means = {name: value / max(count, 1) for name, value in sums.items()}
                hooks.loss = means.pop("loss")
                hooks.call("on_step", progress.step, means, optimizer)
            optimizer.zero_grad()

            if progress.step % config.validate_every == 0:
                trainer.validate()
            if progress.step % config.save_every == 0:
                trainer.save()
        trainer.finish(stop_reason)
        hooks.stop_reason = stop_reason or "interrupted"
        hooks.call("on_end", progress.step, progress.scores, optimizer)
        best = progress.best, progress.best_step, progress.scores
        reason = stop_reason or "interrupted"
        return TrainingResult(progress.step, reason, not stop_reason, *best, trainer.elapsed_seconds())


def resolve_epochs(config: ConfigT, source: Any) -> ConfigT:
    """The config with steps in place of epochs.

        steps = epochs * batches of an epoch / grad_accumulation, rounded up

    Args:
        config: options of the training
        source: its batches

    Example:
        >>> resolve_epochs(TrainingConfig(epochs=3, grad_accumulation=2), LoaderBatches(["a", "b", "c"])).steps
        5
    """
    if config.epochs is None:
        return config
    return config.replace(steps=-(-config.epochs * batches_per_epoch(source) // config.grad_accumulation))


def _check_finite(loss: float, grad_norm: float, trainer: Trainer) -> None:
    """Stop before numbers that are not finite reach the weights."""
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        what = f"the gradient is {grad_norm}" if math.isfinite(loss) else f"the loss is {loss}"
        raise trainer.diverged_error(trainer.progress.step + 1, what)


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
