"""/v1/health, /v1/model, /v1/tokens and /v1/translate."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from regard._version import __version__
from regard.data.batch import UNK
from regard.decoding import Decoding, Hypothesis
from regard.models import Transformer
from regard.recipes import TooLong, Translator
from regard.serving._errors import Refusal
from regard.serving._served import Here, Served, too_long

router = APIRouter(prefix="/v1")


class Strict(BaseModel):
    """A body in which an unknown field is a mistake, and not a wish that goes unheard."""

    model_config = ConfigDict(extra="forbid")


def _whole(text: str) -> str:
    """Half a surrogate pair is no character, and could not be sent back."""
    return text.encode("utf-8", "replace").decode()


Written = Annotated[str, AfterValidator(_whole)]


class Text(Strict):
    text: Written
    side: Literal["source", "target"] = "source"


class Texts(Strict):
    texts: Annotated[list[Written], Field(min_length=1)]
    beam: Annotated[int, Field(ge=1)] | None = None
    best: Annotated[int, Field(ge=1)] = 1


@router.get("/health")
async def health(here: Here) -> dict[str, Any]:
    """That the server is up, and whether it has a model."""
    return {"status": "ok", "version": __version__, "model": here.translator is not None}


@router.get("/model")
async def model(here: Here) -> dict[str, Any]:
    """What is served: its run, its languages, its layers and heads, and how much it takes."""
    limits = here.limits
    bounds = {
        "characters": limits.characters,
        "texts": limits.texts,
        "beam": limits.beam,
        "points": limits.points,
    }
    if here.translator is None:
        return {"model": None, "limits": bounds}
    found = {**here.about, **described(here.translator)}
    return {"model": found, "limits": {**bounds, "tokens": here.translator.max_length}}


@router.post("/tokens")
async def tokens(here: Here, body: Text) -> dict[str, Any]:
    """How the model would read a text, or write it, and whether it could: a page can say so before it asks."""
    translator = here.model()
    here.fits(body.text, "the text")
    tokenizer = translator.source if body.side == "source" else translator.target
    ids = tokenizer.encode(translator.clean(body.text) if body.side == "source" else body.text)
    return {
        "count": len(ids),
        "limit": translator.max_length,
        "fits": len(ids) <= translator.max_length,
        "tokens": tokenizer.tokens(ids),
        "unknown": [place for place, number in enumerate(ids) if number == UNK],
    }


@router.post("/translate")
async def translate(here: Here, body: Texts) -> dict[str, Any]:
    """The best translations of each text, with what the model thinks of them."""
    translator = here.model()
    here.source(body.texts)
    options = decoding(here, body.beam, body.best)
    try:
        found = await here.worker.run(translator.search, body.texts, options)
    except TooLong as error:
        raise too_long(error) from None
    return {
        "translations": [
            {"source": text, "hypotheses": [as_json(translator, one) for one in best]}
            for text, best in zip(body.texts, found, strict=True)
        ]
    }


def decoding(here: Served, beam: int | None, best: int) -> Decoding:
    translator = here.model()
    beam = max(beam or translator.settings.beam, best)
    if beam > here.limits.beam:
        raise Refusal(
            413, "beam_too_wide", f"A beam of {beam} is too wide; at most {here.limits.beam} is taken."
        )
    return translator.decoding(beam=beam, best=best)


def as_json(translator: Translator, one: Hypothesis) -> dict[str, Any]:
    text = {"text": translator.text(one), "tokens": translator.target.tokens(one.ids)}
    return text | one.to_json()


def described(translator: Translator) -> dict[str, Any]:
    settings, network = translator.settings, translator.model
    transformer = isinstance(network, Transformer)
    source, _, target = (settings.pair or "").partition("-")
    return {
        "model": settings.model,
        "source": source or None,
        "target": target or None,
        "tokenizer": translator.source.kind,
        "layers": settings.layers if transformer else 1,
        "heads": settings.heads if transformer else 1,
        "score": "scaleddot" if transformer else settings.score,
        "attends": translator.attends,
        "beam": settings.beam,
        "max_length": translator.max_length,
        "parameters": sum(part.numel() for part in network.parameters()),
    }
