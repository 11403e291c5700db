"""Weights in the terminal: Unicode shades, and color where there is a terminal that wants it."""

from __future__ import annotations

import math
import os
import shutil
import sys
import unicodedata
from collections.abc import Sequence

from torch import Tensor

SHADES = "░▒▓█"
# From dark blue to yellow in the 256 colors that terminals agree on; even a colorblind eye sees it brighten.
COLORS = (17, 18, 54, 55, 91, 127, 163, 169, 174, 180, 222, 229)
CELL = 2  # characters: about as wide as a line is high
LONGEST_LABEL = 12


def heat(
    weights: Tensor,
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 60,
) -> str:
    """Draw weights (queries x keys): the darker a cell, the more regard; a blank cell is exactly 0.

    `rows` and `columns` are labels, such as the words looked from and at. What does not fit into the width
    of the terminal, or into `height` rows, is left out with a note. Color is used where standard output is
    a terminal and NO_COLOR is not set.

    >>> import torch
    >>> print(heat(torch.tensor([[1.0, 0.0], [0.3, 0.7]]), rows=["le", "chat"], color=False))
      le │██  │
    chat │▒▒▓▓│
    blank 0, ░ up to 0.25, █ up to 1
    """
    queries, keys = _size(weights, rows, columns)
    color = _wants_color() if color is None else color
    width = shutil.get_terminal_size().columns if width is None else width
    names = [_clean(row) for row in rows or ()]
    margin = max((_columns(name) for name in names[:height]), default=0)
    shown_keys = min(keys, max(1, (width - margin - 3) // CELL))
    shown_queries = min(queries, height)

    table = weights.detach()[:shown_queries, :shown_keys].double().tolist()
    top = max((w for row in table for w in row if math.isfinite(w)), default=0.0)
    lines = _heading(columns, shown_keys, margin) if columns is not None else []
    for i, row in enumerate(table):
        name = names[i] + " " if names else ""
        pad = " " * (margin + bool(names) - _columns(name))
        lines.append(f"{pad}{name}│{''.join(_cell(w, top, color) for w in row)}│")
    if top > 0:
        lines.append(_legend(top, color))
    if (shown_queries, shown_keys) != (queries, keys):
        lines.append(f"shown: {shown_queries} of {queries} queries, {shown_keys} of {keys} keys")
    return "\n".join(lines)


def _size(weights: Tensor, rows: Sequence[str] | None, columns: Sequence[str] | None) -> tuple[int, int]:
    if weights.dim() != 2:
        raise ValueError(f"heat draws weights of shape (queries, keys), not {tuple(weights.shape)}.")
    if bool((weights < 0).any()):
        raise ValueError("heat draws weights, which are never negative; these are: scores, perhaps?")
    queries, keys = weights.shape
    for what, labels, count in (("row", rows, queries), ("column", columns, keys)):
        if labels is not None and len(labels) != count:
            raise ValueError(f"heat was given {len(labels)} {what} labels for {count} {what}s.")
    return queries, keys


def _wants_color() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _cell(weight: float, top: float, color: bool) -> str:
    if math.isnan(weight):
        return "?" * CELL
    if weight == 0:
        return " " * CELL
    scale = COLORS if color else SHADES
    step = len(scale) if weight >= top else max(1, math.ceil(weight / top * len(scale)))
    return f"\x1b[48;5;{COLORS[step - 1]}m{' ' * CELL}\x1b[0m" if color else SHADES[step - 1] * CELL


def _legend(top: float, color: bool) -> str:
    steps = len(COLORS) if color else len(SHADES)
    least, most = _cell(top / steps, top, color), _cell(top, top, color)
    if not color:
        least, most = least[0], most[0]
    return f"blank 0, {least} up to {top / steps:.2g}, {most} up to {top:.2g}"


def _heading(columns: Sequence[str], shown: int, margin: int) -> list[str]:
    """The labels of the columns, each written downwards and standing on its column."""
    names = [_clean(name) for name in columns[:shown]]
    depth = max((len(name) for name in names), default=0)
    edge = " " * (margin + 2 if margin else 1)
    lines = []
    for level in range(depth):
        letters = [name.rjust(depth)[level] for name in names]
        lines.append((edge + "".join(c + " " * (CELL - _columns(c)) for c in letters)).rstrip())
    return lines


def _clean(label: str) -> str:
    """A label that cannot move the cursor, no longer than there is room for."""
    label = "".join(c if c.isprintable() and not unicodedata.combining(c) else "·" for c in label)
    return label if len(label) <= LONGEST_LABEL else label[: LONGEST_LABEL - 1] + "…"


def _columns(text: str) -> int:
    """How many columns of a terminal the text fills: Chinese characters fill two."""
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
