"""Models over HTTP: the explorer at `/` and the API under `/v1/`.

`regard serve RUN` starts a server. FastAPI, uvicorn and prometheus_client come with the extra `serve` and are imported
when an application is built.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from regard._imports import require_extra
from regard.errors import UsageError
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
    allow_hosts: Sequence[str] = (),
    root_path: str = "",
    limits: Limits | None = None,
    token: str | None = None,
) -> FastAPI:
    """The web application of a predictor, for any ASGI server.

    Args:
        predictor: what `regard.load` returns; None: only the playground
        about: further fields of `/v1/model`, such as the name of the run
        host: the name under which the application is reached; requests to another name are refused, so that no page
            of another site can reach it
        allow_hosts: more such names, for example that of a proxy; with its port, if the addresses of pages have one
        root_path: the path under which a proxy serves the application, such as "/model"
        limits: of requests
        token: requests under `/v1/` must send it; None: everybody can use the application

    Returns:
        The application.

    Example:
        >>> build_app().title
        'regard'
    """
    require_extra("fastapi", extra="serve")
    require_extra("prometheus_client", extra="serve")
    from regard.serving.app import make_app

    if token is not None and not token.strip():
        raise UsageError("token is empty, and everybody could send it; None admits everybody")
    security = {"host": host, "allow_hosts": allow_hosts, "root_path": root_path.rstrip("/"), "token": token}
    return make_app(predictor, dict(about or {}), limits or Limits(), **security)
