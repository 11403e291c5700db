"""Weights as shades: one cell for each query and key."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor

from regard.errors import ShapeError, UsageError
from regard.viewing._letters import clusters, width
from regard.viewing.terminal._screen import (
    CELL,
    cell,
    clean,
    columns_of,
    fitting,
    legend,
    spoken,
    wants_color,
)

__all__ = ["heat"]
SHOWN = {
    "en": "shown: {} of {} queries, {} of {} keys",
    "zh": "画出的查询：{} / {}，键：{} / {}",
}


def heat(
    weights: Tensor,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 60,
    language: str = "en",
) -> str:
    """Draw weights (queries x keys): the darker a cell, the more regard; a blank cell is exactly 0.

    `rows` and `columns` are labels, such as the words looked from and at. What does not fit into the width
    of the terminal, or into `height` rows, is left out with a note. Color is used where standard output is
    a terminal and NO_COLOR is not set. `language` ("en" or "zh") is that of the legend.

    >>> import torch
    >>> print(heat(torch.tensor([[1.0, 0.0], [0.3, 0.7]]), rows=["le", "chat"], color=False))
      le │██  │
    chat │▒▒▓▓│
    blank 0, ░ up to 0.25, █ up to 1
    """
    queries, keys = _size(weights, rows, columns)
    color = wants_color() if color is None else color
    room = columns_of(width)
    names = [clean(str(row)) for row in (rows or ())[:height]]
    margin = max(map(_wide, names), default=0)
    shown_keys = min(keys, max(1, (room - margin - 3) // CELL))
    shown_queries = min(queries, height)

    table = weights.detach()[:shown_queries, :shown_keys].double().tolist()
    top = max((w for row in table for w in row if math.isfinite(w)), default=0.0)
    lines = _heading(columns, shown_keys, margin) if columns is not None else []
    for i, row in enumerate(table):
        name = names[i] + " " if names else ""
        pad = " " * (margin + bool(names) - _wide(name))
        lines.append(f"{pad}{name}│{''.join(cell(w, top, color) for w in row)}│")
    left_out, notes = spoken(SHOWN, language), [legend(top, color, language)] if top > 0 else []
    if (shown_queries, shown_keys) != (queries, keys):
        notes.append(left_out.format(shown_queries, queries, shown_keys, keys))
    return "\n".join(lines + (fitting(notes, room) if room > margin + CELL else notes))


_wide = width  # `width` is also the name of an option above


def _size(weights: Tensor, rows: Sequence[str] | None, columns: Sequence[str] | None) -> tuple[int, int]:
    if weights.dim() != 2:
        raise ShapeError(f"heat draws weights of shape (queries, keys), not {tuple(weights.shape)}.")
    if bool((weights < 0).any()):
        raise UsageError("heat draws weights, which are never negative; these are: scores, perhaps?")
    queries, keys = weights.shape
    for what, labels, count in (("row", rows, queries), ("column", columns, keys)):
        if labels is not None and len(labels) != count:
            raise UsageError(f"heat was given {len(labels)} {what} labels for {count} {what}s.")
    return queries, keys


def _heading(columns: Sequence[str], shown: int, margin: int) -> list[str]:
    """The labels of the columns, each written downwards and standing on its column."""
    names = [clusters(clean(str(name))) for name in columns[:shown]]
    depth = max(map(len, names), default=0)
    edge = " " * (margin + 2 if margin else 1)
    lines = []
    for level in range(depth):
        letters = [[" "] * (depth - len(name)) + name for name in names]
        line = "".join(name[level] + " " * (CELL - _wide(name[level])) for name in letters)
        lines.append((edge + line).rstrip())
    return lines
