"""/v1/classify: the class of each document, and which words decided it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.responses import Response
from pydantic import BaseModel, Field

from regard.errors import EmptyInputError
from regard.serving._bodies import Strict, Written, as_json, listed
from regard.serving._errors import refusals
from regard.serving._served import Here
from regard.tasks import TextClassifier

router = APIRouter(prefix="/v1")


class Texts(Strict):
    """Documents to be classified."""

    texts: Annotated[list[Written], Field(min_length=1)]
    look: bool = Field(False, description="Tell also how much each sentence and each word was looked at.")


class Sentence(BaseModel):
    """The words of a sentence; with `look`, their weights within it, and its own within the document."""

    words: list[str]
    weight: float | None = None
    weights: list[float] | None = None


class Document(BaseModel):
    """The likeliest class of a document and the probability of each, the likeliest first."""

    label: str
    probabilities: dict[str, float]
    left_out: dict[str, int] | None = Field(None, description="Of a document longer than the model reads.")
    sentences: list[Sentence] | None = Field(None, description="With `look` only.")


class Documents(BaseModel):
    """One entry for each text, in the order of the texts."""

    documents: list[Document]


@router.post("/classify", response_model=Documents, responses=refusals(404, 504))
async def classify(here: Here, body: Texts) -> Response:
    """The class of each document with its probability."""
    classifier = here.classifier()
    here.source(body.texts)
    kind, work = ("classify", body.look), _looked if body.look else _classified
    found = await here.worker.join(kind, lambda texts: work(classifier, texts), body.texts, _check(classifier))
    return listed("documents", found)


def _check(classifier: TextClassifier) -> Callable[[Sequence[str]], None]:
    def check(texts: Sequence[str]) -> None:
        for row, text in enumerate(texts, 1):
            if not classifier.splitter.split(text)[0]:
                raise EmptyInputError(f"text {row} has no words; there is nothing to read in it", row=row - 1)

    return check


def _classified(classifier: TextClassifier, texts: Sequence[str]) -> list[bytes]:
    return [as_json(one.to_json()) for one in classifier.predict(texts)]


def _looked(classifier: TextClassifier, texts: Sequence[str]) -> list[bytes]:
    told: list[dict[str, Any]] = [classifier.explain(text).to_json() for text in texts]
    return [as_json(one) for one in told]
