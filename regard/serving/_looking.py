"""/v1/look: the weights of a translation, a head at a time, and how much they mattered."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import numpy
from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field, model_validator

from regard.data.vocabulary import BOS_ID, EOS_ID, PAD_ID
from regard.errors import InputTooLongError, RequestError
from regard.serving._bodies import Strict, Written
from regard.serving._errors import refusals
from regard.serving._looks import Block, Layer, Look
from regard.serving._seeing import look as seen
from regard.serving._seeing import measured
from regard.serving._served import Here
from regard.tasks import Translator
from regard.tasks.translation.faithfulness import measure_faithfulness as measure

LayerName = int | Literal["across", "reading", "writing"]
HeadName = int | Literal["mean"]
WEIGHTS: dict[int | str, dict[str, Any]] = {
    **refusals(404),
    200: {
        "description": "Weights row by row, two bytes each, the low one first, 65535 for 1.",
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        "headers": {"X-Shape": {"description": "The sizes of the axes.", "schema": {"type": "string"}}},
    },
}

router = APIRouter(prefix="/v1/look")


class Pair(Strict):
    """A sentence and a translation of it: as text, or as the `token_ids` of a hypothesis.

    `within` asks a Transformer also how each of both looks at itself, which takes three times as long.
    """

    source: Written
    target: Written | None = None
    token_ids: list[Annotated[int, Field(ge=0)]] | None = None
    within: bool = False

    @model_validator(mode="after")
    def _one_of_both(self) -> Pair:
        if (self.target is None) == (self.token_ids is None):
            raise ValueError("give the translation either as target (text) or as token_ids")
        return self


class SideOf(BaseModel):
    """A sentence as one side of a matrix: its tokens, and which of them make up a word."""

    tokens: list[str]
    groups: list[list[int]]
    words: list[str]


class LayerOf(BaseModel):
    """One attention with its heads; `rows` look at `columns`."""

    kind: Literal["across", "reading", "writing"]
    rows: str
    columns: str
    heads: int


class Seen(BaseModel):
    """A look that is kept for a while under its id, and what can be asked of it."""

    id: str
    source: str
    measurable: bool = Field(description="Whether its faithfulness can be had in reasonable time.")
    sides: dict[str, SideOf]
    token_log_probs: list[float] | None = Field(description="Of a translation that was given as text.")
    layers: list[LayerOf]


@router.post("", responses=refusals(404, 504))
async def look(here: Here, body: Pair) -> Seen:
    """Look at a translation: the model's own, or one that somebody else made."""
    translator = here.model()
    if not translator.has_attention:
        raise RequestError(422, "no_attention", "This model has no attention to look at.")
    here.source([body.source])
    ids = _ids(translator, body, here)
    found = await here.worker.run(seen, translator, body.source, ids, body.target, body.within)
    here.looks.keep(found)
    return Seen.model_validate(found.to_json())


@router.get("/{id}/faithfulness", responses=refusals(404, 504))
async def faithfulness(here: Here, id: str) -> dict[str, Any]:
    """How much the translation hangs on these weights: what happens when they are mixed up, or words removed."""
    found = here.looks.find(id)
    if not found.measurable:
        raise InputTooLongError("This translation cannot be measured word by word: it is too long, or not by a network")
    return (await here.worker.run(measure, here.model(), found.source, found.target)).to_json()


@router.get("/{id}/{layer}", response_class=Response, responses=WEIGHTS)
def layer(here: Here, id: str, layer: int) -> Response:
    """All heads of a layer in small, one after the other; X-Shape says heads, rows and columns."""
    found = _layer(here.looks.find(id), layer)
    size, content = found.thumbnails()
    return _bytes(content, [len(found.weights), *size])


@router.get("/{id}/{layer}/{head}", response_class=Response, responses=WEIGHTS)
def head(here: Here, id: str, layer: LayerName, head: HeadName) -> Response:
    """The weights of one head: rows of two bytes a weight, the low one first, 65535 for 1.

    `mean` is the average over the heads of a layer; a kind instead of a number, over all layers of that kind.
    """
    block, _, _ = _block(here.looks.find(id), layer, head)
    return _bytes(block.astype("<u2").tobytes(), block.shape)


@router.get("/{id}/{layer}/{head}/measures", responses=refusals(404))
def measures(here: Here, id: str, layer: LayerName, head: HeadName) -> dict[str, float | None]:
    """The same in a few numbers: entropy (bits), sparsity, how near to the diagonal."""
    return measured(*_block(here.looks.find(id), layer, head))


def _block(look: Look, layer: int | str, head: int | str) -> tuple[Block, str, Block | None]:
    """The weights that are meant, their kind, and the other heads of the same layer."""
    if isinstance(layer, str):
        several = [one for one in look.layers if one.kind == layer]
        if not several or head != "mean":
            raise RequestError(404, "no_layer", f"This look has no {layer}/{head}; ask for a kind and mean.")
        return _mean([one.weights for one in several]), layer, None
    found = _layer(look, layer)
    if isinstance(head, str):
        return _mean([found.weights]), found.kind, None
    if not 0 <= head < len(found.weights):
        raise RequestError(404, "no_head", f"Layer {layer} has {len(found.weights)} heads, counted from 0.")
    return found.weights[head], found.kind, numpy.delete(found.weights, head, 0)


def _mean(layers: list[Block]) -> Block:
    """The average head of all these layers, which have as many heads each."""
    total = sum(weights.sum(0, dtype=numpy.uint32) for weights in layers)
    return (total / sum(map(len, layers))).round().astype(numpy.uint16)


def _layer(look: Look, number: int) -> Layer:
    if not 0 <= number < len(look.layers):
        raise RequestError(404, "no_layer", f"This look has {len(look.layers)} layers, counted from 0.")
    return look.layers[number]


def _bytes(content: bytes, shape: Any) -> Response:
    headers = {"X-Shape": ",".join(map(str, shape)), "Cache-Control": "private, max-age=3600"}
    return Response(content, media_type="application/octet-stream", headers=headers)


def _ids(translator: Translator, body: Pair, here: Here) -> list[int]:
    if body.target is not None:
        here.fits(body.target, "the translation")
        ids = translator.target.encode(body.target)
    else:
        ids = body.token_ids or []
        for number in ids:
            if number >= len(translator.target) or number in (PAD_ID, BOS_ID, EOS_ID):
                raise RequestError(422, "no_token", f"{number} is not the number of a token of the translation.")
    here.tokens_fit(ids, "the translation")
    return ids
