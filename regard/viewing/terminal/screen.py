"""What a terminal can show: how wide it is, whether it wants color, and text that stays where it is put.

Small matrices: two rows in one line, as upper and lower halves of a character where there is color.
"""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.viewing._arrays import max_pool
from regard.viewing._text import ZERO_WIDTH_JOINER, grapheme_clusters, is_combining_mark, text_width, truncate

SHADES = "░▒▓█"


# From dark blue to yellow in the 256 colors that terminals agree on; even a colorblind eye sees it brighten.
COLORS = (17, 18, 54, 55, 91, 127, 163, 169, 174, 180, 222, 229)


CELL_WIDTH = 2  # characters: about as wide as a line is high


MAX_LABEL_WIDTH = 12


LEGEND_TEXT = {
    "en": "blank 0, {} up to {:.2g}, {} up to {:.2g}",
    "zh": "空白为 0，{} 至多 {:.2g}，{} 至多 {:.2g}",
}


ESCAPE_PATTERN = r"\x1b\[[0-9;]*m"


def is_color_enabled() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def terminal_width(width: int | None) -> int:
    """How many columns to use: those asked for, or those of the terminal."""
    return shutil.get_terminal_size().columns if width is None else max(1, width)


def shade_index(weight: float, vmax: float, num_shades: int) -> int:
    """Which of so many steps a weight is on, from 1; 0 is for exactly 0."""
    if weight == 0:
        return 0
    return num_shades if weight >= vmax else max(1, math.ceil(weight / vmax * num_shades))


def render_cell(weight: float, vmax: float, color: bool, width: int = CELL_WIDTH) -> str:
    """One weight as a shade, or as a color behind a space."""
    if math.isnan(weight):
        return "?" * width
    on = shade_index(weight, vmax, len(COLORS if color else SHADES))
    if not on:
        return " " * width
    return f"\x1b[48;5;{COLORS[on - 1]}m{' ' * width}\x1b[0m" if color else SHADES[on - 1] * width


def localize(texts: Mapping[str, str], language: str) -> str:
    """The words of a language; one that there is not is refused."""
    if language not in texts:
        raise UsageError(f"A picture for the terminal speaks 'en' or 'zh', not {language!r}.")
    return texts[language]


def render_legend(vmax: float, color: bool, language: str = "en") -> str:
    """What the shades mean."""
    steps = len(COLORS) if color else len(SHADES)
    size = CELL_WIDTH if color else 1
    least, most = render_cell(vmax / steps, vmax, color, size), render_cell(vmax, vmax, color, size)
    return localize(LEGEND_TEXT, language).format(least, vmax / steps, most, vmax)


def clean_label(label: str, max_width: int = MAX_LABEL_WIDTH) -> str:
    """A label that cannot move the cursor, no longer than there is room for.

    Of letters that terminals disagree about how wide they are, such as a family joined of emoji, the first is shown.

    >>> clean_label("a\\x1b[2J"), clean_label("internationalization")
    ('a·[2J', 'internation…')
    """
    label = "".join(c if _is_printable(c) else "·" for c in label[: 16 * max_width])
    return truncate("".join(_simplify_cluster(letter) for letter in grapheme_clusters(label)), max_width)


def fit_lines(lines: list[str], max_width: int) -> list[str]:
    """The lines without spaces at their ends, each cut where it would run over the edge."""
    lines = [line.rstrip(" ") for line in lines]
    return [
        line if display_width(line) <= max_width else truncate(re.sub(ESCAPE_PATTERN, "", line), max_width)
        for line in lines
    ]


def display_width(line: str) -> int:
    """How wide a line is on the screen, its colors not counted."""
    return text_width(re.sub(ESCAPE_PATTERN, "", line))


def _is_printable(c: str) -> bool:
    return c.isprintable() or c == ZERO_WIDTH_JOINER


def _simplify_cluster(cluster: str) -> str:
    if is_combining_mark(cluster[0]) or cluster[0] == ZERO_WIDTH_JOINER:
        return "·"  # nothing there to stand on
    return cluster.partition(ZERO_WIDTH_JOINER)[0]


