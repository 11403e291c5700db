"""An image in gray characters, lit where a word looked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn.functional import interpolate

from regard.viewing import _check as check
from regard.viewing._images import as_image, lit
from regard.viewing.terminal._panel import GRAYS, beside, in_halves
from regard.viewing.terminal._screen import SHADES, clean, columns_of, fitting, wants_color

WIDE, NARROW = 32, 12  # columns of a panel


def overlay(
    image: Any,
    weights: Shaped[Tensor, "*words rows columns"],
    words: Sequence[str] | None = None,
    *,
    smooth: bool = True,
    color: bool | None = None,
    width: int | None = None,
) -> str:
    """Draw an image coarsely, and for each word the same image, lit where the word looked: bright is regarded.

    >>> print(overlay(torch.ones(4, 8), torch.eye(2), color=False, smooth=False, width=17))
    ████████ ████░░░░
    ████████ ░░░░████
    """
    picture = as_image("overlay", image)
    axes_of = "rows columns" if weights.dim() == 2 else "words rows columns"
    grids = check.weights("overlay", weights, axes_of).reshape(-1, *weights.shape[-2:])
    names = check.labels("overlay", "word", words, len(grids))
    color, room = wants_color() if color is None else color, columns_of(width)
    size = min(room, picture.shape[1], max(NARROW, min(WIDE, (room + 1) // (len(grids) + 1) - 1)))
    small = _resized(picture, size)
    panels = [_gray(shown, color) for shown in (small, *(lit(small, grid, smooth) for grid in grids))]
    titles = ["", *(clean(name, size) for name in names or [""] * len(grids))]
    a_line = max(1, (room + 1) // (size + 1))
    lines = []
    for first in range(0, len(panels), a_line):
        found = beside(panels[first : first + a_line], titles[first : first + a_line])
        lines += found if names is not None else found[1:]
    return "\n".join(fitting(lines, room))


def _resized(picture: Any, columns: int) -> Any:
    rows = max(2, round(columns * picture.shape[0] / picture.shape[1] / 2) * 2)  # halves of characters
    pixels = torch.as_tensor(picture).permute(2, 0, 1)[None]
    return interpolate(pixels, size=(rows, columns), mode="area")[0].permute(1, 2, 0).numpy()


def _gray(picture: Any, color: bool) -> list[str]:
    light = picture @ np.array([0.299, 0.587, 0.114])
    if color:
        return in_halves(light, lambda value: GRAYS[min(len(GRAYS) - 1, int(value * len(GRAYS)))])
    halves = light.reshape(len(light) // 2, 2, -1).mean(1)
    scale = " " + SHADES
    return ["".join(scale[min(4, int(value * 5 + 0.25))] for value in row) for row in halves.tolist()]
