"""Weights, heads, masks and position encodings as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.attention import Mask
from regard.errors import ShapeError, UsageError
from regard.viewing import _arrays as arrays
from regard.viewing._text import grapheme_clusters, text_width
from regard.viewing.terminal import _screen as screen

__all__ = ["head_grid", "heatmap", "mask_matrix", "position_encoding"]

SHOWN_NOTE = {"en": "shown: {} of {} queries, {} of {} keys", "zh": "已显示：{} / {} 个查询，{} / {} 个键"}
LAYER_TITLE = {"en": "layer {}", "zh": "第 {} 层"}
HEAD_TITLE = {"en": "head {}", "zh": "第 {} 头"}
MIN_HEAD_WIDTH, MAX_HEAD_WIDTH = 8, 24  # columns
MAX_MASKS = 4


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
    """Render a matrix of weights: the larger a weight, the darker its cell; blank is exactly 0.

    Rows and columns beyond the size are left out with a note.

    Args:
        weights: attention weights
        row_labels: one per query, such as the target tokens
        column_labels: one per key, such as the source tokens
        color: use colors; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal
        height: the largest number of rows
        language: "en" or "zh", of the legend

    Shape:
        weights (queries, keys)

    Example:
        >>> import torch
        >>> weights = torch.tensor([[1.0, 0.0], [0.3, 0.7]])
        >>> print(heatmap(weights, row_labels=["le", "chat"], color=False))
          le │██  │
        chat │▒▒▓▓│
        blank 0, ░ up to 0.25, █ up to 1
    """
    if weights.dim() != 2:
        raise ShapeError(f"heatmap expects weights (queries, keys), got {tuple(weights.shape)}.")
    if bool((weights < 0).any()):
        raise UsageError("heatmap: weights must not be negative; pass weights, not scores.")
    queries, keys = weights.shape
    rows, columns = arrays.validate_axis_labels("heatmap", row_labels, column_labels, (queries, keys))
    color, max_width = screen.resolve_options(color, width)
    labels = [screen.clean_label(label) for label in (rows or ())[:height]]
    margin = max(map(text_width, labels), default=0)
    shown_keys = min(keys, max(1, (max_width - margin - 3) // screen.CELL_WIDTH))
    shown_queries = min(queries, height)

    table = weights.detach()[:shown_queries, :shown_keys].double().tolist()
    vmax = max((weight for row in table for weight in row if math.isfinite(weight)), default=0.0)
    lines = [] if columns is None else _render_column_labels(columns, shown_keys, margin)
    for i, row in enumerate(table):
        label = labels[i] + " " if labels else ""
        padding = " " * (margin + bool(labels) - text_width(label))
        lines.append(f"{padding}{label}│{''.join(screen.render_cell(weight, vmax, color) for weight in row)}│")
    note = screen.localize(SHOWN_NOTE, language)
    notes = [screen.render_legend(vmax, color, language)] if vmax > 0 else []
    if (shown_queries, shown_keys) != (queries, keys):
        notes.append(note.format(shown_queries, queries, shown_keys, keys))
    return "\n".join(lines + (screen.fit_lines(notes, max_width) if max_width > margin + screen.CELL_WIDTH else notes))


def head_grid(
    weights: Shaped[Tensor, "layers heads queries keys"],
    *,
    layer_names: Sequence[object] | None = None,
    head_names: Sequence[object] | None = None,
    color: bool | None = None,
    width: int | None = None,
    language: str = "en",
) -> str:
    """Render every head of every layer on one scale, side by side.

    Args:
        weights: attention weights
        layer_names: numbers or names; None: numbers from 0
        head_names: numbers or names; None: numbers from 0
        color: use colors; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal
        language: "en" or "zh", of the titles and the legend

    Shape:
        weights (layers, heads, queries, keys)

    Example:
        >>> print(head_grid(torch.eye(4).expand(1, 2, 4, 4), color=False, width=40))
        layer 0
        head 0           head 1
        ████             ████
        ...
        blank 0, ░ up to 0.25, █ up to 1
    """
    array = arrays.validate_weights("head_grid", weights, "layers heads queries keys")
    layers = arrays.validate_names("head_grid", "layer", layer_names, len(array))
    heads = arrays.validate_names("head_grid", "head", head_names, array.shape[1])
    (color, max_width), vmax = screen.resolve_options(color, width), arrays.resolve_vmax("head_grid", None, array)
    size = min(max_width, max(MIN_HEAD_WIDTH, min(MAX_HEAD_WIDTH, (max_width + 1) // len(heads) - 1)))
    layer_title, head_title = screen.localize(LAYER_TITLE, language), screen.localize(HEAD_TITLE, language)
    titles, lines = [screen.clean_label(head_title.format(head), size) for head in heads], []
    for layer, weights_by_head in zip(layers, array, strict=True):
        panels = [screen.render_weights(matrix, vmax, size, size // 2, color) for matrix in weights_by_head]
        panels = [[title, *panel] for title, panel in zip(titles, panels, strict=True)]
        lines += [layer_title.format(layer), *screen.join_panels(panels, size, max_width)]
    return "\n".join(screen.fit_lines([*lines, screen.render_legend(vmax, color, language)], max_width))


def mask_matrix(
    mask: Mask | Bool[Tensor, "*batch queries keys"],
    num_queries: int | None = None,
    num_keys: int | None = None,
    *,
    color: bool | None = None,
    width: int | None = None,
    height: int = 40,
) -> str:
    """Render a mask below its expression: squares are visible keys. Of a batch, the first 4 entries are rendered.

    A large mask is pooled: a cell is full if any of its keys is visible.

    Args:
        mask: a `Mask` or a boolean tensor (True = visible)
        num_queries: the number of queries, required for a `Mask`
        num_keys: the number of keys of a `Mask`; None: as many as queries
        color: use colors; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal
        height: the largest number of rows

    Shape:
        mask (*batch, queries, keys)

    Example:
        >>> from regard.attention import causal
        >>> print(mask_matrix(causal(), num_queries=3))
        causal()
        ■ · ·
        ■ ■ ·
        ■ ■ ■
    """
    visible = arrays.materialize_mask("mask_matrix", mask, num_queries, num_keys)
    (color, max_width), rule = screen.resolve_options(color, width), arrays.describe_mask(mask)
    lines = [screen.clean_label(rule, max_width)] if rule else []
    for index, entry in enumerate(visible[:MAX_MASKS]):
        lines += [f"batch entry {index}"] if len(visible) > 1 else []
        rows, columns = entry.shape
        if 2 * columns - 1 <= max_width and rows <= height:
            lines += [" ".join("■" if cell else "·" for cell in row) for row in entry.tolist()]
        else:
            lines += screen.render_weights(entry.astype(float), 1.0, max_width, height, color)
    if len(visible) > MAX_MASKS:
        lines.append(f"shown: {MAX_MASKS} of {len(visible)} batch entries")
    return "\n".join(screen.fit_lines(lines, max_width))


def position_encoding(
    encoding: Shaped[Tensor, "length dim"], *, color: bool | None = None, width: int | None = None, height: int = 40
) -> str:
    """Render a position encoding: positions from left to right, a row per feature.

    Args:
        encoding: one vector per position
        color: use colors; None: if standard output is a terminal and NO_COLOR is not set
        width: the largest number of columns; None: the width of the terminal
        height: the largest number of lines

    Shape:
        encoding (length, dim)

    Example:
        >>> from regard.attention.positions import binary_code
        >>> print(position_encoding(binary_code(8), color=False).replace(" ", "."))
        .█.█.█.█
        ..██..██
        ....████
        blank.is.0,.█.is.1
    """
    array = arrays.validate_array("position_encoding", encoding, "length dim").T
    color, max_width = screen.resolve_options(color, width)
    features, length = array.shape
    visible = array[: height * (2 if color else 1), :max_width]
    vmax, is_signed = arrays.resolve_vmax("position_encoding", None, np.abs(array)), bool((array < 0).any())
    lines = screen.render_numbers(visible, vmax, color, is_signed)
    notes = [_encoding_legend(-vmax if is_signed else 0.0, vmax, color)]
    if visible.shape != array.shape:
        notes.append(f"shown: {visible.shape[1]} of {length} positions, {visible.shape[0]} of {features} features")
    return "\n".join(lines + screen.fit_lines(notes, max_width))


def _render_column_labels(column_labels: Sequence[str], num_shown: int, margin: int) -> list[str]:
    """Labels written downwards, each above its column."""
    labels = [grapheme_clusters(screen.clean_label(label)) for label in column_labels[:num_shown]]
    depth = max(map(len, labels), default=0)
    edge = " " * (margin + 2 if margin else 1)
    padded = [[" "] * (depth - len(label)) + label for label in labels]
    rows = zip(*padded, strict=True)
    return [(edge + "".join(c + " " * (screen.CELL_WIDTH - text_width(c)) for c in row)).rstrip() for row in rows]


def _encoding_legend(vmin: float, vmax: float, color: bool) -> str:
    if color and vmin < 0:
        return f"orange down to {vmin:.2g}, blue up to {vmax:.2g}"
    full = screen.render_cell(vmax, vmax, color, 1) if color else screen.SHADES[-1]
    return f"blank is {vmin:.2g}, {full} is {vmax:.2g}"
