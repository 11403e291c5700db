"""The picture of a training: loss and score over steps.

What is written down of a training: metrics.jsonl, log.txt, TensorBoard, and the picture of the curve.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from regard._imports import require_extra
from regard.files import storage_errors, write_atomic
from regard.training.config import TrainingConfig
from regard.training.display import LogFn, format_duration, format_number, format_point, open_display
from regard.training.progress import Progress
from regard.training.run import RunFolder


def plot_curve(metrics_path: Path, image_path: Path, monitor: str) -> bool:
    """Draw the points of metrics.jsonl; without matplotlib there is no picture, and False."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    points = [json.loads(line) for line in metrics_path.read_text().splitlines()]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    trained = [{**point, "loss": point.get("nll", point["loss"])} for point in points if "loss" in point]
    _plot_line(
        axes, trained, "loss", "loss in training", "C0"
    )  # plain, as the validation's is, if it was counted
    valid = [{"step": point["step"], **point["valid"]} for point in points if "valid" in point]
    if any("loss" in point for point in valid):
        _plot_line(axes, valid, "loss", "loss in validation", "C1")
    axes.set(xlabel="step", ylabel="loss a token")
    if monitor != "loss":
        other = axes.twinx()
        _plot_line(other, valid, monitor, monitor, "C2")
        other.set_ylabel(monitor)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)  # no line runs through it there
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    write_atomic(image_path, content.getvalue())
    return True


def _plot_line(axes: Any, points: list[dict[str, Any]], name: str, label: str, color: str) -> None:
    some = [point for point in points if name in point]
    axes.plot(
        [p["step"] for p in some], [p[name] for p in some], label=label, color=color, marker=".", ms=3, lw=1
    )


LOG_INTERVAL = 10.0  # seconds between points of the metrics


PLOT_INTERVAL = 60.0  # seconds between pictures


