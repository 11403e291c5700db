"""Heatmaps of attention weights: one matrix, or all heads of all layers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard._imports import require_extra
from regard.errors import UsageError
from regard.viewing import _arrays as arrays
from regard.viewing._text import truncate
from regard.viewing.figures import _colors as colors
from regard.viewing.figures import _labeling as labeling
from regard.viewing.figures.figure import DPI, Figure, FigureLayout, cell_sizes, round_to_pixels

__all__ = ["PanelBox", "draw_cells", "draw_colorbar", "draw_legend", "head_grid", "heatmap", "nan_legend_handles"]

MAX_RULED_CELLS = 40  # rows or columns with lines between the cells
MAX_HATCHED_CELLS = 400
MAX_NUMBERED_CELLS = 144
PANEL_GAP = 0.07  # inches
MAX_PANEL_SIDE, MIN_PANEL_SIDE = 1.7, 0.45  # inches: the longer side of a panel
PAGE_WIDTH, MAX_FIGURE_SIDE = 9.0, 16.0  # inches
LABEL_HEIGHT = 1.2 * labeling.SMALL_FONT_SIZE / 72  # inches
Links = Iterable[tuple[int, int]]
PanelBox = tuple[float, float, float, float]  # top, left, height, width


def heatmap(
    weights: Shaped[Tensor, "queries keys"],
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    *,
    title: str | None = None,
    vmax: float | None = None,
    sure_links: Links = (),
    possible_links: Links = (),
    show_values: bool | None = None,
) -> Figure:
    """Draw a matrix of weights: the larger a weight, the darker its cell; 0 is white.

    Args:
        weights: attention weights
        row_labels: one per query, such as the target tokens
        column_labels: one per key, such as the source tokens
        title: drawn above
        vmax: the weight with the darkest color; None: the largest weight
        sure_links: cells (column, row) to outline, as in `GoldAlignment`
        possible_links: cells to outline with a dashed line
        show_values: write the weights into the cells; None: if there are few cells

    Shape:
        weights (queries, keys)

    Example:
        >>> heatmap(torch.eye(2), row_labels=["the", "cat"], column_labels=["le", "chat"])
        Figure(... x ... pixels)
    """
    array = arrays.validate_weights("heatmap", weights, "queries keys")
    queries, keys = array.shape
    labels = arrays.validate_axis_labels("heatmap", row_labels, column_labels, (queries, keys))
    sure, possible = (_validate_links(sure_links, queries, keys), _validate_links(possible_links, queries, keys))

    layout, (height, width) = FigureLayout(), cell_sizes(queries, keys)
    axes = layout.add_axes(0, 0, keys * width, queries * height)
    vmax = arrays.resolve_vmax("heatmap", vmax, array)
    image = draw_cells(axes, array, colors.SEQUENTIAL, vmax)
    labeling.label_axes(axes, labels, (queries, keys), (height, width))
    labeling.draw_title(axes, title)
    if array.size <= MAX_NUMBERED_CELLS if show_values is None else show_values:
        _write_values(axes, array, image)
    draw_legend(axes, [*_outline_links(axes, sure, possible), *nan_legend_handles(array)])
    draw_colorbar(layout, image, keys * width + 0.1, 0, min(2.0, queries * height))
    return layout.finish()


def head_grid(
    weights: Shaped[Tensor, "layers heads queries keys"],
    row_labels: Sequence[str] | None = None,
    column_labels: Sequence[str] | None = None,
    *,
    layer_names: Sequence[object] | None = None,
    head_names: Sequence[object] | None = None,
    title: str | None = None,
    vmax: float | None = None,
) -> Figure:
    """Draw every head of every layer on one color scale: layers from top to bottom, heads from left to right.

    Args:
        weights: attention weights
        row_labels: one per query, drawn where there is space
        column_labels: one per key, drawn where there is space
        layer_names: numbers or names; None: numbers from 0
        head_names: numbers or names; None: numbers from 0
        title: drawn above
        vmax: the weight with the darkest color; None: the largest weight

    Shape:
        weights (layers, heads, queries, keys)

    Example:
        >>> head_grid(torch.eye(5).expand(2, 4, 5, 5))
        Figure(... x ... pixels)
    """
    array = arrays.validate_weights("head_grid", weights, "layers heads queries keys")
    layers, heads, queries, keys = array.shape
    labels = arrays.validate_axis_labels("head_grid", row_labels, column_labels, (queries, keys))
    names = _format_names("layer", layer_names, layers), _format_names("head", head_names, heads)
    num_columns = heads if layers > 1 else _choose_num_columns(heads)
    num_rows = math.ceil(layers * heads / num_columns)
    gaps = (PANEL_GAP if num_columns == heads else PANEL_GAP + 0.2, PANEL_GAP)
    max_side = min(MAX_FIGURE_SIDE / num_rows - gaps[0], MAX_FIGURE_SIDE / num_columns - gaps[1])
    preferred_side = min(PAGE_WIDTH / num_columns - PANEL_GAP, MAX_PANEL_SIDE)
    size = _panel_size(queries, keys, preferred_side, max(max_side, 0.02), has_labels=any(labels))
    tops = [i * (size[0] + gaps[0]) for i in range(num_rows)]
    lefts = [i * (size[1] + gaps[1]) for i in range(num_columns)]

    # One pair of axes in inches for all heads: axes for each head would take seconds.
    layout, vmax = FigureLayout(), arrays.resolve_vmax("head_grid", vmax, array)
    axes = layout.add_axes(0, 0, lefts[-1] + size[1], tops[-1] + size[0])
    boxes = [(tops[index // num_columns], lefts[index % num_columns], *size) for index in range(layers * heads)]
    for box, matrix in zip(boxes, array.reshape(-1, queries, keys), strict=True):
        image = draw_cells(axes, matrix, colors.SEQUENTIAL, vmax, box=box)
    _draw_frames(axes, boxes)
    _label_tokens(axes, labels, size, tops, lefts)
    _label_panels(layout, axes, names, boxes, above_each=num_columns != heads)
    draw_legend(axes, nan_legend_handles(array))
    bar_height = max(0.6, min(2.0, lefts[-1] + size[1], 2 * size[0]))
    draw_colorbar(layout, image, lefts[-1] + size[1] + 0.1, 0, bar_height)
    labeling.draw_headline(layout, title)
    return layout.finish()


def draw_cells(
    axes: Any, array: Any, scale: Sequence[str], vmax: float, has_grid: bool = True, box: PanelBox | None = None
) -> Any:
    """Draw a matrix. Where a pixel covers several cells, the largest is drawn, so that no peak is lost.

    Args:
        axes: the axes
        array: (rows, columns); NaN is hatched
        scale: the colors from 0 to vmax; DIVERGING: from -vmax to vmax
        vmax: the number with the last color
        has_grid: draw lines between the cells, unless there are many
        box: the position in axes that count in inches; None: the full axes, each cell from -0.5 to 0.5

    Returns:
        The image of matplotlib.
    """
    rows, columns = array.shape
    bounds = axes.get_position(original=True)
    height, width = (bounds.height, bounds.width) if box is None else box[2:]
    box = (-0.5, -0.5, rows, columns) if box is None else box
    pixels = [max(1, round(side * DPI)) for side in (height, width)]
    is_signed = scale == colors.DIVERGING
    pooled = array if is_signed else arrays.max_pool(array, *pixels)
    style: dict[str, Any] = {"aspect": "auto", "interpolation": "none", "cmap": colors.build_colormap(scale)}
    extent = (box[1], box[1] + box[3], box[0] + box[2], box[0])
    image = axes.imshow(
        np.ma.masked_invalid(pooled), vmin=-vmax if is_signed else 0.0, vmax=vmax, extent=extent, **style
    )
    if has_grid and max(rows, columns) <= MAX_RULED_CELLS:
        _draw_grid_lines(axes, rows, columns, box)
    _hatch_nan_cells(axes, array, box)
    return image


def draw_colorbar(
    layout: FigureLayout, image: Any, left: float, top: float, height: float, label: str = "weight"
) -> None:
    """Draw a color bar with its ends and middle labeled.

    Args:
        layout: the figure
        image: the image of matplotlib whose colors are explained
        left, top, height: the place, in inches
        label: what the colors stand for
    """
    axes = layout.add_axes(left, top, 0.09, height)
    colorbar = layout.figure.colorbar(image, cax=axes)
    colorbar.outline.set(linewidth=0.4, edgecolor=colors.LINE_COLOR)
    vmin, vmax = image.get_clim()
    ticks = [vmin, (vmin + vmax) / 2, vmax] if height > 0.6 else [vmin, vmax]
    colorbar.set_ticks(ticks, labels=[f"{tick:.2g}" if tick else "0" for tick in ticks])
    axes.set_ylabel(label, fontsize=7, labelpad=3, color=layout.ink_color)


def draw_legend(axes: Any, handles: list[Any]) -> None:
    """Draw a legend below the axes, if there are handles.

    Args:
        axes: the axes of matplotlib
        handles: the entries
    """
    if handles:
        place = {"loc": "upper left", "bbox_to_anchor": (0, 0), "borderaxespad": 0.3}
        spacing = {"borderpad": 0.2, "handlelength": 1.2, "handleheight": 1.2, "columnspacing": 1.2}
        style = {"ncols": len(handles), "fontsize": 7, "labelcolor": axes.xaxis.label.get_color(), "frameon": False}
        axes.legend(handles=handles, **place, **spacing, **style)


def nan_legend_handles(array: Any) -> list[Any]:
    """Build the legend entry with the number of NaN, if there are any.

    Args:
        array: the numbers of the figure
    """
    count = int(np.isnan(array).sum())
    if not count:
        return []
    patch = require_extra("matplotlib.patches", extra="draw").Patch
    return [patch(facecolor=colors.NAN_COLOR, edgecolor="#777777", hatch="/////", label=f"NaN: {count}", lw=0)]


def _draw_grid_lines(axes: Any, rows: int, columns: int, box: PanelBox) -> None:
    top, left, height, width = box
    xs = [left + j * width / columns for j in range(1, columns)]
    ys = [top + i * height / rows for i in range(1, rows)]
    lines = [[(x, top), (x, top + height)] for x in xs] + [[(left, y), (left + width, y)] for y in ys]
    collection = require_extra("matplotlib.collections", extra="draw").LineCollection
    axes.add_collection(collection(lines, colors=colors.LINE_COLOR, linewidths=0.35), autolim=False)


def _hatch_nan_cells(axes: Any, array: Any, box: PanelBox) -> None:
    rectangle = require_extra("matplotlib.patches", extra="draw").Rectangle
    indices = np.argwhere(np.isnan(array))
    height, width = box[2] / array.shape[0], box[3] / array.shape[1]
    style = {"fill": False, "hatch": "/////", "edgecolor": "#777777", "linewidth": 0}
    for i, j in indices if len(indices) <= MAX_HATCHED_CELLS else ():
        axes.add_patch(rectangle((box[1] + j * width, box[0] + i * height), width, height, **style))


def _write_values(axes: Any, array: Any, image: Any) -> None:
    """Write the weights that are not 0.00 into their cells, in a color with contrast."""
    for (i, j), weight in np.ndenumerate(array):
        if weight >= 0.005:
            color = colors.choose_text_color(image.cmap(image.norm(weight)))
            axes.text(j, i, f"{weight:.2f}", ha="center", va="center", fontsize=6.5, color=color)


def _validate_links(links: Links, num_queries: int, num_keys: int) -> set[tuple[int, int]]:
    pairs = {(int(j), int(i)) for j, i in links}
    for j, i in sorted(pairs):
        if not (0 <= j < num_keys and 0 <= i < num_queries):
            raise UsageError(f"heatmap: link ({j}, {i}) is outside of {num_keys} columns and {num_queries} rows.")
    return pairs


def _outline_links(axes: Any, sure_links: set[tuple[int, int]], possible_links: set[tuple[int, int]]) -> list[Any]:
    """Draw frames around the linked cells and return the legend entries."""
    rectangle = require_extra("matplotlib.patches", extra="draw").Rectangle
    handles = []
    for name, linestyle, links in (("sure", "-", sure_links), ("possible", (0, (2, 1.5)), possible_links - sure_links)):
        style: dict[str, Any] = {"fill": False, "edgecolor": colors.ACCENT_COLOR, "lw": 1.3, "linestyle": linestyle}
        for j, i in sorted(links):
            axes.add_patch(rectangle((j - 0.42, i - 0.42), 0.84, 0.84, **style))
        handles += [rectangle((0, 0), 1, 1, label=name, **style)] if links else []
    return handles


def _choose_num_columns(num_heads: int) -> int:
    """The number of columns for the heads of one layer, if possible without a gap at the end."""
    smallest = num_heads if num_heads <= 6 else math.ceil(math.sqrt(num_heads))
    return next((count for count in range(smallest, 9) if num_heads % count == 0), smallest)


def _panel_size(
    num_queries: int, num_keys: int, preferred_side: float, max_side: float, has_labels: bool
) -> tuple[float, float]:
    """Height and width of a panel, in the proportion of the matrix, at most 3 to 1."""
    longer = max(num_queries, num_keys)
    side = max(preferred_side, MIN_PANEL_SIDE)
    if has_labels and longer * LABEL_HEIGHT <= MAX_PANEL_SIDE:
        side = max(side, longer * LABEL_HEIGHT + 0.01)
    side = min(side, max_side)
    height, width = (side * max(count / longer, 1 / 3) for count in (num_queries, num_keys))
    return round_to_pixels(height), round_to_pixels(width)


def _format_names(axis: str, names: Sequence[object] | None, count: int) -> list[str]:
    labels = arrays.validate_names("head_grid", axis, names, count)
    return [f"{axis} {label}" if label.isdigit() else label for label in labels]


def _draw_frames(axes: Any, boxes: list[PanelBox]) -> None:
    """Draw thin frames around the matrices and fit the axes to them."""
    patches = require_extra("matplotlib.patches", extra="draw")
    collections = require_extra("matplotlib.collections", extra="draw")
    frames = [patches.Rectangle((left, top), width, height) for top, left, height, width in boxes]
    style = {"facecolor": "none", "edgecolor": colors.INK_COLOR, "linewidth": 0.4, "clip_on": False}
    axes.add_collection(collections.PatchCollection(frames, **style))
    axes.spines[:].set_visible(False)
    axes.set_xlim(0, max(left + width for _, left, _, width in boxes))
    axes.set_ylim(max(top + height for top, _, height, _ in boxes), 0)


def _label_tokens(
    axes: Any, labels: labeling.AxisLabels, size: tuple[float, float], tops: list[float], lefts: list[float]
) -> None:
    labeling.remove_labels(axes)
    for side, names, length, starts in zip(("left", "top"), labels, size, (tops, lefts), strict=True):
        if names and length / len(names) >= LABEL_HEIGHT:
            labeling.label_side(axes, side, names, len(names), length / len(names), starts)


def _label_panels(
    layout: FigureLayout, axes: Any, names: tuple[list[str], list[str]], boxes: list[PanelBox], above_each: bool
) -> None:
    """Draw the names of layers and heads at the edges, or above each panel if one layer has several rows."""
    edge = axes.get_tightbbox(layout.figure.canvas.get_renderer())
    corner = axes.transData.inverted().transform((edge.x0, edge.y1))
    left_edge, top_edge = min(0.0, corner[0]), min(0.0, corner[1])
    max_width = max(8, int(72 * min(boxes[0][2:]) / (7 * labeling.CHAR_WIDTH)))  # columns of a font of 7 points
    texts, options = labeling.escape_text(
        *(truncate(labeling.show_control_characters(name), max_width) for name in (*names[0], *names[1]))
    )
    options |= {"fontsize": 7, "color": colors.INK_COLOR}
    layers, heads = texts[: len(names[0])], texts[len(names[0]) :]
    for name, (top, left, _, width) in zip(heads, boxes, strict=False):
        position = (left + width / 2, (top_edge if top == 0 else top) - 0.04)
        axes.text(*position, name, ha="center", va="bottom", **options)
    for index, name in enumerate(() if above_each else layers):
        top, _, height, _ = boxes[index * len(heads)]
        position = (left_edge - 0.06, top + height / 2)
        axes.text(*position, name, ha="right", va="center", rotation=90, **options)
