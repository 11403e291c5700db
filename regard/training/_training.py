"""A training under way: all that the loop of the engine moves, and how it is kept."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from regard.errors import ConfigError
from regard.training import checkpoint, distributed
from regard.training.optimizers import memory
from regard.training.progress import Progress, seed_of
from regard.training.report import Report, Silent
from regard.training.run import Run
from regard.training.settings import Settings
from regard.training.weights import average, fill, save_weights

Validate = Callable[[], dict[str, float]]
CLEARLY = 0.02  # by so much of itself: the best of many scores had luck, too, and that of an average has not


@dataclass
class Training:
    """What `fit` works with. All processes hold one and agree; only the first writes."""

    objective: nn.Module  # bare: its names are those in the files
    shared: Callable[[Any], Any]  # the same, perhaps compiled and among several processes
    optimizer: Optimizer
    settings: Settings
    run: Run
    progress: Progress
    report: Report | Silent
    check: Validate | None
    device: torch.device
    world: distributed.World
    saved: tuple[int, int] | None = None  # the step and the last validation that the newest checkpoint knows
    interrupted: bool = False
    began: float = field(default_factory=time.perf_counter)

    def seed(self, salt: int = 0) -> None:
        """Chance for the step to come, the same in a resumed run."""
        seed = seed_of(self.settings.seed + salt, self.progress.step, self.world.rank)
        random.seed(seed)
        # not torch.manual_seed: where there is no GPU it keeps a note of every call, in case one appears
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def backward(self, batches: list[Any]) -> tuple[dict[str, float], int]:
        """Add up the gradients of this process's rows; the sums of the losses, and their count."""
        sums: dict[str, Any] = {}
        count = 0
        for index, batch in enumerate(batches, 1):
            rows, weight = self._rows(batch)
            with distributed.unsynced(self.shared, index < len(batches)):
                with self._precision():
                    loss = self.shared(rows.to(self.device))
                (loss.total * weight).backward()
            count += int(loss.count) * weight
            for name, value in {"loss": loss.total.detach(), **loss.extra}.items():
                sums[name] = sums.get(name, 0.0) + value * weight
        return {name: float(value) for name, value in sums.items()}, count

    def together(self, sums: dict[str, float], count: int, stop: bool) -> tuple[dict[str, float], int]:
        """The sums over all processes; the time, and whether somebody wishes to stop, come along."""
        names, now = sorted(sums), self.elapsed() if self.world.first else 0.0
        numbers = [*(sums[name] for name in names), float(count), float(stop), now]
        *values, total, stops, self.progress.seconds = distributed.summed(numbers, self.device)
        self.interrupted = stops > 0
        return dict(zip(names, values, strict=True)), int(total)

    def elapsed(self) -> float:
        """Seconds of training, those before a resume included."""
        return time.perf_counter() - self.began

    def validate(self) -> None:
        """Measure, and keep the weights if they are the best so far."""
        if self.check is None:
            return
        self.report.point()
        began = time.perf_counter()
        scores = distributed.from_first(self._measured(self.check) if self.world.first else {})
        better = self.progress.note(scores, self.settings)
        if self.world.first:
            if better:
                save_weights(self.objective.state_dict(), self.run.best)
            if self.settings.average:
                path = self.run.recent / f"step-{self.progress.step:08d}.safetensors"
                save_weights(self.objective.state_dict(), path)
        self.report.validation(scores, better, time.perf_counter() - began)

    def _measured(self, check: Validate) -> dict[str, float]:
        self.seed(salt=1)
        self.objective.eval()
        with torch.no_grad(), self._precision():
            scores = {name: float(value) for name, value in check().items()}
        self.objective.train()
        if self.settings.watch not in scores:
            names = ", ".join(scores) or "nothing"
            raise ConfigError(
                f"watch={self.settings.watch}: the validation does not measure that, but {names}"
            )
        return scores

    def save(self) -> None:
        """Write a checkpoint, unless the newest knows all that there is to know."""
        now = (self.progress.step, self.progress.validated)
        if self.saved == now:
            return
        if self.world.first:
            self._write()
        self.saved = now

    def _write(self) -> None:
        state = {
            **self.progress.to_json(),
            "seconds": self.elapsed(),
            "seed": self.settings.seed,
            "processes": self.world.size,
            "threads": torch.get_num_threads(),
            "metrics_bytes": self.report.size(),
            "optimizer": self.settings.optimizer,
        }
        tensors = memory(self.optimizer, self.objective)
        checkpoint.save(self.run.checkpoints, self.objective.state_dict(), tensors, state, self.settings.keep)
        self.run.average.unlink(missing_ok=True)  # an average of older weights would be taken for the newest
        self._forget()

    def finish(self, end: str) -> None:
        """Leave the run folder complete, or ready to be resumed."""
        if not end:
            self.report.point()
            self.save()
            self.report.line(
                f"stopped at step {self.progress.step:,}; go on with: regard resume {self.run.folder}"
            )
            return
        if self.progress.validated != self.progress.step:
            self.validate()
        self.report.point()
        self.save()
        if self.world.first and (paths := self._recent(self.progress.step)):
            self._average(paths)
        self.report.draw()
        self.report.line(f"done: {end}")

    def _average(self, paths: Sequence[Path]) -> None:
        """Average the weights of the last validations, and keep that for use unless the best are clearly better."""
        assert self.check is not None  # there are no weights of validations without one
        watch, best = self.settings.watch, self.progress.best
        mean = average(paths)
        now = {name: value.clone() for name, value in self.objective.state_dict().items()}
        fill(self.objective, mean, "the average")
        score = self._measured(self.check)[watch]
        fill(self.objective, now, "the last step")
        last = f"last {len(paths)} validations" if len(paths) > 1 else "last validation"
        found = f"the average of the weights of the {last} has {watch} {score:.5g}"
        if best is not None and (math.isnan(score) or self.settings.better(best, score, by=CLEARLY)):
            step = f"of step {self.progress.best_step:,}"
            self.report.line(f"{found}; the best ones, {step} with {best:.5g}, are kept for use instead")
            self.run.average.unlink(missing_ok=True)
            return
        save_weights(mean, self.run.average)
        self.report.line(f"{found}; it is kept for use")

    def _rows(self, batch: Any) -> tuple[Any, int]:
        """This process's rows, and 1; or, where there are none, the first's and 0.

        Gradients are summed over processes while they are computed, so all have to compute some.
        """
        if self.world.size == 1:
            return batch, 1
        rows = batch.part(self.world.rank, self.world.size)
        return (rows, 1) if rows.tokens else (batch.part(0, self.world.size), 0)

    def _precision(self) -> contextlib.AbstractContextManager[Any]:
        if self.settings.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _recent(self, step: int) -> list[Path]:
        """The weights to average if training ended at this step."""
        if not self.settings.average:
            return []
        paths = [path for path in sorted(self.run.recent.glob("step-*.safetensors")) if _step(path) <= step]
        return paths[-self.settings.average :]

    def forget_the_future(self) -> None:
        """Remove the weights of validations that this run has not come to again."""
        for path in self.run.recent.glob("step-*.safetensors"):
            if self.world.first and _step(path) > self.progress.step:
                path.unlink()

    def _forget(self) -> None:
        """Remove the weights that will not be averaged, not even by a run resumed from the oldest checkpoint."""
        needed = self._recent(min(checkpoint.steps(self.run.checkpoints)))
        for path in self.run.recent.glob("step-*.safetensors"):
            if needed and _step(path) < _step(needed[0]):
                path.unlink()


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
