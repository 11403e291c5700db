"""Colors of figures: scales that survive color blindness and grayscale printing, and readable text on them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from regard._imports import require_extra

INK_COLOR = "#222222"
SEQUENTIAL = ("#ffffff", "#d6e6f2", "#9cc3de", "#5b97c4", "#2b68a3", "#143f78", "#081d45")
SEQUENTIAL_ON_DARK = ("#0a0e18", "#12305c", "#1f5a97", "#4a92c0", "#9ccbd9", "#f6f3d7")
DIVERGING = ("#6b2c00", "#b85a12", "#eba765", "#f7f6f2", "#85b5d8", "#2b68a3", "#081d45")  # minus, zero, plus
NAN_COLOR = "#b9b9b9"
LINE_COLOR = "#d0d0d0"
CURVE_COLOR, POINT_COLOR, ACCENT_COLOR = "#143f78", "#8a8a8a", "#b85a12"


def build_colormap(colors: Sequence[str]) -> Any:
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
