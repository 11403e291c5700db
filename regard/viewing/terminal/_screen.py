"""The terminal: its width and colors, labels that cannot move the cursor, and panels of shaded cells."""

from __future__ import annotations

import math
import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.viewing._arrays import max_pool
from regard.viewing._text import ZERO_WIDTH_JOINER, grapheme_clusters, is_combining_mark, text_width, truncate

SHADES = "░▒▓█"
# From dark blue to yellow in the 256-color palette, with increasing lightness.
COLORS = (17, 18, 54, 55, 91, 127, 163, 169, 174, 180, 222, 229)
NEGATIVE_COLORS, POSITIVE_COLORS = (52, 88, 130, 166, 172, 214), (17, 19, 25, 32, 39, 87)  # orange, blue
GRAYS = tuple(range(232, 256))
CELL_WIDTH = 2  # characters, about as wide as a line is high
MAX_CELL_WIDTH = 4  # characters of a cell of a small matrix
MAX_LABEL_WIDTH = 12
LEGEND_TEXT = {"en": "blank 0, {} up to {:.2g}, {} up to {:.2g}", "zh": "空白为 0，{} 不超过 {:.2g}，{} 不超过 {:.2g}"}
ESCAPE_PATTERN = r"\x1b\[[0-9;]*m"


def resolve_options(color: bool | None, width: int | None) -> tuple[bool, int]:
    """Return whether to use colors, and the largest number of columns.

    Args:
        color: None: if standard output is a terminal with colors and NO_COLOR is not set
        width: columns; None: the width of the terminal

    Example:
        >>> resolve_options(True, 40)
        (True, 40)
    """
    if color is None:
        color = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return color, shutil.get_terminal_size().columns if width is None else max(1, width)


def shade_index(weight: float, vmax: float, num_shades: int) -> int:
    """Choose the shade of a weight: its number from 1, or 0 for exactly 0.

    Args:
        weight: the weight
        vmax: the weight with the darkest shade
        num_shades: the number of shades

    Example:
        >>> [shade_index(weight, 1.0, 4) for weight in (0.0, 0.1, 0.5, 1.0)]
        [0, 1, 2, 4]
    """
    if weight == 0:
        return 0
    return num_shades if weight >= vmax else max(1, math.ceil(weight / vmax * num_shades))


def render_cell(weight: float, vmax: float, color: bool, width: int = CELL_WIDTH) -> str:
    """Render a weight as shade characters or as a background color.

    Args:
        weight: the weight; NaN becomes ?
        vmax: the weight with the darkest shade
        color: whether to use background colors
        width: columns
    """
    if math.isnan(weight):
        return "?" * width
    index = shade_index(weight, vmax, len(COLORS if color else SHADES))
    if not index:
        return " " * width
    return f"\x1b[48;5;{COLORS[index - 1]}m{' ' * width}\x1b[0m" if color else SHADES[index - 1] * width


def localize(texts: Mapping[str, str], language: str) -> str:
    """Select the text of a language.

    Args:
        texts: the text by language
        language: "en" or "zh"

    Example:
        >>> localize({"en": "weight", "zh": "权重"}, "zh")
        '权重'
    """
    if language not in texts:
        raise UsageError(f"invalid value {language!r} for language: must be 'en' or 'zh'")
    return texts[language]


def render_legend(vmax: float, color: bool, language: str = "en") -> str:
    """Render the legend of the shades.

    Args:
        vmax: the weight with the darkest shade
        color: whether background colors are used
        language: "en" or "zh"
    """
    num_shades = len(COLORS) if color else len(SHADES)
    width = CELL_WIDTH if color else 1
    first, last = render_cell(vmax / num_shades, vmax, color, width), render_cell(vmax, vmax, color, width)
    return localize(LEGEND_TEXT, language).format(first, vmax / num_shades, last, vmax)


def clean_label(label: str, max_width: int = MAX_LABEL_WIDTH) -> str:
    """Replace control characters of a label and truncate it.

    Of emoji joined to one, whose width differs between terminals, the first is kept.

    Args:
        label: the text of a token
        max_width: columns

    Example:
        >>> clean_label("a\\x1b[2J"), clean_label("internationalization")
        ('a·[2J', 'internation…')
    """
    label = "".join(c if c.isprintable() or c == ZERO_WIDTH_JOINER else "·" for c in label[: 16 * max_width])
    return truncate("".join(_simplify_cluster(cluster) for cluster in grapheme_clusters(label)), max_width)


def fit_lines(lines: list[str], max_width: int) -> list[str]:
    """Strip trailing spaces and truncate lines that are too wide.

    Args:
        lines: the lines of a figure
        max_width: columns
    """
    lines = [line.rstrip(" ") for line in lines]
    return [
        line if display_width(line) <= max_width else truncate(re.sub(ESCAPE_PATTERN, "", line), max_width)
        for line in lines
    ]


