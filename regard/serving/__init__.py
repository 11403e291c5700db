"""Models over HTTP: the explorer at `/` and the API under `/v1/`.

`regard serve RUN` starts a server. FastAPI, uvicorn and prometheus_client come with the extra `serve` and are imported
when an application is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from regard._imports import require_extra
from regard.serving.worker import Limits

if TYPE_CHECKING:
    from fastapi import FastAPI

    from regard.tasks import Predictor

__all__ = ["Limits", "build_app"]


def build_app(
    predictor: Predictor[Any, Any, Any] | None = None,
    *,
    about: Mapping[str, Any] | None = None,
    host: str = "127.0.0.1",
    limits: Limits | None = None,
    token: str | None = None,
) -> FastAPI:
    """The web application of a predictor, for any ASGI server.

    Args:
        predictor: what `regard.load` returns; None: only the playground
        about: further fields of `/v1/model`, such as the name of the run
        host: the name under which the application is reached; requests to another name are refused, so that no page
            of another site can reach it
        limits: of requests
        token: requests under `/v1/` must send it

    Returns:
        The application.

    Example:
        >>> build_app().title
        'regard'
    """
    require_extra("fastapi", extra="serve")
    require_extra("prometheus_client", extra="serve")
    from regard.serving.app import make_app

    return make_app(predictor, dict(about or {}), host, limits or Limits(), token)
