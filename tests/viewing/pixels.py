"""Pixels and cell colors of a figure."""

import io
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from regard.viewing.figures import Figure

pytest.importorskip("matplotlib")


@lru_cache(maxsize=4)
def pixels(figure: Figure) -> Any:
    """The PNG as (rows, columns, 3) numbers from 0 to 1."""
    from matplotlib.image import imread

    return imread(io.BytesIO(figure.png()))[..., :3]


def color_at(figure: Figure, row: float, column: float, axes: int = 0) -> Any:
    """The color of a cell, next to its center, where there is no number and no line."""
    image = pixels(figure)
    across, up = figure.figure.axes[axes].transData.transform((column + 0.35, row + 0.35))
    return image[len(image) - 1 - int(up), int(across)]


def brightness(color: Any) -> float:
    return float(color @ np.array([0.2126, 0.7152, 0.0722]))


def size(figure: Figure) -> tuple[int, int]:
    return pixels(figure).shape[:2]
