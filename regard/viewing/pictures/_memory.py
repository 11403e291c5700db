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

GAP, LONGEST = 0.25, 4.0  # inches
Addresses = Shaped[Tensor, "time rows"]
Vectors = Shaped[Tensor, "time width"]


def memory(
    *,
    writes: Addresses | None = None,
    reads: Addresses | None = None,
    added: Vectors | None = None,
    returned: Vectors | None = None,
    title: str | None = None,
    dark: bool = False,
) -> Picture:
    """Draw addresses over time, writing left and reading right: time runs to the right, the rows of the memory down.

    `added` and `returned` are the vectors that were written and read, drawn above. `dark` is how Graves et al. (2014)
    draw it: light on black.

    >>> memory(writes=torch.eye(8)[:5], reads=torch.eye(8)[:5])
    Picture(... x ... pixels)
    """
    both = [*_side("write", writes, "added", added), *_side("read", reads, "returned", returned)]
    sides = [_Side(*one) for one in both]
    if not sides:
        raise ValueError("memory: give the weights of writing (writes=), of reading (reads=), or both.")
    check.same("memory", **{f"rows_of_{side.name}": side.weights.shape[1] for side in sides})
    top = max(check.top("memory", None, side.weights) for side in sides)
    wide = max(0 if side.vectors is None else side.vectors.shape[1] for side in sides)
    down, across = cell_sizes(
        sides[0].weights.shape[1], max(side.weights.shape[0] for side in sides), LONGEST
    )

    sheet, left = Sheet(dark), 0.0
    for number, side in enumerate(sides):
        image = side.draw(sheet, left, down, across, wide, top, first=number == 0)
        left += side.weights.shape[0] * across + GAP
    bar(
        sheet,
        image,
        left - GAP + 0.1,
        wide * down + (GAP if wide else 0),
        min(2.0, side.weights.shape[1] * down),
    )
    headline(sheet, title)
    return sheet.done()


def _side(name: str, weights: Tensor | None, kind: str, vectors: Tensor | None) -> list[Any]:
    """What is known of one side, in a list; an empty one if nothing is."""
    if weights is None and vectors is not None:
        raise ValueError(f"memory: {kind} needs the weights of the {name} head beside it.")
    return [] if weights is None else [(name, weights, kind, vectors)]


class _Side:
    """Writing or reading: weights over time, and the vectors that went in or came out."""

    def __init__(self, name: str, weights: Tensor, kind: str, vectors: Tensor | None) -> None:
        self.name, self.kind = name, kind
        self.weights = check.weights("memory", weights, "time rows")
        self.vectors: Any = None
        if vectors is not None:
            self.vectors = check.numbers("memory", vectors, "time width")
            check.same("memory", **{f"steps_of_{name}": len(weights), f"steps_of_{kind}": len(vectors)})

    def draw(
        self, sheet: Sheet, left: float, down: float, across: float, wide: int, top: float, first: bool
    ) -> Any:
        steps, rows = self.weights.shape
        start = wide * down + GAP if wide else 0.0
        if self.vectors is not None:
            self._draw_vectors(sheet.axes(left, 0, steps * across, self.vectors.shape[1] * down), sheet)
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

    def _draw_vectors(self, axes: Any, sheet: Sheet) -> None:
        largest = check.top("", None, np.abs(self.vectors))
        signed = check.largest(-self.vectors) > 0
        colors = SIGNED if signed else MORE if sheet.paper == "white" else MORE_LIGHT
        cells(axes, self.vectors.T, scale(colors), -largest if signed else 0.0, largest, lines=0)
        _look(axes, sheet, self.kind)


def _look(axes: Any, sheet: Sheet, name: str) -> None:
    no_labels(axes)
    title(axes, name, size=8, color=sheet.ink, pad=3)
