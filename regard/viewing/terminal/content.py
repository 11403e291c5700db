"""A document for the terminal: a bar for each sentence, and its words on the color of their weight.

An image in gray characters, lit where a word looked.

Kernel regression as dots: a curve in braille, measurements as small circles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn.functional import interpolate

from regard.errors import ShapeError, UsageError
from regard.viewing import _arrays as check
from regard.viewing._arrays import apply_weights_as_light, as_image
from regard.viewing._text import text_width as wide
from regard.viewing.terminal.screen import (
    COLORS,
    GRAYS,
    SHADES,
    clean_label,
    fit_lines,
    is_color_enabled,
    join_panels,
    localize,
    render_half_blocks,
    render_legend,
    render_weights,
    shade_index,
    terminal_width,
)

BAR_WIDTH = 8  # columns of a sentence's bar


BAR_EIGHTHS = " ▏▎▍▌▋▊▉█"


FIRST_LIGHT_COLOR = 7  # the first of COLORS that black letters are read on


MAX_WORD_WIDTH = 60


PLAIN_LEGEND = {
    "en": "before a word: ▒ ▓ █ over 1/4, 1/2, 3/4 of the largest share, {:.2g}",
    "zh": "词前：▒ ▓ █ 超过最大份额 {:.2g} 的 1/4、1/2、3/4",
}


COLOR_LEGEND = {"en": "share of the document: {} up to {:.2g}", "zh": "在全文中的份额：{} 至多 {:.2g}"}


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
    """Draw sentences of words: at the left the weight of each sentence, behind each word its share of the document.

    A word's share is its weight times that of its sentence. In color, the brighter the more; without, one of four
    shades stands before the words that have more than a quarter of what the most regarded one has. `gaps` says
    before which words there is a space; `language` ("en" or "zh") is that of the legend.

    >>> print(document([["so", "good"], ["ok"]], [[0.1, 0.9], [1.0]], [0.8, 0.2], color=False, width=40))
    0.80 ████████ so █good
    0.20 ██       ▒ok
    before a word: ▒ ▓ █ over 1/4, 1/2, 3/4 of the largest share, 0.72
    """
    color, room = is_color_enabled() if color is None else color, terminal_width(width)
    shares = _document_shares(tokens, weights, sentence_weights)
    top = max((share for row in shares for share in row), default=0.0)
    most = max(sentence_weights, default=0.0) if sentence_weights is not None else 0.0
    lines = []
    for place, sentence in enumerate(tokens):
        head = (
            ""
            if sentence_weights is None
            else f"{sentence_weights[place]:4.2f} {_render_bar(sentence_weights[place], most)} "
        )
        before = space_before[place] if space_before is not None else [True] * len(sentence)
        pieces = [
            (space, *_render_word(word, share, top, color))
            for word, share, space in zip(sentence, shares[place], before, strict=True)
        ]
        lines += _wrap_pieces(head, _attach_punctuation(sentence, pieces), room)
    return "\n".join([*lines, *_render_document_legend(top, color, language)])


def _document_shares(
    tokens: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None,
    sentence_weights: Sequence[float] | None,
) -> list[list[float]]:
    if weights is None or sentence_weights is None:
        return [[0.0] * len(sentence) for sentence in tokens]
    if [len(row) for row in weights] != [len(row) for row in tokens] or len(sentence_weights) != len(tokens):
        raise UsageError("document wants one weight for each sentence, and one for each word of it.")
    return [[share * weight for weight in row] for share, row in zip(sentence_weights, weights, strict=True)]


def _render_bar(weight: float, max_weight: float) -> str:
    eighths = round(8 * BAR_WIDTH * weight / max_weight) if max_weight > 0 else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + BAR_EIGHTHS[rest] * (rest > 0)).ljust(BAR_WIDTH)


def _render_word(word: str, share: float, vmax: float, color: bool) -> tuple[str, int]:
    """A word as it is printed, and how wide it is."""
    shown = clean_label(word, MAX_WORD_WIDTH)
    if not color:
        on = shade_index(share, vmax, len(SHADES)) if vmax > 0 else 0
        shown = (SHADES[on - 1] if on > 1 else "") + shown
        return shown, wide(shown)
    on = shade_index(share, vmax, len(COLORS)) if vmax > 0 else 0
    if on < 2:
        return shown, wide(shown)
    letters = 16 if on > FIRST_LIGHT_COLOR else 231
    return f"\x1b[48;5;{COLORS[on - 1]};38;5;{letters}m{shown}\x1b[0m", wide(shown)


def _wrap_pieces(prefix: str, pieces: Sequence[tuple[bool, str, int]], width: int) -> list[str]:
    lines, line, used, empty = [], prefix, wide(prefix), True
    for space, shown, size in pieces:
        gap = 1 if space and not empty else 0
        if not empty and used + gap + size > width:
            lines.append(line.rstrip())
            line, used, gap = " " * wide(prefix), wide(prefix), 0
        line, used, empty = line + " " * gap + shown, used + gap + size, False
    return [*lines, line.rstrip()]


def _attach_punctuation(
    tokens: Sequence[str], pieces: Sequence[tuple[bool, str, int]]
) -> list[tuple[bool, str, int]]:
    """Marks stay on the line of the word that they follow without a space."""
    units: list[tuple[bool, str, int]] = []
    for word, (space, shown, size) in zip(tokens, pieces, strict=True):
        if units and not space and not word[:1].isalnum():
            before = units[-1]
            units[-1] = (before[0], before[1] + shown, before[2] + size)
        else:
            units.append((space, shown, size))
    return units


def _render_document_legend(vmax: float, color: bool, language: str) -> list[str]:
    if vmax <= 0:
        return []
    if not color:
        return [localize(PLAIN_LEGEND, language).format(vmax)]
    ramp = "".join(f"\x1b[48;5;{code}m  \x1b[0m" for code in COLORS[1:])
    return [localize(COLOR_LEGEND, language).format(ramp, vmax)]


MAX_IMAGE_WIDTH, MIN_IMAGE_WIDTH = 32, 12  # columns of a panel


def image_overlay(
    image: Any,
    weights: Shaped[Tensor, "*words rows columns"],
    tokens: Sequence[str] | None = None,
    *,
    smooth: bool = True,
    color: bool | None = None,
    width: int | None = None,
) -> str:
    """Draw an image coarsely, and for each word the same image, lit where the word looked: bright is regarded.

    >>> print(image_overlay(torch.ones(4, 8), torch.eye(2), color=False, smooth=False, width=17))
    ████████ ████░░░░
    ████████ ░░░░████
    """
    picture = as_image("overlay", image)
    axes_of = "rows columns" if weights.dim() == 2 else "words rows columns"
    grids = check.validate_weights("overlay", weights, axes_of).reshape(-1, *weights.shape[-2:])
    names = check.validate_labels("overlay", "word", tokens, len(grids))
    color, room = is_color_enabled() if color is None else color, terminal_width(width)
    size = min(
        room, picture.shape[1], max(MIN_IMAGE_WIDTH, min(MAX_IMAGE_WIDTH, (room + 1) // (len(grids) + 1) - 1))
    )
    small = _resize_image(picture, size)
    panels = [
        _render_gray(shown, color)
        for shown in (small, *(apply_weights_as_light(small, grid, smooth) for grid in grids))
    ]
    titles = ["", *(clean_label(name, size) for name in names or [""] * len(grids))]
    a_line = max(1, (room + 1) // (size + 1))
    lines = []
    for first in range(0, len(panels), a_line):
        found = join_panels(panels[first : first + a_line], titles[first : first + a_line])
        lines += found if names is not None else found[1:]
    return "\n".join(fit_lines(lines, room))


def _resize_image(image: Any, width: int) -> Any:
    rows = max(2, round(width * image.shape[0] / image.shape[1] / 2) * 2)  # halves of characters
    pixels = torch.as_tensor(image).permute(2, 0, 1)[None]
    return interpolate(pixels, size=(rows, width), mode="area")[0].permute(1, 2, 0).numpy()


def _render_gray(image: Any, color: bool) -> list[str]:
    light = image @ np.array([0.299, 0.587, 0.114])
    if color:
        return render_half_blocks(light, lambda value: GRAYS[min(len(GRAYS) - 1, int(value * len(GRAYS)))])
    halves = light.reshape(len(light) // 2, 2, -1).mean(1)
    scale = " " + SHADES
    return ["".join(scale[min(4, int(value * 5 + 0.25))] for value in row) for row in halves.tolist()]


POINT_CHARACTER = "∘"


BRAILLE_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # braille: four down, two across


BRAILLE_BLANK = 0x2800


CURVE_COLOR, POINT_COLOR = 222, 245


# With a last axis of size 1, as `attend` wants it, or without.
ArrayLike = Tensor | np.ndarray


KeyValues = Shaped[ArrayLike, "keys"] | Shaped[ArrayLike, "keys 1"]


QueryValues = Shaped[ArrayLike, "queries"] | Shaped[ArrayLike, "queries 1"]


def regression_curve(
    x: KeyValues,
    y: KeyValues,
    queries: QueryValues,
    prediction: QueryValues,
    weights: Shaped[ArrayLike, "queries keys"] | None = None,
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 16,
) -> str:
    """Draw measurements (x, y) as circles, the prediction at `queries` as a curve, and the weights below.

    All are tensors or arrays. Where the prediction is NaN, the curve has a gap.

    >>> x = torch.linspace(0, 6, 50)
    >>> "∘" in regression_curve(x, x.cos(), x, x.sin(), width=40, color=False)
    True
    """
    known, asked = (
        (_flatten_column("x", x), _flatten_column("y", y)),
        (
            _flatten_column("queries", queries),
            _flatten_column("prediction", prediction, check.validate_array),
        ),
    )
    check.validate_equal_sizes("regression", x=len(known[0]), y=len(known[1]))
    check.validate_equal_sizes("regression", queries=len(asked[0]), prediction=len(asked[1]))
    color, room = is_color_enabled() if color is None else color, terminal_width(width)
    edges = [
        float(f(np.concatenate(pair)))
        for pair in zip(known, asked, strict=True)
        for f in (np.nanmin, np.nanmax)
    ]
    left, right, low, high = edges
    names = [f"{high:.3g}", f"{low:.3g}"]
    margin = max(map(len, names)) + 2
    across = max(2, room - margin)

    cells = _render_curve(known, asked, (left, right, low, high), across, height, color)
    sides = [names[0], *[""] * (height - 2), names[1]]
    lines = [f"{side:>{margin - 2}} ┤{line}".rstrip(" ") for side, line in zip(sides, cells, strict=True)]
    ends = f"{left:.3g}", f"{right:.3g}"
    lines.append(" " * margin + ends[0] + ends[1].rjust(across - len(ends[0])))
    if weights is not None:
        lines += _render_matrix(weights, np.argsort(asked[0]), np.argsort(known[0]), room, color)
    return "\n".join(fit_lines(lines, room))


def _flatten_column(
    name: str,
    value: ArrayLike,
    validate: Callable[[str, Tensor, str], Any] = check.validate_array_without_nan,
) -> Any:
    tensor = check.as_tensor(value)
    if tensor.dim() == 2 and tensor.shape[-1] == 1:
        tensor = tensor[:, 0]
    return validate(f"regression ({name})", tensor, "length")


def _render_curve(measured: Any, curve: Any, edges: Any, width: int, height: int, color: bool) -> list[str]:
    """Lines of characters: the curve where it runs, a circle where a measurement is and no curve."""
    left, right, low, high = edges
    wide, tall = (right - left) or 1.0, (high - low) or 1.0
    order = np.argsort(curve[0], kind="stable")
    places = np.linspace(left, right, 2 * width)
    inside = (places >= curve[0][order[0]]) & (places <= curve[0][order[-1]])
    heights = np.interp(places, curve[0][order], curve[1][order])
    inside &= ~np.isnan(heights)
    levels = np.round((high - np.nan_to_num(heights)) / tall * (4 * height - 1)).astype(int)
    dots = np.zeros((height, width), dtype=int)
    for column in np.flatnonzero(inside):
        before = levels[column - 1] if column and inside[column - 1] else levels[column]
        # From the middle between the neighbors on, so that a steep curve has no holes.
        for level in range(*sorted((levels[column], before))) or [levels[column]]:
            dots[level // 4, column // 2] |= BRAILLE_DOTS[level % 4][column % 2]
    points = {
        (round((high - b) / tall * (height - 1)), round((a - left) / wide * (width - 1)))
        for a, b in zip(*measured, strict=True)
    }
    table = dots.tolist()
    return [
        "".join(_render_point(table[i][j], (i, j) in points, color) for j in range(width))
        for i in range(height)
    ]


def _render_point(dots: int, point: bool, color: bool) -> str:
    sign, paint = (
        (chr(BRAILLE_BLANK + dots), CURVE_COLOR) if dots else (POINT_CHARACTER if point else " ", POINT_COLOR)
    )
    return f"\x1b[38;5;{paint}m{sign}\x1b[0m" if color and sign != " " else sign


def _render_matrix(
    weights: ArrayLike, query_order: Any, key_order: Any, width: int, color: bool
) -> list[str]:
    array = check.validate_weights("regression", weights, "queries keys")
    if array.shape != (len(query_order), len(key_order)):
        raise ShapeError(
            f"regression: weights must be ({len(query_order)} queries, {len(key_order)} keys), not {array.shape}."
        )
    top = check.resolve_vmax("regression", None, array)
    panel = render_weights(array[query_order][:, key_order], top, min(width, 60), 15, color)
    return ["weights: queries down, keys to the right", *panel, render_legend(top, color)]
