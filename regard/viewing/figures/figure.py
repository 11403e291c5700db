"""`Figure`, and the layout of its axes in inches."""

from __future__ import annotations

import io
import math
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

from regard._imports import require_extra
from regard.files import write_output
from regard.viewing.figures import _colors as colors

__all__ = ["DPI", "MAX_SIDE", "Figure", "FigureLayout", "cell_sizes", "round_to_pixels"]

DPI = 200
MARGIN = 0.06  # inches
CELL_SIZE, MANY_CELLS, EXTRA_CELL_SIZE = (0.42, 10, 0.14)  # inches: the first 10 cells of a side, and further ones
MAX_SIDE, MIN_SIDE = 9.0, 1.2  # inches: of a matrix

_render_lock = Lock()  # rendering changes matplotlib's settings, which all threads share


class Figure:
    """A figure that is saved as PNG or SVG and displayed by notebooks.

    The same input gives the same bytes. Text in SVG is stored as shapes, which look the same everywhere; after
    `matplotlib.rcParams["svg.fonttype"] = "none"` it is stored as text.

    Args:
        figure: the figure of matplotlib, which may be modified

    Example:
        >>> from regard.viewing import figures
        >>> figures.heatmap(torch.eye(3)).png()[1:4]
        b'PNG'
    """

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the figure to a file.

        Args:
            path: a name that ends in .png or .svg

        Returns:
            The path.
        """
        formats = {".png": self.png, ".svg": lambda: self.svg().encode()}
        return write_output(path, "figure", formats, ".png or .svg")

    def png(self) -> bytes:
        """The content of a PNG file."""
        return self._render("png", {"Software": None})

    def svg(self) -> str:
        """The content of an SVG file."""
        return self._render("svg", {"Date": None, "Creator": None}).decode()

    def _render(self, format: str, metadata: dict[str, Any]) -> bytes:
        content = io.BytesIO()
        with _render_lock, require_extra("matplotlib", extra="draw").rc_context({"svg.hashsalt": "regard"}):
            # The user's style must not override these.
            options = {"dpi": self.figure.dpi, "facecolor": self.figure.get_facecolor()}
            self.figure.savefig(content, format=format, metadata=metadata, **options)
        return content.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def __repr__(self) -> str:
        width, height = (round(side * self.figure.dpi) for side in self.figure.get_size_inches())
        return f"Figure({width} x {height} pixels)"


class FigureLayout:
    """Axes placed in inches from the top left. The size of the figure is determined at the end, with all labels.

    Args:
        dark: a dark background
    """

    def __init__(self, dark: bool = False) -> None:
        self.paper_color, self.ink_color = ("#0a0e18", "#dddddd") if dark else ("white", colors.INK_COLOR)
        self.sequential_colors = colors.SEQUENTIAL_ON_DARK if dark else colors.SEQUENTIAL
        # One inch wide and high, so that matplotlib's figure fractions are inches.
        figure = require_extra("matplotlib.figure", extra="draw").Figure(
            figsize=(1, 1), dpi=DPI, facecolor=self.paper_color, edgecolor=self.paper_color, layout="none"
        )
        require_extra("matplotlib.backends.backend_agg", extra="draw").FigureCanvasAgg(figure)
        self.figure = figure

    def add_axes(self, left: float, top: float, width: float, height: float) -> Any:
        """Add axes of this position and size."""
        axes = self.figure.add_axes((left, -top - height, width, height), facecolor=self.paper_color)
        axes.grid(visible=False)  # independent of the user's style
        axes.tick_params(colors=self.ink_color, labelsize=7, length=2, width=0.4, pad=2)
        for spine in axes.spines.values():
            spine.set(color=self.ink_color, linewidth=0.4)
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set(color=self.ink_color, size=8)
        return axes

    def add_panels(self, count: int, columns: int, size: tuple[float, float], gaps: tuple[float, float]) -> list[Any]:
        """Add axes of one size (height, width), row by row."""
        height, width = size
        cells = [divmod(i, columns) for i in range(count)]
        corners = [(column * (width + gaps[1]), row * (height + gaps[0])) for row, column in cells]
        return [self.add_axes(left, top, width, height) for left, top in corners]

    def finish(self) -> Figure:
        """Crop the figure to its content, in full pixels, so that cells keep sharp edges."""
        bounds = self.figure.get_tightbbox(self.figure.canvas.get_renderer())
        left, bottom = _floor_to_pixels(bounds.x0 - MARGIN), _floor_to_pixels(bounds.y0 - MARGIN)
        width = -_floor_to_pixels(left - bounds.x1 - MARGIN)
        height = -_floor_to_pixels(bottom - bounds.y1 - MARGIN)
        for axes in self.figure.axes:
            box = axes.get_position(original=True)
            corner = ((box.x0 - left) / width, (box.y0 - bottom) / height)
            axes.set_position((*corner, box.width / width, box.height / height))
        self.figure.set_size_inches(width, height)
        return Figure(self.figure)


def cell_sizes(rows: int, columns: int, max_side: float = MAX_SIDE) -> tuple[float, float]:
    """Compute the height and width of a cell in inches: square, unless the matrix would be too narrow.

    Args:
        rows, columns: the shape of the matrix
        max_side: the largest side of a cell

    Returns:
        Height and width.
    """
    sides = [min(max_side, _matrix_side(count)) / count for count in (rows, columns)]
    height, width = (
        min(side, max(min(sides), MIN_SIDE / count)) for side, count in zip(sides, (rows, columns), strict=True)
    )
    return round_to_pixels(height), round_to_pixels(width)


def round_to_pixels(inches: float) -> float:
    """Round down to full pixels, unless that would be zero.

    Args:
        inches: a length
    """
    return math.floor(inches * DPI) / DPI if inches * DPI >= 1 else inches


def _matrix_side(count: int) -> float:
    return min(MAX_SIDE, CELL_SIZE * min(count, MANY_CELLS) + EXTRA_CELL_SIZE * max(0, count - MANY_CELLS))


def _floor_to_pixels(inches: float) -> float:
    return math.floor(round(inches * DPI, 6)) / DPI
