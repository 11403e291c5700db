"""The parts put together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from fastapi import FastAPI

from regard._version import __version__
from regard.recipes import Translator
from regard.serving import _looking, _pages, _playground, _translating
from regard.serving._errors import told_in_words
from regard.serving._guards import Guard
from regard.serving._limits import Limits
from regard.serving._looks import Looks
from regard.serving._served import Served
from regard.serving._worker import Worker


def build(translator: Translator | None, about: dict[str, Any], host: str, limits: Limits) -> FastAPI:
    served = Served(translator, about, limits, Worker(limits.waiting), Looks(limits.looks, limits.look_bytes))
    app = FastAPI(
        title="regard",
        version=__version__,
        summary="Attention to look at: translations, where they looked, and the equation itself.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its page comes from elsewhere, and nothing here asks another machine
        redoc_url=None,
        lifespan=_until_closed,
    )
    app.state.served = served
    told_in_words(app)
    for part in (_translating, _looking, _playground, _pages):
        app.include_router(part.router)
    app.add_middleware(Guard, host=host, body=limits.body)
    return app


@asynccontextmanager
async def _until_closed(app: FastAPI) -> AsyncIterator[None]:
    yield
    app.state.served.worker.close()
