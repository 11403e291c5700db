"""The inputs of requests as a predictor takes them: texts, and images that are decoded within limits."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy

from regard._imports import require_extra
from regard.errors import EmptyInputError, InputError, InputTooLongError, RegardError
from regard.serving.worker import Limits
from regard.tasks.predictor import InputField

__all__ = ["check_text", "decode_inputs"]

Reserve = Callable[[int], None]  # of pixels, before an image is decoded
IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")  # Pillow reads many more; each is one more parser that strangers can reach


def decode_inputs(inputs: Sequence[InputField], values: Sequence[Any], limits: Limits, reserve: Reserve) -> list[Any]:
    """Inputs as a predictor takes them, within the limits of their kind.

    Args:
        inputs: the parts of an input
        values: as in the request
        limits: of characters and pixels
        reserve: called with the size of each image before it is decoded; may refuse it
    """

    def decode(value: Any, row: int) -> Any:
        if len(inputs) == 1:
            return _decode_part(inputs[0], value, f"input {row + 1}", row, limits, reserve)
        parts = ((one, getattr(value, one.name), f"{one.name} of input {row + 1}") for one in inputs)
        return tuple(_decode_part(*part, row, limits, reserve) for part in parts)

    return [decode(value, row) for row, value in enumerate(values)]


def _decode_part(field: InputField, value: str, where: str, row: int, limits: Limits, reserve: Reserve) -> Any:
    if field.kind == "text":
        if not field.may_be_empty and not value.strip():
            raise EmptyInputError(f"{where} is empty", row=row)
        check_text(value, where, limits, row)
        return value
    try:
        content = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise InputError(f"{where} is not base64", row=row) from None
    return content if field.kind != "image" else _decode_image(content, where, row, limits.max_pixels, reserve)


def check_text(text: str, where: str, limits: Limits, row: int | None = None) -> None:
    """Refuse a text with too many characters.

    Args:
        text: the text
        where: what it is, for the message
        limits: of characters
        row: its index among the inputs
    """
    if len(text) > limits.max_characters:
        message = f"{where} has {len(text):,} characters; at most {limits.max_characters:,} are taken"
        raise InputTooLongError(message, row=row)


def _decode_image(content: bytes, where: str, row: int, max_pixels: int, reserve: Reserve) -> Any:
    """An image as (height, width, 3) numbers from 0 to 255."""
    pillow, operations = require_extra("PIL.Image", extra="images"), require_extra("PIL.ImageOps", extra="images")
    try:
        with pillow.open(BytesIO(content), formats=IMAGE_FORMATS) as file:
            width, height = file.size
            if width * height > max_pixels:  # a small file can unpack to gigabytes
                message = f"{where} has {width:,} x {height:,} pixels; at most {max_pixels:,} are taken"
                raise InputTooLongError(message, row=row)
            reserve(width * height)
            return numpy.array(operations.exif_transpose(file).convert("RGB"))
    except RegardError:
        raise
    except Exception:  # damaged files lead to any exception; Pillow's have no common base
        raise InputError(f"{where} is not a PNG, JPEG or WebP file, or damaged", row=row) from None