class MetricsLogger:
    """Keeps the metrics and the log of a run, and shows how it stands.

    A point of the metrics is one JSON object a line: step, loss and whatever else the objective measures
    (means over the tokens since the last point), tokens_per_second, lr, grad_norm, time; or a validation's
    scores under "valid".
    """

    def __init__(
        self, run: RunFolder, config: TrainingConfig, progress: Progress, metrics_size: int, log: LogFn | None
    ):
        self.run, self.config, self.progress = run, config, progress
        self._tensorboard: Any = None
        if config.tensorboard:
            require_extra("tensorboard", extra="tensorboard")  # it is what torch's module below would miss
            board = import_module("torch.utils.tensorboard")
            self._tensorboard = board.SummaryWriter(run.folder / "tensorboard", purge_step=progress.step + 1)
        self._metrics_file, self._log_file = (
            AppendOnlyFile(run.metrics, metrics_size),
            AppendOnlyFile(run.log),
        )
        self._display = open_display(config.steps, progress.step, log)
        self._plotted_at = self._window_start = self._refreshed_at = time.perf_counter()
        self._sums: dict[str, float] = {}
        self._count, self._grad_norm, self._lr = 0, 0.0, 0.0
        self._reset_window()

    def log_line(self, text: str) -> None:
        """Say something, here and in log.txt."""
        self.log_to_file(text)
        self._display.print_line(text)

    def log_to_file(self, text: str) -> None:
        """Write something to log.txt only."""
        self._log_file.add(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}")

    def log_step(self, sums: Mapping[str, float], count: int, grad_norm: float, lr: float) -> None:
        """Count a step in; every few seconds this makes a point."""
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count, self._grad_norm, self._lr = self._count + count, grad_norm, lr
        now = time.perf_counter()
        if now - self._window_start >= LOG_INTERVAL:
            self.flush_point()
        elif now - self._refreshed_at >= 0.2:
            self._refreshed_at = now
            self._display.update_status(self.progress.step, self._format_line(self._current_point()))

    def flush_point(self) -> None:
        """Write down how training went since the last point."""
        if not self._count:
            return
        point, step = self._current_point(), self.progress.step
        self._write_point(point)
        words = self._format_line(point)
        self.log_to_file(f"step {step:,}/{self.config.steps:,}   {words}")
        self._display.print_point(step, words)
        self._reset_window()

    def log_validation(self, scores: Mapping[str, float], better: bool, seconds: float) -> None:
        """Write down what a validation found."""
        step = self.progress.step
        self._write_point(
            {"step": step, "valid": dict(scores), "time": self.progress.seconds, "seconds": seconds}
        )
        found = "   ".join(f"{name} {format_number(value)}" for name, value in scores.items())
        self.log_line(
            f"step {step:,}   validation   {found}{'   (best)' if better else ''}   {format_duration(seconds)}"
        )
        if time.perf_counter() - self._plotted_at > PLOT_INTERVAL:
            self.plot()
        self._reset_window()

    def sync_metrics(self) -> int:
        """The length of metrics.jsonl, which a resumed run cuts it back to; waits until it is on the disk."""
        return self._metrics_file.sync()

    def plot(self) -> None:
        plot_curve(self.run.metrics, self.run.curve, self.config.monitor)
        self._plotted_at = time.perf_counter()

    def close(self) -> None:
        self._display.close()
        if self._tensorboard is not None:
            self._tensorboard.close()
        self._metrics_file.close()
        self._log_file.close()

    def _reset_window(self) -> None:
        self._window_start = self._refreshed_at = time.perf_counter()
        self._sums, self._count = {}, 0

    def _current_point(self) -> dict[str, Any]:
        means = {name: value / max(self._count, 1) for name, value in self._sums.items()}
        speed = self._count / max(time.perf_counter() - self._window_start, 1e-9)
        return {
            "step": self.progress.step,
            **means,
            "tokens_per_second": round(speed, 1),
            "lr": self._lr,
            "grad_norm": self._grad_norm,
            "epoch": (self.progress.data_position or {}).get("epoch", 0),
            "time": round(self.progress.seconds, 3),
        }

    def _write_point(self, point: dict[str, Any]) -> None:
        self._metrics_file.add(json.dumps(point))
        if self._tensorboard is not None:
            for name, value in {**point, **point.get("valid", {})}.items():
                if isinstance(value, (int, float)) and name != "step":
                    kind = "valid" if name in point.get("valid", {}) else "train"
                    self._tensorboard.add_scalar(f"{kind}/{name}", value, point["step"])

    def _format_line(self, point: dict[str, Any]) -> str:
        """A point in words, and the time that is left if all goes on as it went so far."""
        done, settings = self.progress, self.config
        left = done.seconds / max(done.step, 1) * (settings.steps - done.step)
        if settings.max_minutes is not None:
            left = min(left, 60 * settings.max_minutes - done.seconds)
        return f"{format_point(point, settings.monitor, done.best)}   {format_duration(max(left, 0.0))} left"


class NullLogger:
    """The report of a process that is not the first."""

    def log_line(self, text: str) -> None: ...
    def log_to_file(self, text: str) -> None: ...
    def log_step(self, sums: Mapping[str, float], count: int, grad_norm: float, lr: float) -> None: ...
    def flush_point(self) -> None: ...
    def log_validation(self, scores: Mapping[str, float], better: bool, seconds: float) -> None: ...
    def sync_metrics(self) -> int:
        return 0

    def plot(self) -> None: ...
    def close(self) -> None: ...


class AppendOnlyFile:
    """A text file that grows by lines; what is beyond `size` bytes at the start is cut off."""

    def __init__(self, path: Path, max_bytes: int | None = None):
        self.path = path
        with storage_errors(str(path)):
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
            if max_bytes is not None:
                self._file.truncate(min(max_bytes, self._file.tell()))

    def add(self, line: str) -> None:
        with storage_errors(str(self.path)):
            self._file.write(line.encode() + b"\n")

    def sync(self) -> int:
        with storage_errors(str(self.path)):
            os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        self._file.close()
