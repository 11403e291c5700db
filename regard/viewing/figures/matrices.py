"""Figures of masks and position encodings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.attention import Mask
from regard.errors import UsageError
from regard.viewing import _arrays as arrays
from regard.viewing.figures import _colors as colors
from regard.viewing.figures import _labeling as labeling
from regard.viewing.figures.figure import MAX_SIDE, Figure, FigureLayout, cell_sizes
from regard.viewing.figures.heatmaps import draw_cells, draw_colorbar

__all__ = ["mask_matrix", "position_encoding", "position_shift"]

MAX_MASKS = 16  # entries of a batch
MAX_MASK_SIDE = 5.0  # inches: without labels
MASK_VMAX = 1.6  # visible cells are dark, but not black
MAX_ENCODING_SIDE, PANEL_SIDE = 5.0, 2.2  # inches


def mask_matrix(
    mask: Mask | Bool[Tensor, "*batch queries keys"],
    num_queries: int | None = None,
    num_keys: int | None = None,
    *,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a mask: visible keys are dark. Of a batch, the first 16 entries are drawn.

    Args:
        mask: a `Mask` or a boolean tensor (True = visible)
        num_queries: the number of queries, required for a `Mask`
        num_keys: the number of keys of a `Mask`; None: as many as queries
        row_labels: one per query
        column_labels: one per key
        title: drawn above; None: the expression of the `Mask`

    Shape:
        mask (*batch, queries, keys)

    Example:
        >>> from regard.attention import causal, window
        >>> mask_matrix(causal() & window(3, 0), num_queries=8)
        Figure(... x ... pixels)
    """
    visible = arrays.materialize_mask("mask_matrix", mask, num_queries, num_keys)
    batch, queries, keys = visible.shape
    max_side = MAX_MASK_SIDE if row_labels is None and column_labels is None else MAX_SIDE
    cell_size = cell_sizes(queries, keys, max_side)
    labels = arrays.validate_axis_labels("mask_matrix", row_labels, column_labels, (queries, keys))
    layout, count = FigureLayout(), min(batch, MAX_MASKS)
    size = (queries * cell_size[0], keys * cell_size[1])
    if count > 1:  # smaller, and without labels
        size = tuple(side * min(1.0, 2.0 / max(size)) for side in size)
    panels = layout.add_panels(count, 4, size, (0.3, 0.12))
    for index, axes in enumerate(panels):
        draw_cells(axes, visible[index].astype(float), colors.SEQUENTIAL, MASK_VMAX)
        if count == 1:
            labeling.label_axes(axes, labels, (queries, keys), cell_size)
        else:
            labeling.remove_labels(axes)
            labeling.draw_title(axes, str(index), size=7, loc="center", pad=3)
    text = arrays.describe_mask(mask) if title is None else title
    if batch > count:
        text = f"{text} ({count} of {batch})".strip()
    if count == 1:
        labeling.draw_title(panels[0], text)
    else:
        labeling.draw_headline(layout, text)
    return layout.finish()


