"""What the routes share: the translator, who computes with it, what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import Depends, Request

from regard.recipes import TooLong, Translator
from regard.serving._errors import Refusal
from regard.serving._limits import Limits
from regard.serving._looks import Looks
from regard.serving._worker import Worker


@dataclass(frozen=True)
class Served:
    """The state of an application; it lives as long as the application does."""

    translator: Translator | None
    about: dict[str, Any]
    limits: Limits
    worker: Worker
    looks: Looks

    def model(self) -> Translator:
        """The translator, if there is one."""
        if self.translator is None:
            raise Refusal(
                404, "no_model", "This server has no model, only the playground; start it with a RUN."
            )
        return self.translator

    def source(self, texts: list[str]) -> None:
        """Refuse texts that are too many, empty, or too long for us or for the model."""
        if len(texts) > self.limits.texts:
            raise Refusal(
                413,
                "too_many_texts",
                f"There are {len(texts):,} texts; at most {self.limits.texts} are taken.",
            )
        for row, text in enumerate(texts, 1):
            self.fits(text, f"text {row}")
            if not text.strip():
                raise Refusal(422, "empty", f"text {row} is empty; there is nothing to translate.")

    def fits(self, text: str, name: str) -> None:
        if len(text) > self.limits.characters:
            raise Refusal(
                413,
                "too_long",
                f"{name} has {len(text):,} characters; at most {self.limits.characters:,} are taken.",
            )

    def tokens_fit(self, ids: list[int], name: str) -> None:
        limit = self.model().max_length
        if len(ids) > limit + 1:  # one that the search gave up on has a word where its end would be
            raise Refusal(
                413, "too_long", f"{name} has {len(ids):,} tokens, but this model takes {limit:,}; split it."
            )


def too_long(error: TooLong) -> Refusal:
    return Refusal(413, "too_long", f"{error}.")


def _served(request: Request) -> Served:
    found: Served = request.app.state.served
    return found


Here = Annotated[Served, Depends(_served)]
