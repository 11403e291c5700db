"""/v1/caption: what there is to say of each image, and where each word looked."""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Sequence
from io import BytesIO
from typing import Annotated, Any

import numpy
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from regard._imports import require_extra
from regard.errors import RequestError
from regard.serving._bodies import Strict, as_json, listed
from regard.serving._errors import refusals
from regard.serving._served import Here, Served

FORMATS = ("PNG", "JPEG", "WEBP")  # Pillow reads many more; each is one more program that strangers can feed

router = APIRouter(prefix="/v1")


class Images(Strict):
    """Images to be described."""

    images: Annotated[list[str], Field(min_length=1)] = Field(description="Files of PNG, JPEG or WebP, each as base64.")
    look: bool = Field(False, description="Tell also where each word looked.")


class Described(BaseModel):
    """A caption; with `look`, its words, how sure each was, and the weights of the grid of the image for each."""

    caption: str
    words: list[str] | None = None
    probabilities: list[float] | None = None
    weights: list[list[list[float]]] | None = None


class Captions(BaseModel):
    """One entry for each image, in the order of the images."""

    captions: list[Described]


@router.post("/caption", response_model=Captions, responses=refusals(404, 504))
async def caption(here: Here, body: Images) -> Response:
    """What there is to say of each image. Images come with the request; the server opens no path and no address."""
    captioner = here.captioner()
    if len(body.images) > here.limits.texts:
        told = f"There are {len(body.images):,} images; at most {here.limits.texts} are taken."
        raise RequestError(413, "too_many_images", told)
    pixels = await asyncio.to_thread(_decoded, here, body.images)
    work = _looked if body.look else _captioned
    found = await here.worker.join(("caption", body.look), lambda some: work(captioner, some), pixels)
    return listed("captions", found)


def _captioned(captioner: Any, images: Sequence[Any]) -> list[bytes]:
    return [as_json({"caption": text}) for text in captioner.caption(images)]


def _looked(captioner: Any, images: Sequence[Any]) -> list[bytes]:
    return [as_json(captioner.explain(image).to_json()) for image in images]


def _decoded(here: Served, images: Sequence[str]) -> list[Any]:
    return [_pixels(text, row, here.limits.pixels) for row, text in enumerate(images, 1)]


def _pixels(text: str, row: int, most: int) -> Any:
    """An image as (height, width, 3) numbers from 0 to 255."""
    pillow, turned = require_extra("PIL.Image", extra="images"), require_extra("PIL.ImageOps", extra="images")
    try:
        raw = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(422, "no_image", f"image {row} is not base64.") from None
    try:
        with pillow.open(BytesIO(raw), formats=FORMATS) as file:
            width, height = file.size
            if width * height > most:  # a small file can unpack to gigabytes
                told = f"image {row} has {width:,} x {height:,} pixels; at most {most:,} are taken."
                raise RequestError(413, "too_many_pixels", told)
            return numpy.array(turned.exif_transpose(file).convert("RGB"))
    except RequestError:
        raise
    except Exception:  # whatever a damaged file leads to: Pillow has no common ancestor for it
        raise RequestError(422, "no_image", f"image {row} is not a PNG, JPEG or WebP file, or damaged.") from None
