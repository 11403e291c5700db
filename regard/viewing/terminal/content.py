"""Documents, images and kernel regression as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard.viewing import _arrays as arrays
from regard.viewing._text import text_width
from regard.viewing.terminal import _screen as screen

__all__ = ["document", "image_overlay", "regression_curve"]

BAR_WIDTH = 8  # columns
BAR_EIGHTHS = " ▏▎▍▌▋▊▉█"
FIRST_LIGHT_COLOR = 7  # of COLORS: black text from here on, white before
MAX_WORD_WIDTH = 60
PLAIN_LEGEND = {
    "en": "before a word: ▒ ▓ █ above 1/4, 1/2, 3/4 of the largest weight, {:.2g}",
    "zh": "词前：▒ ▓ █ 表示超过最大权重 {:.2g} 的 1/4、1/2、3/4",
}
COLOR_LEGEND = {"en": "weight in the document: {} up to {:.2g}", "zh": "在全文中的权重：{} 不超过 {:.2g}"}
MAX_IMAGE_WIDTH, MIN_IMAGE_WIDTH = 32, 12  # columns of a panel
POINT_CHARACTER = "∘"
BRAILLE_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # 4 rows, 2 columns
BRAILLE_BLANK = 0x2800
CURVE_COLOR, POINT_COLOR = 222, 245


def document(
    tokens: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None,
    sentence_weights: Sequence[float] | None,
    *,
    space_before: Sequence[Sequence[bool]] | None = None,
    color: bool | None = None,
    width: int | None = None,
    language: str = "en",
) -> str:
    """Render a document: a bar per sentence, and words shaded by their weight in the document.

    The weight of a word in the document is its weight in the sentence times the weight of the sentence. Without color,
    a shade precedes words above a quarter of the largest weight.

    Args:
        tokens: the words of each sentence
        weights: the weights of the words of each sentence; None for a model without attention
        sentence_weights: the weight of each sentence; None for a model without attention
        space_before: whether there is a space before each word; None: always
        color: use colors; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal
        language: "en" or "zh", of the legend

    Example:
        >>> print(document([["so", "good"], ["ok"]], [[0.1, 0.9], [1.0]], [0.8, 0.2], color=False, width=40))
        0.80 ████████ so █good
        0.20 ██       ▒ok
        before a word: ▒ ▓ █ above 1/4, 1/2, 3/4 of the largest weight, 0.72
    """
    color, max_width = screen.resolve_options(color, width)
    word_weights, shares = arrays.validate_document("document", tokens, weights, sentence_weights)
    products = [[share * weight for weight in row] for share, row in zip(shares, word_weights, strict=True)]
    vmax = max((weight for row in products for weight in row), default=0.0)
    max_share = max(shares, default=0.0)
    lines = []
    for i, words in enumerate(tokens):
        prefix = "" if sentence_weights is None else f"{shares[i]:4.2f} {_render_bar(shares[i], max_share)} "
        spaces = space_before[i] if space_before is not None else [True] * len(words)
        pieces: list[tuple[bool, str, int]] = []  # space before, text, width
        for word, weight, has_space in zip(words, products[i], spaces, strict=True):
            text, size = _render_word(word, weight, vmax, color)
            if pieces and not has_space and not word[:1].isalnum():  # punctuation, on the line of the word before it
                has_space, previous, previous_size = pieces.pop()
                text, size = previous + text, previous_size + size
            pieces.append((has_space, text, size))
        lines += _wrap_pieces(prefix, pieces, max_width)
    return "\n".join([*lines, *_render_document_legend(vmax, color, language)])


def image_overlay(
    image: Any,
    weights: Shaped[Tensor, "*tokens rows columns"],
    tokens: Sequence[str] | None = None,
    *,
    smooth: bool = True,
    color: bool | None = None,
    width: int | None = None,
) -> str:
    """Render an image coarsely and, for each token, the image lit by its weights.

    Args:
        image: an array or tensor (height, width) or (height, width, 3), integers 0..255 or floats 0..1
        weights: a coarse grid over the image, or one per token
        tokens: the titles of the panels
        smooth: interpolate between the cells of the grid
        color: use shades of gray; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal

    Shape:
        weights (*tokens, rows, columns)

    Example:
        >>> print(image_overlay(torch.ones(4, 8), torch.eye(2), color=False, smooth=False, width=17))
        ████████ ████░░░░
        ████████ ░░░░████
    """
    pixels, grids, names = arrays.validate_overlay(image, weights, tokens)
    color, max_width = screen.resolve_options(color, width)
    panel_width = max(MIN_IMAGE_WIDTH, min(MAX_IMAGE_WIDTH, (max_width + 1) // (len(grids) + 1) - 1))
    size = min(max_width, pixels.shape[1], panel_width)
    height = max(2, round(size * pixels.shape[0] / pixels.shape[1] / 2) * 2)  # two rows per line
    reduced = arrays.resize_image(pixels, (height, size), mode="area")
    images = [reduced, *(arrays.apply_weights_as_light(reduced, grid, smooth) for grid in grids)]
    panels = [_render_gray(panel, color) for panel in images]
    if names is not None:
        titles = ["", *(screen.clean_label(name, size) for name in names)]
        panels = [[title, *panel] for title, panel in zip(titles, panels, strict=True)]
    return "\n".join(screen.fit_lines(screen.join_panels(panels, size, max_width), max_width))


def regression_curve(
    x: arrays.KeyValues,
    y: arrays.KeyValues,
    queries: arrays.QueryValues,
    prediction: arrays.QueryValues,
    weights: Shaped[arrays.ArrayLike, "queries keys"] | None = None,
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 16,
) -> str:
    """Render the data of a kernel regression as circles, its prediction as a curve, and its weights below.

    Args:
        x: the positions of the data (keys)
        y: the data (values)
        queries: the positions of the prediction
        prediction: the predicted values; NaN is a gap
        weights: attention weights
        color: use colors; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal
        height: the number of lines of the curve

    Shape:
        x and y (keys,) or (keys, 1), queries and prediction (queries,) or (queries, 1), weights (queries, keys)

    Example:
        >>> x = torch.linspace(0, 6, 50)
        >>> "∘" in regression_curve(x, x.cos(), x, x.sin(), width=40, color=False)
        True
    """
    data = arrays.validate_regression(weights, x=x, y=y, queries=queries, prediction=prediction)
    color, max_width = screen.resolve_options(color, width)
    axes = np.concatenate([data.x, data.queries]), np.concatenate([data.y, data.prediction])
    limits = [float(limit(numbers)) for numbers in axes for limit in (np.nanmin, np.nanmax)]
    left, right, low, high = limits
    y_labels = [f"{high:.3g}", *[""] * (height - 2), f"{low:.3g}"]
    margin = max(map(len, y_labels)) + 2
    plot_width = max(2, max_width - margin)

    rows = _render_curve(data, limits, plot_width, height, color)
    lines = [f"{label:>{margin - 2}} ┤{row}".rstrip(" ") for label, row in zip(y_labels, rows, strict=True)]
    x_labels = f"{left:.3g}", f"{right:.3g}"
    lines.append(" " * margin + x_labels[0] + x_labels[1].rjust(plot_width - len(x_labels[0])))
    if data.weights is not None:
        vmax = arrays.resolve_vmax("regression_curve", None, data.weights)
        panel = screen.render_weights(data.weights, vmax, min(max_width, 60), 15, color)
        lines += ["weights: queries down, keys to the right", *panel, screen.render_legend(vmax, color)]
    return "\n".join(screen.fit_lines(lines, max_width))


def _render_bar(weight: float, max_weight: float) -> str:
    eighths = round(8 * BAR_WIDTH * weight / max_weight) if max_weight > 0 else 0
    full, remainder = divmod(eighths, 8)
    return ("█" * full + BAR_EIGHTHS[remainder] * (remainder > 0)).ljust(BAR_WIDTH)


def _render_word(word: str, weight: float, vmax: float, color: bool) -> tuple[str, int]:
    """A shaded word and its width."""
    label = screen.clean_label(word, MAX_WORD_WIDTH)
    index = screen.shade_index(weight, vmax, len(screen.COLORS if color else screen.SHADES)) if vmax > 0 else 0
    if index < 2:
        return label, text_width(label)
    if not color:
        return screen.SHADES[index - 1] + label, 1 + text_width(label)
    foreground = 16 if index > FIRST_LIGHT_COLOR else 231
    return f"\x1b[48;5;{screen.COLORS[index - 1]};38;5;{foreground}m{label}\x1b[0m", text_width(label)


def _wrap_pieces(prefix: str, pieces: Sequence[tuple[bool, str, int]], width: int) -> list[str]:
    """Wrap pieces (space before, text, width) behind a prefix."""
    indent = text_width(prefix)
    lines, line, used, is_empty = [], prefix, indent, True
    for has_space, text, size in pieces:
        gap = 1 if has_space and not is_empty else 0
        if not is_empty and used + gap + size > width:
            lines.append(line.rstrip())
            line, used, gap = " " * indent, indent, 0
        line, used, is_empty = line + " " * gap + text, used + gap + size, False
    return [*lines, line.rstrip()]


def _render_document_legend(vmax: float, color: bool, language: str) -> list[str]:
    if vmax <= 0:
        return []
    if not color:
        return [screen.localize(PLAIN_LEGEND, language).format(vmax)]
    scale = "".join(f"\x1b[48;5;{code}m  \x1b[0m" for code in screen.COLORS[1:])
    return [screen.localize(COLOR_LEGEND, language).format(scale, vmax)]


def _render_gray(image: Any, color: bool) -> list[str]:
    light = image @ np.array([0.299, 0.587, 0.114])
    if color:
        grays = screen.GRAYS
        return screen.render_half_blocks(light, lambda value: grays[min(len(grays) - 1, int(value * len(grays)))])
    halves = light.reshape(len(light) // 2, 2, -1).mean(1)
    scale = " " + screen.SHADES
    return ["".join(scale[min(4, int(value * 5 + 0.25))] for value in row) for row in halves.tolist()]


def _render_curve(data: arrays.RegressionData, limits: Any, width: int, height: int, color: bool) -> list[str]:
    """Lines of braille characters for the curve, and circles for the data."""
    left, right, low, high = limits
    x_range, y_range = (right - left) or 1.0, (high - low) or 1.0
    positions = np.linspace(left, right, 2 * width)
    is_inside = (positions >= data.queries[0]) & (positions <= data.queries[-1])
    values = np.interp(positions, data.queries, data.prediction)
    is_inside &= ~np.isnan(values)
    levels = np.round((high - np.nan_to_num(values)) / y_range * (4 * height - 1)).astype(int)
    dots = np.zeros((height, width), dtype=int)
    for column in np.flatnonzero(is_inside):
        previous = levels[column - 1] if column and is_inside[column - 1] else levels[column]
        # Connect the levels of neighbors, so that a steep curve has no gaps.
        for level in range(*sorted((levels[column], previous))) or [levels[column]]:
            dots[level // 4, column // 2] |= BRAILLE_DOTS[level % 4][column % 2]
    points = {
        (round((high - b) / y_range * (height - 1)), round((a - left) / x_range * (width - 1)))
        for a, b in zip(data.x, data.y, strict=True)
    }
    table = dots.tolist()
    return ["".join(_render_point(table[i][j], (i, j) in points, color) for j in range(width)) for i in range(height)]


def _render_point(dots: int, point: bool, color: bool) -> str:
    if dots:
        character, code = chr(BRAILLE_BLANK + dots), CURVE_COLOR
    else:
        character, code = POINT_CHARACTER if point else " ", POINT_COLOR
    return f"\x1b[38;5;{code}m{character}\x1b[0m" if color and character != " " else character
