"""Who may be looked at: a mask as dark cells where a query may look, light ones where it may not.

Positional encodings as a matrix, and what a step does to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Shaped
from torch import Tensor

from regard.attention import Mask
from regard.errors import UsageError
from regard.viewing import _arrays as check
from regard.viewing._arrays import describe_mask, materialize_mask
from regard.viewing.figures.figure import (
    CURVE_COLOR,
    DIVERGING,
    LINE_COLOR,
    MAX_SIDE,
    POINT_COLOR,
    SEQUENTIAL,
    Figure,
    FigureLayout,
    build_colormap,
    cell_sizes,
)
from regard.viewing.figures.heatmaps import draw_cells, draw_colorbar
from regard.viewing.figures.labels import (
    AxisLabels,
    draw_headline,
    draw_title,
    label_axes,
    label_columns,
    label_rows,
    number_columns,
    remove_labels,
)

MAX_MASKS = 16  # masks of a batch


MAX_MASK_SIDE = 5.0  # inches: where there are no words to write


MASK_VMAX = 1.6  # of the scale's end: visible cells are dark, but not black


def mask_matrix(
    mask: Mask | Bool[Tensor, "*batch queries keys"],
    num_queries: int | None = None,
    num_keys: int | None = None,
    *,
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw a mask, named by its rule: dark where a query may look at a key.

    A rule needs to know how many `queries` and `keys` there are; a tensor tells by its shape. Of a batch the first
    sixteen are drawn.

    >>> from regard.attention import causal, window
    >>> mask_matrix(causal() & window(3, 0), num_queries=8)
    Picture(... x ... pixels)
    """
    seen = materialize_mask("mask", mask, num_queries, num_keys)
    longest = MAX_MASK_SIDE if row_labels is None and column_labels is None else MAX_SIDE
    down, across = cell_sizes(seen.shape[1], seen.shape[2], longest)
    names = (
        check.validate_labels("mask", "row", row_labels, seen.shape[1]),
        check.validate_labels("mask", "column", column_labels, seen.shape[2]),
    )
    sheet, count = FigureLayout(), min(len(seen), MAX_MASKS)
    size = (seen.shape[1] * down, seen.shape[2] * across)
    if count > 1:  # smaller, and without labels
        size = tuple(side * min(1.0, 2.0 / max(size)) for side in size)
    panels = sheet.add_panels(count, 4, size, (0.3, 0.12))
    for number, axes in enumerate(panels):
        draw_cells(axes, seen[number].astype(float), build_colormap(SEQUENTIAL), 0.0, MASK_VMAX)
        _label_mask(axes, number if count > 1 else None, names, seen.shape[1:], (down, across))
    _draw_mask_title(sheet, panels, describe_mask(mask) if title is None else title, len(seen))
    return sheet.finish()


def _label_mask(
    axes: Any, number: int | None, labels: AxisLabels, counts: tuple[int, int], cell_size: tuple[float, float]
) -> None:
    if number is not None:
        remove_labels(axes)
        draw_title(axes, str(number), size=7, loc="center", pad=3)
        return
    label_axes(axes, labels, counts, cell_size)


def _draw_mask_title(layout: FigureLayout, panels: list[Any], text: str, count: int) -> None:
    if count > len(panels):
        text = f"{text} ({len(panels)} of {count})".strip()
    if len(panels) == 1:
        draw_title(panels[0], text)
    else:
        draw_headline(layout, text)


MAX_ENCODING_SIDE, PANEL_SIDE = 5.0, 2.2  # inches


