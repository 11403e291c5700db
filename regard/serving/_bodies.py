"""Pieces of which requests and answers are made."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field


class Strict(BaseModel):
    """A body in which an unknown field is a mistake, and not a wish that goes unheard; "3" is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


def _whole(text: str) -> str:
    """Half a surrogate pair is no character, and could not be sent back."""
    return text.encode("utf-8", "replace").decode()


Written = Annotated[str, AfterValidator(_whole)]


class Hypothesis(BaseModel):
    """A translation and what the model thinks of it."""

    text: str
    tokens: list[str]
    token_ids: list[int] = Field(description="The numbers of its tokens, without those of beginning and end.")
    score: float = Field(description="What translations are ranked by.")
    log_prob: float = Field(description="The sum of token_log_probs.")
    token_log_probs: list[float] = Field(description="Of each token, that of the end last if it is finished.")
    finished: bool = Field(description="False if it was cut off at the greatest length.")


def as_json(answer: Any) -> bytes:
    """What is computed is also written down in the thread that computes; the event loop only sends it."""
    return json.dumps(answer, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def listed(name: str, parts: Iterable[bytes]) -> Response:
    """An answer with one list in it, whose parts are JSON already.

    >>> listed("texts", [b'"a"', b'"b"']).body
    b'{"texts":["a","b"]}'
    """
    return Response(b'{"%s":[%s]}' % (name.encode(), b",".join(parts)), media_type="application/json")
