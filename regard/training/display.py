"""What people see of a training: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

LogFn = Callable[[str], None]


def open_display(steps: int, step: int, log: LogFn | None) -> PlainDisplay | LiveDisplay:
    """A live display if standard error is a terminal and nobody else wants the lines."""
    if log is not None:
        return PlainDisplay(steps, log)
    return LiveDisplay(steps, step) if sys.stderr.isatty() else PlainDisplay(steps, _print_to_stderr)


class PlainDisplay:
    """Lines, one after the other."""

    def __init__(self, steps: int, log: LogFn):
        self.steps, self.print_line = steps, log

    def update_status(self, step: int, text: str) -> None:
        pass

    def print_point(self, step: int, text: str) -> None:
        self.print_line(f"step {step:,}/{self.steps:,}   {text}")

    def close(self) -> None:
        pass


class LiveDisplay:
    """A bar at the foot of the terminal; lines scroll away above it."""

    def __init__(self, steps: int, step: int):
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        columns = (BarColumn(20), MofNCompleteColumn(), TextColumn("{task.description}"))
        self._bar: Bar = Progress(
            *columns, console=Console(stderr=True, highlight=False), refresh_per_second=5
        )
        self._task = self._bar.add_task("", total=steps, completed=step)
        self._bar.start()

    def print_line(self, text: str) -> None:
        self._bar.console.print(text, markup=False, emoji=False)

    def update_status(self, step: int, text: str) -> None:
        self._bar.update(self._task, completed=step, description=text)

    print_point = update_status  # in a terminal it need not stay; log.txt has it

    def close(self) -> None:
        self._bar.stop()


def format_point(point: dict[str, Any], monitor: str = "", best: float | None = None) -> str:
    """A point of the metrics as people read it.

    The loss is the plain cross entropy where the objective counts it (nll), as in a validation; what is trained on may
    be smoothed, or rewarded.

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
    """A score with the digits that matter.

    >>> format_number(41.23456), format_number(0.98765), format_number(2)
    ('41.23', '0.9877', '2')
    """
    if value == round(value, 0) and abs(value) < 1e15:
        return f"{value:,.0f}"
    return f"{value:.2f}" if abs(value) >= 10 else f"{value:.4f}"


def format_duration(seconds: float) -> str:
    """Seconds as people say them.

    >>> format_duration(42), format_duration(754), format_duration(9000)
    ('42 s', '12 min 34 s', '2 h 30 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _print_to_stderr(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()
