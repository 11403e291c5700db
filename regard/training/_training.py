"""A training under way: all that the loop of the engine moves, and how it is kept."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from regard.training import checkpoint, distributed
from regard.training._files import CannotWrite
from regard.training.checkpoint import Checkpoint
from regard.training.display import Say
from regard.training.memory import keep_memory
from regard.training.optimizers import make_optimizer, memory, remember
from regard.training.progress import Progress, seed_of
from regard.training.report import Report, Silent
from regard.training.run import Run
from regard.training.settings import Settings
from regard.training.weights import average, fill, save_weights

Validate = Callable[[], dict[str, float]]


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
        torch.manual_seed(seed)
        random.seed(seed)

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
            count += loss.count * weight
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
        began, scores = time.perf_counter(), {}
        if self.world.first:
            self.seed(salt=1)
            self.objective.eval()
            with torch.no_grad(), self._precision():
                scores = {name: float(value) for name, value in self.check().items()}
            self.objective.train()
            if self.settings.watch not in scores:
                names = ", ".join(scores) or "nothing"
                raise ValueError(
                    f"watch={self.settings.watch}: the validation does not measure that, but {names}"
                )
        scores = distributed.from_first(scores)
        better = self.progress.note(scores, self.settings)
        if self.world.first:
            if better:
                save_weights(self.objective.state_dict(), self.run.best)
            if self.settings.average:
                path = self.run.recent / f"step-{self.progress.step:08d}.safetensors"
                save_weights(self.objective.state_dict(), path)
        self.report.validation(scores, better, time.perf_counter() - began)

    def save(self) -> None:
        """Write a checkpoint, unless the newest knows all that there is to know."""
        now = (self.progress.step, self.progress.validated)
        if not self.world.first or self.saved == now:
            return
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
        self.saved = now
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
            save_weights(average(paths), self.run.average)
            self.report.line(f"averaged the weights of the last {len(paths)} validations")
        self.report.draw()
        self.report.line(f"done: {end}")

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
        shared = _compiled(distributed.share(objective, device), settings, device, report.line)
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
    except CannotWrite as error:
        at, kept = training.progress.step, training.saved
        rest = f"; the checkpoint of step {kept[0]:,} is intact" if kept else ""
        advice = f"free some space, then: regard resume {training.run.folder}"
        raise CannotWrite(error.errno, f"step {at:,}: {error}{rest}; {advice}") from error
    except Exception as error:
        with contextlib.suppress(OSError):
            training.report.keep(f"failed: {error}")
        raise


def _set_threads(settings: Settings, found: Checkpoint | None) -> None:
    """As many as before: sums over another number of parts would differ in their last bits."""
    threads = settings.threads or (found.state["threads"] if found else None)
    if threads is not None and threads != torch.get_num_threads():
        torch.set_num_threads(threads)


def _compiled(
    objective: nn.Module, settings: Settings, device: torch.device, say: Say
) -> Callable[[Any], Any]:
    if not settings.compile:
        return objective
    try:  # without a compiler the first use fails; better here than in the midst of a step
        torch.compile(torch.nn.functional.gelu)(torch.zeros(8, device=device))
    except Exception:
        say("compile=on: there is no working compiler here, so the model runs as it is")
        return objective
    return torch.compile(objective, dynamic=True)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
