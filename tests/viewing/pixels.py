"""How tests look at a picture: its pixels, and the color at a cell."""

import io
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from regard.viewing.figures import Figure

pytest.importorskip("matplotlib")


@lru_cache(maxsize=4)
def pixels(picture: Figure) -> Any:
    """The PNG as (rows, columns, 3) numbers from 0 to 1."""
    from matplotlib.image import imread

    return imread(io.BytesIO(picture.png()))[..., :3]


def color_at(picture: Figure, row: float, column: float, axes: int = 0) -> Any:
    """The color a little off the middle of a cell, where neither a number nor a line is."""
    seen = pixels(picture)
    across, up = picture.figure.axes[axes].transData.transform((column + 0.35, row + 0.35))
    return seen[len(seen) - 1 - int(up), int(across)]


def brightness(color: Any) -> float:
    return float(color @ np.array([0.2126, 0.7152, 0.0722]))


def size(picture: Figure) -> tuple[int, int]:
    return pixels(picture).shape[:2]
