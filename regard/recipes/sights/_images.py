"""Images as people give them, as networks take them, and as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from regard.data.pictures import read_image
from regard.recipes.captions.captioner import GRAY, Image, _pixels


def gray(image: Image, size: int) -> Float[Tensor, "1 size size"]:
    """A path, array, tensor or Pillow image as one channel of numbers from 0 to 1, stretched to a square."""
    if isinstance(image, str | Path):
        return read_image(image, size, color=False).float() / 255
    pixels = _pixels(image)
    if pixels.shape[0] == 3:
        pixels = (torch.tensor(GRAY)[:, None, None] * pixels).sum(0, keepdim=True)
    if pixels.shape[1:] == (size, size):
        return pixels
    return interpolate(pixels[None], (size, size), mode="bilinear", antialias=True)[0].clamp(0, 1)


def grays(images: Sequence[Image], size: int) -> Float[Tensor, "count 1 size size"]:
    """Many of them."""
    found = [gray(image, size) for image in images]
    return torch.stack(found) if found else torch.zeros(0, 1, size, size)


def shown(image: Image) -> Float[Tensor, "height width 3"]:
    """The image as people see it."""
    pixels = read_image(image).float() / 255 if isinstance(image, str | Path) else _pixels(image)
    return pixels.expand(3, -1, -1).permute(1, 2, 0)
