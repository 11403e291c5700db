"""Who looks at whom: a matrix of weights between two sentences."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard._imports import require_extra
from regard.errors import UsageError
from regard.viewing import _check as check
from regard.viewing.pictures._colors import MORE, OTHER, ink_on, scale
from regard.viewing.pictures._labels import both_sides
from regard.viewing.pictures._labels import title as headed
from regard.viewing.pictures._matrix import bar, cells, legend, not_numbers
from regard.viewing.pictures._picture import Picture
from regard.viewing.pictures._sheet import Sheet, cell_sizes

FEW_CELLS = 144  # up to so many, each has room for its number
Links = Iterable[tuple[int, int]]


def heat(
    weights: Shaped[Tensor, "queries keys"],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    title: str | None = None,
    top: float | None = None,
    sure: Links = (),
    possible: Links = (),
    values: bool | None = None,
) -> Picture:
    """Draw weights as cells: the darker, the more regard; white is 0.

    `rows` and `columns` are labels, such as the words looked from and at. `top` is the weight with the darkest
    color, by default the largest. `sure` and `possible` are links (column, row) to outline, as in the `Gold` of an
    alignment. The numbers are written into the cells if there are few, or as `values` says.

    >>> heat(torch.eye(2), rows=["the", "cat"], columns=["le", "chat"])
    Picture(... x ... pixels)
    """
    array = check.weights("heat", weights, "queries keys")
    queries, keys = array.shape
    names = check.labels("heat", "row", rows, queries), check.labels("heat", "column", columns, keys)
    outlined = _links(sure, queries, keys), _links(possible, queries, keys)

    sheet, (down, across) = Sheet(), cell_sizes(queries, keys)
    axes = sheet.axes(0, 0, keys * across, queries * down)
    image = cells(axes, array, scale(MORE), 0.0, check.top("heat", top, array))
    both_sides(axes, names, (queries, keys), (down, across))
    headed(axes, title)
    if array.size <= FEW_CELLS if values is None else values:
        _write(axes, array, image)
    legend(axes, [*_outline(axes, *outlined), *not_numbers(array)])
    bar(sheet, image, keys * across + 0.1, 0, min(2.0, queries * down))
    return sheet.done()


def _write(axes: Any, array: Any, image: Any) -> None:
    """The number of each cell, in an ink that reads on its color; nothing where it would be 0.00."""
    for (i, j), weight in np.ndenumerate(array):
        if weight >= 0.005:
            ink = ink_on(image.cmap(image.norm(weight)))
            axes.text(j, i, f"{weight:.2f}", ha="center", va="center", fontsize=6.5, color=ink)


def _links(links: Links, queries: int, keys: int) -> set[tuple[int, int]]:
    found = {(int(j), int(i)) for j, i in links}
    for j, i in sorted(found):
        if not (0 <= j < keys and 0 <= i < queries):
            raise UsageError(f"heat: link ({j}, {i}) is outside of {keys} columns and {queries} rows.")
    return found


def _outline(axes: Any, sure: set[tuple[int, int]], possible: set[tuple[int, int]]) -> list[Any]:
    """Frames around the linked cells; gives their lines of the legend."""
    rectangle = require_extra("matplotlib.patches", extra="draw").Rectangle
    shown = []
    for name, style, links in (("sure", "-", sure), ("possible", (0, (2, 1.5)), possible - sure)):
        look: dict[str, Any] = {"fill": False, "edgecolor": OTHER, "linewidth": 1.3, "linestyle": style}
        for j, i in sorted(links):
            axes.add_patch(rectangle((j - 0.42, i - 0.42), 0.84, 0.84, **look))
        shown += [rectangle((0, 0), 1, 1, label=name, **look)] if links else []
    return shown
