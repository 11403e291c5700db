"""/v1/align: which words of a text and of its translation belong together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from regard.decoding import Alignment
from regard.errors import RequestError
from regard.serving._bodies import Strict, Written, as_json, listed
from regard.serving._errors import refusals
from regard.serving._served import Here, Served
from regard.serving._translating import fitting
from regard.tasks import Translator
from regard.tasks.translation.inference import InferenceEngine

router = APIRouter(prefix="/v1")


class Both(Strict):
    """A text and a translation of it; without one, the model's own is taken."""

    source: Written
    target: Written | None = None


class Pairs(Strict):
    """Pairs to be aligned, and what a link is."""

    pairs: Annotated[list[Both], Field(min_length=1)]
    layer: Annotated[int, Field(ge=0)] | None = Field(None, description="Counted from 0; null: their mean.")
    head: Annotated[int, Field(ge=0)] | None = Field(None, description="Counted from 0; null: their mean.")
    method: Literal["argmax", "threshold"] = Field(
        "argmax", description="Each target word with the word it looks at most, or with all it looks at enough."
    )
    threshold: Annotated[float, Field(ge=0, le=1)] = 0.25


class Aligned(BaseModel):
    """Words, how much each target word looked at each source word, and which belong together."""

    source: list[str]
    target: list[str]
    weights: list[list[float]] = Field(description="A row for each target word, a number for each source word.")
    links: list[tuple[int, int]] = Field(description="Places of a source word and a target word, from 0.")
    translation: str
    log_prob: float | None = Field(description="How probable the model finds the translation.")


class Alignments(BaseModel):
    """One entry for each pair, in the order of the pairs."""

    alignments: list[Aligned]


@router.post("/align", response_model=Alignments, responses=refusals(404, 504))
async def align(here: Here, body: Pairs) -> Response:
    """Where each word of a translation looked: of the model's own, or of one that somebody else made."""
    translator = here.model()
    if not translator.has_attention:
        raise RequestError(422, "no_attention", "This model has no attention to align by.")
    _layer_there(translator, body)
    here.source([pair.source for pair in body.pairs])
    for row, pair in enumerate(body.pairs, 1):
        here.fits(pair.target or "", f"translation {row}")
    kind = ("align", body.layer, body.head, body.method, body.threshold)
    found = await here.worker.join(kind, _work(translator, body), body.pairs, _check(translator, here))
    return listed("alignments", found)


def _layer_there(translator: Translator, body: Pairs) -> None:
    transformer = translator.config.model == "transformer"
    layers = translator.config.num_layers if transformer else 1
    heads = translator.config.num_heads if transformer else 1
    for name, wanted, count in (("layer", body.layer, layers), ("head", body.head, heads)):
        if wanted is not None and wanted >= count:
            raise RequestError(422, f"no_{name}", f"This model has {count} {name}s, counted from 0.")


def _check(translator: Translator, here: Served) -> Callable[[Sequence[Both]], None]:
    readable = fitting(translator, here.metrics)

    def check(pairs: Sequence[Both]) -> None:
        readable([pair.source for pair in pairs])
        for row, pair in enumerate(pairs, 1):
            if pair.target is not None:
                here.tokens_fit(translator.target.encode(pair.target), f"translation {row}")

    return check


def _work(translator: Translator, body: Pairs) -> Callable[[Sequence[Both]], list[bytes]]:
    def work(pairs: Sequence[Both]) -> list[bytes]:
        rated = _rated(translator, pairs)
        seen = translator.align_token_ids([pair.source for pair in pairs], [ids for ids, _ in rated])
        told = []
        for pair, (ids, log_prob), alignment in zip(pairs, rated, seen, strict=True):
            text = translator.target.decode(ids) if pair.target is None else pair.target
            told.append(as_json({**_plain(alignment, body), "translation": text, "log_prob": log_prob}))
        return told

    return work


def _rated(translator: Translator, pairs: Sequence[Both]) -> list[tuple[list[int], float | None]]:
    """The tokens of each translation, given or the best that is found, and how probable it is, if that is known."""
    given = [pair for pair in pairs if pair.target is not None]
    texts = [pair.target or "" for pair in given]
    scored: Iterator[Any] = iter([None] * len(given))
    if not isinstance(translator.model, InferenceEngine):
        scored = iter(translator.score([pair.source for pair in given], texts))
    found = iter(translator.search([pair.source for pair in pairs if pair.target is None]))
    rated = [next(found)[0] if pair.target is None else next(scored) for pair in pairs]
    return [
        (translator.target.encode(pair.target or ""), None) if one is None else (one.token_ids, one.log_prob)
        for pair, one in zip(pairs, rated, strict=True)
    ]


def _plain(alignment: Alignment, body: Pairs) -> dict[str, Any]:
    words = alignment.select_head(body.layer, body.head).merge_words()
    links = alignment.links(body.layer, body.head, body.method, body.threshold)
    weights = [[round(weight, 6) for weight in row] for row in words.weights[0, 0].tolist()]
    return {"source": words.source, "target": words.target, "weights": weights, "links": sorted(links)}
