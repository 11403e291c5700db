"""An external memory over time as text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.viewing import _arrays as arrays
from regard.viewing._memory_panels import PANEL_ROWS, TARGET_VECTORS, MemorySide, MemoryStrip, build_sides
from regard.viewing._text import truncate
from regard.viewing.terminal.screen import (
    MAX_CELL_WIDTH,
    SHADES,
    display_width,
    fit_lines,
    is_color_enabled,
    render_legend,
    render_non_negative,
    render_shades,
    render_signed,
    terminal_width,
)

__all__ = ["memory_timeline"]

SIDE_GAP = 2  # columns between the write and the read side
CURVE_HEIGHT = 3  # lines
BAR_LEVELS = " ▁▂▃▄▅▆▇█"
VectorsOverTime = Shaped[Tensor, "steps size"]


def memory_timeline(
    *,
    write_weights: Shaped[Tensor, "steps rows"] | None = None,
    read_weights: Shaped[Tensor, "steps rows"] | None = None,
    inputs: Shaped[Tensor, "steps inputs"] | None = None,
    outputs: Shaped[Tensor, "steps outputs"] | None = None,
    targets: Shaped[Tensor, "steps outputs"] | None = None,
    target_mask: Bool[Tensor, " steps"] | None = None,
    add_vectors: VectorsOverTime | None = None,
    read_vectors: VectorsOverTime | None = None,
    row_labels: Sequence[int] | None = None,
    color: bool | None = None,
    width: int | None = None,
    height: int = 24,
) -> str:
    """Render the weights of a memory over time, with vectors above them.

    The write side is left of the read side if both fit, otherwise above it.

    Args:
        write_weights: the weights of a write head
        read_weights: the weights of a read head
        inputs: the input vectors
        outputs: the output vectors
        targets: the target outputs
        target_mask: the steps with a target; outputs at other steps are not drawn
        add_vectors: the vectors added to the memory
        read_vectors: the vectors read from the memory
        row_labels: the numbers of the rows, if they are a part of the memory
        color: use colors; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal
        height: the largest number of lines of the weights

    Shape:
        weights (steps, rows), vectors (steps, size), target_mask (steps,)

    Example:
        >>> print(memory_timeline(write_weights=torch.eye(20), color=False, width=40))
        write weights, 20 steps, 20 rows
        ██
          ██
        ...
        blank 0, ░ up to 0.25, █ up to 1
    """
    vectors = {
        "inputs": inputs,
        "add_vectors": add_vectors,
        "outputs": outputs,
        "targets": targets,
        "read_vectors": read_vectors,
    }
    sides = build_sides({"write": write_weights, "read": read_weights}, vectors, target_mask)
    labels = arrays.validate_labels("memory_timeline", "row", row_labels, sides[0].weights.shape[1])
    color, max_width = is_color_enabled() if color is None else color, terminal_width(width)
    num_steps = max(len(side.weights) for side in sides)
    half = (max_width - SIDE_GAP) // 2
    vmax = max(arrays.resolve_vmax("memory_timeline", None, side.weights) for side in sides)
    is_paired = len(sides) == 2 and num_steps <= half
    renderer = _PanelRenderer(num_steps, half if is_paired else max_width, height, color, vmax, labels)
    if is_paired:
        levels = [renderer.render_level(sides, names) for names in (*PANEL_ROWS, ("weights", "weights"))]
        lines = [line for left, right in levels for line in _join_sides(left, right, half)]
    else:
        panels = [(side, name) for side in sides for name in (*side.strips, "weights")]
        lines = [line for side, name in panels for line in renderer.render_panel(side, name)]
    return "\n".join(fit_lines([*lines, render_legend(vmax, color)], max_width))


def _join_sides(left: list[str], right: list[str], side_width: int) -> list[str]:
    pairs = zip_longest(left, right, fillvalue="")
    return [a + " " * (side_width + SIDE_GAP - display_width(a)) + b for a, b in pairs]


class _PanelRenderer:
    """Renders panels with one time axis: a step has the same width in all of them."""

    def __init__(
        self, num_steps: int, width: int, height: int, color: bool, vmax: float, row_labels: list[str] | None
    ) -> None:
        self.width, self.height, self.color, self.vmax, self.row_labels = (width, height, color, vmax, row_labels)
        cell_width = min(MAX_CELL_WIDTH, width // num_steps)
        self.cell_width = cell_width - cell_width % 2 if cell_width >= 2 else 1
        self.column_ratio = min(1.0, width / num_steps)

    def render_level(self, sides: list[MemorySide], names: tuple[str | None, str]) -> tuple[list[str], list[str]]:
        """Render the panels of both sides that stand next to each other."""
        return self.render_panel(sides[0], names[0]), self.render_panel(sides[1], names[1])

    def render_panel(self, side: MemorySide, name: str | None) -> list[str]:
        """Render a panel below its title; no lines if the side does not have it."""
        if name == "weights":
            return [self._truncate_title(self._weights_title(side)), *self._render_weights(side.weights.T)]
        if name not in side.strips:
            return []
        strip, title = side.strips[name], name.replace("_", " ")
        if side.is_curve and name in TARGET_VECTORS:
            line = self._average_line(strip.masked_line)
            return [self._truncate_title(f"{title}, {strip.scale_label}"), *_render_curve(line, strip)]
        return [self._truncate_title(f"{title}, {self._format_scale(strip)}"), *self._render_strip(strip)]

    def _weights_title(self, side: MemorySide) -> str:
        steps, rows = side.weights.shape
        labels = f"{rows} rows" if self.row_labels is None else f"rows {_format_spans(self.row_labels)}"
        return f"{side.name} weights, {steps} steps, {labels}"

    def _truncate_title(self, text: str) -> str:
        return truncate(text, self.width)

    def _format_scale(self, strip: MemoryStrip) -> str:
        if not strip.is_signed:
            return strip.scale_label
        low, high = ("orange", "blue") if self.color else ("blank", SHADES[-1])
        return f"{low} {strip.value_range[0]:.2g} to {high} {strip.value_range[1]:.2g}"

    def _num_columns(self, num_steps: int) -> int:
        if self.column_ratio == 1:
            return num_steps * self.cell_width
        return max(1, round(num_steps * self.column_ratio))

    def _render_weights(self, array: Any) -> list[str]:
        rows, steps = array.shape
        cell_height = min(self.cell_width, 2 * self.height // rows)
        cell_height -= cell_height % 2
        if cell_height >= 2:
            array = array.repeat(cell_height, 0)
        array = arrays.max_pool(array.repeat(self.cell_width, 1), 2 * self.height, self._num_columns(steps))
        return render_shades(array, self.vmax, self.color)

    def _render_strip(self, strip: MemoryStrip) -> list[str]:
        columns = strip.masked_values.T.repeat(self.cell_width, 1)
        values = _pool_by_magnitude(columns, self._num_columns(len(strip.values)))
        render = render_signed if strip.is_signed else render_non_negative
        return render(values, strip.value_range[1], self.color)

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
