"""A matrix as colored cells, with a bar that says what the colors mean."""

from __future__ import annotations

from typing import Any

import numpy as np

from regard._imports import require_extra
from regard.viewing._pooling import pooled
from regard.viewing.pictures._colors import LINE, NOT_A_NUMBER
from regard.viewing.pictures._sheet import DPI, Sheet

FEW = 40
MOST_HATCHED = 400
Place = tuple[float, float, float, float]  # top, left, height, width


def cells(
    axes: Any, array: Any, scale: Any, low: float, top: float, lines: int = FEW, at: Place | None = None
) -> Any:
    """Draw the matrix, up to so many rows and columns with lines between them; gives matplotlib's image.

    It fills the axes, a cell from -0.5 to 0.5, or the place `at` in axes that count in inches. Where a cell is
    smaller than a pixel, the largest of those that share it is shown, so that no peak is lost.
    """
    rows, columns = array.shape
    place = axes.get_position(original=True)
    down, across = (place.height, place.width) if at is None else at[2:]
    at = (-0.5, -0.5, rows, columns) if at is None else at
    shown = array if low < 0 else pooled(array, *(max(1, round(side * DPI)) for side in (down, across)))
    image = axes.imshow(
        np.ma.masked_invalid(shown),
        cmap=scale,
        vmin=low,
        vmax=top,
        aspect="auto",
        interpolation="none",
        extent=(at[1], at[1] + at[3], at[0] + at[2], at[0]),
    )
    if max(rows, columns) <= lines:
        _lines(axes, rows, columns, at)
    _hatch(axes, array, at)
    return image


def bar(sheet: Sheet, image: Any, left: float, top: float, down: float, name: str = "weight") -> None:
    """The legend of a scale: a thin bar with its ends named."""
    axes = sheet.axes(left, top, 0.09, down)
    colors = sheet.figure.colorbar(image, cax=axes)
    colors.ax.tick_params(colors=sheet.ink)
    colors.outline.set(linewidth=0.4, edgecolor=LINE)
    low, high = image.get_clim()
    middle = (low + high) / 2
    ticks = [low, middle, high] if down > 0.6 else [low, high]
    colors.set_ticks(ticks, labels=[f"{tick:.2g}" if tick else "0" for tick in ticks])
    axes.tick_params(labelsize=7, length=2, width=0.4, pad=2)
    axes.set_ylabel(name, fontsize=7, labelpad=3, color=sheet.ink)


def legend(axes: Any, handles: list[Any]) -> None:
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


def not_numbers(array: Any) -> list[Any]:
    """The line of a legend that says how many cells are NaN; none if there are none."""
    count = int(np.isnan(array).sum())
    if not count:
        return []
    patch = require_extra("matplotlib.patches", extra="draw").Patch
    return [patch(facecolor=NOT_A_NUMBER, edgecolor="#777777", hatch="/////", label=f"NaN: {count}", lw=0)]


def _lines(axes: Any, rows: int, columns: int, at: Place) -> None:
    top, left, down, across = at
    upright = [left + j * across / columns for j in range(1, columns)]
    level = [top + i * down / rows for i in range(1, rows)]
    lines = [[(x, top), (x, top + down)] for x in upright] + [[(left, y), (left + across, y)] for y in level]
    many = require_extra("matplotlib.collections", extra="draw").LineCollection
    axes.add_collection(many(lines, colors=LINE, linewidths=0.35), autolim=False)


def _hatch(axes: Any, array: Any, at: Place) -> None:
    rectangle = require_extra("matplotlib.patches", extra="draw").Rectangle
    places = np.argwhere(np.isnan(array))
    down, across = at[2] / array.shape[0], at[3] / array.shape[1]
    for i, j in places if len(places) <= MOST_HATCHED else ():
        corner = (at[1] + j * across, at[0] + i * down)
        look = {"fill": False, "hatch": "/////", "edgecolor": "#777777", "linewidth": 0}
        axes.add_patch(rectangle(corner, across, down, **look))
