"""Ctrl-C as a wish, which is heard at the end of a step.

Memory that is kept, instead of being given back and fetched again in every step.

Before the first step: a run is locked, and what its newest checkpoint holds is put in place.

The engine: from an objective and data to weights. It knows nothing of attention, text or models.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import nn

from regard.errors import DataError, DivergedError, RegardError, StorageError, as_out_of_memory
from regard.files import DISK_FULL_ERRNOS
from regard.training import checkpoint, distributed
from regard.training.checkpoint import Checkpoint, load_into
from regard.training.config import TrainingConfig
from regard.training.display import LogFn
from regard.training.logging import MetricsLogger, NullLogger
from regard.training.optim import (
    make_optimizer,
    restore_optimizer,
    scale_and_clip_gradients,
    set_learning_rate,
)
from regard.training.progress import Progress
from regard.training.run import RunFolder
from regard.training.trainer import Trainer, ValidateFn


class StopSignal:
    """Hears SIGINT and SIGTERM while it is open; the second one ends the process as usual.

    Ctrl-C under torchrun arrives twice, from the terminal and from torchrun, so what comes within a second
    counts as one.
    """

    def __init__(self) -> None:
        self.is_set = False
        self._received_at = 0.0
        self._previous_handlers: dict[int, Any] = {}

    def __enter__(self) -> StopSignal:
        if threading.current_thread() is threading.main_thread():  # elsewhere Python hears no signals
            for number in (signal.SIGINT, signal.SIGTERM):
                self._previous_handlers[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._restore()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.is_set and time.monotonic() - self._received_at > 1:
            self._restore()
            signal.raise_signal(number)
            return
        if self.is_set:
            return
        self.is_set, self._received_at = True, time.monotonic()
        # not print: it may be what was interrupted
        os.write(2, b"\nstopping after this step; once more to stop at once\n")

    def _restore(self) -> None:
        while self._previous_handlers:
            number, handler = self._previous_handlers.popitem()
            signal.signal(number, signal.SIG_DFL if handler is None else handler)


# From malloc.h of the GNU C library.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8


def retain_freed_memory() -> bool:
    """Ask the C library to keep freed memory for the next step; says whether it will.

    A training step frees matrices of megabytes and asks for the same again. The GNU C library hands such pieces
    back to the system, which clears every page before it gives it out anew: a third of the time of a
    small model's element-wise work. Other C libraries are left alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # The largest threshold that the library takes: above it, matrices still go back at once. And one arena for all
    # threads: each of their own would keep what it once had, and a server that starts threads would grow.
    wishes = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: (1 << 31) - 1, ARENA_MAX: 1}
    return all(mallopt(name, value) for name, value in wishes.items())


@contextlib.contextmanager
def open_trainer(
    objective: nn.Module,
    config: TrainingConfig,
    run: RunFolder,
    validate_fn: ValidateFn | None,
    log: LogFn | None,
) -> Iterator[Trainer]:
    """Lock the run, find its newest checkpoint, and put everything in the state it was in."""
    retain_freed_memory()
    device = distributed.resolve_device(config.device)
    world = distributed.init_process_group(device)
    with contextlib.ExitStack() as stack:
        notes: list[str] = []
        if world.is_main:
            stack.enter_context(run.lock())
            checkpoint.remove_unfinished(run.checkpoints)
        found = distributed.broadcast_from_rank0(
            checkpoint.load_latest(run.checkpoints, notes.append) if world.is_main else None
        )
        _set_threads(config, found)
        objective.to(device).train()
        optimizer = make_optimizer(objective, config)
        progress = Progress()
        if found is not None:
            load_into(objective, found.model, str(found.path))
            restore_optimizer(optimizer, objective, found.training)
            progress = Progress.from_json(found.state)
            notes.append(f"resumed from step {progress.step:,}")
        size = 0 if found is None else int(found.state["metrics_bytes"])
        report = MetricsLogger(run, config, progress, size, log) if world.is_main else NullLogger()
        stack.callback(report.close)
        for note in notes:
            report.log_line(note)
        shared = distributed.wrap_ddp(_maybe_compile(objective, config, device, report.log_line), device)
        training = Trainer(
            objective, shared, optimizer, config, run, progress, report, validate_fn, device, world
        )
        training.start_time -= progress.seconds
        with _log_failures(training):
            if found is None:
                training.save()  # so that weights given at the start survive a crash too
            else:
                training.last_saved = (progress.step, progress.last_validated_step)
                training.discard_later_weights()
            yield training


@contextlib.contextmanager
def _log_failures(trainer: Trainer) -> Iterator[None]:
    """Say with a failure what is left, and keep it in the log."""
    try:
        yield
    except StorageError as error:
        at, kept = trainer.progress.step, trainer.last_saved
        rest = f"; the checkpoint of step {kept[0]:,} is intact" if kept else ""
        advice = "free some space" if error.errno in DISK_FULL_ERRNOS else "make it writable"
        sentence = f"step {at:,}: {error}{rest}; {advice}, then: regard resume {trainer.run.folder}"
        raise StorageError(sentence, errno=error.errno) from error
    except Exception as error:
        with contextlib.suppress(OSError):
            trainer.logger.log_to_file(f"failed: {error}")
        if not isinstance(error, RegardError) and (memory_error := as_out_of_memory(error)) is not None:
            raise memory_error from error
        raise


