"""Masks and positional encodings as small cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.attention import Mask
from regard.viewing import _check as check
from regard.viewing._masks import rule_of, shown_cells
from regard.viewing.terminal._panel import plain_panel, signed_panel, weights_panel
from regard.viewing.terminal._screen import SHADES, cell, clean, columns_of, fitting, wants_color

MOST_MASKS = 4


def mask(
    mask: Mask | Bool[Tensor, "*batch queries keys"],
    queries: int | None = None,
    keys: int | None = None,
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 40,
) -> str:
    """Draw a mask under its rule: a square where a query may look at a key, a dot where it may not.

    A large one is drawn in small cells, which are full if anything in them is visible.

    >>> from regard.attention import causal
    >>> print(mask(causal(), queries=3))
    causal()
    ■ · ·
    ■ ■ ·
    ■ ■ ■
    """
    seen, room = shown_cells("mask", mask, queries, keys), columns_of(width)
    color = wants_color() if color is None else color
    lines = [clean(rule_of(mask), room)] if rule_of(mask) else []
    for number, entry in enumerate(seen[:MOST_MASKS]):
        lines += [f"batch entry {number}"] if len(seen) > 1 else []
        rows, columns = entry.shape
        if 2 * columns - 1 <= room and rows <= height:
            lines += [" ".join("■" if visible else "·" for visible in row) for row in entry.tolist()]
        else:
            lines += weights_panel(entry.astype(float), 1.0, room, height, color)
    lines += [f"shown: {MOST_MASKS} of {len(seen)} batch entries"] if len(seen) > MOST_MASKS else []
    return "\n".join(fitting(lines, room))


def positions(
    encoding: Shaped[Tensor, "length dim"],
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 40,
) -> str:
    """Draw the vectors of positions, from left to right, each feature a row.

    >>> from regard.attention.positions import binary_code
    >>> print(positions(binary_code(8), color=False).replace(" ", "."))
    .█.█.█.█
    ..██..██
    ....████
    blank.is.0,.█.is.1
    """
    array, room = check.numbers("positions", encoding, "length dim").T, columns_of(width)
    color = wants_color() if color is None else color
    features, length = array.shape
    shown = array[: height * (2 if color else 1), :room]
    low, top = -check.largest(-array), check.top("", None, np.abs(array))
    if low >= 0:
        lines = plain_panel(shown, top, color)
    else:
        lines = signed_panel(shown, top, color)
        low = -top
    ends = _ends(low, top, color)
    if shown.shape != array.shape:
        ends.append(f"shown: {shown.shape[1]} of {length} positions, {shown.shape[0]} of {features} features")
    return "\n".join(lines + fitting(ends, room))


def _ends(low: float, top: float, color: bool) -> list[Any]:
    if color and low < 0:
        return [f"orange down to {low:.2g}, blue up to {top:.2g}"]
    full = cell(top, top, color, 1) if color else SHADES[-1]
    return [f"blank is {low:.2g}, {full} is {top:.2g}"]
