"""/v1/translate/stream: one translation, each token as soon as it is chosen."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from fastapi import APIRouter
from fastapi.responses import StreamingResponse
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor

from regard.data.batching import pad_rows
from regard.data.vocabulary import EOS_ID
from regard.decoding import DecodingConfig, decode
from regard.errors import RegardError, RequestError
from regard.serving._bodies import Strict, Written, as_json
from regard.serving._errors import error_body, refusals
from regard.serving._served import Here
from regard.serving._translating import fitting, plain
from regard.tasks import Translator
from regard.tasks.translation.inference import InferenceEngine

KIND = "text/event-stream"
EVENT = {
    "type": "object",
    "description": "An event; its data are JSON: id, token and text so far; the hypothesis; or an error.",
    "properties": {"event": {"enum": ["token", "end", "error"]}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
EXAMPLE = (
    'event: token\ndata: {"id":812,"token":"▁Ein","text":"Ein"}\n\nevent: end\ndata: {"text":"Ein Hund.", ...}\n\n'
)

router = APIRouter(prefix="/v1")


class Chance(Strict):
    """How to draw tokens by chance."""

    temperature: Annotated[float, Field(ge=0.01, le=100)] = 1.0
    top_k: Annotated[int, Field(ge=0, le=1_000_000)] = Field(0, description="Of the likeliest only; 0: all.")
    top_p: Annotated[float, Field(ge=0.001, le=1)] = Field(1.0, description="Of those that make up this share.")
    seed: Annotated[int, Field(ge=0, lt=2**63)] | None = Field(
        None, description="The same seed gives the same translation."
    )


class Stream(Strict):
    """A text to be translated token by token."""

    text: Written
    sample: Chance | None = Field(None, description="Draw by chance; null takes the likeliest at every step.")


@dataclass(frozen=True)
class Listened:
    """A text and who hears of the tokens of its translation."""

    text: str
    tell: Callable[[int], None]


class Told:
    """A model that tells of each token once it is chosen: the search hands it over for the next step."""

    def __init__(self, model: Any, tell: Sequence[Callable[[int], None]]) -> None:
        self._model, self._tell = model, list(tell)

    def start_decoding(self, source: Int[Tensor, "rows source"], lengths: Int[Tensor, " rows"], /) -> Told:
        self._steps, self._begun = self._model.start_decoding(source, lengths), False
        return self

    def step(self, tokens: Int[Tensor, " rows"], /) -> Float[Tensor, "rows vocab"]:
        if self._begun:
            for tell, token in zip(self._tell, tokens.tolist(), strict=True):
                tell(token)
        self._begun = True  # what comes first is the beginning of the sentence
        return self._steps.step(tokens)

    def reorder(self, rows: Int[Tensor, " new"], /) -> None:
        self._tell = [self._tell[row] for row in rows.tolist()]
        self._steps.reorder(rows)


@router.post(
    "/translate/stream",
    response_class=StreamingResponse,
    responses={
        **refusals(404, 504),
        200: {
            "description": "Server-sent events: `token` for each token, then `end` with the whole, or `error`.",
            "content": {KIND: {"schema": EVENT, "example": EXAMPLE}},
        },
    },
)
async def stream(here: Here, body: Stream) -> StreamingResponse:
    """One translation token by token, greedy or drawn by chance.

    A beam search is not streamed: a better beginning may turn up until its end, so /v1/translate gives it whole. An
    engine that takes no single steps (CTranslate2) sends the `end` alone.
    """
    translator = here.model()
    here.source([body.text])
    options, chance = _options(translator, body.sample)
    events: asyncio.Queue[int | None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    listened = Listened(body.text, lambda token: _later(loop, events, token))
    kind = ("stream", options) if body.sample is None else None  # neighbors would change what is drawn
    check = fitting(translator, here.metrics)
    job = asyncio.ensure_future(
        here.worker.join(kind, _work(translator, options, chance), [listened], lambda items: check([body.text]))
    )
    job.add_done_callback(lambda _: events.put_nowait(None))
    first = await events.get()
    if first is None:
        await job  # what is wrong from the beginning has its own status
    return StreamingResponse(_events(translator, job, events, first), media_type=KIND)


def _later(loop: asyncio.AbstractEventLoop, events: asyncio.Queue[int | None], token: int) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(events.put_nowait, token)


def _options(translator: Translator, sample: Chance | None) -> tuple[DecodingConfig, torch.Generator | None]:
    if sample is None:
        return translator.decoding_config(method="greedy", beam_size=1), None
    wanted = sample.model_dump(exclude={"seed"})
    generator = torch.Generator(translator.device)
    if sample.seed is None:
        generator.seed()
    else:
        generator.manual_seed(sample.seed)
    return translator.decoding_config(method="sample", beam_size=1, **wanted), generator


def _work(
    translator: Translator, options: DecodingConfig, chance: torch.Generator | None
) -> Callable[[Sequence[Listened]], list[bytes]]:
    def work(items: Sequence[Listened]) -> list[bytes]:
        if not _takes_steps(translator.model):  # then there is nothing to tell before the end
            found = translator.search([item.text for item in items], options, chance)
            return [as_json(plain(translator, best[0])) for best in found]
        ids = [[*translator.source.encode(translator.clean(item.text)), EOS_ID] for item in items]
        source, lengths = (part.to(translator.device) for part in pad_rows(ids))
        told = Told(translator.model, [item.tell for item in items])
        found = decode(told, source, lengths, options, generator=chance)
        return [as_json(plain(translator, best[0])) for best in found]

    return work


def _takes_steps(model: Any) -> bool:
    return not isinstance(model, InferenceEngine) or type(model).start_decoding is not InferenceEngine.start_decoding


async def _events(
    translator: Translator, job: asyncio.Future[Any], events: asyncio.Queue[int | None], first: int | None
) -> AsyncIterator[bytes]:
    ids: list[int] = []
    token = first
    try:
        while token is not None:
            ids.append(token)
            (name,) = translator.target.convert_ids_to_tokens([token])
            yield _event("token", as_json({"id": token, "token": name, "text": translator.target.decode(ids)}))
            token = await events.get()
        (whole,) = await job
        yield _event("end", whole)
    except Exception as error:
        if not isinstance(error, RegardError) or error.http_status == 500:
            logging.getLogger("uvicorn.error").exception("a stream broke off")
            error = RequestError(500, "internal", "Something went wrong in the server; its log says what.")
        yield _event("error", as_json(error_body(error)))
    finally:
        job.cancel()  # whoever has gone away need not be translated for


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)