# From orange over nothing to blue: bright is far from 0.
NEGATIVE_COLORS, POSITIVE_COLORS = (52, 88, 130, 166, 172, 214), (17, 19, 25, 32, 39, 87)


GRAYS = tuple(range(232, 256))


MAX_CELL_WIDTH = 4  # columns that a cell of a small matrix is wide at most


def render_weights(array: Any, vmax: float, width: int, height: int, color: bool) -> list[str]:
    """Weights in at most so many columns and lines: of cells that share a place, the largest is shown."""
    return render_shades(resize_to_panel(array, width, height), vmax, color)


def render_shades(array: Any, vmax: float, color: bool) -> list[str]:
    """Weights as they are, two rows a line: without color, the larger of both."""
    if not color:
        halves = max_pool(array, -(-array.shape[0] // 2), array.shape[1])
        return ["".join(render_cell(weight, vmax, False, 1) for weight in row) for row in halves.tolist()]
    number = len(COLORS)
    return render_half_blocks(
        array, lambda weight: COLORS[on - 1] if (on := shade_index(weight, vmax, number)) else None
    )


def render_non_negative(array: Any, vmax: float, color: bool) -> list[str]:
    """Numbers from 0 on, a line for each row."""
    return ["".join(render_cell(number, vmax, color, 1) for number in row) for row in array.tolist()]


def render_signed(array: Any, vmax: float, color: bool) -> list[str]:
    """Numbers of both signs, none left out; without color, blank is the lowest."""
    if not color:
        rows = ((array + vmax) / 2).tolist()
        return ["".join(render_cell(max(0.0, number), vmax, False, 1) for number in row) for row in rows]

    def shade(number: float) -> int | None:
        on = shade_index(abs(number), vmax, len(POSITIVE_COLORS))
        return (POSITIVE_COLORS if number > 0 else NEGATIVE_COLORS)[on - 1] if on else None

    return render_half_blocks(array, shade)


def join_panels(panels: list[list[str]], titles: list[str]) -> list[str]:
    """Panels of one size next to each other, each with its title above."""
    across = max(display_width(line) for line in (*titles, *(line for panel in panels for line in panel)))
    rows = [titles, *zip(*panels, strict=True)]
    return [" ".join(part + " " * (across - display_width(part)) for part in row).rstrip(" ") for row in rows]


def resize_to_panel(array: Any, width: int, height: int) -> Any:
    """The matrix in the pixels that it gets, two a line: pooled if it is large, cells made larger if it is small.

    >>> resize_to_panel(np.eye(2), width=8, height=8).shape, resize_to_panel(np.eye(100), width=20, height=20).shape
    ((8, 8), (20, 20))
    """
    rows, keys = array.shape
    larger = min(MAX_CELL_WIDTH, width // keys, 2 * height // rows)
    if larger >= 2:
        larger -= larger % 2
        return array.repeat(larger, 0).repeat(larger, 1)
    shrink = min(1.0, width / keys, 2 * height / rows)
    return max_pool(array, max(1, round(rows * shrink)), max(1, round(keys * shrink)))


def render_half_blocks(array: Any, choose_color: Any) -> list[str]:
    """Lines of half blocks; `color_of` gives a color of the 256, or None for nothing."""
    if len(array) % 2:
        array = np.concatenate([array, np.zeros_like(array[:1])])
    lines = []
    for upper, lower in zip(array[0::2].tolist(), array[1::2].tolist(), strict=True):
        lines.append(
            "".join(_render_half_block(a, b, choose_color) for a, b in zip(upper, lower, strict=True))
        )
    return lines


def _render_half_block(upper: float, lower: float, choose_color: Any) -> str:
    if upper != upper or lower != lower:
        return "?"
    above, below = choose_color(upper), choose_color(lower)
    if above is None:
        return " " if below is None else f"\x1b[38;5;{below}m▄\x1b[0m"
    behind = "" if below is None else f";48;5;{below}"
    return f"\x1b[38;5;{above}{behind}m▀\x1b[0m"
