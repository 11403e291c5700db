"""A finished picture: to save, to show in a notebook, to change before that.

A sheet of paper on which axes are laid out in inches, and which is cut to size at the end.

Colors that keep their order for every eye, on paper and without color: each step is darker than the one before.
"""

from __future__ import annotations

import io
import math
from os import PathLike
from pathlib import Path
from threading import Lock
from typing import Any

from regard._imports import require_extra
from regard.errors import StorageError, UsageError

_render_lock = Lock()  # matplotlib's settings, which writing has to touch, are the same for all threads


class Figure:
    """A picture that saves itself as PNG or SVG and shows itself in a notebook.

    The same input gives the same bytes. `figure` is matplotlib's, to change whatever you like. Letters in SVG are
    shapes, which look the same everywhere; after `matplotlib.rcParams["svg.fonttype"] = "none"` they are text.

    >>> from regard.viewing import pictures
    >>> pictures.heatmap(torch.eye(3)).png()[1:4]
    b'PNG'
    """

    def __init__(self, figure: Any) -> None:
        self.figure = figure

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the picture into a file that ends in .png or .svg."""
        path = Path(path)
        ending = path.suffix.lower()
        if ending not in (".png", ".svg"):
            raise UsageError(f"A picture is saved as .png or .svg, not as {path.name!r}.")
        content = self.png() if ending == ".png" else self.svg().encode()
        try:
            path.write_bytes(content)
        except OSError as error:
            why = error.strerror if path.parent.is_dir() else f"there is no folder {path.parent}"
            raise StorageError(f"The picture cannot be written to {path}: {why}.") from None
        return path

    def png(self) -> bytes:
        return self._render("png", {"Software": None})

    def svg(self) -> str:
        return self._render("svg", {"Date": None, "Creator": None}).decode()

    def _render(self, format: str, metadata: dict[str, Any]) -> bytes:
        content = io.BytesIO()
        with _render_lock, require_extra("matplotlib", extra="draw").rc_context({"svg.hashsalt": "regard"}):
            own = {"dpi": self.figure.dpi, "facecolor": self.figure.get_facecolor()}  # not those of a style
            self.figure.savefig(content, format=format, metadata=metadata, **own)
        return content.getvalue()

    def _repr_png_(self) -> bytes:
        return self.png()

    def __repr__(self) -> str:
        across, down = (round(side * self.figure.dpi) for side in self.figure.get_size_inches())
        return f"Picture({across} x {down} pixels)"


DPI = 200


MARGIN = 0.06  # inches


INK_COLOR = "#222222"


CELL_SIZE, MANY_CELLS, EXTRA_CELL_SIZE = (
    0.42,
    10,
    0.14,
)  # inches: up to so many cells are so large, each further one adds less


MAX_SIDE, MIN_SIDE = 9.0, 1.2  # inches: a matrix is not larger, however many cells it has


class FigureLayout:
    """Axes in inches from the top left; what they need around them for labels is found out at the end."""

    def __init__(self, dark: bool = False) -> None:
        self.paper_color, self.ink_color = ("#0a0e18", "#dddddd") if dark else ("white", INK_COLOR)
        # One inch wide and high, so that matplotlib's shares of the figure are inches.
        figure = require_extra("matplotlib.figure", extra="draw").Figure(
            figsize=(1, 1), dpi=DPI, facecolor=self.paper_color, edgecolor=self.paper_color, layout="none"
        )
        require_extra("matplotlib.backends.backend_agg", extra="draw").FigureCanvasAgg(figure)
        self.figure = figure

    def add_axes(self, left: float, top: float, width: float, height: float) -> Any:
        axes = self.figure.add_axes((left, -top - height, width, height), facecolor=self.paper_color)
        axes.grid(visible=False)  # whatever the style of the user says
        axes.tick_params(colors=self.ink_color, labelsize=7)
        for spine in axes.spines.values():
            spine.set(color=self.ink_color, linewidth=0.4)
        for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
            text.set(color=self.ink_color, size=8)
        return axes

    def add_panels(
        self, count: int, columns: int, size: tuple[float, float], gaps: tuple[float, float]
    ) -> list[Any]:
        """So many axes of one size (down, across), row by row."""
        down, across = size
        steps = [divmod(i, columns) for i in range(count)]
        return [self.add_axes(j * (across + gaps[1]), i * (down + gaps[0]), across, down) for i, j in steps]

    def finish(self) -> Figure:
        """Cut the sheet to what is on it, in whole pixels, so that cells keep their sharp edges."""
        bounds = self.figure.get_tightbbox(self.figure.canvas.get_renderer())
        left, bottom = _floor_to_pixels(bounds.x0 - MARGIN), _floor_to_pixels(bounds.y0 - MARGIN)
        across, down = (
            -_floor_to_pixels(left - bounds.x1 - MARGIN),
            -_floor_to_pixels(bottom - bounds.y1 - MARGIN),
        )
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
        return Figure(self.figure)


def cell_sizes(rows: int, columns: int, max_side: float = MAX_SIDE) -> tuple[float, float]:
    """Height and width of a cell in inches: square, unless the matrix would become a thread."""
    sides = [min(max_side, _matrix_side(count)) / count for count in (rows, columns)]
    down, across = (
        min(side, max(min(sides), MIN_SIDE / count))
        for side, count in zip(sides, (rows, columns), strict=True)
    )
    return round_to_pixels(down), round_to_pixels(across)


def round_to_pixels(inches: float) -> float:
    """A whole number of pixels, but where that would be none."""
    return math.floor(inches * DPI) / DPI if inches * DPI >= 1 else inches


def _matrix_side(count: int) -> float:
    return min(MAX_SIDE, CELL_SIZE * min(count, MANY_CELLS) + EXTRA_CELL_SIZE * max(0, count - MANY_CELLS))


def _floor_to_pixels(inches: float) -> float:
    return math.floor(round(inches * DPI, 6)) / DPI


SEQUENTIAL = ("#ffffff", "#d6e6f2", "#9cc3de", "#5b97c4", "#2b68a3", "#143f78", "#081d45")


SEQUENTIAL_ON_DARK = (
    "#0a0e18",
    "#12305c",
    "#1f5a97",
    "#4a92c0",
    "#9ccbd9",
    "#f6f3d7",
)  # on a dark ground: light is more


DIVERGING = ("#6b2c00", "#b85a12", "#eba765", "#f7f6f2", "#85b5d8", "#2b68a3", "#081d45")  # minus, zero, plus


NAN_COLOR = "#b9b9b9"


LINE_COLOR = "#d0d0d0"


CURVE_COLOR, POINT_COLOR, ACCENT_COLOR = "#143f78", "#8a8a8a", "#b85a12"


def build_colormap(colors: tuple[str, ...]) -> Any:
    """The colors as a scale of matplotlib's, with a gray for what is not a number."""
    found = require_extra("matplotlib.colors", extra="draw").LinearSegmentedColormap.from_list(
        "regard", list(colors)
    )
    return found.with_extremes(bad=NAN_COLOR)


def brightness(color: Any) -> float:
    """How bright a color looks, from 0 to 1: the relative luminance of the web's rules for contrast.

    0.2126 r + 0.7152 g + 0.0722 b, of linear light
    """
    shares = (0.2126, 0.7152, 0.0722)
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in map(float, color[:3]))
    return sum(share * c for share, c in zip(shares, linear, strict=True))


def choose_text_color(color: Any) -> str:
    """Black or white, whichever reads better on the color."""
    return "black" if brightness(color) > 0.179 else "white"
