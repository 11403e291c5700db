"""The parts put together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from regard._version import __version__
from regard.serving import (
    _about,
    _aligning,
    _captioning,
    _classifying,
    _looking,
    _pages,
    _playground,
    _streaming,
    _translating,
)
from regard.serving._counting import Counted
from regard.serving._errors import told_in_words
from regard.serving._guards import Guard
from regard.serving._limits import Limits
from regard.serving._served import Served

PARTS = (_about, _translating, _streaming, _aligning, _classifying, _captioning, _looking, _playground, _pages)
WORKING = frozenset(f"/v1/{name}" for name in ("translate", "translate/stream", "align", "classify", "caption", "look"))


def build(model: Any, about: dict[str, Any], host: str, limits: Limits, token: str | None) -> FastAPI:
    served = Served(model, about, limits, working=WORKING)
    app = FastAPI(
        title="regard",
        version=__version__,
        summary="Attention to look at: translations, where they looked, and the equation itself.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its page comes from elsewhere, and nothing here asks another machine
        redoc_url=None,
        redirect_slashes=False,
        lifespan=_until_closed,
    )
    app.state.served = served
    told_in_words(app)
    for part in PARTS:
        app.include_router(part.router)
    app.add_middleware(Guard, host=host, token=token, served=served)
    routes = {path for part in PARTS for path in _paths(part.router)}
    app.add_middleware(
        Counted, metrics=served.metrics, routes=routes | {"/v1/openapi.json"}, stopping=lambda: served.stopping
    )
    return app


def _paths(router: Any) -> list[str]:
    return [route.path for route in router.routes]


@asynccontextmanager
async def _until_closed(app: FastAPI) -> AsyncIterator[None]:
    yield
    await asyncio.to_thread(app.state.served.worker.close)
