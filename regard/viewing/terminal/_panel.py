"""Small matrices: two rows in one line, as upper and lower halves of a character where there is color."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard.viewing._pooling import pooled
from regard.viewing.terminal._screen import COLORS, cell, seen_width, step

# From orange over nothing to blue: bright is far from 0.
MINUS, PLUS = (52, 88, 130, 166, 172, 214), (17, 19, 25, 32, 39, 87)
GRAYS = tuple(range(232, 256))
LARGEST_CELL = 4  # columns that a cell of a small matrix is wide at most


def weights_panel(array: Any, top: float, columns: int, lines: int, color: bool) -> list[str]:
    """Weights in at most so many columns and lines: of cells that share a place, the largest is shown."""
    return shaded(sized(array, columns, lines), top, color)


def shaded(array: Any, top: float, color: bool) -> list[str]:
    """Weights as they are, two rows a line: without color, the larger of both."""
    if not color:
        halves = pooled(array, -(-array.shape[0] // 2), array.shape[1])
        return ["".join(cell(weight, top, False, 1) for weight in row) for row in halves.tolist()]
    number = len(COLORS)
    return in_halves(array, lambda weight: COLORS[on - 1] if (on := step(weight, top, number)) else None)


def plain_panel(array: Any, top: float, color: bool) -> list[str]:
    """Numbers from 0 on, a line for each row."""
    return ["".join(cell(number, top, color, 1) for number in row) for row in array.tolist()]


def signed_panel(array: Any, top: float, color: bool) -> list[str]:
    """Numbers of both signs, none left out; without color, blank is the lowest."""
    if not color:
        rows = ((array + top) / 2).tolist()
        return ["".join(cell(max(0.0, number), top, False, 1) for number in row) for row in rows]

    def shade(number: float) -> int | None:
        on = step(abs(number), top, len(PLUS))
        return (PLUS if number > 0 else MINUS)[on - 1] if on else None

    return in_halves(array, shade)


def beside(panels: list[list[str]], titles: list[str]) -> list[str]:
    """Panels of one size next to each other, each with its title above."""
    across = max(seen_width(line) for line in (*titles, *(line for panel in panels for line in panel)))
    rows = [titles, *zip(*panels, strict=True)]
    return [" ".join(part + " " * (across - seen_width(part)) for part in row).rstrip(" ") for row in rows]


def sized(array: Any, columns: int, lines: int) -> Any:
    """The matrix in the pixels that it gets, two a line: pooled if it is large, cells made larger if it is small.

    >>> sized(np.eye(2), columns=8, lines=8).shape, sized(np.eye(100), columns=20, lines=20).shape
    ((8, 8), (20, 20))
    """
    rows, keys = array.shape
    larger = min(LARGEST_CELL, columns // keys, 2 * lines // rows)
    if larger >= 2:
        larger -= larger % 2
        return array.repeat(larger, 0).repeat(larger, 1)
    shrink = min(1.0, columns / keys, 2 * lines / rows)
    return pooled(array, max(1, round(rows * shrink)), max(1, round(keys * shrink)))


def in_halves(array: Any, color_of: Any) -> list[str]:
    """Lines of half blocks; `color_of` gives a color of the 256, or None for nothing."""
    if len(array) % 2:
        array = np.concatenate([array, np.zeros_like(array[:1])])
    lines = []
    for upper, lower in zip(array[0::2].tolist(), array[1::2].tolist(), strict=True):
        lines.append("".join(_halves(a, b, color_of) for a, b in zip(upper, lower, strict=True)))
    return lines


def _halves(upper: float, lower: float, color_of: Any) -> str:
    if upper != upper or lower != lower:
        return "?"
    above, below = color_of(upper), color_of(lower)
    if above is None:
        return " " if below is None else f"\x1b[38;5;{below}m▄\x1b[0m"
    behind = "" if below is None else f";48;5;{below}"
    return f"\x1b[38;5;{above}{behind}m▀\x1b[0m"