def position_encoding(
    encoding: Shaped[Tensor, "length dim"],
    *,
    compare_with: Shaped[Tensor, "length size"] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a position encoding, one row per position: blue above 0, orange below.

    Args:
        encoding: one vector per position
        compare_with: another encoding of the same positions, such as the binary code
        title: drawn above

    Shape:
        encoding (length, dim), compare_with (length, size)

    Example:
        >>> from regard.attention import Sinusoidal
        >>> from regard.attention.positions import binary_code
        >>> position_encoding(Sinusoidal(embed_dim=16).encoding(32), compare_with=binary_code(32))
        Figure(... x ... pixels)
    """
    array = arrays.validate_array("position_encoding", encoding, "length dim")
    height, width = cell_sizes(len(array), array.shape[1], MAX_ENCODING_SIDE)

    layout = FigureLayout()
    right = _draw_encoding(layout, array, 0, (height, width), title, "feature")
    if compare_with is not None:
        other = arrays.validate_array("position_encoding", compare_with, "length size")
        arrays.validate_equal_sizes("position_encoding", encoding=len(array), compare_with=len(other))
        column_name = "bit" if np.isin(other, (0, 1)).all() else "feature"
        _draw_encoding(layout, other, right + 0.55, (height, max(width, 0.1)), None, column_name)
    return layout.finish()


def position_shift(
    encoding: Shaped[Tensor, "length dim"],
    delta: int,
    *,
    matrix: Shaped[Tensor, "dim dim"] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the linear map that shifts positions by `delta`, its error, and dot products by distance.

        p[i + delta] = M p[i]        p[i] . p[j] depends on j - i only

    Args:
        encoding: one vector per position
        delta: the shift, at least 1
        matrix: M, as `Sinusoidal.shift_matrix` returns it; None: fitted by least squares, which shows how close a
            learned encoding is to having such a map
        title: drawn above

    Shape:
        encoding (length, dim), matrix (dim, dim)

    Example:
        >>> from regard.attention import Sinusoidal
        >>> position = Sinusoidal(embed_dim=16)
        >>> position_shift(position.encoding(64), 5, matrix=position.shift_matrix(5))
        Figure(... x ... pixels)
    """
    array = arrays.validate_array("position_shift", encoding, "length dim", allow_nan=False)
    length, dim = array.shape
    if not 0 < delta < length:
        raise UsageError(
            f"position_shift: invalid value {delta} for delta: must be in 1..{length - 1} for {length} positions."
        )
    if matrix is None:
        shift_matrix = _fit_shift_matrix(array, delta)
    else:
        shift_matrix = arrays.validate_array("position_shift", matrix, "dim dim", allow_nan=False)
    rows, columns = shift_matrix.shape
    arrays.validate_equal_sizes("position_shift", dim=dim, matrix_rows=rows, matrix_columns=columns)
    predicted, actual = array[:-delta] @ shift_matrix.T, array[delta:]

    layout = FigureLayout()
    axes = layout.add_axes(0, 0, PANEL_SIDE, PANEL_SIDE)
    vmax = float(np.abs(shift_matrix).max()) or 1.0
    image = draw_cells(axes, shift_matrix, colors.DIVERGING, vmax)
    labeling.draw_title(axes, f"M, shift by {delta}" + (", fitted" if matrix is None else ""), size=8)
    labeling.label_side(axes, "left", None, dim, PANEL_SIDE / dim)
    labeling.label_side(axes, "bottom", None, dim, PANEL_SIDE / dim)
    draw_colorbar(layout, image, PANEL_SIDE + 0.07, 0, PANEL_SIDE, label="")
    _draw_shift_error(layout.add_axes(PANEL_SIDE + 0.85, 0, PANEL_SIDE, PANEL_SIDE), predicted, actual, delta)
    _draw_similarity(layout.add_axes(2 * PANEL_SIDE + 1.3, 0, PANEL_SIDE, PANEL_SIDE), array)
    labeling.draw_headline(layout, title)
    return layout.finish()


def _draw_encoding(
    layout: FigureLayout, array: Any, left: float, cell_size: tuple[float, float], text: str | None, column_name: str
) -> float:
    """Draw an encoding with its color bar and return the right edge."""
    (rows, columns), (cell_height, cell_width) = array.shape, cell_size
    axes = layout.add_axes(left, 0, columns * cell_width, rows * cell_height)
    vmax = arrays.resolve_vmax("position_encoding", None, np.abs(array))
    image = draw_cells(axes, array, colors.DIVERGING, vmax)
    labeling.label_side(axes, "left", None, rows, cell_height)
    labeling.label_side(axes, "top", None, columns, cell_width)
    axes.xaxis.set_label_position("top")
    axes.set(xlabel=column_name, ylabel="position" if left == 0 else "")
    labeling.draw_title(axes, text)
    right = left + columns * cell_width
    if column_name == "feature":
        draw_colorbar(layout, image, right + 0.08, 0, min(2.0, rows * cell_height), label="")
        right += 0.35
    return right


def _fit_shift_matrix(array: Any, delta: int) -> Any:
    num_pairs, dim = len(array) - delta, array.shape[1]
    if num_pairs < dim:
        raise UsageError(
            f"position_shift: {num_pairs} pairs of positions are too few to fit a map of {dim} features; "
            f"pass an encoding of at least {dim + delta} positions."
        )
    return np.linalg.lstsq(array[:-delta], array[delta:], rcond=None)[0].T


def _draw_shift_error(axes: Any, predicted: Any, actual: Any, delta: int) -> None:
    limits = [float(min(predicted.min(), actual.min())), float(max(predicted.max(), actual.max()))]
    axes.plot(limits, limits, color=colors.LINE_COLOR, linewidth=0.8, zorder=0)
    sample = slice(None, None, max(1, predicted.size // 4000))
    style = {"color": colors.CURVE_COLOR, "markersize": 2, "alpha": 0.5, "mew": 0}
    axes.plot(actual.ravel()[sample], predicted.ravel()[sample], ".", **style)
    axes.set_xlabel(f"p[i + {delta}]", fontsize=8)
    axes.set_ylabel("M p[i]", fontsize=8, labelpad=1)
    labeling.draw_title(axes, f"largest error {float(np.abs(predicted - actual).max()):.2g}", size=8)
    _simplify_axes(axes)


def _draw_similarity(axes: Any, array: Any) -> None:
    """Draw the mean and the range of dot products by distance."""
    dots = array @ array.T
    distances = range(-(len(array) - 1), len(array))
    diagonals = [np.diagonal(dots, distance) for distance in distances]
    lower, upper = [d.min() for d in diagonals], [d.max() for d in diagonals]
    axes.fill_between(distances, lower, upper, color=colors.POINT_COLOR, alpha=0.3, linewidth=0)
    axes.plot(distances, [d.mean() for d in diagonals], color=colors.CURVE_COLOR, linewidth=1)
    axes.set_xlabel("j - i", fontsize=8)
    labeling.draw_title(axes, "p[i] . p[j]", size=8)
    _simplify_axes(axes)


def _simplify_axes(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.locator_params(nbins=5)