def position_encoding(
    encoding: Shaped[Tensor, "length dim"],
    *,
    compare_with: Shaped[Tensor, "length size"] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw the vectors of positions as rows: blue above 0, orange below.

    `beside` is another code of the same positions, such as the binary one, which the sines resemble: from fast to
    slow.

    >>> from regard.attention import Sinusoidal
    >>> from regard.attention.positions import binary_code
    >>> position_encoding(Sinusoidal(embed_dim=16).encoding(32), compare_with=binary_code(32))
    Picture(... x ... pixels)
    """
    array = check.validate_array("positions", encoding, "length dim")
    other = None if compare_with is None else check.validate_array("positions", compare_with, "length size")
    check.validate_equal_sizes(
        "positions", positions=len(array), beside=None if other is None else len(other)
    )
    down, across = cell_sizes(array.shape[0], array.shape[1], MAX_ENCODING_SIDE)

    sheet = FigureLayout()
    left = _draw_encoding(sheet, array, 0, down, across, title, "feature")
    if other is not None:
        _draw_encoding(
            sheet, other, left + 0.55, down, max(across, 0.1), None, "bit" if _is_binary(other) else "feature"
        )
    return sheet.finish()


def position_shift(
    encoding: Shaped[Tensor, "length dim"],
    delta: int,
    *,
    matrix: Shaped[Tensor, "dim dim"] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw what a step by `delta` does to an encoding: one linear map, and a likeness that only distance decides.

        p[i + delta] = M p[i]        p[i] . p[j] depends on j - i only

    `matrix` is M (`Sinusoidal.shift_matrix`). Without it M is the best one in the sense of least squares, so that it
    can be seen how far a learned encoding is from having such a map.

    >>> from regard.attention import Sinusoidal
    >>> position = Sinusoidal(embed_dim=16)
    >>> position_shift(position.encoding(64), 5, matrix=position.shift_matrix(5))
    Picture(... x ... pixels)
    """
    array = check.validate_array_without_nan("shift", encoding, "length dim")
    length, dim = array.shape
    if not 0 < delta < length:
        raise UsageError(
            f"shift: delta must be in 1..{length - 1} for {length} positions, but it is {delta}."
        )
    step = (
        _fit_shift_matrix(array, delta)
        if matrix is None
        else check.validate_array_without_nan("shift", matrix, "dim dim")
    )
    check.validate_equal_sizes(
        "shift", features=dim, rows_of_the_matrix=step.shape[0], columns_of_the_matrix=step.shape[1]
    )
    moved, true = array[:-delta] @ step.T, array[delta:]

    sheet = FigureLayout()
    axes = sheet.add_axes(0, 0, PANEL_SIDE, PANEL_SIDE)
    largest = float(np.abs(step).max()) or 1.0
    image = draw_cells(axes, step, build_colormap(DIVERGING), -largest, largest)
    _draw_small_title(axes, f"M, a step by {delta}" + (", fitted" if matrix is None else ""))
    label_rows(axes, None, dim, PANEL_SIDE / dim)
    number_columns(axes, dim, PANEL_SIDE / dim)
    draw_colorbar(sheet, image, PANEL_SIDE + 0.07, 0, PANEL_SIDE, label="")
    _draw_shift_error(sheet.add_axes(PANEL_SIDE + 0.85, 0, PANEL_SIDE, PANEL_SIDE), moved, true, delta)
    _draw_similarity(sheet.add_axes(2 * PANEL_SIDE + 1.3, 0, PANEL_SIDE, PANEL_SIDE), array)
    draw_headline(sheet, title)
    return sheet.finish()


def _draw_encoding(
    layout: FigureLayout,
    array: Any,
    left: float,
    cell_height: float,
    cell_width: float,
    text: str | None,
    column_name: str,
) -> float:
    """One code with its bar; gives where it ends."""
    rows, columns = array.shape
    axes = layout.add_axes(left, 0, columns * cell_width, rows * cell_height)
    largest = check.resolve_vmax("", None, np.abs(array))
    image = draw_cells(axes, array, build_colormap(DIVERGING), -largest, largest)
    label_rows(axes, None, rows, cell_height)
    label_columns(axes, None, columns, cell_width)
    axes.xaxis.set_label_position("top")
    axes.set_xlabel(column_name, fontsize=8)
    axes.set_ylabel("position" if left == 0 else "", fontsize=8)
    draw_title(axes, text)
    end = left + columns * cell_width
    if column_name == "feature":
        draw_colorbar(layout, image, end + 0.08, 0, min(2.0, rows * cell_height), label="")
        end += 0.35
    return end


def _is_binary(array: Any) -> bool:
    return bool(np.isin(array, (0, 1)).all())


def _fit_shift_matrix(array: Any, delta: int) -> Any:
    known, dim = len(array) - delta, array.shape[1]
    if known < dim:
        raise UsageError(
            f"shift: {known} steps cannot tell a map of {dim} features; give an encoding of {dim + delta} positions."
        )
    return np.linalg.lstsq(array[:-delta], array[delta:], rcond=None)[0].T


def _draw_shift_error(axes: Any, predicted: Any, actual: Any, delta: int) -> None:
    ends = [float(min(predicted.min(), actual.min())), float(max(predicted.max(), actual.max()))]
    axes.plot(ends, ends, color=LINE_COLOR, linewidth=0.8, zorder=0)
    points = slice(None, None, max(1, predicted.size // 4000))
    axes.plot(
        actual.ravel()[points],
        predicted.ravel()[points],
        ".",
        color=CURVE_COLOR,
        markersize=2,
        alpha=0.5,
        mew=0,
    )
    axes.set_xlabel(f"p[i + {delta}]", fontsize=8)
    axes.set_ylabel("M p[i]", fontsize=8, labelpad=1)
    _draw_small_title(axes, f"largest error {float(np.abs(predicted - actual).max()):.2g}")
    _simplify_axes(axes)


def _draw_similarity(axes: Any, array: Any) -> None:
    """Dot products by distance: their mean, and between which values they lie."""
    dots = array @ array.T
    distances = range(-(len(array) - 1), len(array))
    of = [np.diagonal(dots, distance) for distance in distances]
    axes.fill_between(
        distances, [d.min() for d in of], [d.max() for d in of], color=POINT_COLOR, alpha=0.3, linewidth=0
    )
    axes.plot(distances, [d.mean() for d in of], color=CURVE_COLOR, linewidth=1)
    axes.set_xlabel("j - i", fontsize=8)
    _draw_small_title(axes, "p[i] . p[j]")
    _simplify_axes(axes)


def _draw_small_title(axes: Any, text: str) -> None:
    draw_title(axes, text, size=8)


def _simplify_axes(axes: Any) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.locator_params(nbins=5)
    axes.tick_params(labelsize=7, length=2, width=0.4, pad=2)
