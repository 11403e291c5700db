"""`Figure`, the layout of axes in inches, and color scales that survive color blindness and grayscale printing."""

from __future__ import annotations

import io
import math
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

from regard._imports import require_extra
from regard.errors import StorageError, UsageError

__all__ = [
    "ACCENT_COLOR",
    "CURVE_COLOR",
    "DIVERGING",
    "DPI",
    "INK_COLOR",
    "LINE_COLOR",
    "MAX_SIDE",
    "NAN_COLOR",
    "POINT_COLOR",
    "SEQUENTIAL",
    "SEQUENTIAL_ON_DARK",
    "Figure",
    "FigureLayout",
    "brightness",
    "build_colormap",
    "cell_sizes",
    "choose_text_color",
    "round_to_pixels",
]

DPI = 200
MARGIN = 0.06  # inches
CELL_SIZE, MANY_CELLS, EXTRA_CELL_SIZE = (0.42, 10, 0.14)  # inches: the first 10 cells of a side, and further ones
MAX_SIDE, MIN_SIDE = 9.0, 1.2  # inches: of a matrix
INK_COLOR = "#222222"
SEQUENTIAL = ("#ffffff", "#d6e6f2", "#9cc3de", "#5b97c4", "#2b68a3", "#143f78", "#081d45")
SEQUENTIAL_ON_DARK = ("#0a0e18", "#12305c", "#1f5a97", "#4a92c0", "#9ccbd9", "#f6f3d7")
DIVERGING = ("#6b2c00", "#b85a12", "#eba765", "#f7f6f2", "#85b5d8", "#2b68a3", "#081d45")  # minus, zero, plus
NAN_COLOR = "#b9b9b9"
LINE_COLOR = "#d0d0d0"
CURVE_COLOR, POINT_COLOR, ACCENT_COLOR = "#143f78", "#8a8a8a", "#b85a12"

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
        path = Path(path)
        suffix = path.suffix.lower()
        if suffix not in (".png", ".svg"):
            raise UsageError(f"invalid file name {path.name!r}: a figure is saved as .png or .svg")
        content = self.png() if suffix == ".png" else self.svg().encode()
        try:
            path.write_bytes(content)
        except OSError as error:
            reason = error.strerror if path.parent.is_dir() else f"no folder {path.parent}"
            raise StorageError(f"cannot write the figure to {path}: {reason}", errno=error.errno) from None
        return path

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
        self.paper_color, self.ink_color = ("#0a0e18", "#dddddd") if dark else ("white", INK_COLOR)
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
        axes.tick_params(colors=self.ink_color, labelsize=7)
        for spine in axes.spines.values():
            spine.set(color=self.ink_color, linewidth=0.4)
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set(color=self.ink_color, size=8)
        return axes

    def add_panels(self, count: int, columns: int, size: tuple[float, float], gaps: tuple[float, float]) -> list[Any]:
        """Add axes of one size (height, width), row by row."""
        height, width = size
        cells = [divmod(i, columns) for i in range(count)]
        return [
            self.add_axes(column * (width + gaps[1]), row * (height + gaps[0]), width, height) for row, column in cells
        ]

    def finish(self) -> Figure:
        """Crop the figure to its content, in full pixels, so that cells keep sharp edges."""
        bounds = self.figure.get_tightbbox(self.figure.canvas.get_renderer())
        left, bottom = _floor_to_pixels(bounds.x0 - MARGIN), _floor_to_pixels(bounds.y0 - MARGIN)
        width = -_floor_to_pixels(left - bounds.x1 - MARGIN)
        height = -_floor_to_pixels(bottom - bounds.y1 - MARGIN)
        for axes in self.figure.axes:
            box = axes.get_position(original=True)
            axes.set_position(
                ((box.x0 - left) / width, (box.y0 - bottom) / height, box.width / width, box.height / height)
            )
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


def build_colormap(colors: tuple[str, ...]) -> Any:
    """Build a color map of matplotlib with gray for NaN.

    Args:
        colors: colors from the lowest to the highest value
    """
    colormaps = require_extra("matplotlib.colors", extra="draw").LinearSegmentedColormap
    return colormaps.from_list("regard", list(colors)).with_extremes(bad=NAN_COLOR)


def brightness(color: Any) -> float:
    """Compute the relative luminance of a color (WCAG), from 0 to 1.

    0.2126 r + 0.7152 g + 0.0722 b, of linear light

    Args:
        color: red, green and blue from 0 to 1

    Example:
        >>> brightness((1.0, 1.0, 1.0)), brightness((0.0, 0.0, 0.0))
        (1.0, 0.0)
    """
    factors = (0.2126, 0.7152, 0.0722)
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in map(float, color[:3]))
    return sum(factor * c for factor, c in zip(factors, linear, strict=True))


def choose_text_color(color: Any) -> str:
    """Choose black or white, whichever has more contrast with a background color.

    Args:
        color: red, green and blue from 0 to 1

    Example:
        >>> choose_text_color((0.1, 0.1, 0.4))
        'white'
    """
    return "black" if brightness(color) > 0.179 else "white"


def _matrix_side(count: int) -> float:
    return min(MAX_SIDE, CELL_SIZE * min(count, MANY_CELLS) + EXTRA_CELL_SIZE * max(0, count - MANY_CELLS))


def _floor_to_pixels(inches: float) -> float:
    return math.floor(round(inches * DPI, 6)) / DPI
