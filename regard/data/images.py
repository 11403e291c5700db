"""Image files, and lists of them with captions: one JSON object a line, {"image": path, "captions": [...]}.

Handwritten digits: those that come with scikit-learn, or the files of MNIST.

Images as people give them, as networks take them, and as people see them.
"""

from __future__ import annotations

import gzip
import math
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import interpolate

from regard._imports import require_extra
from regard.data.text_files import READ_ERRORS, describe_read_error
from regard.errors import DataError, InputError

REPAIR_ADVICE = "mend it or leave it out"


FORMATS_WITH_16_BITS = (
    "PNG",
    "PPM",
)  # formats whose images of mode I have 16 bits, in some versions of Pillow


def read_image(
    path: str | PathLike[str], size: int | None = None, color: bool = True
) -> UInt8[Tensor, "channels height width"]:
    """An image file as bytes, turned as its camera says; with a size, stretched to a square of so many pixels.

    What is transparent is white, and 16 bits are scaled to 8. Whatever cannot be read raises `DataError`.
    """
    pillow = require_extra("PIL.Image", extra="images")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", pillow.DecompressionBombWarning)
            with pillow.open(path) as file:
                return to_pixels(file, size, color, str(path))
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"There is no image {path}.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name an image in it.") from None
    except pillow.UnidentifiedImageError:
        raise DataError(
            f"{path} cannot be read as an image: it is of no known format; {REPAIR_ADVICE}."
        ) from None
    except Exception as error:  # whatever a damaged file leads to: Pillow has no common ancestor for it
        why = str(error).replace(repr(str(path)), "the file").replace(str(path), "the file")
        raise DataError(f"{path} cannot be read as an image ({why}); {REPAIR_ADVICE}.") from None


def to_pixels(
    image: Any, size: int | None = None, color: bool = True, name: str = "the image"
) -> UInt8[Tensor, "channels height width"]:
    """The same of an image that Pillow has opened or made."""
    pillow = require_extra("PIL.Image", extra="images")
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and image.format in FORMATS_WITH_16_BITS)
    if image.mode in ("I", "F") and not sixteen:
        raise DataError(
            f"{name} has numbers of 32 bits (mode {image.mode}), and which of them is white is not known; convert it"
            " to 8 or 16 bits first."
        )
    image = require_extra("PIL.ImageOps", extra="images").exif_transpose(image)
    image = _to_8_bits(pillow, image) if sixteen else _on_white(pillow, image)
    image = image.convert("RGB" if color else "L")
    if size is not None:
        image = image.resize((size, size), pillow.Resampling.BILINEAR, reducing_gap=2.0)
    pixels = torch.from_numpy(np.array(image))
    return pixels.permute(2, 0, 1) if color else pixels[None]


def is_pillow_image(image: Any) -> bool:
    """Whether an object is an image of Pillow, which need not be there."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(image, pillow.Image)


def _to_8_bits(pillow: Any, image: Any) -> Any:
    """A gray image of 16 bits with 8, by its full range; the gray that is named as transparent is white."""
    numbers = np.array(image).astype(np.int64)
    if (clear := image.info.get("transparency")) is not None:
        numbers[numbers == clear] = 65535
    return pillow.fromarray((numbers.clip(0, 65535) / 257).round().astype(np.uint8))


def _on_white(pillow: Any, image: Any) -> Any:
    """The image on white, if a part of it is transparent."""
    if image.mode not in ("RGBA", "RGBa", "LA", "La", "PA") and "transparency" not in image.info:
        return image
    image = image.convert("RGBA")
    return pillow.alpha_composite(pillow.new("RGBA", image.size, "white"), image)


Split = Literal["train", "valid", "test"]


HELD_OUT_COUNTS = {"valid": 150, "test": 300}  # of scikit-learn's 1,797


MNIST_VALID_COUNT = 5000  # of MNIST's 60,000 for training, the last ones


MNIST_FILE_PREFIXES = {"train": "train", "valid": "train", "test": "t10k"}


@dataclass(frozen=True)
class Digits:
    """Square images of single digits, white on black, and which digits they are."""

    images: Float[Tensor, "count side side"]
    labels: Int[Tensor, " count"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def side(self) -> int:
        return self.images.shape[-1]

    def select(self, indices: slice | Int[Tensor, " some"]) -> Digits:
        return Digits(self.images[indices], self.labels[indices])


@cache
def load_sklearn_digits(split: Split) -> Digits:
    """Digits of 8 by 8 pixels: Alpaydin and Kaynak (1998), as scikit-learn brings them. No digit is in two parts."""
    found = require_extra("sklearn.datasets", "sklearn").load_digits()
    every = Digits(torch.tensor(found.images / 16, dtype=torch.float32), torch.tensor(found.target).long())
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
    test, valid = HELD_OUT_COUNTS["test"], HELD_OUT_COUNTS["test"] + HELD_OUT_COUNTS["valid"]
    which = {"test": order[:test], "valid": order[test:valid], "train": order[valid:]}
    return every.select(which[split])


def load_mnist(folder: str | Path, split: Split) -> Digits:
    """Digits of 28 by 28 pixels: LeCun et al. (1998), from the four original files, packed or not."""
    images, labels = (
        _read_idx(Path(folder), MNIST_FILE_PREFIXES[split], kind) for kind in ("images-idx3", "labels-idx1")
    )
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise DataError(f"{folder}: the files of MNIST do not fit together; get all four of them again.")
    every = Digits(torch.from_numpy(images).float() / 255, torch.from_numpy(labels).long())
    if split == "test":
        return every
    border = max(len(every) - MNIST_VALID_COUNT, len(every) // 2)
    return every.select(slice(border) if split == "train" else slice(border, None))


def _read_idx(folder: Path, name: str, suffix: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An array in the format of those files: two zeros, a code for bytes, the number of axes, their sizes, bytes."""
    path = folder / f"{name}-{suffix}-ubyte"
    packed = path.with_name(path.name + ".gz")
    path = packed if packed.is_file() else path
    try:
        raw = gzip.decompress(path.read_bytes()) if path is packed else path.read_bytes()
    except READ_ERRORS as error:
        raise describe_read_error(error, path, 0) from None
    axes = raw[3] if len(raw) > 3 else 0
    whole = raw[:3] == b"\0\0\x08" and len(raw) >= 4 + 4 * axes
    sizes = [int(size) for size in np.frombuffer(raw, ">u4", axes, 4)] if whole else []
    if not whole or len(raw) != 4 + 4 * axes + math.prod(sizes):
        raise DataError(f"{path} is not a whole file of MNIST; get it again.")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(sizes).copy()


