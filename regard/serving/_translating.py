"""/v1/translate: texts of many requests, translated together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from regard import decoding as searching
from regard.decoding import DecodingConfig
from regard.errors import RequestError
from regard.serving._bodies import Hypothesis, Strict, Written, as_json, listed
from regard.serving._errors import refusals
from regard.serving._metrics import Metrics
from regard.serving._served import Here, Served
from regard.tasks import Translator
from regard.tasks.translation.predictor import too_long_error

router = APIRouter(prefix="/v1")


class Texts(Strict):
    """Texts to be translated, and how to search."""

    texts: Annotated[list[Written], Field(min_length=1)]
    beam: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Translations kept side by side; 1 is greedy. Default: that of the run."
    )
    best: Annotated[int, Field(ge=1)] = Field(1, description="So many translations of each text.")
    length_penalty: Annotated[float, Field(ge=0, le=10)] | None = Field(
        None, description="Above 0 prefers longer translations (Wu et al. 2016). Default: that of the run."
    )


class Translated(BaseModel):
    """A text and its translations, best first."""

    source: str
    hypotheses: list[Hypothesis]


class Translations(BaseModel):
    """One entry for each text, in the order of the texts."""

    translations: list[Translated]


@router.post("/translate", response_model=Translations, responses=refusals(404, 504))
async def translate(here: Here, body: Texts) -> Response:
    """The best translations of each text, with what the model thinks of them.

    Requests that come at the same time with the same options are translated as one batch.
    """
    translator = here.model()
    here.source(body.texts)
    options = decoding(here, body.beam, body.best, body.length_penalty)
    found = await here.worker.join(
        ("translate", options),
        written(translator, options, here.metrics),
        body.texts,
        fitting(translator, here.metrics),
    )
    return listed("translations", found)


def decoding(here: Served, beam: int | None, best: int, length_penalty: float | None = None) -> DecodingConfig:
    translator = here.model()
    beam = max(beam or translator.config.beam_size, best)
    if beam > here.limits.beam:
        raise RequestError(413, "beam_too_wide", f"A beam of {beam} is too wide; at most {here.limits.beam} is taken.")
    return translator.decoding_config(beam_size=beam, num_best=best, length_penalty=length_penalty)


def fitting(translator: Translator, metrics: Metrics) -> Callable[[Sequence[str]], None]:
    """A check that the model can read each of some texts."""

    def check(texts: Sequence[str]) -> None:
        for row, text in enumerate(texts):
            length = len(translator.source.encode(translator.clean(text)))
            if length > translator.max_length:
                raise too_long_error(row, length, translator.max_length)
            metrics.tokens("source", length)

    return check


def written(
    translator: Translator, options: DecodingConfig, metrics: Metrics
) -> Callable[[Sequence[str]], list[bytes]]:
    """What translates some texts, each answer as JSON."""

    def work(texts: Sequence[str]) -> list[bytes]:
        answers = []
        for text, best in zip(texts, translator.search(texts, options), strict=True):
            metrics.tokens("target", sum(one.length for one in best))
            told = {"source": text, "hypotheses": [plain(translator, one) for one in best]}
            answers.append(as_json(told))
        return answers

    return work


def plain(translator: Translator, one: searching.Hypothesis) -> dict[str, object]:
    text = {"text": translator.to_text(one), "tokens": translator.target.convert_ids_to_tokens(one.token_ids)}
    return text | one.to_json()
