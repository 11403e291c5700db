"""Models behind HTTP: the explorer at `/`, and the API at `/v1/`.

`regard serve RUN` starts it. FastAPI and uvicorn come with the extra `serve`; nothing here imports them before
an application is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from regard._imports import require_extra
from regard.serving._limits import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from regard.tasks import TextClassifier, Translator

__all__ = ["Limits", "application"]


def application(
    model: Translator | TextClassifier | None = None,
    *,
    about: dict[str, Any] | None = None,
    host: str = "127.0.0.1",
    limits: Limits | None = None,
    token: str | None = None,
) -> FastAPI:
    """The web application around what `regard.load` gave; without it there is the playground only.

    `about` is told at `/v1/model`: the name of the run and its recipe. `host` is where the application will be
    found; requests that were sent to another name are refused, so that no page elsewhere can reach it. With a
    `token`, whoever asks for something under `/v1/` has to send it.

    >>> application().title
    'regard'
    """
    require_extra("fastapi", extra="serve")
    from regard.serving._application import build

    return build(model, about or {}, host, limits or Limits(), token)