def _set_threads(config: TrainingConfig, latest: Checkpoint | None) -> None:
    """As many as before: sums over another number of parts would differ in their last bits."""
    threads = config.num_threads or (latest.state["threads"] if latest else None)
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def _maybe_compile(
    objective: nn.Module, config: TrainingConfig, device: torch.device, log: LogFn
) -> nn.Module:
    if not config.compile:
        return objective
    # A loop over a text is written out anew for every length, for minutes each time.
    if getattr(objective, "loops", False):
        log("compile=on: this model goes through a text step by step, which is not compiled")
        return objective
    try:  # without a compiler the first use fails; better here than in the midst of a step
        torch.compile(torch.nn.functional.gelu)(torch.zeros(8, device=device))
    except Exception:
        log("compile=on: there is no working compiler here, so the model runs as it is")
        return objective
    if hasattr(objective, "fuse"):  # it knows better which part of it to compile, such as one step of many
        cast(Any, objective).fuse()
        return objective
    return cast(nn.Module, torch.compile(objective, dynamic=True))


@runtime_checkable
class BatchSource(Protocol):
    """Data without end: batches, each with the position after it, from which one can go on."""

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[Any, dict[str, Any]]]: ...


@dataclass(frozen=True)
class TrainingResult:
    """How a training ended: the step, why, and the scores of its best and last validations."""

    step: int
    stop_reason: str
    interrupted: bool = False
    best: float | None = None
    best_step: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def fit(
    objective: nn.Module,
    data: BatchSource,
    config: TrainingConfig,
    run: RunFolder,
    validate: ValidateFn | None = None,
    log: LogFn | None = None,
) -> TrainingResult:
    """Train until an end is reached; a run that has checkpoints goes on from the newest.

        weights <- optimizer(weights, gradient of sum(total) / sum(count))

    `objective(batch)` gives a `Loss`; the sums go over `accumulate` batches and, under torchrun, over the rows
    of all processes. `validate()` gives scores by name, one of them `settings.watch`. Lines go to `say`, or
    else to standard error.
    """
    with open_trainer(objective, config, run, validate, log) as training, StopSignal() as wishes:
        progress, optimizer = training.progress, training.optimizer
        stream = data.batches(progress.data_position)
        while not (end := progress.stop_reason(config)) and not training.interrupted:
            training.seed()
            batches = [_next_batch(stream, progress.step) for _ in range(config.grad_accumulation)]
            sums, count = training.backward([batch for batch, _ in batches])
            sums, count = training.reduce_sums(sums, count, wishes.is_set)
            # DistributedDataParallel gives the mean over processes, and we want the sum over tokens
            longest = progress.longest(config)
            norm = scale_and_clip_gradients(
                optimizer, training.dist_context.world_size / max(count, 1), longest
            )
            _check_finite(sums["loss"], norm, training)
            progress.felt(norm, longest)

            rate = config.learning_rate(progress.step + 1)
            set_learning_rate(optimizer, rate)
            optimizer.step()
            optimizer.zero_grad()
            progress.step, progress.data_position = progress.step + 1, batches[-1][1]
            progress.tokens += count
            training.logger.log_step(sums, count, norm, rate)

            if progress.step % config.validate_every == 0:
                training.validate()
            if progress.step % config.save_every == 0:
                training.save()
        training.finish(end)
        return TrainingResult(
            progress.step,
            end or "interrupted",
            not end,
            progress.best,
            progress.best_step,
            progress.scores,
            training.elapsed_seconds(),
        )


def _next_batch(stream: Iterator[tuple[Any, dict[str, Any]]], step: int) -> tuple[Any, dict[str, Any]]:
    for item in stream:
        return item
    raise DataError(f"the data ended at step {step}; a data source has to begin again after its last batch")


def _check_finite(loss: float, grad_norm: float, trainer: Trainer) -> None:
    """Stop before numbers that are not finite reach the weights."""
    if math.isfinite(loss) and math.isfinite(grad_norm):
        return
    what = f"the gradient is {grad_norm}" if math.isfinite(loss) else f"the loss is {loss}"
    settings, saved = trainer.config, trainer.last_saved
    wishes = [f"a smaller lr than {settings.lr:g}", f"a longer warmup than {settings.warmup_steps}"]
    wishes += ["max_grad_norm=1.0"] if settings.max_grad_norm is None else []
    wishes += ["precision=float32"] if settings.precision == "bfloat16" else []
    kept = f"the checkpoint of step {saved[0]:,} is kept" if saved else "nothing was saved yet"
    raise DivergedError(f"step {trainer.progress.step + 1:,}: {what}; {kept}; try {', '.join(wishes)}")
