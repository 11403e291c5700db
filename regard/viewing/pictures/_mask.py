"""Who may be looked at: a mask as dark cells where a query may look, light ones where it may not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jaxtyping import Bool
from torch import Tensor

from regard.attention import Mask
from regard.viewing import _check as check
from regard.viewing._masks import rule_of, shown_cells
from regard.viewing.pictures._colors import MORE, scale
from regard.viewing.pictures._labels import Names, both_sides, headline, no_labels, title
from regard.viewing.pictures._matrix import cells
from regard.viewing.pictures._picture import Picture
from regard.viewing.pictures._sheet import LONGEST_SIDE, Sheet, cell_sizes

MOST = 16  # masks of a batch
LONGEST = 5.0  # inches: where there are no words to write
DARK = 1.6  # of the scale's end: visible cells are dark, but not black


def mask(
    mask: Mask | Bool[Tensor, "*batch queries keys"],
    queries: int | None = None,
    keys: int | None = None,
    *,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    title: str | None = None,
) -> Picture:
    """Draw a mask, named by its rule: dark where a query may look at a key.

    A rule needs to know how many `queries` and `keys` there are; a tensor tells by its shape. Of a batch the first
    sixteen are drawn.

    >>> from regard.attention import causal, window
    >>> mask(causal() & window(3, 0), queries=8)
    Picture(... x ... pixels)
    """
    seen = shown_cells("mask", mask, queries, keys)
    longest = LONGEST if rows is None and columns is None else LONGEST_SIDE
    down, across = cell_sizes(seen.shape[1], seen.shape[2], longest)
    names = (
        check.labels("mask", "row", rows, seen.shape[1]),
        check.labels("mask", "column", columns, seen.shape[2]),
    )
    sheet, count = Sheet(), min(len(seen), MOST)
    size = (seen.shape[1] * down, seen.shape[2] * across)
    if count > 1:  # smaller, and without labels
        size = tuple(side * min(1.0, 2.0 / max(size)) for side in size)
    panels = sheet.panels(count, 4, size, (0.3, 0.12))
    for number, axes in enumerate(panels):
        cells(axes, seen[number].astype(float), scale(MORE), 0.0, DARK)
        _label(axes, number if count > 1 else None, names, seen.shape[1:], (down, across))
    _head(sheet, panels, rule_of(mask) if title is None else title, len(seen))
    return sheet.done()


def _label(
    axes: Any, number: int | None, names: Names, counts: tuple[int, int], cell: tuple[float, float]
) -> None:
    if number is not None:
        no_labels(axes)
        title(axes, str(number), size=7, loc="center", pad=3)
        return
    both_sides(axes, names, counts, cell)


def _head(sheet: Sheet, panels: list[Any], name: str, count: int) -> None:
    if count > len(panels):
        name = f"{name} ({len(panels)} of {count})".strip()
    if len(panels) == 1:
        title(panels[0], name)
    else:
        headline(sheet, name)
