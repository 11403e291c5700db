"""What is written down of a training: metrics.jsonl, log.txt, TensorBoard, and the picture of the curve."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from regard._imports import require_extra
from regard.files import storage_errors
from regard.training._curve import draw_curve
from regard.training.display import Say, duration, in_words, number, open_screen
from regard.training.progress import Progress
from regard.training.run import Run
from regard.training.settings import Settings

EVERY = 10.0  # seconds between points of the metrics
DRAW_EVERY = 60.0  # seconds between pictures


class Report:
    """Keeps the metrics and the log of a run, and shows how it stands.

    A point of the metrics is one JSON object a line: step, loss and whatever else the objective measures
    (means over the tokens since the last point), tokens_per_second, lr, grad_norm, time; or a validation's
    scores under "valid".
    """

    def __init__(self, run: Run, settings: Settings, progress: Progress, size: int, say: Say | None):
        self.run, self.settings, self.progress = run, settings, progress
        self._board: Any = None
        if settings.tensorboard:
            require_extra("tensorboard", extra="tensorboard")  # it is what torch's module below would miss
            board = import_module("torch.utils.tensorboard")
            self._board = board.SummaryWriter(run.folder / "tensorboard", purge_step=progress.step + 1)
        self._metrics, self._log = Lines(run.metrics, size), Lines(run.log)
        self._screen = open_screen(settings.steps, progress.step, say)
        self._drawn = self._since = self._shown = time.perf_counter()
        self._sums: dict[str, float] = {}
        self._count, self._norm, self._rate = 0, 0.0, 0.0
        self._begin()

    def line(self, text: str) -> None:
        """Say something, here and in log.txt."""
        self.keep(text)
        self._screen.line(text)

    def keep(self, text: str) -> None:
        """Write something to log.txt only."""
        self._log.add(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}")

    def step(self, sums: Mapping[str, float], count: int, norm: float, rate: float) -> None:
        """Count a step in; every few seconds this makes a point."""
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count, self._norm, self._rate = self._count + count, norm, rate
        now = time.perf_counter()
        if now - self._since >= EVERY:
            self.point()
        elif now - self._shown >= 0.2:
            self._shown = now
            self._screen.stand(self.progress.step, self._words(self._now()))

    def point(self) -> None:
        """Write down how training went since the last point."""
        if not self._count:
            return
        point, step = self._now(), self.progress.step
        self._write(point)
        words = self._words(point)
        self.keep(f"step {step:,}/{self.settings.steps:,}   {words}")
        self._screen.point(step, words)
        self._begin()

    def validation(self, scores: Mapping[str, float], better: bool, seconds: float) -> None:
        """Write down what a validation found."""
        step = self.progress.step
        self._write({"step": step, "valid": dict(scores), "time": self.progress.seconds, "seconds": seconds})
        found = "   ".join(f"{name} {number(value)}" for name, value in scores.items())
        self.line(
            f"step {step:,}   validation   {found}{'   (best)' if better else ''}   {duration(seconds)}"
        )
        if time.perf_counter() - self._drawn > DRAW_EVERY:
            self.draw()
        self._begin()

    def size(self) -> int:
        """The length of metrics.jsonl, which a resumed run cuts it back to; waits until it is on the disk."""
        return self._metrics.sync()

    def draw(self) -> None:
        draw_curve(self.run.metrics, self.run.curve, self.settings.watch)
        self._drawn = time.perf_counter()

    def close(self) -> None:
        self._screen.close()
        if self._board is not None:
            self._board.close()
        self._metrics.close()
        self._log.close()

    def _begin(self) -> None:
        self._since = self._shown = time.perf_counter()
        self._sums, self._count = {}, 0

    def _now(self) -> dict[str, Any]:
        means = {name: value / max(self._count, 1) for name, value in self._sums.items()}
        speed = self._count / max(time.perf_counter() - self._since, 1e-9)
        return {
            "step": self.progress.step,
            **means,
            "tokens_per_second": round(speed, 1),
            "lr": self._rate,
            "grad_norm": self._norm,
            "epoch": (self.progress.position or {}).get("epoch", 0),
            "time": round(self.progress.seconds, 3),
        }

    def _write(self, point: dict[str, Any]) -> None:
        self._metrics.add(json.dumps(point))
        if self._board is not None:
            for name, value in {**point, **point.get("valid", {})}.items():
                if isinstance(value, (int, float)) and name != "step":
                    kind = "valid" if name in point.get("valid", {}) else "train"
                    self._board.add_scalar(f"{kind}/{name}", value, point["step"])

    def _words(self, point: dict[str, Any]) -> str:
        """A point in words, and the time that is left if all goes on as it went so far."""
        done, settings = self.progress, self.settings
        left = done.seconds / max(done.step, 1) * (settings.steps - done.step)
        if settings.minutes is not None:
            left = min(left, 60 * settings.minutes - done.seconds)
        return f"{in_words(point, settings.watch, done.best)}   {duration(max(left, 0.0))} left"


class Silent:
    """The report of a process that is not the first."""

    def line(self, text: str) -> None: ...
    def keep(self, text: str) -> None: ...
    def step(self, sums: Mapping[str, float], count: int, norm: float, rate: float) -> None: ...
    def point(self) -> None: ...
    def validation(self, scores: Mapping[str, float], better: bool, seconds: float) -> None: ...
    def size(self) -> int:
        return 0

    def draw(self) -> None: ...
    def close(self) -> None: ...


class Lines:
    """A text file that grows by lines; what is beyond `size` bytes at the start is cut off."""

    def __init__(self, path: Path, size: int | None = None):
        self.path = path
        with storage_errors(str(path)):
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
            if size is not None:
                self._file.truncate(min(size, self._file.tell()))

    def add(self, line: str) -> None:
        with storage_errors(str(self.path)):
            self._file.write(line.encode() + b"\n")

    def sync(self) -> int:
        with storage_errors(str(self.path)):
            os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()
