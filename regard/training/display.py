"""The display of a training: a progress bar in a terminal, plain lines elsewhere; number formats."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

__all__ = ["LogFn", "format_duration", "format_number", "format_point", "open_display"]

LogFn = Callable[[str], None]


def open_display(steps: int, step: int, log: LogFn | None) -> PlainDisplay | LiveDisplay:
    """A progress bar if standard error is a terminal, otherwise lines.

    Args:
        steps: last step of the training
        step: current step
        log: receives the lines instead of standard error
    """
    if log is not None:
        return PlainDisplay(steps, log)
    return LiveDisplay(steps, step) if sys.stderr.isatty() else PlainDisplay(steps, _print_to_stderr)


class PlainDisplay:
    """Prints lines."""

    def __init__(self, steps: int, log: LogFn):
        self.steps, self.print_line = steps, log

    def update_status(self, step: int, text: str) -> None:
        """Do nothing: lines are only printed for points of the metrics."""

    def print_point(self, step: int, text: str) -> None:
        """Print a point of the metrics."""
        self.print_line(f"step {step:,}/{self.steps:,}   {text}")

    def close(self) -> None:
        """Do nothing."""


class LiveDisplay:
    """A progress bar in the last line of the terminal; other lines scroll above it."""

    def __init__(self, steps: int, step: int):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar: Bar = Progress(*columns, console=Console(stderr=True, highlight=False), refresh_per_second=5)
        self._task = self._bar.add_task("", total=steps, completed=step)
        self._bar.start()

    def print_line(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, markup=False, emoji=False)

    def update_status(self, step: int, text: str) -> None:
        """Show a step and a text in the bar."""
        self._bar.update(self._task, completed=step, description=text)

    print_point = update_status  # log.txt has the lines

    def close(self) -> None:
        """Remove the bar."""
        self._bar.stop()


def format_point(point: dict[str, Any], monitor: str = "", best: float | None = None) -> str:
    """A point of the metrics as one line.

    Its loss is the plain cross entropy (nll) if the loss function reports it, as in a validation; the loss that is
    trained on may be smoothed or contain rewards.

    Args:
        point: a training point of metrics.jsonl
        monitor: name of the monitored metric
        best: its best value so far

    >>> format_point({"step": 1200, "loss": 3.25, "tokens_per_second": 4210.0, "lr": 0.0005, "grad_norm": 1.0})
    'loss 3.250   4,210 tokens/s   lr 0.0005'
    """
    parts = [
        f"loss {point.get('nll', point['loss']):.3f}",
        f"{point['tokens_per_second']:,.0f} tokens/s",
        f"lr {point['lr']:.3g}",
    ]
    if best is not None:
        parts.append(f"best {monitor} {format_number(best)}")
    return "   ".join(parts)


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
