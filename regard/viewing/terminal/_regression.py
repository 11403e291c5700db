"""Kernel regression as dots: a curve in braille, measurements as small circles."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard.errors import ShapeError
from regard.viewing import _check as check
from regard.viewing.terminal._panel import weights_panel
from regard.viewing.terminal._screen import columns_of, fitting, legend, wants_color

POINT = "∘"
DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # braille: four down, two across
BLANK = 0x2800
CURVE_COLOR, POINT_COLOR = 222, 245
# With a last axis of size 1, as `attend` wants it, or without.
Given = Tensor | np.ndarray
Keys = Shaped[Given, "keys"] | Shaped[Given, "keys 1"]
Queries = Shaped[Given, "queries"] | Shaped[Given, "queries 1"]


def regression(
    x: Keys,
    y: Keys,
    queries: Queries,
    prediction: Queries,
    weights: Shaped[Given, "queries keys"] | None = None,
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 16,
) -> str:
    """Draw measurements (x, y) as circles, the prediction at `queries` as a curve, and the weights below.

    All are tensors or arrays. Where the prediction is NaN, the curve has a gap.

    >>> x = torch.linspace(0, 6, 50)
    >>> "∘" in regression(x, x.cos(), x, x.sin(), width=40, color=False)
    True
    """
    known, asked = (
        (_flat("x", x), _flat("y", y)),
        (_flat("queries", queries), _flat("prediction", prediction, check.numbers)),
    )
    check.same("regression", x=len(known[0]), y=len(known[1]))
    check.same("regression", queries=len(asked[0]), prediction=len(asked[1]))
    color, room = wants_color() if color is None else color, columns_of(width)
    edges = [
        float(f(np.concatenate(pair)))
        for pair in zip(known, asked, strict=True)
        for f in (np.nanmin, np.nanmax)
    ]
    left, right, low, high = edges
    names = [f"{high:.3g}", f"{low:.3g}"]
    margin = max(map(len, names)) + 2
    across = max(2, room - margin)

    cells = _drawn(known, asked, (left, right, low, high), across, height, color)
    sides = [names[0], *[""] * (height - 2), names[1]]
    lines = [f"{side:>{margin - 2}} ┤{line}".rstrip(" ") for side, line in zip(sides, cells, strict=True)]
    ends = f"{left:.3g}", f"{right:.3g}"
    lines.append(" " * margin + ends[0] + ends[1].rjust(across - len(ends[0])))
    if weights is not None:
        lines += _matrix(weights, np.argsort(asked[0]), np.argsort(known[0]), room, color)
    return "\n".join(fitting(lines, room))


def _flat(name: str, given: Given, checked: Callable[[str, Tensor, str], Any] = check.known) -> Any:
    tensor = check.tensor_of(given)
    if tensor.dim() == 2 and tensor.shape[-1] == 1:
        tensor = tensor[:, 0]
    return checked(f"regression ({name})", tensor, "length")


def _drawn(known: Any, asked: Any, edges: Any, across: int, height: int, color: bool) -> list[str]:
    """Lines of characters: the curve where it runs, a circle where a measurement is and no curve."""
    left, right, low, high = edges
    wide, tall = (right - left) or 1.0, (high - low) or 1.0
    order = np.argsort(asked[0], kind="stable")
    places = np.linspace(left, right, 2 * across)
    inside = (places >= asked[0][order[0]]) & (places <= asked[0][order[-1]])
    heights = np.interp(places, asked[0][order], asked[1][order])
    inside &= ~np.isnan(heights)
    levels = np.round((high - np.nan_to_num(heights)) / tall * (4 * height - 1)).astype(int)
    dots = np.zeros((height, across), dtype=int)
    for column in np.flatnonzero(inside):
        before = levels[column - 1] if column and inside[column - 1] else levels[column]
        # From the middle between the neighbors on, so that a steep curve has no holes.
        for level in range(*sorted((levels[column], before))) or [levels[column]]:
            dots[level // 4, column // 2] |= DOTS[level % 4][column % 2]
    points = {
        (round((high - b) / tall * (height - 1)), round((a - left) / wide * (across - 1)))
        for a, b in zip(*known, strict=True)
    }
    table = dots.tolist()
    return [
        "".join(_sign(table[i][j], (i, j) in points, color) for j in range(across)) for i in range(height)
    ]


def _sign(dots: int, point: bool, color: bool) -> str:
    sign, paint = (chr(BLANK + dots), CURVE_COLOR) if dots else (POINT if point else " ", POINT_COLOR)
    return f"\x1b[38;5;{paint}m{sign}\x1b[0m" if color and sign != " " else sign


def _matrix(weights: Given, rows: Any, columns: Any, room: int, color: bool) -> list[str]:
    array = check.weights("regression", weights, "queries keys")
    if array.shape != (len(rows), len(columns)):
        raise ShapeError(
            f"regression: weights must be ({len(rows)} queries, {len(columns)} keys), not {array.shape}."
        )
    top = check.top("regression", None, array)
    panel = weights_panel(array[rows][:, columns], top, min(room, 60), 15, color)
    return ["weights: queries down, keys to the right", *panel, legend(top, color)]
