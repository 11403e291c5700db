"""What the routes share: the model, who computes with it, what is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Any

from fastapi import Depends, Request

from regard.errors import EmptyInputError, InputTooLongError, RequestError
from regard.serving._limits import Limits
from regard.serving._looks import Looks
from regard.serving._metrics import Metrics
from regard.serving._worker import Worker, stopping
from regard.tasks import TextClassifier, Translator

SKILLS = ("translate", "classify", "caption")  # methods by which a model says what it can
SEEN_TO = ("/v1/health", "/v1/health/live", "/v1/health/ready", "/v1/metrics")


@dataclass
class Served:
    """The state of an application; it lives as long as the application does."""

    trained: Any
    about: dict[str, Any]
    limits: Limits
    worker: Worker = field(init=False)
    looks: Looks = field(init=False)
    metrics: Metrics = field(init=False)
    stopping: bool = False
    under_way: int = 0  # requests that were taken in and are not answered
    working: frozenset[str] = frozenset()  # paths that make the model work

    def __post_init__(self) -> None:
        self.metrics = Metrics(lambda: self.worker.waiting)
        self.worker = Worker(self.limits, self.metrics.batch)
        self.looks = Looks(self.limits.looks, self.limits.look_bytes)

    @property
    def does(self) -> list[str]:
        """What the model can be asked for."""
        return [skill for skill in SKILLS if callable(getattr(self.trained, skill, None))]

    def model(self) -> Translator:
        """The translator, if there is one."""
        return self._of("translate", "translates")

    def classifier(self) -> TextClassifier:
        return self._of("classify", "classifies")

    def captioner(self) -> Any:
        return self._of("caption", "describes images")

    def _of(self, skill: str, said: str) -> Any:
        if self.trained is None:
            raise RequestError(404, "no_model", "This server has no model, only the playground; start it with a RUN.")
        if skill not in self.does:
            raise RequestError(404, "no_model", f"This server has no model that {said}; start it with such a RUN.")
        return self.trained

    def door(self, path: str) -> RequestError | None:
        """Why a request to this path cannot be taken in now, if it cannot: known before anything is parsed."""
        if path in SEEN_TO:
            return None
        if self.stopping:
            return stopping()
        if self.metrics.open > self.limits.requests or (path in self.working and self.worker.full):
            return self.worker.busy()
        return None

    def source(self, texts: list[str]) -> None:
        """Refuse texts that are too many, empty, or too long for us; the model has limits of its own."""
        if len(texts) > self.limits.texts:
            raise RequestError(
                413, "too_many_texts", f"There are {len(texts):,} texts; at most {self.limits.texts} are taken."
            )
        for row, text in enumerate(texts, 1):
            self.fits(text, f"text {row}")
            if not text.strip():
                raise EmptyInputError(f"text {row} is empty; there is nothing to read in it", row=row - 1)

    def fits(self, text: str, name: str) -> None:
        if len(text) > self.limits.characters:
            raise InputTooLongError(
                f"{name} has {len(text):,} characters; at most {self.limits.characters:,} are taken"
            )

    def tokens_fit(self, ids: list[int], name: str) -> None:
        limit = self.model().max_length
        if len(ids) > limit + 1:  # one that the search gave up on has a word where its end would be
            raise InputTooLongError(f"{name} has {len(ids):,} tokens, but this model takes {limit:,}; split it")


async def _served(request: Request) -> Served:
    found: Served = request.app.state.served
    return found


Here = Annotated[Served, Depends(_served)]
