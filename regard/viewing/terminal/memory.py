"""An external memory over time as text."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import numpy as np

from regard.viewing import _arrays as arrays
from regard.viewing._memory_panels import PANEL_ROWS, TARGET_VECTORS, MemoryData, MemorySide, MemoryStrip
from regard.viewing._text import truncate
from regard.viewing.terminal import _screen as screen

__all__ = ["memory_timeline"]

SIDE_GAP = 2  # columns between the write and the read side
CURVE_HEIGHT = 3  # lines
BAR_LEVELS = " ▁▂▃▄▅▆▇█"


def memory_timeline(data: MemoryData, *, color: bool | None = None, width: int | None = None, height: int = 24) -> str:
    """Render the weights of a memory over time, with vectors above them.

    The write side is left of the read side if both fit, otherwise above it.

    Args:
        data: the weights and vectors
        color: use colors; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal
        height: the largest number of lines of the weights

    Example:
        >>> print(memory_timeline(MemoryData(write_weights=torch.eye(20)), color=False, width=40))
        write weights, 20 steps, 20 rows
        ██
          ██
        ...
        blank 0, ░ up to 0.25, █ up to 1
    """
    color, max_width = screen.resolve_options(color, width)
    half, sides = (max_width - SIDE_GAP) // 2, data.sides
    is_paired = len(sides) == 2 and data.num_steps <= half
    renderer = _PanelRenderer(data, half if is_paired else max_width, height, color)
    if is_paired:
        lines = []
        for names in (*PANEL_ROWS, ("weights", "weights")):
            panels = (renderer.render_panel(side, name) for side, name in zip(sides, names, strict=True))
            for left, right in zip_longest(*panels, fillvalue=""):
                lines.append(left + " " * (half + SIDE_GAP - screen.display_width(left)) + right)
    else:
        lines = [
            line for side in sides for name in (*side.strips, "weights") for line in renderer.render_panel(side, name)
        ]
    return "\n".join(screen.fit_lines([*lines, screen.render_legend(data.vmax, color)], max_width))


class _PanelRenderer:
    """Renders panels with one time axis: a step has the same width in all of them."""

    def __init__(self, data: MemoryData, width: int, height: int, color: bool) -> None:
        self.data, self.width, self.height, self.color = data, width, height, color
        cell_width = min(screen.MAX_CELL_WIDTH, width // data.num_steps)
        self.cell_width = cell_width - cell_width % 2 if cell_width >= 2 else 1
        self.column_ratio = min(1.0, width / data.num_steps)

    def render_panel(self, side: MemorySide, name: str | None) -> list[str]:
        """Render a panel below its title; no lines if the side does not have it."""
        if name == "weights":
            return [truncate(self._weights_title(side), self.width), *self._render_weights(side.weights.T)]
        if name not in side.strips:
            return []
        strip, title = side.strips[name], name.replace("_", " ")
        if side.is_curve and name in TARGET_VECTORS:
            line = self._average_line(strip.masked_line)
            return [truncate(f"{title}, {strip.scale_label}", self.width), *_render_curve(line, strip)]
        return [truncate(f"{title}, {self._format_scale(strip)}", self.width), *self._render_strip(strip)]

    def _weights_title(self, side: MemorySide) -> str:
        steps, rows = side.weights.shape
        labels = f"{rows} rows" if self.data.labels is None else f"rows {_format_spans(self.data.labels)}"
        return f"{side.name} weights, {steps} steps, {labels}"

    def _format_scale(self, strip: MemoryStrip) -> str:
        if not strip.is_signed:
            return strip.scale_label
        low, high = ("orange", "blue") if self.color else ("blank", screen.SHADES[-1])
        return f"{low} {strip.value_range[0]:.2g} to {high} {strip.value_range[1]:.2g}"

    def _num_columns(self, num_steps: int) -> int:
        return max(1, round(num_steps * self.cell_width * self.column_ratio))

    def _render_weights(self, array: Any) -> list[str]:
        rows, steps = array.shape
        cell_height = min(self.cell_width, 2 * self.height // rows)
        cell_height -= cell_height % 2
        if cell_height >= 2:
            array = array.repeat(cell_height, 0)
        array = arrays.max_pool(array.repeat(self.cell_width, 1), 2 * self.height, self._num_columns(steps))
        return screen.render_shades(array, self.data.vmax, self.color)

    def _render_strip(self, strip: MemoryStrip) -> list[str]:
        columns = strip.masked_values.T.repeat(self.cell_width, 1)
        values = _pool_by_magnitude(columns, self._num_columns(len(strip.values)))
        return screen.render_numbers(values, strip.value_range[1], self.color, strip.is_signed)

    def _average_line(self, line: Any) -> list[float]:
        groups = np.array_split(line.repeat(self.cell_width), self._num_columns(len(line)))
        valid = [group[~np.isnan(group)] for group in groups]
        return [float(group.mean()) if len(group) else float("nan") for group in valid]


def _pool_by_magnitude(array: Any, columns: int) -> Any:
    """Reduce the number of columns; of the numbers in one, keep that with the largest absolute value."""
    positive, negative = (arrays.max_pool(np.maximum(sign * array, 0.0), len(array), columns) for sign in (1, -1))
    return np.where(negative > positive, -negative, positive)


def _render_curve(line: list[float], strip: MemoryStrip) -> list[str]:
    """Render a curve as bars; NaN has no bar, and 0 the lowest."""
    low, high = strip.value_range
    levels_per_line = len(BAR_LEVELS) - 1
    num_levels = CURVE_HEIGHT * levels_per_line
    levels = [0 if value != value else max(1, round((value - low) / (high - low) * num_levels)) for value in line]
    floors = [i * levels_per_line for i in reversed(range(CURVE_HEIGHT))]
    return ["".join(BAR_LEVELS[min(max(level - floor, 0), 8)] for level in levels) for floor in floors]


def _format_spans(labels: list[str]) -> str:
    """Numbers with consecutive ones as spans: 6-7, 0-1, 3."""
    spans: list[tuple[int, int]] = []
    for number in map(int, labels):
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
