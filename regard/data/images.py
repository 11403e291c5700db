"""Images: files, arrays and Pillow images as tensors, and two datasets of handwritten digits."""

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

from regard._imports import require_extra
from regard.data.sources import TensorRows
from regard.data.text_files import READ_ERRORS, describe_read_error
from regard.errors import DataError, InputError

__all__ = [
    "IMAGE_BATCH_SIZE", "Digits", "ImageLike", "load_gray_images", "load_image", "load_mnist",
    "load_sklearn_digits", "read_image", "to_pixels", "to_rgb",
]  # fmt: skip

Split = Literal["train", "valid", "test"]
ImageLike = Any  # a path, or an array, tensor or Pillow image: (height, width), or (height, width, 3 or 4)
Pixels = UInt8[Tensor, "channels height width"]
IMAGE_BATCH_SIZE = 100  # images that a network processes together
GRAY_WEIGHTS = (0.299, 0.587, 0.114)  # of red, green and blue, as in Pillow (ITU-R 601)
REPAIR_ADVICE = "repair it or leave it out"
FORMATS_WITH_16_BITS = ("PNG", "PPM")  # images of mode I have 16 bits in these, in some versions of Pillow
HELD_OUT_ENDS = (300, 450)  # of scikit-learn's 1,797 digits in random order: test, valid, and the rest is train
MNIST_VALID_COUNT = 5000  # the last of MNIST's 60,000 training images
MAX_IDX_BYTES = 64 << 20  # of a file of MNIST; a small compressed one could be larger than memory


