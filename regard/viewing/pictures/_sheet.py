"""A sheet of paper on which axes are laid out in inches, and which is cut to size at the end."""

from __future__ import annotations

import math
from typing import Any

from regard._imports import require_extra
from regard.viewing.pictures._picture import Picture

DPI = 200
MARGIN = 0.06  # inches
INK = "#222222"
CELL, MANY, MORE_CELLS = (
    0.42,
    10,
    0.14,
)  # inches: up to so many cells are so large, each further one adds less
LONGEST_SIDE, SHORTEST_SIDE = 9.0, 1.2  # inches: a matrix is not larger, however many cells it has


class Sheet:
    """Axes in inches from the top left; what they need around them for labels is found out at the end."""

    def __init__(self, dark: bool = False) -> None:
        self.paper, self.ink = ("#0a0e18", "#dddddd") if dark else ("white", INK)
        # One inch wide and high, so that matplotlib's shares of the figure are inches.
        figure = require_extra("matplotlib.figure", extra="draw").Figure(
            figsize=(1, 1), dpi=DPI, facecolor=self.paper, edgecolor=self.paper, layout="none"
        )
        require_extra("matplotlib.backends.backend_agg", extra="draw").FigureCanvasAgg(figure)
        self.figure = figure

    def axes(self, left: float, top: float, across: float, down: float) -> Any:
        axes = self.figure.add_axes((left, -top - down, across, down), facecolor=self.paper)
        axes.grid(visible=False)  # whatever the style of the user says
        axes.tick_params(colors=self.ink, labelsize=7)
        for spine in axes.spines.values():
            spine.set(color=self.ink, linewidth=0.4)
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set(color=self.ink, size=8)
        return axes

    def panels(
        self, count: int, columns: int, size: tuple[float, float], gaps: tuple[float, float]
    ) -> list[Any]:
        """So many axes of one size (down, across), row by row."""
        down, across = size
        steps = [divmod(i, columns) for i in range(count)]
        return [self.axes(j * (across + gaps[1]), i * (down + gaps[0]), across, down) for i, j in steps]

    def done(self) -> Picture:
        """Cut the sheet to what is on it, in whole pixels, so that cells keep their sharp edges."""
        bounds = self.figure.get_tightbbox(self.figure.canvas.get_renderer())
        left, bottom = _down(bounds.x0 - MARGIN), _down(bounds.y0 - MARGIN)
        across, down = -_down(left - bounds.x1 - MARGIN), -_down(bottom - bounds.y1 - MARGIN)
        for axes in self.figure.axes:
            place = axes.get_position(original=True)
            axes.set_position(
                (
                    (place.x0 - left) / across,
                    (place.y0 - bottom) / down,
                    place.width / across,
                    place.height / down,
                )
            )
        self.figure.set_size_inches(across, down)
        return Picture(self.figure)


def cell_sizes(rows: int, columns: int, longest: float = LONGEST_SIDE) -> tuple[float, float]:
    """Height and width of a cell in inches: square, unless the matrix would become a thread."""
    sides = [min(longest, _side(count)) / count for count in (rows, columns)]
    down, across = (
        min(side, max(min(sides), SHORTEST_SIDE / count))
        for side, count in zip(sides, (rows, columns), strict=True)
    )
    return whole(down), whole(across)


def whole(inches: float) -> float:
    """A whole number of pixels, but where that would be none."""
    return math.floor(inches * DPI) / DPI if inches * DPI >= 1 else inches


def _side(count: int) -> float:
    return min(LONGEST_SIDE, CELL * min(count, MANY) + MORE_CELLS * max(0, count - MANY))


def _down(inches: float) -> float:
    return math.floor(round(inches * DPI, 6)) / DPI
