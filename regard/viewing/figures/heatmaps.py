"""A matrix as colored cells, with a bar that says what the colors mean.

Who looks at whom: a matrix of weights between two sentences.

All heads of all layers beside each other, on one scale.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard._imports import require_extra
from regard.errors import UsageError
from regard.viewing import _arrays as check
from regard.viewing._arrays import max_pool
from regard.viewing._text import truncate
from regard.viewing.figures.figure import (
    ACCENT_COLOR,
    DPI,
    INK_COLOR,
    LINE_COLOR,
    NAN_COLOR,
    SEQUENTIAL,
    Figure,
    FigureLayout,
    build_colormap,
    cell_sizes,
    choose_text_color,
    round_to_pixels,
)
from regard.viewing.figures.labels import (
    CHAR_WIDTH,
    SMALL_FONT_SIZE,
    AxisLabels,
    draw_headline,
    escape_text,
    label_axes,
    label_columns,
    label_rows,
    remove_labels,
    show_control_characters,
)
from regard.viewing.figures.labels import draw_title as headed

MAX_RULED_CELLS = 40


MAX_HATCHED_CELLS = 400


PanelBox = tuple[float, float, float, float]  # top, left, height, width


def draw_cells(
    axes: Any,
    array: Any,
    cmap: Any,
    vmin: float,
    vmax: float,
    max_ruled: int = MAX_RULED_CELLS,
    box: PanelBox | None = None,
) -> Any:
    """Draw the matrix, up to so many rows and columns with lines between them; gives matplotlib's image.

    It fills the axes, a cell from -0.5 to 0.5, or the place `at` in axes that count in inches. Where a cell is
    smaller than a pixel, the largest of those that share it is shown, so that no peak is lost.
    """
    rows, columns = array.shape
    place = axes.get_position(original=True)
    down, across = (place.height, place.width) if box is None else box[2:]
    box = (-0.5, -0.5, rows, columns) if box is None else box
    shown = array if vmin < 0 else max_pool(array, *(max(1, round(side * DPI)) for side in (down, across)))
    image = axes.imshow(
        np.ma.masked_invalid(shown),
        cmap=cmap,
        vmin=vmin,
        vmax=vmax,
        aspect="auto",
        interpolation="none",
        extent=(box[1], box[1] + box[3], box[0] + box[2], box[0]),
    )
    if max(rows, columns) <= max_ruled:
        _draw_grid_lines(axes, rows, columns, box)
    _hatch_nan_cells(axes, array, box)
    return image


def draw_colorbar(
    layout: FigureLayout, image: Any, left: float, top: float, height: float, label: str = "weight"
) -> None:
    """The legend of a scale: a thin bar with its ends named."""
    axes = layout.add_axes(left, top, 0.09, height)
    colors = layout.figure.colorbar(image, cax=axes)
    colors.ax.tick_params(colors=layout.ink_color)
    colors.outline.set(linewidth=0.4, edgecolor=LINE_COLOR)
    low, high = image.get_clim()
    middle = (low + high) / 2
    ticks = [low, middle, high] if height > 0.6 else [low, high]
    colors.set_ticks(ticks, labels=[f"{tick:.2g}" if tick else "0" for tick in ticks])
    axes.tick_params(labelsize=7, length=2, width=0.4, pad=2)
    axes.set_ylabel(label, fontsize=7, labelpad=3, color=layout.ink_color)


def draw_legend(axes: Any, handles: list[Any]) -> None:
    """What outlines and hatches mean, below the axes."""
    if handles:
        axes.legend(
            handles=handles,
            loc="upper left",
            bbox_to_anchor=(0, 0),
            ncols=len(handles),
            frameon=False,
            fontsize=7,
            labelcolor=axes.xaxis.label.get_color(),
            borderaxespad=0.3,
            borderpad=0.2,
            handlelength=1.2,
            handleheight=1.2,
            columnspacing=1.2,
        )


def nan_legend_handles(array: Any) -> list[Any]:
    """The line of a legend that says how many cells are NaN; none if there are none."""
    count = int(np.isnan(array).sum())
    if not count:
        return []
    patch = require_extra("matplotlib.patches", extra="draw").Patch
    return [patch(facecolor=NAN_COLOR, edgecolor="#777777", hatch="/////", label=f"NaN: {count}", lw=0)]


def _draw_grid_lines(axes: Any, rows: int, columns: int, box: PanelBox) -> None:
    top, left, down, across = box
    upright = [left + j * across / columns for j in range(1, columns)]
    level = [top + i * down / rows for i in range(1, rows)]
    lines = [[(x, top), (x, top + down)] for x in upright] + [[(left, y), (left + across, y)] for y in level]
    many = require_extra("matplotlib.collections", extra="draw").LineCollection
    axes.add_collection(many(lines, colors=LINE_COLOR, linewidths=0.35), autolim=False)


def _hatch_nan_cells(axes: Any, array: Any, box: PanelBox) -> None:
    rectangle = require_extra("matplotlib.patches", extra="draw").Rectangle
    places = np.argwhere(np.isnan(array))
    down, across = box[2] / array.shape[0], box[3] / array.shape[1]
    for i, j in places if len(places) <= MAX_HATCHED_CELLS else ():
        corner = (box[1] + j * across, box[0] + i * down)
        look = {"fill": False, "hatch": "/////", "edgecolor": "#777777", "linewidth": 0}
        axes.add_patch(rectangle(corner, across, down, **look))


MAX_NUMBERED_CELLS = 144  # up to so many, each has room for its number


Links = Iterable[tuple[int, int]]


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
    """Draw weights as cells: the darker, the more regard; white is 0.

    `rows` and `columns` are labels, such as the words looked from and at. `top` is the weight with the darkest
    color, by default the largest. `sure` and `possible` are links (column, row) to outline, as in the `Gold` of an
    alignment. The numbers are written into the cells if there are few, or as `values` says.

    >>> heatmap(torch.eye(2), row_labels=["the", "cat"], column_labels=["le", "chat"])
    Picture(... x ... pixels)
    """
    array = check.validate_weights("heat", weights, "queries keys")
    queries, keys = array.shape
    names = (
        check.validate_labels("heat", "row", row_labels, queries),
        check.validate_labels("heat", "column", column_labels, keys),
    )
    outlined = _validate_links(sure_links, queries, keys), _validate_links(possible_links, queries, keys)

    sheet, (down, across) = FigureLayout(), cell_sizes(queries, keys)
    axes = sheet.add_axes(0, 0, keys * across, queries * down)
    image = draw_cells(axes, array, build_colormap(SEQUENTIAL), 0.0, check.resolve_vmax("heat", vmax, array))
    label_axes(axes, names, (queries, keys), (down, across))
    headed(axes, title)
    if array.size <= MAX_NUMBERED_CELLS if show_values is None else show_values:
        _write_values(axes, array, image)
    draw_legend(axes, [*_outline_links(axes, *outlined), *nan_legend_handles(array)])
    draw_colorbar(sheet, image, keys * across + 0.1, 0, min(2.0, queries * down))
    return sheet.finish()


def _write_values(axes: Any, array: Any, image: Any) -> None:
    """The number of each cell, in an ink that reads on its color; nothing where it would be 0.00."""
    for (i, j), weight in np.ndenumerate(array):
        if weight >= 0.005:
            ink = choose_text_color(image.cmap(image.norm(weight)))
            axes.text(j, i, f"{weight:.2f}", ha="center", va="center", fontsize=6.5, color=ink)


def _validate_links(links: Links, num_queries: int, num_keys: int) -> set[tuple[int, int]]:
    found = {(int(j), int(i)) for j, i in links}
    for j, i in sorted(found):
        if not (0 <= j < num_keys and 0 <= i < num_queries):
            raise UsageError(
                f"heat: link ({j}, {i}) is outside of {num_keys} columns and {num_queries} rows."
            )
    return found


def _outline_links(
    axes: Any, sure_links: set[tuple[int, int]], possible_links: set[tuple[int, int]]
) -> list[Any]:
    """Frames around the linked cells; gives their lines of the legend."""
    rectangle = require_extra("matplotlib.patches", extra="draw").Rectangle
    shown = []
    for name, style, links in (
        ("sure", "-", sure_links),
        ("possible", (0, (2, 1.5)), possible_links - sure_links),
    ):
        look: dict[str, Any] = {
            "fill": False,
            "edgecolor": ACCENT_COLOR,
            "linewidth": 1.3,
            "linestyle": style,
        }
        for j, i in sorted(links):
            axes.add_patch(rectangle((j - 0.42, i - 0.42), 0.84, 0.84, **look))
        shown += [rectangle((0, 0), 1, 1, label=name, **look)] if links else []
    return shown


PANEL_GAP = 0.07  # inches


MAX_PANEL_SIDE, MIN_PANEL_SIDE = 1.7, 0.45  # inches: the longer side of a panel


PAGE_WIDTH, MAX_FIGURE_SIDE = 9.0, 16.0  # inches: how wide the sheet should be; how large it may become


LABEL_HEIGHT = 1.2 * SMALL_FONT_SIZE / 72  # inches: what a label needs


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
    """Draw every head of every layer: layers from top to bottom, heads from left to right, one scale for all.

    `layers` and `heads` are their numbers or names, by default counted from 0. Labels of queries and keys are written
    where there is room.

    >>> head_grid(torch.eye(5).expand(2, 4, 5, 5))
    Picture(... x ... pixels)
    """
    array = check.validate_weights("heads", weights, "layers heads queries keys")
    depth, many, queries, keys = array.shape
    names = (
        check.validate_labels("heads", "row", row_labels, queries),
        check.validate_labels("heads", "column", column_labels, keys),
    )
    sides = (
        _format_names("layer", check.validate_labels("heads", "layer", layer_names, depth), depth),
        _format_names("head", check.validate_labels("heads", "head", head_names, many), many),
    )
    wrapped = many if depth > 1 else _choose_num_columns(many)
    lines = math.ceil(depth * many / wrapped)
    gaps = (PANEL_GAP if wrapped == many else PANEL_GAP + 0.2, PANEL_GAP)
    room = min(MAX_FIGURE_SIDE / lines - gaps[0], MAX_FIGURE_SIDE / wrapped - gaps[1])
    size = _panel_size(
        queries,
        keys,
        min(PAGE_WIDTH / wrapped - PANEL_GAP, MAX_PANEL_SIDE),
        max(room, 0.02),
        has_labels=any(names),
    )
    tops, lefts = ([i * (size[k] + gaps[k]) for i in range((lines, wrapped)[k])] for k in (0, 1))

    # One pair of axes for all, counting in inches: an axes for each head would take seconds.
    sheet, largest = FigureLayout(), check.resolve_vmax("heads", vmax, array)
    axes = sheet.add_axes(0, 0, lefts[-1] + size[1], tops[-1] + size[0])
    frames = []
    for number, matrix in enumerate(array.reshape(-1, queries, keys)):
        place = (tops[number // wrapped], lefts[number % wrapped], *size)
        image = draw_cells(axes, matrix, build_colormap(SEQUENTIAL), 0.0, largest, box=place)
        frames.append(place)
    _draw_frames(axes, frames)
    _label_tokens(axes, names, size, tops, lefts)
    _label_panels(sheet, axes, sides, frames, above_each=wrapped != many)
    draw_legend(axes, nan_legend_handles(array))
    draw_colorbar(
        sheet, image, lefts[-1] + size[1] + 0.1, 0, max(0.6, min(2.0, lefts[-1] + size[1], 2 * size[0]))
    )
    draw_headline(sheet, title)
    return sheet.finish()


def _choose_num_columns(num_heads: int) -> int:
    """In how many columns to put the heads of one layer, if possible without a gap at the end."""
    least = num_heads if num_heads <= 6 else math.ceil(math.sqrt(num_heads))
    return next((count for count in range(least, 9) if num_heads % count == 0), least)


def _panel_size(
    num_queries: int, num_keys: int, preferred_side: float, max_side: float, has_labels: bool
) -> tuple[float, float]:
    """Height and width of a panel: in the proportion of the matrix, but never thinner than 1 to 3.

    A side of `fine` inches would be fine; there is room for `most`.
    """
    longer = max(num_queries, num_keys)
    side = max(preferred_side, MIN_PANEL_SIDE)
    if has_labels and longer * LABEL_HEIGHT <= MAX_PANEL_SIDE:
        side = max(side, longer * LABEL_HEIGHT + 0.01)
    side = min(side, max_side)
    return round_to_pixels(side * max(num_queries / longer, 1 / 3)), round_to_pixels(
        side * max(num_keys / longer, 1 / 3)
    )


def _format_names(axis: str, names: list[str] | None, count: int) -> list[str]:
    return [f"{axis} {name}" if str(name).isdigit() else name for name in names or map(str, range(count))]


def _draw_frames(axes: Any, frames: list[PanelBox]) -> None:
    """Thin frames around the matrices, in axes that end where they end."""
    patches, collections = (
        require_extra(f"matplotlib.{name}", extra="draw") for name in ("patches", "collections")
    )
    boxes = [patches.Rectangle((left, top), across, down) for top, left, down, across in frames]
    look = {"facecolor": "none", "edgecolor": INK_COLOR, "linewidth": 0.4, "clip_on": False}
    axes.add_collection(collections.PatchCollection(boxes, **look))
    axes.spines[:].set_visible(False)
    axes.set_xlim(0, max(left + across for _, left, _, across in frames))
    axes.set_ylim(max(top + down for top, _, down, _ in frames), 0)


def _label_tokens(
    axes: Any, names: AxisLabels, size: tuple[float, float], tops: list[float], lefts: list[float]
) -> None:
    remove_labels(axes)
    rows, columns = names
    if rows and size[0] / len(rows) >= LABEL_HEIGHT:
        label_rows(axes, rows, len(rows), size[0] / len(rows), tops)
    if columns and size[1] / len(columns) >= LABEL_HEIGHT:
        label_columns(axes, columns, len(columns), size[1] / len(columns), lefts)


def _label_panels(
    layout: FigureLayout,
    axes: Any,
    sides: tuple[list[str], list[str]],
    frames: list[PanelBox],
    above_each: bool,
) -> None:
    """Which layer and head it is: at the edges of the sheet, or above each panel if one layer is wrapped."""
    edge = axes.get_tightbbox(layout.figure.canvas.get_renderer())
    corner = axes.transData.inverted().transform((edge.x0, edge.y1))
    left_edge, top_edge = min(0.0, corner[0]), min(0.0, corner[1])
    room = max(8, int(72 * min(frames[0][2:]) / (7 * CHAR_WIDTH)))  # columns that a name may have in 7 points
    texts, how = escape_text(
        *(truncate(show_control_characters(name), room) for name in (*sides[0], *sides[1]))
    )
    how |= {"fontsize": 7, "color": INK_COLOR}
    layers, heads = texts[: len(sides[0])], texts[len(sides[0]) :]
    for name, (top, left, _, across) in zip(heads, frames, strict=False):
        place = (left + across / 2, (top_edge if top == 0 else top) - 0.04)
        axes.text(*place, name, ha="center", va="bottom", **how)
    for number, name in enumerate(() if above_each else layers):
        top, _, down, _ = frames[number * len(heads)]
        place = (left_edge - 0.06, top + down / 2)
        axes.text(*place, name, ha="right", va="center", rotation=90, **how)
