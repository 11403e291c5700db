"""/v1/health, /v1/metrics, /v1/model and /v1/tokens: how the server is, and what it serves."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from regard._version import __version__
from regard.data.vocabulary import UNK_ID
from regard.errors import RequestError
from regard.serving._bodies import Strict, Written
from regard.serving._errors import refusals
from regard.serving._served import Here
from regard.tasks import TextClassifier, Translator
from regard.tasks.translation.inference import InferenceEngine

router = APIRouter(prefix="/v1")


class Health(BaseModel):
    """That the server is up, and whether it has a model."""

    status: Literal["ok", "stopping"]
    version: str
    model: bool


class Ready(BaseModel):
    """One word: all is well."""

    status: Literal["ok"] = "ok"


class Bounds(BaseModel):
    """How much one request may ask for."""

    characters: int
    texts: int
    beam: int
    points: int
    seconds: float
    tokens: int | None = Field(None, description="Of one text, for a model that has such a limit.")


class About(BaseModel):
    """What is served. `model` is null if there is only the playground."""

    model: dict[str, Any] | None
    limits: Bounds


class Text(Strict):
    """A text, and which of the model's languages it is in."""

    text: Written
    side: Literal["source", "target"] = "source"


class Tokens(BaseModel):
    """A text as the model reads or writes it."""

    count: int
    limit: int
    fits: bool
    tokens: list[str]
    unknown: list[int] = Field(description="The places of tokens that stand for what the model does not know.")


@router.get("/health", responses=refusals())
async def health(here: Here) -> Health:
    """That the server is up, and whether it has a model."""
    status: Literal["ok", "stopping"] = "stopping" if here.stopping else "ok"
    return Health(status=status, version=__version__, model=here.trained is not None)


@router.get("/health/live", responses=refusals())
async def live() -> Ready:
    """That the process answers; asks for no token."""
    return Ready()


@router.get("/health/ready", responses=refusals())
async def ready(here: Here) -> Ready:
    """That work is taken in; 503 while the server stops. Asks for no token."""
    if here.stopping or not here.worker.alive:
        raise RequestError(503, "stopping", "The server takes in no more work.")
    return Ready()


@router.get("/metrics", response_class=PlainTextResponse, responses=refusals())
async def metrics(here: Here) -> PlainTextResponse:
    """Requests, times, queue, batches and tokens, as Prometheus reads them."""
    return PlainTextResponse(here.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


@router.get("/model", responses=refusals())
async def model(here: Here) -> About:
    """What is served: its run, what it does, its layers and heads, and how much it takes."""
    limits = here.limits
    names = ("characters", "texts", "beam", "points", "seconds")
    bounds = Bounds(**{name: getattr(limits, name) for name in names})
    if here.trained is None:
        return About(model=None, limits=bounds)
    bounds.tokens = getattr(here.trained, "max_length", None)
    return About(model={**here.about, "does": here.does, **described(here.trained)}, limits=bounds)


@router.post("/tokens", responses=refusals(404))
def tokens(here: Here, body: Text) -> Tokens:
    """How a translator would read a text, or write it, and whether it could: a page can say so before it asks."""
    translator = here.model()
    here.fits(body.text, "the text")
    tokenizer = translator.source if body.side == "source" else translator.target
    ids = tokenizer.encode(translator.clean(body.text) if body.side == "source" else body.text)
    return Tokens(
        count=len(ids),
        limit=translator.max_length,
        fits=len(ids) <= translator.max_length,
        tokens=tokenizer.convert_ids_to_tokens(ids),
        unknown=[place for place, number in enumerate(ids) if number == UNK_ID],
    )


def described(trained: Any) -> dict[str, Any]:
    """What there is to say of a model, by its kind."""
    if isinstance(trained, Translator):
        return _translator(trained)
    if isinstance(trained, TextClassifier):
        about = {"labels": list(trained.labels), "has_attention": trained.has_attention}
        return {"model": "hierarchical", **about, "parameters": _parameters(trained.model)}
    return {"model": type(trained).__name__.lower()}


def _translator(translator: Translator) -> dict[str, Any]:
    settings, network = translator.config, translator.model
    transformer = settings.model == "transformer"
    source, _, target = (settings.language_pair or "").partition("-")
    return {
        "model": settings.model,
        "source": source or None,
        "target": target or None,
        "tokenizer": translator.source.model_type,
        "layers": settings.num_layers if transformer else 1,
        "heads": settings.num_heads if transformer else 1,
        "score": "scaleddot" if transformer else settings.score,
        "has_attention": translator.has_attention,
        "beam": settings.beam_size,
        "max_length": translator.max_length,
        "parameters": _parameters(network),
    }


def _parameters(network: Any) -> int | None:
    """How many numbers a network has learned; of an engine, nobody knows."""
    return None if isinstance(network, InferenceEngine) else sum(part.numel() for part in network.parameters())
