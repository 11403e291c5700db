"""Images as people give them, as networks take them, and as people see them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import interpolate

from regard.data.pictures import is_pillow, pixels_of, read_image
from regard.errors import InputError

AT_ONCE = 100  # pictures that a network sees together
GRAY = (0.299, 0.587, 0.114)  # what red, green and blue count in gray, as Pillow has it (ITU-R 601)
Image = (
    Any  # a path, or an array, tensor or Pillow image: (height, width) or (height, width, 3), or 4 with alpha
)


def taken(image: Image, size: int, color: bool = False) -> Float[Tensor, "channels size size"]:
    """A path, array, tensor or Pillow image as numbers from 0 to 1, stretched to a square."""
    if (read := _read(image, size, color)) is not None:
        return read
    pixels = _pixels(image)
    if not color and pixels.shape[0] == 3:
        pixels = (torch.tensor(GRAY)[:, None, None] * pixels).sum(0, keepdim=True)
    pixels = pixels.expand(3 if color else 1, -1, -1)
    if pixels.shape[1:] == (size, size):
        return pixels
    return interpolate(pixels[None], (size, size), mode="bilinear", antialias=True)[0].clamp(0, 1)


def grays(images: Sequence[Image], size: int) -> Float[Tensor, "count 1 size size"]:
    """Many of them in gray."""
    found = [taken(image, size) for image in images]
    return torch.stack(found) if found else torch.zeros(0, 1, size, size)


def shown(image: Image) -> Float[Tensor, "height width 3"]:
    """The image as people see it."""
    read = _read(image)
    return (_pixels(image) if read is None else read).expand(3, -1, -1).permute(1, 2, 0)


def _read(
    image: Image, size: int | None = None, color: bool = True
) -> Float[Tensor, "channels height width"] | None:
    """A path or a Pillow image as numbers from 0 to 1; None for what is neither."""
    if isinstance(image, str | Path):
        return read_image(image, size, color).float() / 255
    return pixels_of(image, size, color).float() / 255 if is_pillow(image) else None


def _pixels(image: Image) -> Float[Tensor, "channels height width"]:
    """An array or tensor as numbers from 0 to 1, one channel or three; what is transparent is white."""
    array = image.detach().cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[-1] not in (1, 3, 4) or not array.size:
        raise InputError(f"an image is (height, width) or (height, width, 3), not {np.shape(image)}")
    most = _most(array.dtype)
    pixels = torch.from_numpy(array.astype(np.float32) / most).permute(2, 0, 1)
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise InputError(f"the image has numbers outside of 0..{most}")
    return pixels if len(pixels) < 4 else 1 + pixels[3] * (pixels[:3] - 1)


def _most(dtype: np.dtype[Any]) -> int:
    """What is white: all that 16 bits hold, 255 of other whole numbers, and 1."""
    if dtype == np.uint16:
        return 65535
    return 255 if np.issubdtype(dtype, np.integer) else 1
