"""All heads of all layers beside each other, on one scale."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jaxtyping import Shaped
from torch import Tensor

from regard._imports import require_extra
from regard.viewing import _check as check
from regard.viewing._letters import shortened
from regard.viewing.pictures._colors import MORE, scale
from regard.viewing.pictures._labels import (
    LETTER,
    SMALL,
    Names,
    headline,
    literally,
    no_labels,
    on_left,
    on_top,
    visible,
)
from regard.viewing.pictures._matrix import Place, bar, cells, legend, not_numbers
from regard.viewing.pictures._picture import Picture
from regard.viewing.pictures._sheet import INK, Sheet, whole

GAP = 0.07  # inches
LARGEST, SMALLEST = 1.7, 0.45  # inches: the longer side of a panel
PAGE, MOST = 9.0, 16.0  # inches: how wide the sheet should be; how large it may become
LINE = 1.2 * SMALL / 72  # inches: what a label needs


def heads(
    weights: Shaped[Tensor, "layers heads queries keys"],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    layers: Sequence[object] | None = None,
    heads: Sequence[object] | None = None,
    title: str | None = None,
    top: float | None = None,
) -> Picture:
    """Draw every head of every layer: layers from top to bottom, heads from left to right, one scale for all.

    `layers` and `heads` are their numbers or names, by default counted from 0. Labels of queries and keys are written
    where there is room.

    >>> heads(torch.eye(5).expand(2, 4, 5, 5))
    Picture(... x ... pixels)
    """
    array = check.weights("heads", weights, "layers heads queries keys")
    depth, many, queries, keys = array.shape
    names = check.labels("heads", "row", rows, queries), check.labels("heads", "column", columns, keys)
    sides = (
        _named("layer", check.labels("heads", "layer", layers, depth), depth),
        _named("head", check.labels("heads", "head", heads, many), many),
    )
    wrapped = many if depth > 1 else _wrapped(many)
    lines = math.ceil(depth * many / wrapped)
    gaps = (GAP if wrapped == many else GAP + 0.2, GAP)
    room = min(MOST / lines - gaps[0], MOST / wrapped - gaps[1])
    size = _size(queries, keys, min(PAGE / wrapped - GAP, LARGEST), max(room, 0.02), labelled=any(names))
    tops, lefts = ([i * (size[k] + gaps[k]) for i in range((lines, wrapped)[k])] for k in (0, 1))

    # One pair of axes for all, counting in inches: an axes for each head would take seconds.
    sheet, largest = Sheet(), check.top("heads", top, array)
    axes = sheet.axes(0, 0, lefts[-1] + size[1], tops[-1] + size[0])
    frames = []
    for number, matrix in enumerate(array.reshape(-1, queries, keys)):
        place = (tops[number // wrapped], lefts[number % wrapped], *size)
        image = cells(axes, matrix, scale(MORE), 0.0, largest, at=place)
        frames.append(place)
    _frame(axes, frames)
    _label(axes, names, size, tops, lefts)
    _name(sheet, axes, sides, frames, each=wrapped != many)
    legend(axes, not_numbers(array))
    bar(sheet, image, lefts[-1] + size[1] + 0.1, 0, max(0.6, min(2.0, lefts[-1] + size[1], 2 * size[0])))
    headline(sheet, title)
    return sheet.done()


def _wrapped(many: int) -> int:
    """In how many columns to put the heads of one layer, if possible without a gap at the end."""
    least = many if many <= 6 else math.ceil(math.sqrt(many))
    return next((count for count in range(least, 9) if many % count == 0), least)


def _size(queries: int, keys: int, fine: float, most: float, labelled: bool) -> tuple[float, float]:
    """Height and width of a panel: in the proportion of the matrix, but never thinner than 1 to 3.

    A side of `fine` inches would be fine; there is room for `most`.
    """
    longer = max(queries, keys)
    side = max(fine, SMALLEST)
    if labelled and longer * LINE <= LARGEST:
        side = max(side, longer * LINE + 0.01)
    side = min(side, most)
    return whole(side * max(queries / longer, 1 / 3)), whole(side * max(keys / longer, 1 / 3))


def _named(kind: str, given: list[str] | None, count: int) -> list[str]:
    return [f"{kind} {name}" if str(name).isdigit() else name for name in given or map(str, range(count))]


def _frame(axes: Any, frames: list[Place]) -> None:
    """Thin frames around the matrices, in axes that end where they end."""
    patches, collections = (
        require_extra(f"matplotlib.{name}", extra="draw") for name in ("patches", "collections")
    )
    boxes = [patches.Rectangle((left, top), across, down) for top, left, down, across in frames]
    look = {"facecolor": "none", "edgecolor": INK, "linewidth": 0.4, "clip_on": False}
    axes.add_collection(collections.PatchCollection(boxes, **look))
    axes.spines[:].set_visible(False)
    axes.set_xlim(0, max(left + across for _, left, _, across in frames))
    axes.set_ylim(max(top + down for top, _, down, _ in frames), 0)


def _label(axes: Any, names: Names, size: tuple[float, float], tops: list[float], lefts: list[float]) -> None:
    no_labels(axes)
    rows, columns = names
    if rows and size[0] / len(rows) >= LINE:
        on_left(axes, rows, len(rows), size[0] / len(rows), tops)
    if columns and size[1] / len(columns) >= LINE:
        on_top(axes, columns, len(columns), size[1] / len(columns), lefts)


def _name(
    sheet: Sheet, axes: Any, sides: tuple[list[str], list[str]], frames: list[Place], each: bool
) -> None:
    """Which layer and head it is: at the edges of the sheet, or above each panel if one layer is wrapped."""
    edge = axes.get_tightbbox(sheet.figure.canvas.get_renderer())
    corner = axes.transData.inverted().transform((edge.x0, edge.y1))
    left_edge, top_edge = min(0.0, corner[0]), min(0.0, corner[1])
    room = max(8, int(72 * min(frames[0][2:]) / (7 * LETTER)))  # columns that a name may have in 7 points
    texts, how = literally(*(shortened(visible(name), room) for name in (*sides[0], *sides[1])))
    how |= {"fontsize": 7, "color": INK}
    layers, heads = texts[: len(sides[0])], texts[len(sides[0]) :]
    for name, (top, left, _, across) in zip(heads, frames, strict=False):
        place = (left + across / 2, (top_edge if top == 0 else top) - 0.04)
        axes.text(*place, name, ha="center", va="bottom", **how)
    for number, name in enumerate(() if each else layers):
        top, _, down, _ = frames[number * len(heads)]
        place = (left_edge - 0.06, top + down / 2)
        axes.text(*place, name, ha="right", va="center", rotation=90, **how)
