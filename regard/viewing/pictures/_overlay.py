"""Where on an image each word looked: light falls on what was regarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn.functional import interpolate

from regard.errors import UsageError
from regard.viewing import _check as check
from regard.viewing._images import as_image, lit
from regard.viewing._letters import shortened
from regard.viewing.pictures._labels import LONGEST, headline, no_labels, title, visible
from regard.viewing.pictures._picture import Picture
from regard.viewing.pictures._sheet import DPI, Sheet, whole

SIDE = 1.6  # inches: the longer side of a panel
A_LINE, MANY_A_LINE = 5, 8  # panels
MOST = 60  # panels


def overlay(
    image: Any,
    weights: Shaped[Tensor, "*words rows columns"],
    words: Sequence[str] | None = None,
    *,
    smooth: bool = True,
    title: str | None = None,
) -> Picture:
    """Draw an image, and for each word the same image, lit where the word looked.

    `image` is an array or tensor (height, width) or (height, width, 3), of 0..255 as whole numbers or 0..1 as others.
    `weights` is a coarse grid over it, or one a word; between its cells the light fades smoothly, or not. Light is
    brightest at the largest weight of its panel, which is written below it.

    >>> overlay(torch.rand(32, 48, 3), torch.rand(2, 4, 6), words=["a", "dog"])
    Picture(... x ... pixels)
    """
    picture = as_image("overlay", image)
    axes_of = "rows columns" if weights.dim() == 2 else "words rows columns"
    grids = check.weights("overlay", weights, axes_of).reshape(-1, *weights.shape[-2:])
    if len(grids) > MOST:
        raise UsageError(f"overlay draws at most {MOST} words, not {len(grids)}; give it a part of them.")
    names = check.labels("overlay", "word", words, len(grids)) or [""] * len(grids)

    sheet, longer = Sheet(), max(picture.shape[:2])
    down, across = (whole(SIDE * max(side / longer, 0.2)) for side in picture.shape[:2])
    picture = _resized(picture, down, across)
    panels = sheet.panels(
        len(grids) + 1, A_LINE if len(grids) < 20 else MANY_A_LINE, (down, across), (0.4, 0.08)
    )
    _panel(panels[0], picture, "", None)
    for axes, grid, name in zip(panels[1:], grids, names, strict=True):
        _panel(axes, lit(picture, grid, smooth), shortened(visible(name), LONGEST), _largest(grid))
    headline(sheet, title)
    return sheet.done()


def _largest(grid: Any) -> float:
    return float("nan") if np.isnan(grid).all() else check.largest(grid)


def _resized(picture: Any, down: float, across: float) -> Any:
    """As many pixels as the panel has twice over, in SVG for zooming in; smaller images are made larger."""
    pixels = torch.as_tensor(picture).permute(2, 0, 1)[None]
    size = [max(1, round(2 * side * DPI)) for side in (down, across)]
    shrinks = pixels.shape[-2] > size[0]
    how: dict[str, Any] = {"mode": "bilinear", "antialias": True} if shrinks else {"mode": "nearest-exact"}
    return interpolate(pixels, size=size, **how)[0].permute(1, 2, 0).clamp(0, 1).numpy()


def _panel(axes: Any, pixels: Any, name: str, largest: float | None) -> None:
    axes.imshow(pixels, aspect="auto", interpolation="none")
    no_labels(axes)
    axes.spines[:].set_visible(False)
    title(axes, name, size=8, loc="center", pad=3)
    if largest is not None:
        axes.set_xlabel(
            "NaN" if np.isnan(largest) else f"up to {largest:.2g}", fontsize=6, labelpad=2, color="#666666"
        )