def display_width(line: str) -> int:
    """Return the width of a line in columns, without color codes.

    Args:
        line: the line

    Example:
        >>> display_width("权重"), display_width("\\x1b[1mw\\x1b[0m")
        (4, 1)
    """
    return text_width(re.sub(ESCAPE_PATTERN, "", line))


def render_weights(array: Any, vmax: float, width: int, height: int, color: bool) -> list[str]:
    """Render weights in at most `width` columns and `height` lines; cells are pooled by their maximum.

    Args:
        array: (rows, columns)
        vmax: the weight with the darkest shade
        width, height: the size of the screen area
        color: whether to use colors
    """
    return render_shades(resize_to_panel(array, width, height), vmax, color)


def render_shades(array: Any, vmax: float, color: bool) -> list[str]:
    """Render weights, two rows per line; without color, the maximum of both.

    Args:
        array: (rows, columns)
        vmax: the weight with the darkest shade
        color: whether to use colors
    """
    if not color:
        pooled = max_pool(array, -(-array.shape[0] // 2), array.shape[1])
        return ["".join(render_cell(weight, vmax, False, 1) for weight in row) for row in pooled.tolist()]
    return render_half_blocks(array, lambda weight: _choose_color(weight, vmax, COLORS))


def render_numbers(array: Any, vmax: float, color: bool, is_signed: bool) -> list[str]:
    """Render numbers from 0 to vmax, a line per row, or from -vmax to vmax; without color, blank is the lowest.

    Args:
        array: (rows, columns)
        vmax: the number with the darkest shade
        color: whether to use colors
        is_signed: whether there are negative numbers; with color they have their own, two rows per line
    """
    if is_signed and color:
        palettes = {True: POSITIVE_COLORS, False: NEGATIVE_COLORS}
        return render_half_blocks(array, lambda number: _choose_color(abs(number), vmax, palettes[number > 0]))
    if is_signed:
        array = np.fmax((array + vmax) / 2, 0.0)
    return ["".join(render_cell(number, vmax, color, 1) for number in row) for row in array.tolist()]


def join_panels(panels: list[list[str]], panel_width: int, max_width: int) -> list[str]:
    """Place panels of one height side by side, as many in a row as fit.

    Args:
        panels: the lines of each panel
        panel_width: the width that a panel may have
        max_width: columns

    Example:
        >>> join_panels([["1", "ab"], ["2", "cd"]], panel_width=2, max_width=6)
        ['1  2', 'ab cd']
    """
    lines, per_row = [], max(1, (max_width + 1) // (panel_width + 1))
    for first in range(0, len(panels), per_row):
        row = panels[first : first + per_row]
        width = max(display_width(line) for panel in row for line in panel)
        for cells in zip(*row, strict=True):
            lines.append(" ".join(cell + " " * (width - display_width(cell)) for cell in cells).rstrip(" "))
    return lines


def resize_to_panel(array: Any, width: int, height: int) -> Any:
    """Resize a matrix to the pixels of a panel, two per line: large ones are pooled, small ones repeated.

    Args:
        array: (rows, columns)
        width, height: the size of the panel in columns and lines

    Example:
        >>> resize_to_panel(np.eye(2), width=8, height=8).shape
        (8, 8)
        >>> resize_to_panel(np.eye(100), width=20, height=20).shape
        (20, 20)
    """
    rows, columns = array.shape
    factor = min(MAX_CELL_WIDTH, width // columns, 2 * height // rows)
    if factor >= 2:
        factor -= factor % 2
        return array.repeat(factor, 0).repeat(factor, 1)
    scale = min(1.0, width / columns, 2 * height / rows)
    return max_pool(array, max(1, round(rows * scale)), max(1, round(columns * scale)))


def render_half_blocks(array: Any, choose_color: Any) -> list[str]:
    """Render two rows per line as half blocks.

    Args:
        array: (rows, columns)
        choose_color: called with a number, returns a color of the 256-color palette or None
    """
    if len(array) % 2:
        array = np.concatenate([array, np.zeros_like(array[:1])])
    pairs = zip(array[0::2].tolist(), array[1::2].tolist(), strict=True)
    return ["".join(_render_half_block(a, b, choose_color) for a, b in zip(*pair, strict=True)) for pair in pairs]


def _choose_color(weight: float, vmax: float, palette: Sequence[int]) -> int | None:
    index = shade_index(weight, vmax, len(palette))
    return palette[index - 1] if index else None


def _simplify_cluster(cluster: str) -> str:
    if is_combining_mark(cluster[0]) or cluster[0] == ZERO_WIDTH_JOINER:
        return "·"  # no base character
    return cluster.partition(ZERO_WIDTH_JOINER)[0]


def _render_half_block(upper: float, lower: float, choose_color: Any) -> str:
    if upper != upper or lower != lower:
        return "?"
    foreground, background = choose_color(upper), choose_color(lower)
    if foreground is None:
        return " " if background is None else f"\x1b[38;5;{background}m▄\x1b[0m"
    background_code = "" if background is None else f";48;5;{background}"
    return f"\x1b[38;5;{foreground}{background_code}m▀\x1b[0m"
