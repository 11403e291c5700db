"""The engine: from an objective and data to weights. It knows nothing of attention, text or models."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from torch import nn

from regard.errors import DataError, DivergedError
from regard.training._prepare import prepared
from regard.training._signals import Wishes
from regard.training._training import Training, Validate
from regard.training.display import Say
from regard.training.optimizers import scale_and_clip, set_rate
from regard.training.run import Run
from regard.training.settings import Settings


@runtime_checkable
class Source(Protocol):
    """Data without end: batches, each with the position after it, from which one can go on."""

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[Any, dict[str, Any]]]: ...


@dataclass(frozen=True)
class Outcome:
    """How a training ended: the step, why, and the scores of its best and last validations."""

    step: int
    reason: str
    interrupted: bool = False
    best: float | None = None
    best_step: int = 0
    scores: dict[str, float] = field(default_factory=dict)
    seconds: float = 0.0


def fit(
    objective: nn.Module,
    data: Source,
    settings: Settings,
    run: Run,
    validate: Validate | None = None,
    say: Say | None = None,
) -> Outcome:
    """Train until an end is reached; a run that has checkpoints goes on from the newest.

        weights <- optimizer(weights, gradient of sum(total) / sum(count))

    `objective(batch)` gives a `Loss`; the sums go over `accumulate` batches and, under torchrun, over the rows
    of all processes. `validate()` gives scores by name, one of them `settings.watch`. Lines go to `say`, or
    else to standard error.
    """
    with prepared(objective, settings, run, validate, say) as training, Wishes() as wishes:
        progress, optimizer = training.progress, training.optimizer
        stream = data.batches(progress.position)
        while not (end := progress.end(settings)) and not training.interrupted:
            training.seed()
            batches = [_next(stream, progress.step) for _ in range(settings.accumulate)]
            sums, count = training.backward([batch for batch, _ in batches])
            sums, count = training.together(sums, count, wishes.stop)
            # DistributedDataParallel gives the mean over processes, and we want the sum over tokens
            longest = progress.longest(settings)
            norm = scale_and_clip(optimizer, training.world.size / max(count, 1), longest)
            _check(sums["loss"], norm, training)
            progress.felt(norm, longest)

            rate = settings.rate(progress.step + 1)
            set_rate(optimizer, rate)
            optimizer.step()
            optimizer.zero_grad()
            progress.step, progress.position = progress.step + 1, batches[-1][1]
            progress.tokens += count
            training.report.step(sums, count, norm, rate)

            if progress.step % settings.validate_every == 0:
                training.validate()
            if progress.step % settings.save_every == 0:
                training.save()
        training.finish(end)
        return Outcome(
            progress.step,
            end or "interrupted",
            not end,
            progress.best,
            progress.best_step,
            progress.scores,
            training.elapsed(),
        )


def _next(stream: Iterator[tuple[Any, dict[str, Any]]], step: int) -> tuple[Any, dict[str, Any]]:
    for item in stream:
        return item
    raise DataError(f"the data ended at step {step}; a data source has to begin again after its last batch")


def _check(loss: float, norm: float, training: Training) -> None:
    """Stop before numbers that are not finite reach the weights."""
    if math.isfinite(loss) and math.isfinite(norm):
        return
    what = f"the gradient is {norm}" if math.isfinite(loss) else f"the loss is {loss}"
    settings, saved = training.settings, training.saved
    wishes = [f"a smaller lr than {settings.lr:g}", f"a longer warmup than {settings.warmup}"]
    wishes += ["clip=1.0"] if settings.clip is None else []
    wishes += ["precision=float32"] if settings.precision == "bfloat16" else []
    kept = f"the checkpoint of step {saved[0]:,} is kept" if saved else "nothing was saved yet"
    raise DivergedError(f"step {training.progress.step + 1:,}: {what}; {kept}; try {', '.join(wishes)}")
