"""Where a memory was written and read, over time."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard.viewing import _check as check
from regard.viewing.pictures._colors import MORE, MORE_LIGHT, SIGNED, scale
from regard.viewing.pictures._labels import below, headline, no_labels, on_left, title
from regard.viewing.pictures._matrix import bar, cells, legend, not_numbers
from regard.viewing.pictures._picture import Picture
from regard.viewing.pictures._sheet import Sheet, cell_sizes

GAP, LONGEST, LEAST = 0.25, 4.0, 0.06  # inches: between panels, the longest side of one, a number of a vector
BESIDE = "beside wanted"  # where the other side has something, and this one nothing
Addresses = Shaped[Tensor, "time rows"]
Vectors = Shaped[Tensor, "time width"]


def memory(
    *,
    writes: Addresses | None = None,
    reads: Addresses | None = None,
    inputs: Shaped[Tensor, "time inputs"] | None = None,
    outputs: Shaped[Tensor, "time outputs"] | None = None,
    wanted: Shaped[Tensor, "time outputs"] | None = None,
    added: Vectors | None = None,
    returned: Vectors | None = None,
    title: str | None = None,
    dark: bool = False,
) -> Picture:
    """Draw addresses over time, writing left and reading right: time runs to the right, the rows of the memory down.

    Above are vectors: what came in and what was `added` to the memory; what went out, what was `wanted`, and what the
    memory `returned`.
    `dark` is how Graves et al. (2014) draw it: light on black.

    >>> memory(writes=torch.eye(8)[:5], reads=torch.eye(8)[:5], inputs=torch.rand(5, 3))
    Picture(... x ... pixels)
    """
    writing = _side("write", writes, {"inputs": inputs, BESIDE: None, "added": added})
    reading = _side("read", reads, {"outputs": outputs, "wanted": wanted, "returned": returned})
    sides = [side for side in (writing, reading) if side is not None]
    if not sides:
        raise ValueError("memory: give the weights of writing (writes=), of reading (reads=), or both.")
    check.same("memory", **{f"rows_of_{side.name}": side.weights.shape[1] for side in sides})
    top = max(check.top("memory", None, side.weights) for side in sides)
    rows, steps = sides[0].weights.shape[1], max(side.weights.shape[0] for side in sides)
    down, across = cell_sizes(rows, steps, LONGEST)

    sheet, left, start = Sheet(dark), 0.0, 0.0
    each = max(down, LEAST)
    for level in range(max(len(side.vectors) for side in sides)):
        wide = max(side.width(level) for side in sides)
        for place, side in enumerate(sides):
            side.draw_vectors(sheet, level, place * (steps * across + GAP), start, each, across)
        start += wide * each + GAP if wide else 0.0
    for number, side in enumerate(sides):
        image = side.draw(sheet, left, start, down, across, top, first=number == 0)
        left += steps * across + GAP
    bar(sheet, image, left - GAP + 0.1, start, min(2.0, rows * down))
    headline(sheet, title)
    return sheet.done()


def _side(name: str, weights: Tensor | None, vectors: dict[str, Tensor | None]) -> _Side | None:
    """What is known of one side; None if nothing is."""
    if weights is not None:
        return _Side(name, weights, vectors)
    if given := [kind for kind, told in vectors.items() if told is not None]:
        raise ValueError(f"memory: {given[0]} needs the weights of the {name} head beside it.")
    return None


class _Side:
    """Writing or reading: weights over time, and the vectors that go with them, from top to bottom."""

    def __init__(self, name: str, weights: Tensor, vectors: dict[str, Tensor | None]) -> None:
        self.name = name
        self.weights = check.weights("memory", weights, "time rows")
        self.vectors: list[tuple[str, Any]] = []
        for kind, told in vectors.items():
            if told is not None:
                check.same("memory", **{f"steps_of_{name}": len(weights), f"steps_of_{kind}": len(told)})
            self.vectors.append((kind, None if told is None else check.numbers("memory", told, "time width")))

    def width(self, level: int) -> int:
        """How many numbers the vectors of a level have."""
        told = self.vectors[level][1]
        return 0 if told is None else told.shape[1]

    def draw(
        self, sheet: Sheet, left: float, start: float, down: float, across: float, top: float, first: bool
    ) -> Any:
        steps, rows = self.weights.shape
        axes = sheet.axes(left, start, steps * across, rows * down)
        colors = MORE if sheet.paper == "white" else MORE_LIGHT
        image = cells(axes, self.weights.T, scale(colors), 0.0, top, lines=0)
        _look(axes, sheet, f"{self.name} weights")
        if first:
            on_left(axes, None, rows, down)
            axes.set_ylabel("row", fontsize=8)
        below(axes, steps, across)
        axes.set_xlabel("time", fontsize=8)
        legend(axes, not_numbers(self.weights))
        return image

    def draw_vectors(
        self, sheet: Sheet, level: int, left: float, start: float, down: float, across: float
    ) -> None:
        kind, told = self.vectors[level]
        if told is None:
            return
        axes = sheet.axes(left, start, len(told) * across, told.shape[1] * down)
        largest = check.top("", None, np.abs(told))
        signed = check.largest(-told) > 0
        colors = SIGNED if signed else MORE if sheet.paper == "white" else MORE_LIGHT
        cells(axes, told.T, scale(colors), -largest if signed else 0.0, largest, lines=0)
        _look(axes, sheet, kind)


def _look(axes: Any, sheet: Sheet, name: str) -> None:
    no_labels(axes)
    title(axes, name, size=8, color=sheet.ink, pad=3)
