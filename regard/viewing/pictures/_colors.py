"""Colors that keep their order for every eye, on paper and without color: each step is darker than the one before."""

from __future__ import annotations

from typing import Any

from regard._imports import require_extra

MORE = ("#ffffff", "#d6e6f2", "#9cc3de", "#5b97c4", "#2b68a3", "#143f78", "#081d45")
MORE_LIGHT = (
    "#0a0e18",
    "#12305c",
    "#1f5a97",
    "#4a92c0",
    "#9ccbd9",
    "#f6f3d7",
)  # on a dark ground: light is more
SIGNED = ("#6b2c00", "#b85a12", "#eba765", "#f7f6f2", "#85b5d8", "#2b68a3", "#081d45")  # minus, zero, plus
NOT_A_NUMBER = "#b9b9b9"
LINE = "#d0d0d0"
CURVE, POINT, OTHER = "#143f78", "#8a8a8a", "#b85a12"


def scale(colors: tuple[str, ...]) -> Any:
    """The colors as a scale of matplotlib's, with a gray for what is not a number."""
    found = require_extra("matplotlib.colors", extra="draw").LinearSegmentedColormap.from_list(
        "regard", list(colors)
    )
    return found.with_extremes(bad=NOT_A_NUMBER)


def brightness(color: Any) -> float:
    """How bright a color looks, from 0 to 1: the relative luminance of the web's rules for contrast.

    0.2126 r + 0.7152 g + 0.0722 b, of linear light
    """
    shares = (0.2126, 0.7152, 0.0722)
    linear = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in map(float, color[:3]))
    return sum(share * c for share, c in zip(shares, linear, strict=True))


def ink_on(color: Any) -> str:
    """Black or white, whichever reads better on the color."""
    return "black" if brightness(color) > 0.179 else "white"
