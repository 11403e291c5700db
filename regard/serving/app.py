"""The application: its state, its routers and middleware, and the files of the explorer."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import cache
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel
from starlette._utils import get_route_path

from regard._imports import require_extra
from regard._version import __version__
from regard.config import Config
from regard.errors import EmptyInputError, InputError, InputTooLongError, RegardError, RequestError, UnsupportedError
from regard.serving.explanations import ExplanationStore, make_explanation_router
from regard.serving.middleware import Metrics, MetricsMiddleware, SecurityMiddleware
from regard.serving.playground import make_playground_router
from regard.serving.routes import make_predict_router, make_status_router
from regard.serving.schemas import install_error_handlers, make_options
from regard.serving.worker import BatchingWorker, Limits, shutdown_error, stopped_error
from regard.tasks.abilities import Alignable, Scorable, Tokenizable
from regard.tasks.predictor import InputField, Predictor
from regard.tasks.registry import find_task

__all__ = ["ServerState", "make_app"]

IMAGE_FORMATS = ("PNG", "JPEG", "WEBP")  # Pillow reads many more; each is one more parser that strangers can reach
HEALTH_PATHS = ("/v1/health", "/v1/health/live", "/v1/health/ready", "/v1/metrics")
ABILITIES = {"score": Scorable, "align": Alignable, "tokens": Tokenizable}
ASSET_PACKAGES = {"web": "regard.viewing", "explorer": "regard.serving"}  # the folder `web` of each
ASSET_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


class ServerState:
    """What the routes of an application share.

    Args:
        predictor: the model in use; None: only the playground
        about: further fields of /v1/model
        limits: of requests
    """

    def __init__(self, predictor: Predictor[Any, Any, Any] | None, about: dict[str, Any], limits: Limits):
        self.predictor, self.about, self.limits = predictor, about, limits
        task = find_task(predictor)
        self.task = None if task is None else task.name
        self.verb = None if task is None else task.verb
        self.is_stopping = False  # whether new requests are refused
        self.num_active = 0  # requests that were accepted and are not answered
        self.waiting: set[int] = set()  # those of them whose response has not begun
        self.num_body_bytes = 0  # of all open requests
        self.readers: set[asyncio.Task[Any]] = set()  # requests whose body is read
        self._pixels: dict[asyncio.Task[Any], int] = {}  # of the images of all open requests
        self._pixel_lock, self._decoder = Lock(), ThreadPoolExecutor(1)  # images are decoded one after the other
        self.metrics = Metrics(lambda: self.worker.num_queued)
        self.worker = BatchingWorker(limits, self.metrics.count_batch)
        self.explanations = ExplanationStore(limits.max_explanations, limits.max_explanation_bytes)
        paths = ("predict/stream" if name == "stream" else name for name in self.capabilities if name != "tokens")
        self._model_paths = frozenset(f"/v1/{name}" for name in paths)

    @property
    def capabilities(self) -> list[str]:
        """The names of what the model can be asked for, as in the paths under /v1/."""
        if self.predictor is None:
            return []
        names = ["predict", *([self.verb] if self.verb else []), "stream"]
        names += ["explanations"] if self.predictor.has_attention else []
        return names + [name for name, ability in ABILITIES.items() if isinstance(self.predictor, ability)]

    def admission_error(self, path: str) -> RequestError | None:
        """Why a request to this path cannot be accepted now; None if it can. Nothing of it is parsed before."""
        if path in HEALTH_PATHS:
            return None
        if self.is_stopping:
            return shutdown_error()
        is_model = path in self._model_paths
        if is_model and not self.worker.is_alive:
            return stopped_error()
        if (is_model and self.worker.is_full) or len(self.waiting) >= self.limits.max_requests:
            return self.worker.busy_error()
        return None

    def describe_missing(self, request: Request) -> RegardError | None:
        """The error for an address under /v1/ that this model does not have."""
        path = get_route_path(request.scope)
        if request.method != "POST" or not path.startswith("/v1/"):
            return None
        if self.predictor is None:
            return RequestError(404, "no_model", "This server has no model, only the playground; start it with a RUN")
        return UnsupportedError(f"this model has no {path}; it has {', '.join(self.capabilities)}")

    def make_options(self, options: type[Config], body: BaseModel) -> Any:
        """The options of a request, within the limit of candidates."""
        assert self.predictor is not None
        values = make_options(options, body)
        count, limit = self.predictor.num_candidates(values), self.limits.max_candidates
        if count > limit:
            own = f"at most {limit} are computed by this server; `regard predict` on the command line has only the"
            message = f"These options ask for {count} candidates of each input; {own} limits of the options"
            raise RequestError(413, "too_many_candidates", message)
        return values

    def check_text(self, text: str, where: str, row: int | None = None) -> None:
        """Refuse a text with too many characters."""
        if len(text) > self.limits.max_characters:
            message = f"{where} has {len(text):,} characters; at most {self.limits.max_characters:,} are taken"
            raise InputTooLongError(message, row=row)

    async def decode_inputs(self, values: list[Any]) -> list[Any]:
        """Inputs as the predictor takes them; images are decoded in a thread."""
        task = asyncio.current_task()
        assert self.predictor is not None
        assert task is not None
        arguments = self.predictor.inputs, values, task
        if all(one.kind == "text" for one in self.predictor.inputs):
            return self._decode_inputs(*arguments)
        task.add_done_callback(self._release_pixels)
        return await asyncio.get_running_loop().run_in_executor(self._decoder, self._decode_inputs, *arguments)

    def _decode_inputs(self, fields: Sequence[InputField], values: Sequence[Any], task: asyncio.Task[Any]) -> list[Any]:
        def decode(value: Any, row: int) -> Any:
            if len(fields) == 1:
                return self._decode_part(fields[0], value, f"input {row + 1}", row, task)
            parts = ((one, getattr(value, one.name), f"{one.name} of input {row + 1}") for one in fields)
            return tuple(self._decode_part(*part, row, task) for part in parts)

        return [decode(value, row) for row, value in enumerate(values)]

    def _decode_part(self, field: InputField, value: str, where: str, row: int, task: asyncio.Task[Any]) -> Any:
        if field.kind == "text":
            if not field.may_be_empty and not value.strip():
                raise EmptyInputError(f"{where} is empty", row=row)
            self.check_text(value, where, row)
            return value
        try:
            content = base64.b64decode(value, validate=True)
        except ValueError:
            raise InputError(f"{where} is not base64", row=row) from None
        return content if field.kind != "image" else self._decode_image(content, where, row, task)

    def _decode_image(self, content: bytes, where: str, row: int, task: asyncio.Task[Any]) -> Any:
        """An image as (height, width, 3) numbers from 0 to 255."""
        pillow, operations = require_extra("PIL.Image", extra="images"), require_extra("PIL.ImageOps", extra="images")
        try:
            with pillow.open(BytesIO(content), formats=IMAGE_FORMATS) as file:
                width, height = file.size
                if width * height > self.limits.max_pixels:  # a small file can unpack to gigabytes
                    message = f"{where} has {width:,} x {height:,} pixels; at most {self.limits.max_pixels:,} are taken"
                    raise InputTooLongError(message, row=row)
                self._reserve_pixels(task, width * height)
                return numpy.array(operations.exif_transpose(file).convert("RGB"))
        except RegardError:
            raise
        except Exception:  # damaged files lead to any exception; Pillow's have no common base
            raise InputError(f"{where} is not a PNG, JPEG or WebP file, or damaged", row=row) from None

    def _reserve_pixels(self, task: asyncio.Task[Any], count: int) -> None:
        """Count the pixels of an image until the task of its request ends."""
        with self._pixel_lock:
            limit, own = self.limits.max_total_pixels, count + self._pixels.get(task, 0)
            if own > limit:
                message = f"The images of the request have more than {limit:,} pixels together; send fewer at once"
                raise RequestError(413, "too_many_pixels", message)
            if count + sum(self._pixels.values()) > limit or task.done():
                raise self.worker.busy_error()
            self._pixels[task] = own

    def _release_pixels(self, task: asyncio.Task[Any]) -> None:
        with self._pixel_lock:
            self._pixels.pop(task, None)


def make_app(
    predictor: Predictor[Any, Any, Any] | None, about: dict[str, Any], limits: Limits, **security: Any
) -> FastAPI:
    """The application; see `build_app`.

    Args:
        predictor: the model in use
        about: further fields of /v1/model
        limits: of requests
        security: arguments of `SecurityMiddleware`
    """
    state = ServerState(predictor, about, limits)
    app = FastAPI(
        title="regard",
        version=__version__,
        summary="Predictions with attention weights, and the attention equation itself.",
        openapi_url="/v1/openapi.json",
        docs_url=None,  # its page comes from another server, and no page here asks one
        redoc_url=None,
        redirect_slashes=False,
        separate_input_output_schemas=False,
        lifespan=_close_at_end,
    )
    app.state.server = state
    install_error_handlers(app, state.describe_missing)
    routers = [make_status_router(state), make_playground_router(limits), make_asset_router()]
    if predictor is not None:
        routers.append(make_predict_router(state, predictor))
        if predictor.has_attention:
            routers.append(make_explanation_router(state, predictor))
    for router in routers:
        app.include_router(router)
    app.add_middleware(SecurityMiddleware, state=state, **security)
    routes = {"/v1/openapi.json"}.union(*({route.path for route in one.routes} for one in routers))  # type: ignore[attr-defined]
    app.add_middleware(MetricsMiddleware, state=state, routes=routes)
    return app


@asynccontextmanager
async def _close_at_end(app: FastAPI) -> AsyncIterator[None]:
    yield
    await asyncio.to_thread(app.state.server.worker.close)


def make_asset_router() -> APIRouter:
    """The page of the explorer with its files: a fixed table, so that no other file can be requested."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    @router.get("/web/{name}")
    @router.get("/explorer/{name}")
    async def send_file(request: Request) -> Response:
        path: str = request.scope["route"].path.format(**request.path_params)
        name = path.removeprefix("/") or "explorer/index.html"
        if name not in _assets():
            raise RequestError(404, "not_found", "There is nothing at this address")
        kind, content = _assets()[name]
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return router


@cache
def _assets() -> dict[str, tuple[str, bytes]]:
    """The type and the content of every file."""
    return {
        f"{folder}/{file.name}": (ASSET_TYPES[suffix], file.read_bytes())
        for folder, package in ASSET_PACKAGES.items()
        for file in files(package).joinpath("web").iterdir()
        if (suffix := Path(file.name).suffix) in ASSET_TYPES
    }