def read_image(path: str | PathLike[str], size: int | None = None, color: bool = True) -> Pixels:
    """Read an image file as bytes, rotated by its EXIF orientation.

    Transparent pixels become white, and 16 bits are scaled to 8.

    Args:
        path: the file.
        size: resizes the image to a square of this many pixels; `None` keeps its size.
        color: whether to return three channels; otherwise one, gray.

    Returns:
        The pixels.

    Shape:
        (3 or 1, height, width).

    Raises:
        DataError: the file cannot be read as an image.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.png")
        >>> require_extra("PIL.Image", extra="images").new("RGB", (4, 2), "red").save(path)
        >>> read_image(path)[:, 0, 0].tolist()
        [255, 0, 0]
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
        raise DataError(f"{path} cannot be read as an image: unknown format; {REPAIR_ADVICE}.") from None
    except Exception as error:  # any error of a damaged file: Pillow's have no common base class
        reason = str(error).replace(repr(str(path)), "the file").replace(str(path), "the file")
        raise DataError(f"{path} cannot be read as an image ({reason}); {REPAIR_ADVICE}.") from None


def to_pixels(image: Any, size: int | None = None, color: bool = True, name: str = "the image") -> Pixels:
    """Convert a Pillow image to bytes, like `read_image`.

    Args:
        image: an image of Pillow.
        size: resizes the image to a square of this many pixels; `None` keeps its size.
        color: whether to return three channels; otherwise one, gray.
        name: the name of the image, for messages.

    Returns:
        The pixels.

    Shape:
        (3 or 1, height, width).

    Example:
        >>> to_pixels(require_extra("PIL.Image", extra="images").new("L", (4, 2), 7), color=False).shape
        torch.Size([1, 2, 4])
    """
    pillow = require_extra("PIL.Image", extra="images")
    has_16_bits = image.mode.startswith("I;16") or (image.mode == "I" and image.format in FORMATS_WITH_16_BITS)
    if image.mode in ("I", "F") and not has_16_bits:
        problem = f"{name} has numbers of 32 bits (mode {image.mode}), and their value for white is unknown"
        raise DataError(f"{problem}; convert it to 8 or 16 bits first.")
    image = require_extra("PIL.ImageOps", extra="images").exif_transpose(image)
    image = _to_8_bits(pillow, image) if has_16_bits else _on_white(pillow, image)
    image = image.convert("RGB" if color else "L")
    if size is not None:
        image = image.resize((size, size), pillow.Resampling.BILINEAR, reducing_gap=2.0)
    pixels = torch.from_numpy(np.array(image))
    return pixels.permute(2, 0, 1) if color else pixels[None]


def _to_8_bits(pillow: Any, image: Any) -> Any:
    """Scale a gray image of 16 bits by its full range; the gray that is declared transparent becomes white."""
    values = np.array(image).astype(np.int64)
    if (transparent := image.info.get("transparency")) is not None:
        values[values == transparent] = 65535
    return pillow.fromarray((values.clip(0, 65535) / 257).round().astype(np.uint8))


def _on_white(pillow: Any, image: Any) -> Any:
    """Put a transparent image on a white background."""
    if image.mode not in ("RGBA", "RGBa", "LA", "La", "PA") and "transparency" not in image.info:
        return image
    image = image.convert("RGBA")
    return pillow.alpha_composite(pillow.new("RGBA", image.size, "white"), image)


def load_image(image: ImageLike, size: int | None, color: bool = False) -> Float[Tensor, "channels height width"]:
    """Load an image as numbers from 0 to 1, resized to a square.

    Args:
        image: a path, array, tensor or Pillow image.
        size: the pixels of a side; `None` keeps its size.
        color: whether to return three channels; otherwise one, gray.

    Returns:
        The image.

    Shape:
        (3 or 1, height, width).

    Example:
        >>> load_image(torch.ones(4, 6), size=2).tolist()
        [[[1.0, 1.0], [1.0, 1.0]]]
    """
    if isinstance(image, str | Path):
        return read_image(image, size, color).float() / 255
    pillow = sys.modules.get("PIL.Image")  # without importing Pillow
    if pillow is not None and isinstance(image, pillow.Image):
        return to_pixels(image, size, color).float() / 255
    pixels = _array_to_pixels(image)
    if not color and pixels.shape[0] == 3:
        pixels = (torch.tensor(GRAY_WEIGHTS)[:, None, None] * pixels).sum(0, keepdim=True)
    pixels = pixels.expand(3 if color else 1, -1, -1)
    if size is None or pixels.shape[1:] == (size, size):
        return pixels
    return torch.nn.functional.interpolate(pixels[None], (size, size), mode="bilinear", antialias=True)[0].clamp(0, 1)


def load_gray_images(images: Sequence[ImageLike], size: int) -> Float[Tensor, "count 1 size size"]:
    """Load many images in gray, like `load_image`.

    Args:
        images: paths, arrays, tensors or Pillow images.
        size: the pixels of a side.

    Returns:
        The images.

    Shape:
        (count, 1, size, size).

    Example:
        >>> load_gray_images([torch.ones(4, 6)], size=2).shape
        torch.Size([1, 1, 2, 2])
    """
    loaded = [load_image(image, size) for image in images]
    return torch.stack(loaded) if loaded else torch.zeros(0, 1, size, size)


def to_rgb(image: ImageLike) -> Float[Tensor, "height width 3"]:
    """Load an image in color and in its own size, for display.

    Args:
        image: a path, array, tensor or Pillow image.

    Returns:
        Numbers from 0 to 1.

    Shape:
        (height, width, 3).

    Example:
        >>> to_rgb(torch.ones(4, 6)).shape
        torch.Size([4, 6, 3])
    """
    return load_image(image, None, color=True).permute(1, 2, 0)


def _array_to_pixels(image: ImageLike) -> Float[Tensor, "channels height width"]:
    """Convert an array or tensor to numbers from 0 to 1, one channel or three; transparent pixels become white."""
    array = image.detach().cpu().numpy() if isinstance(image, Tensor) else np.asarray(image)
    array = array[..., None] if array.ndim == 2 else array
    if array.ndim != 3 or array.shape[-1] not in (1, 3, 4) or not array.size:
        raise InputError(f"an image must be (height, width) or (height, width, 3), not {np.shape(image)}")
    # the value of white
    max_value = 65535 if array.dtype == np.uint16 else 255 if np.issubdtype(array.dtype, np.integer) else 1
    pixels = torch.from_numpy(array.astype(np.float32) / max_value).permute(2, 0, 1)
    if not bool(((pixels >= 0) & (pixels <= 1)).all()):
        raise InputError(f"the image has numbers outside of 0..{max_value}")
    return pixels if len(pixels) < 4 else 1 + pixels[3] * (pixels[:3] - 1)


@dataclass(frozen=True)
class Digits(TensorRows):
    """Square images of single digits, white on black.

    Args:
        images: the images, from 0 to 1.
        labels: the digits.

    Shape:
        images: (count, side, side), labels: (count,).

    Example:
        >>> Digits(torch.rand(3, 8, 8), torch.tensor([4, 0, 2]))[1:3].labels.tolist()
        [0, 2]
    """

    images: Float[Tensor, "count side side"]
    labels: Int[Tensor, " count"]

    @property
    def side(self) -> int:
        """The pixels of a side."""
        return self.images.shape[-1]


@cache
def load_sklearn_digits(split: Split) -> Digits:
    """Load the digits of 8 by 8 pixels that scikit-learn includes; no digit is in two splits.

    Args:
        split: `train`, `valid` or `test`.

    Returns:
        The digits of the split.

    Reference:
        Alpaydin and Kaynak (1998), "Optical Recognition of Handwritten Digits".

    Example:
        >>> len(load_sklearn_digits("test"))
        300
    """
    data = require_extra("sklearn.datasets", "sklearn").load_digits()
    digits = Digits(torch.tensor(data.images / 16, dtype=torch.float32), torch.tensor(data.target).long())
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(0))
    splits = zip(("test", "valid", "train"), order.tensor_split(HELD_OUT_ENDS), strict=True)
    return digits[dict(splits)[split]]


def load_mnist(folder: str | Path, split: Split) -> Digits:
    """Load the digits of 28 by 28 pixels of MNIST from its four original files, compressed or not.

    Args:
        folder: the folder of the files.
        split: `train`, `valid` (the last 5,000 training images) or `test`.

    Returns:
        The digits of the split.

    Reference:
        LeCun, Bottou, Bengio and Haffner (1998), "Gradient-Based Learning Applied to Document Recognition".

    Raises:
        DataError: a file is missing or damaged.

    Example:
        >>> load_mnist("mnist", "test")  # doctest: +SKIP
    """
    prefix = "t10k" if split == "test" else "train"
    images, labels = (_read_idx(Path(folder), prefix, suffix) for suffix in ("images-idx3", "labels-idx1"))
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise DataError(f"{folder}: the files of MNIST do not match; get all four of them again.")
    digits = Digits(images.float() / 255, labels.long())
    if split == "test":
        return digits
    num_train = max(len(digits) - MNIST_VALID_COUNT, len(digits) // 2)
    return digits[:num_train] if split == "train" else digits[num_train:]


def _read_idx(folder: Path, name: str, suffix: str) -> UInt8[Tensor, "*sizes"]:
    """Read an array in IDX format: two zeros, a code for bytes, the number of axes, their sizes, the bytes."""
    path = folder / f"{name}-{suffix}-ubyte"
    compressed = path.with_name(path.name + ".gz")
    path = compressed if compressed.is_file() else path
    try:
        with gzip.open(path) if path is compressed else path.open("rb") as file:
            raw = file.read(MAX_IDX_BYTES)
    except READ_ERRORS as error:
        raise describe_read_error(error, path, 0) from None
    axes = raw[3] if len(raw) > 3 else 0
    is_complete = raw[:3] == b"\0\0\x08" and len(raw) >= 4 + 4 * axes
    sizes = [int(size) for size in np.frombuffer(raw, ">u4", axes, 4)] if is_complete else []
    if not is_complete or len(raw) != 4 + 4 * axes + math.prod(sizes):
        raise DataError(f"{path} is not a complete file of MNIST; get it again.")
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(sizes).copy())
