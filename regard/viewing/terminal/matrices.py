"""Weights as shades: one cell for each query and key.

All heads of all layers, small beside each other.

Masks and positional encodings as small cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.attention import Mask
from regard.errors import ShapeError, UsageError
from regard.viewing import _arrays as check
from regard.viewing._arrays import describe_mask, materialize_mask
from regard.viewing._text import grapheme_clusters, text_width
from regard.viewing.terminal.screen import (
    CELL_WIDTH,
    SHADES,
    clean_label,
    fit_lines,
    is_color_enabled,
    join_panels,
    localize,
    render_cell,
    render_legend,
    render_non_negative,
    render_signed,
    render_weights,
    terminal_width,
)

SHOWN_NOTE = {
    "en": "shown: {} of {} queries, {} of {} keys",
    "zh": "画出的查询：{} / {}，键：{} / {}",
}


def heatmap(
    weights: Tensor,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
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
    >>> print(heatmap(torch.tensor([[1.0, 0.0], [0.3, 0.7]]), row_labels=["le", "chat"], color=False))
      le │██  │
    chat │▒▒▓▓│
    blank 0, ░ up to 0.25, █ up to 1
    """
    queries, keys = _validate_heatmap(weights, row_labels, column_labels)
    color = is_color_enabled() if color is None else color
    room = terminal_width(width)
    names = [clean_label(str(row)) for row in (row_labels or ())[:height]]
    margin = max(map(_text_width, names), default=0)
    shown_keys = min(keys, max(1, (room - margin - 3) // CELL_WIDTH))
    shown_queries = min(queries, height)

    table = weights.detach()[:shown_queries, :shown_keys].double().tolist()
    top = max((w for row in table for w in row if math.isfinite(w)), default=0.0)
    lines = _render_column_labels(column_labels, shown_keys, margin) if column_labels is not None else []
    for i, row in enumerate(table):
        name = names[i] + " " if names else ""
        pad = " " * (margin + bool(names) - _text_width(name))
        lines.append(f"{pad}{name}│{''.join(render_cell(w, top, color) for w in row)}│")
    left_out, notes = localize(SHOWN_NOTE, language), [render_legend(top, color, language)] if top > 0 else []
    if (shown_queries, shown_keys) != (queries, keys):
        notes.append(left_out.format(shown_queries, queries, shown_keys, keys))
    return "\n".join(lines + (fit_lines(notes, room) if room > margin + CELL_WIDTH else notes))


_text_width = text_width  # `width` is also the name of an option above


def _validate_heatmap(
    weights: Tensor, row_labels: Sequence[str] | None, column_labels: Sequence[str] | None
) -> tuple[int, int]:
    if weights.dim() != 2:
        raise ShapeError(f"heat draws weights of shape (queries, keys), not {tuple(weights.shape)}.")
    if bool((weights < 0).any()):
        raise UsageError("heat draws weights, which are never negative; these are: scores, perhaps?")
    queries, keys = weights.shape
    for what, labels, count in (("row", row_labels, queries), ("column", column_labels, keys)):
        if labels is not None and len(labels) != count:
            raise UsageError(f"heat was given {len(labels)} {what} labels for {count} {what}s.")
    return queries, keys


def _render_column_labels(column_labels: Sequence[str], num_shown: int, margin: int) -> list[str]:
    """The labels of the columns, each written downwards and standing on its column."""
    names = [grapheme_clusters(clean_label(str(name))) for name in column_labels[:num_shown]]
    depth = max(map(len, names), default=0)
    edge = " " * (margin + 2 if margin else 1)
    lines = []
    for level in range(depth):
        letters = [[" "] * (depth - len(name)) + name for name in names]
        line = "".join(name[level] + " " * (CELL_WIDTH - _text_width(name[level])) for name in letters)
        lines.append((edge + line).rstrip())
    return lines


LAYER_TITLE, HEAD_TITLE = {"en": "layer {}", "zh": "第 {} 层"}, {"en": "head {}", "zh": "第 {} 头"}


MIN_HEAD_WIDTH, MAX_HEAD_WIDTH = 8, 24  # columns of a panel


def head_grid(
    weights: Shaped[Tensor, "layers heads queries keys"],
    *,
    layer_names: Sequence[object] | None = None,
    head_names: Sequence[object] | None = None,
    color: bool | None = None,
    width: int | None = None,
    language: str = "en",
) -> str:
    """Draw every head of every layer on one scale, as many beside each other as the terminal is wide.

    `language` ("en" or "zh") is that of the titles and the legend.

    >>> print(head_grid(torch.eye(4).expand(1, 2, 4, 4), color=False, width=40))
    layer 0
    head 0           head 1
    ████             ████
    ...
    blank 0, ░ up to 0.25, █ up to 1
    """
    array = check.validate_weights("heads", weights, "layers heads queries keys")
    depth, many = array.shape[:2]
    names = (
        check.validate_labels("heads", "layer", layer_names, depth) or list(map(str, range(depth))),
        check.validate_labels("heads", "head", head_names, many) or list(map(str, range(many))),
    )
    color = is_color_enabled() if color is None else color
    room, top = terminal_width(width), check.resolve_vmax("heads", None, array)
    size = min(room, max(MIN_HEAD_WIDTH, min(MAX_HEAD_WIDTH, (room + 1) // many - 1)))
    a_line = max(1, (room + 1) // (size + 1))

    lines = []
    for layer in range(depth):
        lines.append(localize(LAYER_TITLE, language).format(names[0][layer]))
        for first in range(0, many, a_line):
            shown = range(first, min(many, first + a_line))
            panels = [render_weights(array[layer, head], top, size, size // 2, color) for head in shown]
            titles = [
                clean_label(localize(HEAD_TITLE, language).format(names[1][head]), size) for head in shown
            ]
            lines += join_panels(panels, titles)
    return "\n".join(fit_lines([*lines, render_legend(top, color, language)], room))


MAX_MASKS = 4


def mask_matrix(
    mask: Mask | Bool[Tensor, "*batch queries keys"],
    num_queries: int | None = None,
    num_keys: int | None = None,
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 40,
) -> str:
    """Draw a mask under its rule: a square where a query may look at a key, a dot where it may not.

    A large one is drawn in small cells, which are full if anything in them is visible.

    >>> from regard.attention import causal
    >>> print(mask_matrix(causal(), num_queries=3))
    causal()
    ■ · ·
    ■ ■ ·
    ■ ■ ■
    """
    seen, room = materialize_mask("mask", mask, num_queries, num_keys), terminal_width(width)
    color = is_color_enabled() if color is None else color
    lines = [clean_label(describe_mask(mask), room)] if describe_mask(mask) else []
    for number, entry in enumerate(seen[:MAX_MASKS]):
        lines += [f"batch entry {number}"] if len(seen) > 1 else []
        rows, columns = entry.shape
        if 2 * columns - 1 <= room and rows <= height:
            lines += [" ".join("■" if visible else "·" for visible in row) for row in entry.tolist()]
        else:
            lines += render_weights(entry.astype(float), 1.0, room, height, color)
    lines += [f"shown: {MAX_MASKS} of {len(seen)} batch entries"] if len(seen) > MAX_MASKS else []
    return "\n".join(fit_lines(lines, room))


def position_encoding(
    encoding: Shaped[Tensor, "length dim"],
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 40,
) -> str:
    """Draw the vectors of positions, from left to right, each feature a row.

    >>> from regard.attention.positions import binary_code
    >>> print(position_encoding(binary_code(8), color=False).replace(" ", "."))
    .█.█.█.█
    ..██..██
    ....████
    blank.is.0,.█.is.1
    """
    array, room = check.validate_array("positions", encoding, "length dim").T, terminal_width(width)
    color = is_color_enabled() if color is None else color
    features, length = array.shape
    shown = array[: height * (2 if color else 1), :room]
    low, top = -check.max_ignoring_nan(-array), check.resolve_vmax("", None, np.abs(array))
    if low >= 0:
        lines = render_non_negative(shown, top, color)
    else:
        lines = render_signed(shown, top, color)
        low = -top
    ends = _encoding_legend(low, top, color)
    if shown.shape != array.shape:
        ends.append(f"shown: {shown.shape[1]} of {length} positions, {shown.shape[0]} of {features} features")
    return "\n".join(lines + fit_lines(ends, room))


def _encoding_legend(vmin: float, vmax: float, color: bool) -> list[Any]:
    if color and vmin < 0:
        return [f"orange down to {vmin:.2g}, blue up to {vmax:.2g}"]
    full = render_cell(vmax, vmax, color, 1) if color else SHADES[-1]
    return [f"blank is {vmin:.2g}, {full} is {vmax:.2g}"]
