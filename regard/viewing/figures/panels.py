"""Figures of an external memory over time, of weights on an image, and of kernel regression."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Shaped
from torch import Tensor
from torch.nn.functional import interpolate

from regard.errors import ShapeError, UsageError
from regard.viewing import _arrays as arrays
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

__all__ = ["image_overlay", "memory_timeline", "regression_curve"]

MEMORY_GAP, MAX_MEMORY_SIDE = 0.25, 4.0  # inches: between panels, the longer side of a panel
MIN_STRIP_CELL, MAX_STRIP_CELL = 0.06, 0.13  # inches: the height of a cell of a vector
CURVE_HEIGHT = 1.0  # inches
OVERLAY_SIDE = 1.6  # inches: the longer side of a panel
OVERLAYS_PER_ROW, MANY_OVERLAYS_PER_ROW = 5, 8
MAX_OVERLAYS = 60
PLOT_WIDTH, PLOT_HEIGHT = 3.4, 2.3  # inches
NUM_TICKS = 5
WeightsOverTime = Shaped[Tensor, "steps rows"]
VectorsOverTime = Shaped[Tensor, "steps size"]
# With a last axis of size 1, as `attend` expects it, or without.
ArrayLike = Tensor | np.ndarray
KeyValues = Shaped[ArrayLike, "keys"] | Shaped[ArrayLike, "keys 1"]
QueryValues = Shaped[ArrayLike, "queries"] | Shaped[ArrayLike, "queries 1"]


def memory_timeline(
    *,
    write_weights: WeightsOverTime | None = None,
    read_weights: WeightsOverTime | None = None,
    inputs: Shaped[Tensor, "steps inputs"] | None = None,
    outputs: Shaped[Tensor, "steps outputs"] | None = None,
    targets: Shaped[Tensor, "steps outputs"] | None = None,
    target_mask: Bool[Tensor, " steps"] | None = None,
    add_vectors: VectorsOverTime | None = None,
    read_vectors: VectorsOverTime | None = None,
    row_labels: Sequence[int] | None = None,
    title: str | None = None,
    dark: bool = False,
) -> Figure:
    """Draw the weights of a memory over time, writing left and reading right, with vectors above them.

    Inputs, outputs and targets share one color scale, from 0 to 1 for probabilities. Outputs and targets of one number
    per step are drawn as curves.

    Args:
        write_weights: the weights of a write head
        read_weights: the weights of a read head
        inputs: the input vectors
        outputs: the output vectors
        targets: the target outputs
        target_mask: the steps with a target; outputs at other steps are not drawn
        add_vectors: the vectors added to the memory
        read_vectors: the vectors read from the memory
        row_labels: the numbers of the rows, if they are a part of the memory
        title: drawn above
        dark: light on black, as in Graves et al. (2014)

    Shape:
        weights (steps, rows), vectors (steps, size), target_mask (steps,)

    Example:
        >>> memory_timeline(write_weights=torch.eye(8)[:5], read_weights=torch.eye(8)[:5], inputs=torch.rand(5, 3))
        Figure(... x ... pixels)
    """
    vectors = {
        "inputs": inputs,
        "add_vectors": add_vectors,
        "outputs": outputs,
        "targets": targets,
        "read_vectors": read_vectors,
    }
    sides = build_sides({"write": write_weights, "read": read_weights}, vectors, target_mask)
    rows, steps = sides[0].weights.shape[1], max(len(side.weights) for side in sides)
    labels = arrays.validate_labels("memory_timeline", "row", row_labels, rows)
    vmax = max(arrays.resolve_vmax("memory_timeline", None, side.weights) for side in sides)
    height, width = cell_sizes(rows, steps, MAX_MEMORY_SIDE)

    layout, top = FigureLayout(dark), 0.0
    lefts = {side.name: index * (steps * width + MEMORY_GAP) for index, side in enumerate(sides)}
    strip_height = min(max(height, MIN_STRIP_CELL), MAX_STRIP_CELL)
    for level in PANEL_ROWS:
        level_height = 0.0
        for side in sides:
            box = (lefts[side.name], top, strip_height, width)
            level_height = max(level_height, _draw_level(layout, side, level, box))
        top += level_height + MEMORY_GAP if level_height else 0.0
    for side in sides:
        axes = layout.add_axes(lefts[side.name], top, len(side.weights) * width, rows * height)
        image = _draw_memory_weights(axes, layout, side, width, vmax)
        if side is sides[0]:
            label_rows(axes, labels, rows, height)
            axes.set_ylabel("row", fontsize=8)
    right = len(sides) * (steps * width + MEMORY_GAP) - MEMORY_GAP
    draw_colorbar(layout, image, right + 0.1, top, min(2.0, rows * height))
    draw_headline(layout, title)
    return layout.finish()


def image_overlay(
    image: Any,
    weights: Shaped[Tensor, "*tokens rows columns"],
    tokens: Sequence[str] | None = None,
    *,
    smooth: bool = True,
    title: str | None = None,
) -> Figure:
    """Draw an image and, for each token, the image lit by its weights.

    Each panel is scaled by its largest weight, which is written below it.

    Args:
        image: an array or tensor (height, width) or (height, width, 3), integers 0..255 or floats 0..1
        weights: a coarse grid over the image, or one per token
        tokens: the titles of the panels
        smooth: interpolate between the cells of the grid
        title: drawn above

    Shape:
        weights (*tokens, rows, columns)

    Example:
        >>> image_overlay(torch.rand(32, 48, 3), torch.rand(2, 4, 6), tokens=["a", "dog"])
        Figure(... x ... pixels)
    """
    pixels = arrays.as_image("image_overlay", image)
    axis_names = "rows columns" if weights.dim() == 2 else "tokens rows columns"
    grids = arrays.validate_weights("image_overlay", weights, axis_names).reshape(-1, *weights.shape[-2:])
    if len(grids) > MAX_OVERLAYS:
        raise UsageError(f"image_overlay draws at most {MAX_OVERLAYS} tokens, got {len(grids)}; pass a part of them.")
    names = arrays.validate_labels("image_overlay", "token", tokens, len(grids)) or [""] * len(grids)

    layout, longer = FigureLayout(), max(pixels.shape[:2])
    height, width = (round_to_pixels(OVERLAY_SIDE * max(side / longer, 0.2)) for side in pixels.shape[:2])
    pixels = _resize_image(pixels, height, width)
    columns = OVERLAYS_PER_ROW if len(grids) < 20 else MANY_OVERLAYS_PER_ROW
    panels = layout.add_panels(len(grids) + 1, columns, (height, width), (0.4, 0.08))
    _draw_overlay(panels[0], pixels, "", None)
    for axes, grid, name in zip(panels[1:], grids, names, strict=True):
        label = truncate(show_control_characters(name), MAX_LABEL_WIDTH)
        _draw_overlay(axes, arrays.apply_weights_as_light(pixels, grid, smooth), label, _max_or_nan(grid))
    draw_headline(layout, title)
    return layout.finish()


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
    """Draw the data of a kernel regression as points, its prediction as a curve, and its weights.

    The curve has a gap where the prediction is NaN, as `KernelRegression` returns it where no point is in reach.

    Args:
        x: the positions of the data (keys)
        y: the data (values)
        queries: the positions of the prediction
        prediction: the predicted values
        weights: attention weights; rows and columns are sorted by `queries` and `x`
        truth: the true curve at `queries`
        axis_labels: of the x and the y axis
        title: drawn above

    Shape:
        x and y (keys,) or (keys, 1), queries, prediction and truth (queries,) or (queries, 1), weights (queries, keys)

    Example:
        >>> x = torch.linspace(0, 5, 20)
        >>> output = attend(x[:, None], x[:, None], x[:, None].sin(), score=Gaussian(width=0.5))
        >>> regression_curve(x, x.sin(), x, output.context, output.weights)
        Figure(... x ... pixels)
    """
    measured = [_flatten_column("x", x), _flatten_column("y", y)]
    curves = [_flatten_column("queries", queries), _flatten_column("prediction", prediction, arrays.validate_array)]
    curves += [] if truth is None else [_flatten_column("truth", truth)]
    arrays.validate_equal_sizes("regression_curve", x=len(measured[0]), y=len(measured[1]))
    arrays.validate_equal_sizes(
        "regression_curve", queries=len(curves[0]), prediction=len(curves[1]), truth=len(curves[-1])
    )
    matrix = None
    if weights is not None:
        matrix = arrays.validate_weights("regression_curve", weights, "queries keys")
        expected = (len(curves[0]), len(measured[0]))
        if matrix.shape != expected:
            raise ShapeError(f"regression_curve: weights must be (queries, keys) = {expected}, got {matrix.shape}.")
    x_label, y_label = (truncate(show_control_characters(label), MAX_TITLE_WIDTH // 2) for label in axis_labels)
    rows, columns = np.argsort(curves[0], kind="stable"), np.argsort(measured[0], kind="stable")

    layout = FigureLayout()
    axes = layout.add_axes(0, 0, PLOT_WIDTH, PLOT_HEIGHT)
    _draw_regression(axes, measured, [curve[rows] for curve in curves], (x_label, y_label))
    draw_title(axes, title, pad=18)
    if matrix is not None:
        matrix_axes = layout.add_axes(PLOT_WIDTH + 0.75, 0, PLOT_HEIGHT, PLOT_HEIGHT)
        vmax = arrays.resolve_vmax("regression_curve", None, matrix)
        image = draw_cells(matrix_axes, matrix[rows][:, columns], build_colormap(SEQUENTIAL), 0.0, vmax)
        _label_ticks(matrix_axes, measured[0][columns], curves[0][rows], x_label)
        draw_legend(matrix_axes, nan_legend_handles(matrix))
        draw_colorbar(layout, image, PLOT_WIDTH + 0.75 + PLOT_HEIGHT + 0.08, 0, PLOT_HEIGHT)
    return layout.finish()


def _draw_level(
    layout: FigureLayout, side: MemorySide, level: tuple[str | None, str], box: tuple[float, float, float, float]
) -> float:
    """Draw the vectors of one side in a row of panels and return their height in inches."""
    left, top, cell_height, cell_width = box
    name = level[0] if side.name == "write" else level[1]
    width = len(side.weights) * cell_width
    if side.is_curve and name == "outputs":
        _draw_curves(layout.add_axes(left, top, width, CURVE_HEIGHT), layout, side)
        return CURVE_HEIGHT
    if name not in side.strips or (side.is_curve and name == "targets"):
        return 0.0
    strip = side.strips[name]
    height = float(strip.values.shape[1] * cell_height)
    _draw_strip(layout.add_axes(left, top, width, height), layout, name, strip)
    return height


def _draw_strip(axes: Any, layout: FigureLayout, name: str, strip: MemoryStrip) -> None:
    colors = DIVERGING if strip.is_signed else _sequential_colors(layout)
    draw_cells(axes, strip.masked_values.T, build_colormap(colors), *strip.value_range, max_ruled=0)
    _style_memory_axes(axes, layout, name.replace("_", " "), strip.scale_label)


def _draw_curves(axes: Any, layout: FigureLayout, side: MemorySide) -> None:
    """Draw outputs and targets of one number per step."""
    outputs, targets = side.strips["outputs"], side.strips["targets"]
    steps, (low, high) = len(side.weights), outputs.value_range
    color = CURVE_COLOR if layout.paper_color == "white" else SEQUENTIAL_ON_DARK[-2]
    style: dict[str, Any] = {"linewidth": 0.9, "marker": ".", "markersize": 1.5}
    axes.plot(range(steps), targets.masked_line, color=ACCENT_COLOR, label="target", **style)
    axes.plot(range(steps), outputs.masked_line, color=color, label="output", **style)
    margin = 0.04 * (high - low)
    axes.set(xlim=(-0.5, steps - 0.5), ylim=(low - margin, high + margin))
    _style_memory_axes(axes, layout, "outputs and targets")
    ticks = (low, (low + high) / 2, high)
    axes.set_yticks(list(ticks), [f"{tick:.2g}" for tick in ticks])
    axes.yaxis.tick_right()  # the write side is at the left
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


def _draw_memory_weights(axes: Any, layout: FigureLayout, side: MemorySide, cell_width: float, vmax: float) -> Any:
    colormap = build_colormap(_sequential_colors(layout))
    image = draw_cells(axes, side.weights.T, colormap, 0.0, vmax, max_ruled=0)
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


def _max_or_nan(weights: Any) -> float:
    return float("nan") if np.isnan(weights).all() else arrays.max_ignoring_nan(weights)


def _resize_image(image: Any, height: float, width: float) -> Any:
    """Resize to twice the pixels of the panel, for zooming into SVG."""
    pixels = torch.as_tensor(image).permute(2, 0, 1)[None]
    size = [max(1, round(2 * side * DPI)) for side in (height, width)]
    is_reduced = pixels.shape[-2] > size[0]
    mode: dict[str, Any] = {"mode": "bilinear", "antialias": True} if is_reduced else {"mode": "nearest-exact"}
    return interpolate(pixels, size=size, **mode)[0].permute(1, 2, 0).clamp(0, 1).numpy()


def _draw_overlay(axes: Any, pixels: Any, name: str, largest: float | None) -> None:
    axes.imshow(pixels, aspect="auto", interpolation="none")
    remove_labels(axes)
    axes.spines[:].set_visible(False)
    draw_title(axes, name, size=8, loc="center", pad=3)
    if largest is not None:
        text = "NaN" if np.isnan(largest) else f"up to {largest:.2g}"
        axes.set_xlabel(text, fontsize=6, labelpad=2, color="#666666")


def _flatten_column(
    name: str, value: ArrayLike, validate: Callable[[str, Tensor, str], Any] = arrays.validate_array_without_nan
) -> Any:
    tensor = arrays.as_tensor(value)
    if tensor.dim() == 2 and tensor.shape[-1] == 1:
        tensor = tensor[:, 0]
    return validate(f"regression_curve ({name})", tensor, "length")


def _draw_regression(axes: Any, measured: list[Any], curves: list[Any], axis_labels: tuple[str, str]) -> None:
    axes.plot(*measured, "o", color=POINT_COLOR, markersize=2.5, mew=0, alpha=0.8, label="data")
    if len(curves) == 3:
        axes.plot(curves[0], curves[2], "--", color=ACCENT_COLOR, linewidth=1, label="truth")
    axes.plot(curves[0], curves[1], color=CURVE_COLOR, linewidth=1.4, label="prediction")
    (x_label, y_label), options = escape_text(*axis_labels)
    axes.set_xlabel(x_label, fontsize=8, **options)
    axes.set_ylabel(y_label, fontsize=8, **options)
    axes.tick_params(labelsize=7, length=2, width=0.4, pad=2)
    axes.spines[["top", "right"]].set_visible(False)
    # Above the axes, where it covers no point.
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


def _label_ticks(axes: Any, keys: Any, queries: Any, name: str) -> None:
    """Label some rows and columns with their positions."""
    for positions, set_ticks in ((keys, axes.set_xticks), (queries, axes.set_yticks)):
        ticks = np.unique(np.linspace(0, len(positions) - 1, NUM_TICKS).round().astype(int))
        set_ticks(ticks, [f"{positions[i]:.3g}" for i in ticks], fontsize=7)
    name = truncate(name, MAX_LABEL_WIDTH)
    (key_label, query_label), options = escape_text(f"key: {name}", f"query: {name}")
    axes.set_xlabel(key_label, fontsize=8, **options)
    axes.set_ylabel(query_label, fontsize=8, labelpad=2, **options)
    axes.tick_params(length=2, width=0.4, pad=2)
