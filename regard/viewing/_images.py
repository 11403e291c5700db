"""Images, and the light that weights throw on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.functional import interpolate

from regard.errors import ShapeError, UsageError
from regard.viewing import _check as check

DARK = 0.16  # of its light is left to what is not looked at


def as_image(who: str, image: Any) -> Any:
    """An image as an array (height, width, 3) of numbers from 0 to 1."""
    # A copy, since torch complains of arrays that it may not write to, such as those of image files.
    pixels = image.detach().cpu() if isinstance(image, torch.Tensor) else torch.as_tensor(np.array(image))
    if pixels.dim() == 2:
        pixels = pixels.unsqueeze(-1).expand(-1, -1, 3)
    if pixels.dim() != 3 or pixels.shape[-1] != 3 or not pixels.numel():
        hint = "; write image.permute(1, 2, 0)" if pixels.dim() == 3 and pixels.shape[0] == 3 else ""
        shape = tuple(pixels.shape)
        raise ShapeError(f"{who}: an image is (height, width) or (height, width, 3), not {shape}{hint}.")
    whole_numbers = not pixels.is_floating_point() and pixels.dtype != torch.bool
    pixels = pixels.double() / (255 if whole_numbers else 1)
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise UsageError(f"{who}: the image has numbers outside of 0..{255 if whole_numbers else 1}.")
    return pixels.numpy()


def lit(picture: Any, grid: Any, smooth: bool) -> Any:
    """The picture, dark but for where the grid has weight; gray where the grid is not a number."""
    top = check.top("overlay", None, grid)
    cells = torch.as_tensor(grid / top)[None, None]
    size = picture.shape[:2]
    how: dict[str, Any] = {"mode": "bicubic", "align_corners": False} if smooth else {"mode": "nearest-exact"}
    light = interpolate(cells.nan_to_num(0.0), size=size, **how)[0, 0].clamp(0, 1).numpy()
    unknown = interpolate(cells.isnan().double(), size=size, mode="nearest-exact")[0, 0].numpy() > 0
    found = picture * (DARK + (1 - DARK) * light)[..., None]
    found[unknown] = 0.6
    return found
