"""The records of a training: metrics.jsonl, log.txt, TensorBoard, the display in a terminal, the learning curve."""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard._imports import require_extra
from regard.files import storage_errors, write_atomic
from regard.training.config import TrainingConfig
from regard.training.run import Progress, RunFolder, read_points

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["AppendOnlyFile", "LogFn", "MetricsLogger", "NullLogger", "format_duration", "format_number", "plot_curve"]

LogFn = Callable[[str], None]

LOG_INTERVAL = 10.0  # seconds between points of the metrics
PLOT_INTERVAL = 60.0  # seconds between plots


class MetricsLogger:
    """Writes the metrics and the log of a run, and displays its progress.

    A point of the metrics is one JSON object per line: step, loss and the other sums of the loss function (means over
    the tokens since the last point), tokens_per_second, lr, grad_norm, epoch, train_seconds; or the metrics of a
    validation under "valid".

    Args:
        run: the folder of the run
        config: options of the training
        progress: updated by the training
        metrics_size: bytes of metrics.jsonl to keep; later points belong to steps that are trained again
        log: receives the lines instead of the terminal
    """

    def __init__(
        self, run: RunFolder, config: TrainingConfig, progress: Progress, metrics_size: int, log: LogFn | None
    ):
        self.run, self.config, self.progress = run, config, progress
        self._tensorboard: Any = None
        if config.tensorboard:
            require_extra("tensorboard", extra="tensorboard")  # the module below needs it
            tensorboard = require_extra("torch.utils.tensorboard", extra="tensorboard")
            self._tensorboard = tensorboard.SummaryWriter(run.folder / "tensorboard", purge_step=progress.step + 1)
        self._metrics_file = AppendOnlyFile(run.metrics, metrics_size)
        self._log_file = AppendOnlyFile(run.log)
        self._print_line = log or _print_to_stderr
        self._bar = _start_bar(config.steps, progress.step) if log is None and sys.stderr.isatty() else None
        if self._bar is not None:
            self._print_line = partial(self._bar.console.print, markup=False, emoji=False)  # above the bar
        self._plotted_at, self._grad_norm, self._lr = time.perf_counter(), 0.0, 0.0
        self._reset_window()
        if num_damaged := read_points(run.metrics)[1]:
            self.log_line(f"{run.metrics} has damaged lines, which the learning curve leaves out: {num_damaged:,}")

    def _reset_window(self) -> None:
        self._window_start = self._refreshed_at = time.perf_counter()
        self._sums: dict[str, float] = {}
        self._count = 0

    def log_line(self, text: str) -> None:
        """Print a line and write it to log.txt."""
        self.log_to_file(text)
        self._print_line(text)

    def log_to_file(self, text: str) -> None:
        """Write a line to log.txt only."""
        self._log_file.add(f"{time.strftime('%Y-%m-%d %H:%M:%S')}  {text}")

    def log_step(self, sums: Mapping[str, float], count: int, grad_norm: float, lr: float) -> None:
        """Add a step; every few seconds a point is written.

        Args:
            sums: loss and other metrics, summed over tokens
            count: number of tokens
            grad_norm: norm of the gradient before clipping
            lr: learning rate
        """
        for name, value in sums.items():
            self._sums[name] = self._sums.get(name, 0.0) + value
        self._count, self._grad_norm, self._lr = self._count + count, grad_norm, lr
        now = time.perf_counter()
        if now - self._window_start >= LOG_INTERVAL:
            self.flush_point()
        elif self._bar is not None and now - self._refreshed_at >= 0.2:
            self._refreshed_at = now
            line = self._format_line(self._current_point())
            self._bar.update(self._bar.task_ids[0], completed=self.progress.step, description=line)

    def flush_point(self) -> None:
        """Write a point for the steps since the last one."""
        if not self._count:
            return
        point = self._current_point()
        self._write_point(point)
        line = self._format_line(point)
        text = f"step {point['step']:,}/{self.config.steps:,}   {line}"
        self.log_to_file(text)
        if self._bar is None:
            self._print_line(text)
        else:
            self._bar.update(self._bar.task_ids[0], completed=point["step"], description=line)
        self._reset_window()

    def log_validation(self, scores: Mapping[str, float], is_best: bool, seconds: float) -> None:
        """Write the metrics of a validation.

        Args:
            scores: the metrics
            is_best: whether the monitored metric is the best so far
            seconds: time of the validation
        """
        step, valid = self.progress.step, dict(scores)
        self._write_point({"step": step, "valid": valid, "train_seconds": self.progress.seconds, "seconds": seconds})
        parts = [f"step {step:,}", "validation", *(f"{name} {format_number(value)}" for name, value in scores.items())]
        self.log_line("   ".join([*parts, *["(best)"] * is_best, format_duration(seconds)]))
        if time.perf_counter() - self._plotted_at > PLOT_INTERVAL:
            self.plot()
        self._reset_window()

    def sync_metrics(self) -> int:
        """Wait until metrics.jsonl is on the disk; returns its size, to which a resumed run truncates it."""
        return self._metrics_file.sync()

    def plot(self) -> None:
        """Plot the learning curve; a training does not end because that fails."""
        try:
            plot_curve(self.run.metrics, self.run.curve, self.config.monitor)
        except Exception as error:
            self.log_line(f"the learning curve could not be drawn: {error}")
        self._plotted_at = time.perf_counter()

    def close(self) -> None:
        """Close the display and all files."""
        if self._bar is not None:
            self._bar.stop()
        for file in (self._tensorboard, self._metrics_file, self._log_file):
            if file is not None:
                file.close()

    def _current_point(self) -> dict[str, Any]:
        means = {name: value / max(self._count, 1) for name, value in self._sums.items()}
        return {
            "step": self.progress.step,
            **means,
            "tokens_per_second": round(self._count / max(time.perf_counter() - self._window_start, 1e-9), 1),
            "lr": self._lr,
            "grad_norm": self._grad_norm,
            "epoch": (self.progress.data_position or {}).get("epoch", 0),
            "train_seconds": round(self.progress.seconds, 3),
        }

    def _write_point(self, point: dict[str, Any]) -> None:
        self._metrics_file.add(json.dumps(point))
        if self._tensorboard is not None:
            for name, value in {**point, **point.get("valid", {})}.items():
                if isinstance(value, (int, float)) and name != "step":
                    group = "valid" if name in point.get("valid", {}) else "train"
                    self._tensorboard.add_scalar(f"{group}/{name}", value, point["step"])

    def _format_line(self, point: dict[str, Any]) -> str:
        """A point as text, with the estimated remaining time.

        The loss is the plain cross entropy (nll) if the loss function reports it, as in a validation; the loss that is
        trained on may be smoothed or contain rewards.
        """
        progress, config = self.progress, self.config
        remaining = progress.seconds / max(progress.step, 1) * (config.steps - progress.step)
        if config.max_minutes is not None:
            remaining = min(remaining, 60 * config.max_minutes - progress.seconds)
        best = [] if progress.best is None else [f"best {config.monitor} {format_number(progress.best)}"]
        parts = [f"loss {point.get('nll', point['loss']):.3f}", f"{point['tokens_per_second']:,.0f} tokens/s"]
        parts += [f"lr {point['lr']:.3g}", *best, f"{format_duration(max(remaining, 0.0))} left"]
        return "   ".join(parts)