IMAGE_BATCH_SIZE = 100  # pictures that a network sees together


GRAY_WEIGHTS = (0.299, 0.587, 0.114)  # what red, green and blue count in gray, as Pillow has it (ITU-R 601)


ImageLike = (
    Any  # a path, or an array, tensor or Pillow image: (height, width) or (height, width, 3), or 4 with alpha
)


def load_image(image: ImageLike, size: int, color: bool = False) -> Float[Tensor, "channels size size"]:
    """A path, array, tensor or Pillow image as numbers from 0 to 1, stretched to a square."""
    if (read := _load_file_or_pillow(image, size, color)) is not None:
        return read
    pixels = _array_to_pixels(image)
    if not color and pixels.shape[0] == 3:
        pixels = (torch.tensor(GRAY_WEIGHTS)[:, None, None] * pixels).sum(0, keepdim=True)
    pixels = pixels.expand(3 if color else 1, -1, -1)
    if pixels.shape[1:] == (size, size):
        return pixels
    return interpolate(pixels[None], (size, size), mode="bilinear", antialias=True)[0].clamp(0, 1)


def load_gray_images(images: Sequence[ImageLike], size: int) -> Float[Tensor, "count 1 size size"]:
    """Many of them in gray."""
    found = [load_image(image, size) for image in images]
    return torch.stack(found) if found else torch.zeros(0, 1, size, size)


def to_rgb(image: ImageLike) -> Float[Tensor, "height width 3"]:
    """The image as people see it."""
    read = _load_file_or_pillow(image)
    return (_array_to_pixels(image) if read is None else read).expand(3, -1, -1).permute(1, 2, 0)


def _load_file_or_pillow(
    image: ImageLike, size: int | None = None, color: bool = True
) -> Float[Tensor, "channels height width"] | None:
    """A path or a Pillow image as numbers from 0 to 1; None for what is neither."""
    if isinstance(image, str | Path):
        return read_image(image, size, color).float() / 255
    return to_pixels(image, size, color).float() / 255 if is_pillow_image(image) else None


def _array_to_pixels(image: ImageLike) -> Float[Tensor, "channels height width"]:
    """An array or tensor as numbers from 0 to 1, one channel or three; what is transparent is white."""
    array = image.detach().cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[-1] not in (1, 3, 4) or not array.size:
        raise InputError(f"an image is (height, width) or (height, width, 3), not {np.shape(image)}")
    most = _max_value(array.dtype)
    pixels = torch.from_numpy(array.astype(np.float32) / most).permute(2, 0, 1)
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise InputError(f"the image has numbers outside of 0..{most}")
    return pixels if len(pixels) < 4 else 1 + pixels[3] * (pixels[:3] - 1)


def _max_value(dtype: np.dtype[Any]) -> int:
    """What is white: all that 16 bits hold, 255 of other whole numbers, and 1."""
    if dtype == np.uint16:
        return 65535
    return 255 if np.issubdtype(dtype, np.integer) else 1
