"""Masks, positional encodings and memories as small cells."""

from __future__ import annotations

from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.attention import Mask
from regard.viewing import _check as check
from regard.viewing._masks import rule_of, shown_cells
from regard.viewing.terminal._panel import signed_panel, weights_panel
from regard.viewing.terminal._screen import SHADES, cell, clean, columns_of, fitting, legend, wants_color

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
        lines = ["".join(cell(number, top, color, 1) for number in row) for row in shown.tolist()]
    else:
        lines = signed_panel(shown, top, color)
        low = -top
    ends = _ends(low, top, color)
    if shown.shape != array.shape:
        ends.append(f"shown: {shown.shape[1]} of {length} positions, {shown.shape[0]} of {features} features")
    return "\n".join(lines + fitting(ends, room))


def memory(
    *,
    writes: Shaped[Tensor, "time rows"] | None = None,
    reads: Shaped[Tensor, "time rows"] | None = None,
    color: bool | None = None,
    width: int | None = None,
    height: int = 24,
) -> str:
    """Draw addresses over time: time runs to the right, the rows of the memory down.

    >>> print(memory(writes=torch.eye(20), color=False, width=40))
    write weights, 20 steps, 20 rows
    ██
      ██
    ...
    blank 0, ░ up to 0.25, █ up to 1
    """
    given = {"write": writes, "read": reads}
    sides = {name: check.weights("memory", w, "time rows") for name, w in given.items() if w is not None}
    if not sides:
        raise ValueError("memory: give the weights of writing (writes=), of reading (reads=), or both.")
    color, room = wants_color() if color is None else color, columns_of(width)
    top = max(check.top("memory", None, array) for array in sides.values())
    lines: list[str] = []
    for name, array in sides.items():
        lines.append(f"{name} weights, {array.shape[0]} steps, {array.shape[1]} rows")
        lines += weights_panel(array.T, top, room, height, color)
    return "\n".join(fitting([*lines, legend(top, color)], room))


def _ends(low: float, top: float, color: bool) -> list[Any]:
    if color and low < 0:
        return [f"orange down to {low:.2g}, blue up to {top:.2g}"]
    full = cell(top, top, color, 1) if color else SHADES[-1]
    return [f"blank is {low:.2g}, {full} is {top:.2g}"]