class NullLogger:
    """The logger of processes that write no files: every method does nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args: None


class AppendOnlyFile:
    """A text file that grows by lines.

    Args:
        path: the file; a part of a line at its end is removed
        max_bytes: if given, the file is first truncated to this size
    """

    def __init__(self, path: Path, max_bytes: int | None = None):
        self.path = path
        with storage_errors(str(path)):
            self._file = open(path, "ab+", buffering=0)  # noqa: SIM115
            size = self._file.tell()
            self._file.seek(0)
            content = self._file.read(size if max_bytes is None else max_bytes)
            if (complete := content.rfind(b"\n") + 1) < size:
                self._file.truncate(complete)

    def add(self, line: str) -> None:
        """Append a line."""
        with storage_errors(str(self.path)):
            size, remaining = os.fstat(self._file.fileno()).st_size, memoryview(line.encode() + b"\n")
            try:
                while remaining:  # a disk that is nearly full takes a part
                    remaining = remaining[self._file.write(remaining) :]
            except OSError:
                with contextlib.suppress(OSError):
                    self._file.truncate(size)
                raise

    def sync(self) -> int:
        """Wait until everything is on the disk; returns the size of the file."""
        with storage_errors(str(self.path)):
            os.fsync(self._file.fileno())
        return os.fstat(self._file.fileno()).st_size

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def plot_curve(metrics_path: Path, image_path: Path, monitor: str) -> bool:
    """Plot the loss and the monitored metric over steps.

    Args:
        metrics_path: metrics.jsonl
        image_path: the PNG to write
        monitor: name of the monitored metric

    Returns:
        Whether there is a plot; without matplotlib there is none.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return False
    points, _ = read_points(metrics_path)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    # nll, the plain cross entropy, is comparable with the loss of a validation
    train = [{**point, "loss": point.get("nll", point["loss"])} for point in points if "loss" in point]
    _plot_line(axes, train, "loss", "training loss", "C0")
    valid = [{"step": point["step"], **point["valid"]} for point in points if "valid" in point]
    if any("loss" in point for point in valid):
        _plot_line(axes, valid, "loss", "validation loss", "C1")
    axes.set(xlabel="step", ylabel="loss per token")
    if monitor != "loss":
        right_axes = axes.twinx()
        _plot_line(right_axes, valid, monitor, monitor, "C2")
        right_axes.set_ylabel(monitor)
    figure.legend(loc="outside upper center", ncols=3, frameon=False)  # above the lines
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=120)
    write_atomic(image_path, content.getvalue())
    return True


def _plot_line(axes: Any, points: list[dict[str, Any]], name: str, label: str, color: str) -> None:
    points = [point for point in points if name in point]
    axes.plot([p["step"] for p in points], [p[name] for p in points], label=label, color=color, marker=".", ms=3, lw=1)


def _start_bar(steps: int, step: int) -> Bar:
    """Display a progress bar in the last line of the terminal; other lines scroll above it."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, console=Console(stderr=True, highlight=False), refresh_per_second=5)
    bar.add_task("", total=steps, completed=step)
    bar.start()
    return bar


def format_number(value: float) -> str:
    """Format a metric with its significant digits.

    Args:
        value: the number

    >>> format_number(41.23456), format_number(0.98765), format_number(2)
    ('41.23', '0.9877', '2')
    """
    if value == round(value, 0) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"


def format_duration(seconds: float) -> str:
    """Format a duration in its two largest units.

    Args:
        seconds: the duration

    >>> format_duration(42), format_duration(754), format_duration(9000)
    ('42 s', '12 min 34 s', '2 h 30 min')
    """
    total = round(seconds)
    if total < 60:
        return f"{total} s"
    if total < 3600:
        return f"{total // 60} min {total % 60} s"
    return f"{total // 3600} h {total % 3600 // 60} min"


def _print_to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
