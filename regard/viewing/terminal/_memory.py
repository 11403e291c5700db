"""A memory over time, in characters: where it was written and read, and what went with that."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.viewing import _check as check
from regard.viewing._letters import shortened
from regard.viewing._memory import ASKED, LEVELS, Side, Strip, sides
from regard.viewing._pooling import pooled
from regard.viewing.terminal._panel import LARGEST_CELL, plain_panel, shaded, signed_panel
from regard.viewing.terminal._screen import SHADES, columns_of, fitting, legend, seen_width, wants_color

GAP = 2  # columns between both sides
HIGH = 3  # lines: a curve
BARS = " ▁▂▃▄▅▆▇█"
Vectors = Shaped[Tensor, "time width"]


def memory(
    *,
    writes: Shaped[Tensor, "time rows"] | None = None,
    reads: Shaped[Tensor, "time rows"] | None = None,
    inputs: Shaped[Tensor, "time inputs"] | None = None,
    outputs: Shaped[Tensor, "time outputs"] | None = None,
    wanted: Shaped[Tensor, "time outputs"] | None = None,
    asked: Bool[Tensor, " time"] | None = None,
    added: Vectors | None = None,
    returned: Vectors | None = None,
    rows: Sequence[int] | None = None,
    color: bool | None = None,
    width: int | None = None,
    height: int = 24,
) -> str:
    """Draw addresses over time: time runs to the right, the rows of the memory down.

    Above are the vectors of `pictures.memory`, a line for each of their numbers. Writing stands left of reading where
    there is room for both, and otherwise above it.

    >>> print(memory(writes=torch.eye(20), color=False, width=40))
    write weights, 20 steps, 20 rows
    ██
      ██
    ...
    blank 0, ░ up to 0.25, █ up to 1
    """
    told = {"inputs": inputs, "added": added, "outputs": outputs, "wanted": wanted, "returned": returned}
    known = sides({"write": writes, "read": reads}, told, asked)
    names = check.labels("memory", "row", rows, known[0].weights.shape[1])
    color, room = wants_color() if color is None else color, columns_of(width)
    longest = max(len(side.weights) for side in known)
    half = (room - GAP) // 2
    top = max(check.top("memory", None, side.weights) for side in known)
    paired = len(known) == 2 and longest <= half
    drawer = _Drawer(longest, half if paired else room, height, color, top, names)
    if paired:
        levels = [drawer.level(known, level) for level in (*LEVELS, ("weights", "weights"))]
        lines = [line for left, right in levels for line in _beside(left, right, half)]
    else:
        kinds = [(side, kind) for side in known for kind in (*side.strips, "weights")]
        lines = [line for side, kind in kinds for line in drawer.panel(side, kind)]
    return "\n".join(fitting([*lines, legend(top, color)], room))


def _beside(left: list[str], right: list[str], half: int) -> list[str]:
    pairs = zip_longest(left, right, fillvalue="")
    return [before + " " * (half + GAP - seen_width(before)) + after for before, after in pairs]


class _Drawer:
    """Panels that have one time axis: a step is as wide in all of them."""

    def __init__(
        self, longest: int, columns: int, height: int, color: bool, top: float, names: list[str] | None
    ) -> None:
        self.columns, self.height, self.color, self.top, self.names = columns, height, color, top, names
        larger = min(LARGEST_CELL, columns // longest)
        self.larger = larger - larger % 2 if larger >= 2 else 1
        self.share = min(1.0, columns / longest)

    def level(self, known: list[Side], kinds: tuple[str | None, str]) -> tuple[list[str], list[str]]:
        """The panels of both sides that stand beside each other."""
        return self.panel(known[0], kinds[0]), self.panel(known[1], kinds[1])

    def panel(self, side: Side, kind: str | None) -> list[str]:
        """The lines of one panel under its name; none if there is nothing."""
        if kind == "weights":
            return [self._fitting(self._name(side)), *self._weights(side.weights.T)]
        if kind not in side.strips:
            return []
        strip = side.strips[kind]
        if side.is_curve and kind in ASKED:
            return [self._fitting(f"{kind}, {strip.scale}"), *_heights(self._averaged(strip.line), strip)]
        return [self._fitting(f"{kind}, {self._scale(strip)}"), *self._strip(strip)]

    def _name(self, side: Side) -> str:
        steps, rows = side.weights.shape
        named = f"{rows} rows" if self.names is None else f"rows {_spans(self.names)}"
        return f"{side.name} weights, {steps} steps, {named}"

    def _fitting(self, text: str) -> str:
        return shortened(text, self.columns)

    def _scale(self, strip: Strip) -> str:
        if not strip.signed:
            return strip.scale
        ends = ("orange", "blue") if self.color else ("blank", SHADES[-1])
        return f"{ends[0]} {strip.ends[0]:.2g} to {ends[1]} {strip.ends[1]:.2g}"

    def _across(self, steps: int) -> int:
        """The columns of so many steps."""
        return steps * self.larger if self.share == 1 else max(1, round(steps * self.share))

    def _weights(self, array: Any) -> list[str]:
        rows, steps = array.shape
        taller = min(self.larger, 2 * self.height // rows)
        taller -= taller % 2
        if taller >= 2:
            array = array.repeat(taller, 0)
        array = pooled(array.repeat(self.larger, 1), 2 * self.height, self._across(steps))
        return shaded(array, self.top, self.color)

    def _strip(self, strip: Strip) -> list[str]:
        values = _farthest(strip.shown.T.repeat(self.larger, 1), self._across(len(strip.values)))
        panel = signed_panel if strip.signed else plain_panel
        return panel(values, strip.ends[1], self.color)

    def _averaged(self, line: Any) -> list[float]:
        groups = np.array_split(line.repeat(self.larger), self._across(len(line)))
        known = [group[~np.isnan(group)] for group in groups]
        return [float(group.mean()) if len(group) else float("nan") for group in known]


def _farthest(array: Any, columns: int) -> Any:
    """In so many columns: of neighbors that share one, the number that is farthest from 0."""
    above, under = (pooled(np.maximum(sign * array, 0.0), len(array), columns) for sign in (1, -1))
    return np.where(under > above, -under, above)


def _heights(line: list[float], strip: Strip) -> list[str]:
    """A curve as bars: what is there and 0 still has the lowest."""
    low, top = strip.ends
    steps = HIGH * (len(BARS) - 1)
    levels = [0 if one != one else max(1, round((one - low) / (top - low) * steps)) for one in line]
    floors = [each * (len(BARS) - 1) for each in reversed(range(HIGH))]
    return ["".join(BARS[min(max(level - floor, 0), 8)] for level in levels) for floor in floors]


def _spans(names: list[str]) -> str:
    """Neighbors as one: 6-7, 0-1, 3."""
    spans: list[tuple[int, int]] = []
    for number in map(int, names):
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = (spans[-1][0], number)
        else:
            spans.append((number, number))
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans)
