"""Image files, and lists of them with captions: one JSON object a line, {"image": path, "captions": [...]}."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from regard._imports import require_extra
from regard.data._lines import lines
from regard.data.captions import Captioned, Pictures
from regard.errors import DataError

MEND = "mend it or leave it out"
SIXTEEN = ("PNG", "PPM")  # formats whose images of mode I have 16 bits, in some versions of Pillow


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
                return pixels_of(file, size, color, str(path))
    except DataError:
        raise
    except FileNotFoundError:
        raise DataError(f"There is no image {path}.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder; name an image in it.") from None
    except pillow.UnidentifiedImageError:
        raise DataError(f"{path} cannot be read as an image: it is of no known format; {MEND}.") from None
    except Exception as error:  # whatever a damaged file leads to: Pillow has no common ancestor for it
        why = str(error).replace(repr(str(path)), "the file").replace(str(path), "the file")
        raise DataError(f"{path} cannot be read as an image ({why}); {MEND}.") from None


def pixels_of(
    image: Any, size: int | None = None, color: bool = True, name: str = "the image"
) -> UInt8[Tensor, "channels height width"]:
    """The same of an image that Pillow has opened or made."""
    pillow = require_extra("PIL.Image", extra="images")
    sixteen = image.mode.startswith("I;16") or (image.mode == "I" and image.format in SIXTEEN)
    if image.mode in ("I", "F") and not sixteen:
        raise DataError(
            f"{name} has numbers of 32 bits (mode {image.mode}), and which of them is white is not known; convert it"
            " to 8 or 16 bits first."
        )
    image = require_extra("PIL.ImageOps", extra="images").exif_transpose(image)
    image = _eight_bits(pillow, image) if sixteen else _opaque(pillow, image)
    image = image.convert("RGB" if color else "L")
    if size is not None:
        image = image.resize((size, size), pillow.Resampling.BILINEAR, reducing_gap=2.0)
    pixels = torch.from_numpy(np.array(image))
    return pixels.permute(2, 0, 1) if color else pixels[None]


def is_pillow(image: Any) -> bool:
    """Whether an object is an image of Pillow, which need not be there."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(image, pillow.Image)


def _eight_bits(pillow: Any, image: Any) -> Any:
    """A gray image of 16 bits with 8, by its full range; the gray that is named as transparent is white."""
    numbers = np.array(image).astype(np.int64)
    if (clear := image.info.get("transparency")) is not None:
        numbers[numbers == clear] = 65535
    return pillow.fromarray((numbers.clip(0, 65535) / 257).round().astype(np.uint8))


def _opaque(pillow: Any, image: Any) -> Any:
    """The image on white, if a part of it is transparent."""
    if image.mode not in ("RGBA", "RGBa", "LA", "La", "PA") and "transparency" not in image.info:
        return image
    image = image.convert("RGBA")
    return pillow.alpha_composite(pillow.new("RGBA", image.size, "white"), image)


def read_captions(files: Sequence[str | PathLike[str]], size: int, color: bool = True) -> Captioned:
    """The images and captions that .jsonl files name; paths are those from the folder of the file.

    A line is {"image": path, "captions": [text, ...]}, or "caption" with one text. An image that several lines name
    has the captions of all of them. Whatever is wrong is said with its file and line.
    """
    captions: dict[Path, list[str]] = {}
    where: dict[Path, str] = {}
    for file in map(Path, files):
        for number, line in enumerate(lines(file), 1):
            if not line.strip():
                continue
            place = f"{file}, line {number}"
            image, told = _record(place, line)
            path = file.parent / image
            captions.setdefault(path, []).extend(told)
            where.setdefault(path, place)
    pixels = []
    for path in captions:
        try:
            pixels.append(read_image(path, size, color))
        except DataError as error:
            raise DataError(f"{where[path]}: {error}") from None
    if not pixels:
        raise DataError(f"There are no captions in {' and '.join(map(str, files))}.")
    return Captioned(Pictures(torch.stack(pixels)), list(captions.values()), [str(path) for path in captions])


def _record(place: str, line: str) -> tuple[str, list[str]]:
    """The image and the captions of one line."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: not JSON ({error}); each line should be one object.") from None
    if not isinstance(record, dict) or not isinstance(image := record.get("image"), str):
        raise DataError(f'{place}: there is no "image", which should be the path of an image.')
    told = record.get("captions", record.get("caption"))
    told = [told] if isinstance(told, str) else told
    if (
        not isinstance(told, list)
        or not told
        or not all(isinstance(one, str) and one.strip() for one in told)
    ):
        raise DataError(f'{place}: "captions" should be a list of texts, and at least one.')
    return image, told
