"""Figures of an external memory over time, of weights on an image, and of kernel regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Shaped
from torch import Tensor

from regard.errors import UsageError
from regard.viewing import _arrays as arrays
from regard.viewing._memory_panels import PANEL_ROWS, MemoryData, MemorySide
from regard.viewing._text import truncate
from regard.viewing.figures import _colors as colors
from regard.viewing.figures import _labeling as labeling
from regard.viewing.figures.figure import DPI, Figure, FigureLayout, cell_sizes, round_to_pixels
from regard.viewing.figures.heatmaps import draw_cells, draw_colorbar, draw_legend, nan_legend_handles

__all__ = ["image_overlay", "memory_timeline", "regression_curve"]

MEMORY_GAP, MAX_MEMORY_SIDE = 0.25, 4.0  # inches: between panels, the longer side of a panel
MIN_STRIP_CELL, MAX_STRIP_CELL = 0.06, 0.13  # inches: the height of a cell of a vector
CURVE_HEIGHT = 1.0  # inches
OVERLAY_SIDE = 1.6  # inches: the longer side of a panel
OVERLAYS_PER_ROW, MANY_OVERLAYS_PER_ROW = 5, 8
MAX_OVERLAYS = 60
PLOT_WIDTH, PLOT_HEIGHT = 3.4, 2.3  # inches
NUM_TICKS = 5
# Above the axes, where it covers no point.
LEGEND_ABOVE_AXES: dict[str, Any] = {"loc": "lower right", "bbox_to_anchor": (1, 1), "frameon": False}


def memory_timeline(data: MemoryData, *, title: str | None = None, dark: bool = False) -> Figure:
    """Draw the weights of a memory over time, writing left and reading right, with vectors above them.

    Inputs, outputs and targets share one color scale, from 0 to 1 for probabilities. Outputs and targets of one number
    per step are drawn as curves.

    Args:
        data: the weights and vectors
        title: drawn above
        dark: light on black, as in Graves et al. (2014)

    Example:
        >>> weights = torch.eye(8)[:5]
        >>> memory_timeline(MemoryData(write_weights=weights, read_weights=weights, inputs=torch.rand(5, 3)))
        Figure(... x ... pixels)
    """
    height, width = cell_sizes(data.num_rows, data.num_steps, MAX_MEMORY_SIDE)
    layout, top = FigureLayout(dark), 0.0
    lefts = [index * (data.num_steps * width + MEMORY_GAP) for index in range(len(data.sides))]
    strip_height = min(max(height, MIN_STRIP_CELL), MAX_STRIP_CELL)
    for level in PANEL_ROWS:
        boxes = [(left, top, strip_height, width) for left in lefts]
        level_height = max(_draw_vectors(layout, *pair, level) for pair in zip(data.sides, boxes, strict=True))
        top += level_height + MEMORY_GAP if level_height else 0.0
    for side, left in zip(data.sides, lefts, strict=True):
        axes = layout.add_axes(left, top, len(side.weights) * width, data.num_rows * height)
        image = draw_cells(axes, side.weights.T, layout.sequential_colors, data.vmax, has_grid=False)
        _style_memory_axes(axes, layout, f"{side.name} weights")
        labeling.label_side(axes, "bottom", None, len(side.weights), width)
        axes.set_xlabel("time", fontsize=8)
        draw_legend(axes, nan_legend_handles(side.weights))
        if not left:
            labeling.label_side(axes, "left", data.labels, data.num_rows, height)
            axes.set_ylabel("row", fontsize=8)
    right = len(lefts) * (data.num_steps * width + MEMORY_GAP) - MEMORY_GAP
    draw_colorbar(layout, image, right + 0.1, top, min(2.0, data.num_rows * height))
    labeling.draw_headline(layout, title)
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
    pixels, grids, names = arrays.validate_overlay(image, weights, tokens)
    if len(grids) > MAX_OVERLAYS:
        raise UsageError(f"image_overlay draws at most {MAX_OVERLAYS} tokens, got {len(grids)}; pass a part of them.")

    layout, longer = FigureLayout(), max(pixels.shape[:2])
    height, width = (round_to_pixels(OVERLAY_SIDE * max(side / longer, 0.2)) for side in pixels.shape[:2])
    pixels = _resize_image(pixels, height, width)
    columns = OVERLAYS_PER_ROW if len(grids) < 20 else MANY_OVERLAYS_PER_ROW
    panels = layout.add_panels(len(grids) + 1, columns, (height, width), (0.4, 0.08))
    _draw_overlay(panels[0], pixels)
    for axes, grid, name in zip(panels[1:], grids, names or [""] * len(grids), strict=True):
        label = truncate(labeling.show_control_characters(name), labeling.MAX_LABEL_WIDTH)
        caption = "NaN" if np.isnan(grid).all() else f"up to {arrays.max_ignoring_nan(grid):.2g}"
        _draw_overlay(axes, arrays.apply_weights_as_light(pixels, grid, smooth), label, caption)
    labeling.draw_headline(layout, title)
    return layout.finish()


def regression_curve(
    x: arrays.KeyValues,
    y: arrays.KeyValues,
    queries: arrays.QueryValues,
    prediction: arrays.QueryValues,
    weights: Shaped[arrays.ArrayLike, "queries keys"] | None = None,
    *,
    truth: arrays.QueryValues | None = None,
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
    data = arrays.validate_regression(weights, x=x, y=y, queries=queries, prediction=prediction, truth=truth)
    max_width = labeling.MAX_TITLE_WIDTH // 2
    x_label, y_label = (truncate(labeling.show_control_characters(label), max_width) for label in axis_labels)
    layout = FigureLayout()
    axes = layout.add_axes(0, 0, PLOT_WIDTH, PLOT_HEIGHT)
    _draw_regression(axes, data, (x_label, y_label))
    labeling.draw_title(axes, title, pad=18)
    if data.weights is not None:
        matrix_axes = layout.add_axes(PLOT_WIDTH + 0.75, 0, PLOT_HEIGHT, PLOT_HEIGHT)
        vmax = arrays.resolve_vmax("regression_curve", None, data.weights)
        image = draw_cells(matrix_axes, data.weights, colors.SEQUENTIAL, vmax)
        _label_ticks(matrix_axes, data.keys, data.queries, x_label)
        draw_legend(matrix_axes, nan_legend_handles(data.weights))
        draw_colorbar(layout, image, PLOT_WIDTH + 0.75 + PLOT_HEIGHT + 0.08, 0, PLOT_HEIGHT)
    return layout.finish()


def _draw_vectors(
    layout: FigureLayout, side: MemorySide, box: tuple[float, float, float, float], level: tuple[str | None, str]
) -> float:
    """Draw the vectors of one side in a row of panels and return their height in inches."""
    left, top, cell_height, cell_width = box
    name = level[0] if side.name == "write" else level[1]
    if name not in side.strips or (side.is_curve and name == "targets"):
        return 0.0
    strip, is_curve = side.strips[name], side.is_curve and name == "outputs"
    height = CURVE_HEIGHT if is_curve else float(strip.values.shape[1] * cell_height)
    axes = layout.add_axes(left, top, len(side.weights) * cell_width, height)
    if is_curve:
        _draw_curves(axes, layout, side)
    else:
        scale = colors.DIVERGING if strip.is_signed else layout.sequential_colors
        draw_cells(axes, strip.masked_values.T, scale, strip.value_range[1], has_grid=False)
        _style_memory_axes(axes, layout, name.replace("_", " "), strip.scale_label)
    return height


def _draw_curves(axes: Any, layout: FigureLayout, side: MemorySide) -> None:
    """Draw outputs and targets of one number per step."""
    outputs, targets = side.strips["outputs"], side.strips["targets"]
    steps, (low, high) = len(side.weights), outputs.value_range
    color = colors.CURVE_COLOR if layout.paper_color == "white" else colors.SEQUENTIAL_ON_DARK[-2]
    style: dict[str, Any] = {"linewidth": 0.9, "marker": ".", "markersize": 1.5}
    axes.plot(range(steps), targets.masked_line, color=colors.ACCENT_COLOR, label="target", **style)
    axes.plot(range(steps), outputs.masked_line, color=color, label="output", **style)
    margin = 0.04 * (high - low)
    axes.set(xlim=(-0.5, steps - 0.5), ylim=(low - margin, high + margin))
    _style_memory_axes(axes, layout, "outputs and targets")
    ticks = (low, (low + high) / 2, high)
    axes.set_yticks(list(ticks), [f"{tick:.2g}" for tick in ticks])
    axes.yaxis.tick_right()  # the write side is at the left
    axes.tick_params(axis="y", labelsize=6)
    spacing = {"borderaxespad": 0.1, "borderpad": 0.2, "handlelength": 1.2, "columnspacing": 0.8}
    axes.legend(ncols=2, fontsize=6, labelcolor=layout.ink_color, **spacing, **LEGEND_ABOVE_AXES)


def _style_memory_axes(axes: Any, layout: FigureLayout, name: str, scale_label: str = "") -> None:
    labeling.remove_labels(axes)
    labeling.draw_title(axes, name, size=8, color=layout.ink_color, pad=3)
    axes.set_title(scale_label, loc="right", fontsize=6, color=layout.ink_color, pad=3)


def _resize_image(image: Any, height: float, width: float) -> Any:
    """Resize to twice the pixels of the panel, for zooming into SVG."""
    size = max(1, round(2 * height * DPI)), max(1, round(2 * width * DPI))
    is_reduced = len(image) > size[0]
    mode: dict[str, Any] = {"mode": "bilinear", "antialias": True} if is_reduced else {"mode": "nearest-exact"}
    return arrays.resize_image(image, size, **mode)


def _draw_overlay(axes: Any, pixels: Any, name: str = "", caption: str = "") -> None:
    axes.imshow(pixels, aspect="auto", interpolation="none")
    labeling.remove_labels(axes)
    axes.spines[:].set_visible(False)
    labeling.draw_title(axes, name, size=8, loc="center", pad=3)
    axes.set_xlabel(caption, fontsize=6, labelpad=2, color="#666666")


def _draw_regression(axes: Any, data: arrays.RegressionData, axis_labels: tuple[str, str]) -> None:
    axes.plot(data.x, data.y, "o", color=colors.POINT_COLOR, markersize=2.5, mew=0, alpha=0.8, label="data")
    if data.truth is not None:
        axes.plot(data.queries, data.truth, "--", color=colors.ACCENT_COLOR, linewidth=1, label="truth")
    axes.plot(data.queries, data.prediction, color=colors.CURVE_COLOR, linewidth=1.4, label="prediction")
    (x_label, y_label), options = labeling.escape_text(*axis_labels)
    axes.set_xlabel(x_label, fontsize=8, **options)
    axes.set_ylabel(y_label, fontsize=8, **options)
    axes.spines[["top", "right"]].set_visible(False)
    spacing = {"borderaxespad": 0, "handlelength": 1.4}
    axes.legend(ncols=3, fontsize=7, labelcolor=colors.INK_COLOR, **spacing, **LEGEND_ABOVE_AXES)


def _label_ticks(axes: Any, keys: Any, queries: Any, name: str) -> None:
    """Label some rows and columns with their positions."""
    for positions, set_ticks in ((keys, axes.set_xticks), (queries, axes.set_yticks)):
        ticks = np.unique(np.linspace(0, len(positions) - 1, NUM_TICKS).round().astype(int))
        set_ticks(ticks, [f"{positions[i]:.3g}" for i in ticks], fontsize=7)
    name = truncate(name, labeling.MAX_LABEL_WIDTH)
    (key_label, query_label), options = labeling.escape_text(f"key: {name}", f"query: {name}")
    axes.set_xlabel(key_label, fontsize=8, **options)
    axes.set_ylabel(query_label, fontsize=8, labelpad=2, **options)
