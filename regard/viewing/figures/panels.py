"""Where a memory was written and read, over time.

Where on an image each word looked: light falls on what was regarded.

Kernel regression: what was measured, what is predicted, and which measurements each prediction looks at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor
from torch.nn.functional import interpolate

from regard.errors import ShapeError, UsageError
from regard.viewing import _arrays as check
from regard.viewing._arrays import apply_weights_as_light, as_image
from regard.viewing._memory_panels import PANEL_ROWS, MemorySide, MemoryStrip, build_sides
from regard.viewing._text import truncate
from regard.viewing.figures.figure import (
    ACCENT_COLOR,
    CURVE_COLOR,
    DIVERGING,
    DPI,
    INK_COLOR,
    POINT_COLOR,
    SEQUENTIAL,
    SEQUENTIAL_ON_DARK,
    Figure,
    FigureLayout,
    build_colormap,
    cell_sizes,
    round_to_pixels,
)
from regard.viewing.figures.heatmaps import draw_cells, draw_colorbar, draw_legend, nan_legend_handles
from regard.viewing.figures.labels import (
    MAX_LABEL_WIDTH,
    MAX_TITLE_WIDTH,
    draw_headline,
    draw_title,
    escape_text,
    label_rows,
    number_columns,
    remove_labels,
    show_control_characters,
)

MEMORY_GAP, MAX_MEMORY_SIDE = 0.25, 4.0  # inches: between panels, the longest side of one


MIN_STRIP_CELL, MAX_STRIP_CELL = (
    0.06,
    0.13,
)  # inches: a number of a vector, of which there are more than rows at times


CURVE_HEIGHT = 1.0  # inches: curves


WeightsOverTime = Shaped[Tensor, "time rows"]


VectorsOverTime = Shaped[Tensor, "time width"]


def memory_timeline(
    *,
    writes: WeightsOverTime | None = None,
    reads: WeightsOverTime | None = None,
    inputs: Shaped[Tensor, "time inputs"] | None = None,
    outputs: Shaped[Tensor, "time outputs"] | None = None,
    wanted: Shaped[Tensor, "time outputs"] | None = None,
    asked: Bool[Tensor, " time"] | None = None,
    added: VectorsOverTime | None = None,
    returned: VectorsOverTime | None = None,
    rows: Sequence[int] | None = None,
    title: str | None = None,
    dark: bool = False,
) -> Figure:
    """Draw addresses over time, writing left and reading right: time runs to the right, the rows of the memory down.

    Above are vectors: what came in and what was `added` to the memory; what went out, what was `wanted`, and what the
    memory `returned`. What came in, went out and was wanted has one scale, from 0 to 1 if these are probabilities; if
    it is one number a step, what went out and what was wanted are two curves. `asked` are the steps at which an output
    is asked for; at others none is drawn. `rows` are the numbers of the rows, if these are not all of a memory.
    `dark` is how Graves et al. (2014) draw it: light on black.

    >>> memory_timeline(writes=torch.eye(8)[:5], reads=torch.eye(8)[:5], inputs=torch.rand(5, 3))
    Picture(... x ... pixels)
    """
    told = {"inputs": inputs, "added": added, "outputs": outputs, "wanted": wanted, "returned": returned}
    known = build_sides({"write": writes, "read": reads}, told, asked)
    count, steps = known[0].weights.shape[1], max(len(side.weights) for side in known)
    names = check.validate_labels("memory", "row", rows, count)
    top = max(check.resolve_vmax("memory", None, side.weights) for side in known)
    down, across = cell_sizes(count, steps, MAX_MEMORY_SIDE)

    sheet, start = FigureLayout(dark), 0.0
    places = {side.name: place * (steps * across + MEMORY_GAP) for place, side in enumerate(known)}
    for level in PANEL_ROWS:
        high = 0.0
        for side in known:
            spot = (places[side.name], start, min(max(down, MIN_STRIP_CELL), MAX_STRIP_CELL), across)
            high = max(high, _draw_level(sheet, side, level, spot))
        start += high + MEMORY_GAP if high else 0.0
    for side in known:
        axes = sheet.add_axes(places[side.name], start, len(side.weights) * across, count * down)
        image = _draw_memory_weights(axes, sheet, side, across, top)
        if side is known[0]:
            label_rows(axes, names, count, down)
            axes.set_ylabel("row", fontsize=8)
    draw_colorbar(
        sheet,
        image,
        len(known) * (steps * across + MEMORY_GAP) - MEMORY_GAP + 0.1,
        start,
        min(2.0, count * down),
    )
    draw_headline(sheet, title)
    return sheet.finish()


def _draw_level(
    layout: FigureLayout,
    side: MemorySide,
    level: tuple[str | None, str],
    cell_box: tuple[float, float, float, float],
) -> float:
    """Draw what a side has on a level, if anything, and say how many inches high it is."""
    left, start, down, across = cell_box
    kind = level[0] if side.name == "write" else level[1]
    wide = len(side.weights) * across
    if side.is_curve and kind == "outputs":
        _draw_curves(layout.add_axes(left, start, wide, CURVE_HEIGHT), layout, side)
        return CURVE_HEIGHT
    if kind not in side.strips or (side.is_curve and kind == "wanted"):
        return 0.0
    strip = side.strips[kind]
    high = float(strip.values.shape[1] * down)
    _draw_strip(layout.add_axes(left, start, wide, high), layout, kind, strip)
    return high


def _draw_strip(axes: Any, layout: FigureLayout, name: str, strip: MemoryStrip) -> None:
    colors = DIVERGING if strip.is_signed else _sequential_colors(layout)
    draw_cells(axes, strip.masked_values.T, build_colormap(colors), *strip.value_range, max_ruled=0)
    _style_memory_axes(axes, layout, name, strip.scale_label)


def _draw_curves(axes: Any, layout: FigureLayout, side: MemorySide) -> None:
    """What went out beside what was wanted, over the steps of the weights below."""
    said, wanted = side.strips["outputs"], side.strips["wanted"]
    steps, (low, top) = len(side.weights), said.value_range
    line = CURVE_COLOR if layout.paper_color == "white" else SEQUENTIAL_ON_DARK[-2]
    axes.plot(
        range(steps),
        wanted.masked_line,
        color=ACCENT_COLOR,
        linewidth=0.9,
        marker=".",
        markersize=1.5,
        label="wanted",
    )
    axes.plot(
        range(steps), said.masked_line, color=line, linewidth=0.9, marker=".", markersize=1.5, label="output"
    )
    room = 0.04 * (top - low)
    axes.set(xlim=(-0.5, steps - 0.5), ylim=(low - room, top + room))
    _style_memory_axes(axes, layout, "outputs and wanted")
    axes.set_yticks([low, (low + top) / 2, top], [f"{tick:.2g}" for tick in (low, (low + top) / 2, top)])
    axes.yaxis.tick_right()  # the other side is left of it
    axes.tick_params(axis="y", labelsize=6, length=2, width=0.4, pad=2)
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=2,
        frameon=False,
        fontsize=6,
        borderaxespad=0.1,
        borderpad=0.2,
        handlelength=1.2,
        columnspacing=0.8,
        labelcolor=layout.ink_color,
    )


def _draw_memory_weights(
    axes: Any, layout: FigureLayout, side: MemorySide, cell_width: float, vmax: float
) -> Any:
    image = draw_cells(
        axes, side.weights.T, build_colormap(_sequential_colors(layout)), 0.0, vmax, max_ruled=0
    )
    _style_memory_axes(axes, layout, f"{side.name} weights")
    number_columns(axes, len(side.weights), cell_width)
    axes.set_xlabel("time", fontsize=8)
    draw_legend(axes, nan_legend_handles(side.weights))
    return image


def _sequential_colors(layout: FigureLayout) -> tuple[str, ...]:
    return SEQUENTIAL if layout.paper_color == "white" else SEQUENTIAL_ON_DARK


def _style_memory_axes(axes: Any, layout: FigureLayout, name: str, scale_label: str = "") -> None:
    remove_labels(axes)
    draw_title(axes, name, size=8, color=layout.ink_color, pad=3)
    if scale_label:
        axes.set_title(scale_label, loc="right", fontsize=6, color=layout.ink_color, pad=3)


OVERLAY_SIDE = 1.6  # inches: the longer side of a panel


OVERLAYS_PER_ROW, MANY_OVERLAYS_PER_ROW = 5, 8  # panels


MAX_OVERLAYS = 60  # panels


def image_overlay(
    image: Any,
    weights: Shaped[Tensor, "*words rows columns"],
    tokens: Sequence[str] | None = None,
    *,
    smooth: bool = True,
    title: str | None = None,
) -> Figure:
    """Draw an image, and for each word the same image, lit where the word looked.

    `image` is an array or tensor (height, width) or (height, width, 3), of 0..255 as whole numbers or 0..1 as others.
    `weights` is a coarse grid over it, or one a word; between its cells the light fades smoothly, or not. Light is
    brightest at the largest weight of its panel, which is written below it.

    >>> image_overlay(torch.rand(32, 48, 3), torch.rand(2, 4, 6), tokens=["a", "dog"])
    Picture(... x ... pixels)
    """
    picture = as_image("overlay", image)
    axes_of = "rows columns" if weights.dim() == 2 else "words rows columns"
    grids = check.validate_weights("overlay", weights, axes_of).reshape(-1, *weights.shape[-2:])
    if len(grids) > MAX_OVERLAYS:
        raise UsageError(
            f"overlay draws at most {MAX_OVERLAYS} words, not {len(grids)}; give it a part of them."
        )
    names = check.validate_labels("overlay", "word", tokens, len(grids)) or [""] * len(grids)

    sheet, longer = FigureLayout(), max(picture.shape[:2])
    down, across = (round_to_pixels(OVERLAY_SIDE * max(side / longer, 0.2)) for side in picture.shape[:2])
    picture = _resize_image(picture, down, across)
    panels = sheet.add_panels(
        len(grids) + 1,
        OVERLAYS_PER_ROW if len(grids) < 20 else MANY_OVERLAYS_PER_ROW,
        (down, across),
        (0.4, 0.08),
    )
    _draw_overlay(panels[0], picture, "", None)
    for axes, grid, name in zip(panels[1:], grids, names, strict=True):
        _draw_overlay(
            axes,
            apply_weights_as_light(picture, grid, smooth),
            truncate(show_control_characters(name), MAX_LABEL_WIDTH),
            _max_or_nan(grid),
        )
    draw_headline(sheet, title)
    return sheet.finish()


def _max_or_nan(weights: Any) -> float:
    return float("nan") if np.isnan(weights).all() else check.max_ignoring_nan(weights)


def _resize_image(image: Any, height: float, width: float) -> Any:
    """As many pixels as the panel has twice over, in SVG for zooming in; smaller images are made larger."""
    pixels = torch.as_tensor(image).permute(2, 0, 1)[None]
    size = [max(1, round(2 * side * DPI)) for side in (height, width)]
    shrinks = pixels.shape[-2] > size[0]
    how: dict[str, Any] = {"mode": "bilinear", "antialias": True} if shrinks else {"mode": "nearest-exact"}
    return interpolate(pixels, size=size, **how)[0].permute(1, 2, 0).clamp(0, 1).numpy()


def _draw_overlay(axes: Any, pixels: Any, name: str, largest: float | None) -> None:
    axes.imshow(pixels, aspect="auto", interpolation="none")
    remove_labels(axes)
    axes.spines[:].set_visible(False)
    draw_title(axes, name, size=8, loc="center", pad=3)
    if largest is not None:
        axes.set_xlabel(
            "NaN" if np.isnan(largest) else f"up to {largest:.2g}", fontsize=6, labelpad=2, color="#666666"
        )


PLOT_WIDTH, PLOT_HEIGHT = 3.4, 2.3  # inches


NUM_TICKS = 5


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
    truth: QueryValues | None = None,
    axis_labels: tuple[str, str] = ("x", "y"),
    title: str | None = None,
) -> Figure:
    """Draw measurements (x, y) as points, the prediction at `queries` as a curve, and the weights beside them.

    All are tensors or arrays. Where the prediction is NaN, as `KernelRegression` has it where no point is in reach,
    the curve has a gap. A last axis of size 1, as `attend` wants it, is taken off. The rows and columns of the weights
    are put in the order of `queries` and `x`. `truth` is a second curve, if it is known; `names` are those of the axes.

    >>> x = torch.linspace(0, 5, 20)
    >>> seen = attend(x[:, None], x[:, None], x[:, None].sin(), score=Gaussian(width=0.5))
    >>> regression_curve(x, x.sin(), x, seen.context, seen.weights)
    Picture(... x ... pixels)
    """
    known = [_flatten_column("x", x), _flatten_column("y", y)]
    asked = [
        _flatten_column("queries", queries),
        _flatten_column("prediction", prediction, check.validate_array),
    ]
    asked += [] if truth is None else [_flatten_column("truth", truth)]
    check.validate_equal_sizes("regression", x=len(known[0]), y=len(known[1]))
    check.validate_equal_sizes(
        "regression", queries=len(asked[0]), prediction=len(asked[1]), truth=len(asked[-1])
    )
    matrix = None if weights is None else check.validate_weights("regression", weights, "queries keys")
    if matrix is not None and matrix.shape != (len(asked[0]), len(known[0])):
        raise ShapeError(
            f"regression: weights must be ({len(asked[0])} queries, {len(known[0])} keys), not {matrix.shape}."
        )
    axis_labels = (
        truncate(show_control_characters(axis_labels[0]), MAX_TITLE_WIDTH // 2),
        truncate(show_control_characters(axis_labels[1]), MAX_TITLE_WIDTH // 2),
    )
    rows, columns = np.argsort(asked[0], kind="stable"), np.argsort(known[0], kind="stable")

    sheet = FigureLayout()
    axes = sheet.add_axes(0, 0, PLOT_WIDTH, PLOT_HEIGHT)
    _draw_regression(axes, known, [line[rows] for line in asked], axis_labels)
    _draw_plot_title(axes, title)
    if matrix is not None:
        beside = sheet.add_axes(PLOT_WIDTH + 0.75, 0, PLOT_HEIGHT, PLOT_HEIGHT)
        image = draw_cells(
            beside,
            matrix[rows][:, columns],
            build_colormap(SEQUENTIAL),
            0.0,
            check.resolve_vmax("regression", None, matrix),
        )
        _label_ticks(beside, known[0][columns], asked[0][rows], axis_labels[0])
        draw_legend(beside, nan_legend_handles(matrix))
        draw_colorbar(sheet, image, PLOT_WIDTH + 0.75 + PLOT_HEIGHT + 0.08, 0, PLOT_HEIGHT)
    return sheet.finish()


def _flatten_column(
    name: str,
    value: ArrayLike,
    validate: Callable[[str, Tensor, str], Any] = check.validate_array_without_nan,
) -> Any:
    tensor = check.as_tensor(value)
    if tensor.dim() == 2 and tensor.shape[-1] == 1:
        tensor = tensor[:, 0]
    return validate(f"regression ({name})", tensor, "length")


def _draw_regression(axes: Any, measured: list[Any], curves: list[Any], axis_labels: tuple[str, str]) -> None:
    axes.plot(*measured, "o", color=POINT_COLOR, markersize=2.5, mew=0, alpha=0.8, label="measured")
    if len(curves) == 3:
        axes.plot(curves[0], curves[2], "--", color=ACCENT_COLOR, linewidth=1, label="truth")
    axes.plot(curves[0], curves[1], color=CURVE_COLOR, linewidth=1.4, label="predicted")
    (across, down), how = escape_text(*axis_labels)
    axes.set_xlabel(across, fontsize=8, **how)
    axes.set_ylabel(down, fontsize=8, **how)
    axes.tick_params(labelsize=7, length=2, width=0.4, pad=2)
    axes.spines[["top", "right"]].set_visible(False)
    # Above the axes, at the right: no point can lie under it there.
    axes.legend(
        loc="lower right",
        bbox_to_anchor=(1, 1),
        ncols=3,
        frameon=False,
        fontsize=7,
        borderaxespad=0,
        handlelength=1.4,
        labelcolor=INK_COLOR,
    )


def _draw_plot_title(axes: Any, text: str | None) -> None:
    draw_title(axes, text, pad=18)


def _label_ticks(axes: Any, keys: Any, queries: Any, name: str) -> None:
    """Write at some rows and columns which x they stand for."""
    for which, places in (("x", keys), ("y", queries)):
        ticks = np.unique(np.linspace(0, len(places) - 1, NUM_TICKS).round().astype(int))
        set_ticks = axes.set_xticks if which == "x" else axes.set_yticks
        set_ticks(ticks, [f"{places[i]:.3g}" for i in ticks], fontsize=7)
    (key, query), how = escape_text(
        *(text.format(truncate(name, MAX_LABEL_WIDTH)) for text in ("key: {}", "query: {}"))
    )
    axes.set_xlabel(key, fontsize=8, **how)
    axes.set_ylabel(query, fontsize=8, labelpad=2, **how)
    axes.tick_params(length=2, width=0.4, pad=2)
