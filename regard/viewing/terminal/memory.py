"""A memory over time, in characters: where it was written and read, and what went with that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.viewing import _arrays as check
from regard.viewing._arrays import max_pool
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

SIDE_GAP = 2  # columns between both sides


CURVE_HEIGHT = 3  # lines: a curve


BAR_LEVELS = " ▁▂▃▄▅▆▇█"


VectorsOverTime = Shaped[Tensor, "time width"]


def memory_timeline(
    *,
    writes: Shaped[Tensor, "time rows"] | None = None,
    reads: Shaped[Tensor, "time rows"] | None = None,
    inputs: Shaped[Tensor, "time inputs"] | None = None,
    outputs: Shaped[Tensor, "time outputs"] | None = None,
    wanted: Shaped[Tensor, "time outputs"] | None = None,
    asked: Bool[Tensor, " time"] | None = None,
    added: VectorsOverTime | None = None,
    returned: VectorsOverTime | None = None,
    rows: Sequence[int] | None = None,
    color: bool | None = None,
    width: int | None = None,
    height: int = 24,
) -> str:
    """Draw addresses over time: time runs to the right, the rows of the memory down.

    Above are the vectors of `pictures.memory`, a line for each of their numbers. Writing stands left of reading where
    there is room for both, and otherwise above it.

    >>> print(memory_timeline(writes=torch.eye(20), color=False, width=40))
    write weights, 20 steps, 20 rows
    ██
      ██
    ...
    blank 0, ░ up to 0.25, █ up to 1
    """
    told = {"inputs": inputs, "added": added, "outputs": outputs, "wanted": wanted, "returned": returned}
    known = build_sides({"write": writes, "read": reads}, told, asked)
    names = check.validate_labels("memory", "row", rows, known[0].weights.shape[1])
    color, room = is_color_enabled() if color is None else color, terminal_width(width)
    longest = max(len(side.weights) for side in known)
    half = (room - SIDE_GAP) // 2
    top = max(check.resolve_vmax("memory", None, side.weights) for side in known)
    paired = len(known) == 2 and longest <= half
    drawer = _PanelRenderer(longest, half if paired else room, height, color, top, names)
    if paired:
        levels = [drawer.render_level(known, level) for level in (*PANEL_ROWS, ("weights", "weights"))]
        lines = [line for left, right in levels for line in _join_sides(left, right, half)]
    else:
        kinds = [(side, kind) for side in known for kind in (*side.strips, "weights")]
        lines = [line for side, kind in kinds for line in drawer.render_panel(side, kind)]
    return "\n".join(fit_lines([*lines, render_legend(top, color)], room))


def _join_sides(left: list[str], right: list[str], side_width: int) -> list[str]:
    pairs = zip_longest(left, right, fillvalue="")
    return [before + " " * (side_width + SIDE_GAP - display_width(before)) + after for before, after in pairs]


class _PanelRenderer:
    """Panels that have one time axis: a step is as wide in all of them."""

    def __init__(
        self, num_steps: int, width: int, height: int, color: bool, vmax: float, row_labels: list[str] | None
    ) -> None:
        self.width, self.height, self.color, self.vmax, self.row_labels = (
            width,
            height,
            color,
            vmax,
            row_labels,
        )
        larger = min(MAX_CELL_WIDTH, width // num_steps)
        self.cell_width = larger - larger % 2 if larger >= 2 else 1
        self.column_ratio = min(1.0, width / num_steps)

    def render_level(
        self, sides: list[MemorySide], names: tuple[str | None, str]
    ) -> tuple[list[str], list[str]]:
        """The panels of both sides that stand beside each other."""
        return self.render_panel(sides[0], names[0]), self.render_panel(sides[1], names[1])

    def render_panel(self, side: MemorySide, name: str | None) -> list[str]:
        """The lines of one panel under its name; none if there is nothing."""
        if name == "weights":
            return [self._truncate_title(self._weights_title(side)), *self._render_weights(side.weights.T)]
        if name not in side.strips:
            return []
        strip = side.strips[name]
        if side.is_curve and name in TARGET_VECTORS:
            return [
                self._truncate_title(f"{name}, {strip.scale_label}"),
                *_render_curve(self._average_line(strip.masked_line), strip),
            ]
        return [self._truncate_title(f"{name}, {self._format_scale(strip)}"), *self._render_strip(strip)]

    def _weights_title(self, side: MemorySide) -> str:
        steps, rows = side.weights.shape
        named = f"{rows} rows" if self.row_labels is None else f"rows {_format_spans(self.row_labels)}"
        return f"{side.name} weights, {steps} steps, {named}"

    def _truncate_title(self, text: str) -> str:
        return truncate(text, self.width)

    def _format_scale(self, strip: MemoryStrip) -> str:
        if not strip.is_signed:
            return strip.scale_label
        ends = ("orange", "blue") if self.color else ("blank", SHADES[-1])
        return f"{ends[0]} {strip.value_range[0]:.2g} to {ends[1]} {strip.value_range[1]:.2g}"

    def _num_columns(self, num_steps: int) -> int:
        """The columns of so many steps."""
        return (
            num_steps * self.cell_width
            if self.column_ratio == 1
            else max(1, round(num_steps * self.column_ratio))
        )

    def _render_weights(self, array: Any) -> list[str]:
        rows, steps = array.shape
        taller = min(self.cell_width, 2 * self.height // rows)
        taller -= taller % 2
        if taller >= 2:
            array = array.repeat(taller, 0)
        array = max_pool(array.repeat(self.cell_width, 1), 2 * self.height, self._num_columns(steps))
        return render_shades(array, self.vmax, self.color)

    def _render_strip(self, strip: MemoryStrip) -> list[str]:
        values = _pool_by_magnitude(
            strip.masked_values.T.repeat(self.cell_width, 1), self._num_columns(len(strip.values))
        )
        panel = render_signed if strip.is_signed else render_non_negative
        return panel(values, strip.value_range[1], self.color)

    def _average_line(self, line: Any) -> list[float]:
        groups = np.array_split(line.repeat(self.cell_width), self._num_columns(len(line)))
        known = [group[~np.isnan(group)] for group in groups]
        return [float(group.mean()) if len(group) else float("nan") for group in known]


def _pool_by_magnitude(array: Any, columns: int) -> Any:
    """In so many columns: of neighbors that share one, the number that is farthest from 0."""
    above, under = (max_pool(np.maximum(sign * array, 0.0), len(array), columns) for sign in (1, -1))
    return np.where(under > above, -under, above)


def _render_curve(line: list[float], strip: MemoryStrip) -> list[str]:
    """A curve as bars: what is there and 0 still has the lowest."""
    low, top = strip.value_range
    steps = CURVE_HEIGHT * (len(BAR_LEVELS) - 1)
    levels = [0 if one != one else max(1, round((one - low) / (top - low) * steps)) for one in line]
    floors = [each * (len(BAR_LEVELS) - 1) for each in reversed(range(CURVE_HEIGHT))]
    return ["".join(BAR_LEVELS[min(max(level - floor, 0), 8)] for level in levels) for floor in floors]


def _format_spans(names: list[str]) -> str:
    """Neighbors as one: 6-7, 0-1, 3."""
    spans: list[tuple[int, int]] = []
    for number in map(int, names):
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
