"""Before the first step: a run is locked, and what its newest checkpoint holds is put in place."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import nn

from regard.errors import RegardError, StorageError, as_out_of_memory
from regard.files import DISK_FULL_ERRNOS
from regard.training import checkpoint, distributed
from regard.training._training import Training, Validate
from regard.training.checkpoint import Checkpoint
from regard.training.display import Say
from regard.training.memory import keep_memory
from regard.training.optimizers import make_optimizer, remember
from regard.training.progress import Progress
from regard.training.report import Report, Silent
from regard.training.run import Run
from regard.training.settings import Settings
from regard.training.weights import fill


@contextlib.contextmanager
def prepared(
    objective: nn.Module, settings: Settings, run: Run, check: Validate | None, say: Say | None
) -> Iterator[Training]:
    """Lock the run, find its newest checkpoint, and put everything in the state it was in."""
    keep_memory()
    device = distributed.choose_device(settings.device)
    world = distributed.start(device)
    with contextlib.ExitStack() as stack:
        notes: list[str] = []
        if world.first:
            stack.enter_context(run.locked())
            checkpoint.clean(run.checkpoints)
        found = distributed.from_first(
            checkpoint.newest(run.checkpoints, notes.append) if world.first else None
        )
        _set_threads(settings, found)
        objective.to(device).train()
        optimizer = make_optimizer(objective, settings)
        progress = Progress()
        if found is not None:
            fill(objective, found.model, str(found.path))
            remember(optimizer, objective, found.training)
            progress = Progress.from_json(found.state)
            notes.append(f"resumed from step {progress.step:,}")
        size = 0 if found is None else int(found.state["metrics_bytes"])
        report = Report(run, settings, progress, size, say) if world.first else Silent()
        stack.callback(report.close)
        for note in notes:
            report.line(note)
        shared = distributed.share(_compiled(objective, settings, device, report.line), device)
        training = Training(
            objective, shared, optimizer, settings, run, progress, report, check, device, world
        )
        training.began -= progress.seconds
        with _explained(training):
            if found is None:
                training.save()  # so that weights given at the start survive a crash too
            else:
                training.saved = (progress.step, progress.validated)
                training.forget_the_future()
            yield training


@contextlib.contextmanager
def _explained(training: Training) -> Iterator[None]:
    """Say with a failure what is left, and keep it in the log."""
    try:
        yield
    except StorageError as error:
        at, kept = training.progress.step, training.saved
        rest = f"; the checkpoint of step {kept[0]:,} is intact" if kept else ""
        advice = "free some space" if error.errno in DISK_FULL_ERRNOS else "make it writable"
        sentence = f"step {at:,}: {error}{rest}; {advice}, then: regard resume {training.run.folder}"
        raise StorageError(sentence, errno=error.errno) from error
    except Exception as error:
        with contextlib.suppress(OSError):
            training.report.keep(f"failed: {error}")
        if not isinstance(error, RegardError) and (memory_error := as_out_of_memory(error)) is not None:
            raise memory_error from error
        raise


def _set_threads(settings: Settings, found: Checkpoint | None) -> None:
    """As many as before: sums over another number of parts would differ in their last bits."""
    threads = settings.threads or (found.state["threads"] if found else None)
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def _compiled(objective: nn.Module, settings: Settings, device: torch.device, say: Say) -> nn.Module:
    if not settings.compile:
        return objective
    # A loop over a text is written out anew for every length, for minutes each time.
    if getattr(objective, "loops", False):
        say("compile=on: this model goes through a text step by step, which is not compiled")
        return objective
    try:  # without a compiler the first use fails; better here than in the midst of a step
        torch.compile(torch.nn.functional.gelu)(torch.zeros(8, device=device))
    except Exception:
        say("compile=on: there is no working compiler here, so the model runs as it is")
        return objective
    if hasattr(objective, "fuse"):  # it knows better which part of it to compile, such as one step of many
        cast(Any, objective).fuse()
        return objective
    return cast(nn.Module, torch.compile(objective, dynamic=True))
