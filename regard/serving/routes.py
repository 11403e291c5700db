"""The routes of a model, written once for every task, and those that describe the server."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

from fastapi import APIRouter
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from pydantic import BaseModel, Field, create_model

from regard._version import __version__
from regard.errors import InputTooLongError, RegardError, RequestError
from regard.serving import schemas
from regard.serving.schemas import StrictModel, UnicodeText, error_responses
from regard.serving.worker import stopped_error
from regard.tasks.abilities import Alignable, AlignedText, Scorable, ScoredTarget, Tokenizable, Tokenization
from regard.tasks.predictor import Explanation, Prediction, Predictor

if TYPE_CHECKING:
    from regard.serving.app import ServerState

__all__ = ["add_post", "make_predict_router", "make_status_router"]

EVENT_STREAM = "text/event-stream"
EVENT_SCHEMA = {
    "type": "object",
    "description": "An event; its data are JSON: the prediction so far, the complete prediction, or an error.",
    "properties": {"event": {"enum": ["partial", "end", "error"]}, "data": {"type": "string"}},
    "required": ["event", "data"],
}
EVENT_EXAMPLE = 'event: partial\ndata: {"text":"Ein",...}\n\nevent: end\ndata: {"text":"Ein Hund.",...}\n\n'


class HealthResponse(BaseModel):
    """Whether the server is up, and whether it has a model."""

    status: Literal["ok", "stopping"]
    version: str
    model: bool


class ReadyResponse(BaseModel):
    """All is well."""

    status: Literal["ok"] = "ok"


class ModelResponse(BaseModel):
    """What is served: task, inputs, capabilities and options; `model` is null if there is only the playground."""

    model: dict[str, Any] | None
    limits: dict[str, float]


class TokensRequest(StrictModel):
    """A text, and whether it is an input or an answer."""

    text: UnicodeText
    side: Literal["input", "target"] = "input"


def make_status_router(state: ServerState) -> APIRouter:
    """Health, metrics and the description of the model.

    Args:
        state: of the application
    """
    router = APIRouter(prefix="/v1")

    @router.get("/health", responses=error_responses())
    async def health() -> HealthResponse:
        """Whether the server is up, and whether it has a model."""
        status: Literal["ok", "stopping"] = "stopping" if state.is_stopping else "ok"
        return HealthResponse(status=status, version=__version__, model=state.predictor is not None)

    @router.get("/health/live", responses=error_responses())
    async def live() -> ReadyResponse:
        """The process answers, and its model has not stopped; needs no token."""
        if not state.worker.is_alive:
            raise stopped_error()
        return ReadyResponse()

    @router.get("/health/ready", responses=error_responses())
    async def ready() -> ReadyResponse:
        """Requests are accepted; 503 while the server stops, or if its model has. Needs no token."""
        if state.is_stopping:
            raise RequestError(503, "stopping", "The server accepts no more requests")
        return await live()

    @router.get("/metrics", response_class=PlainTextResponse, responses=error_responses())
    async def metrics() -> PlainTextResponse:
        """Requests, durations, queue, batches and tokens for Prometheus."""
        return PlainTextResponse(state.metrics.to_text(), media_type=state.metrics.content_type)

    @router.get("/model", responses=error_responses())
    async def model() -> ModelResponse:
        """What is served: task, inputs, capabilities, options, sizes, and the limits of requests."""
        predictor, limits = state.predictor, asdict(state.limits)
        if predictor is None:
            return ModelResponse(model=None, limits=limits)
        options = {"predict": predictor.predict_options, "explain": predictor.explain_options}
        facts = {
            **state.about,
            "task": state.task,
            "verb": state.verb,
            "inputs": [asdict(one) for one in predictor.inputs],
            "capabilities": state.capabilities,
            "options": {name: schemas.options_model(one).model_json_schema() for name, one in options.items()},
            **predictor.describe(),
        }
        return ModelResponse(model=facts, limits=limits)

    return router


def make_predict_router(state: ServerState, predictor: Predictor[Any, Any, Any]) -> APIRouter:
    """Predictions, streams and the abilities of a predictor.

    Args:
        state: of the application
        predictor: the model in use
    """
    router = APIRouter(prefix="/v1")
    one_input, options_field = schemas.input_model(predictor.inputs), schemas.options_field(predictor.predict_options)
    explain_field = (bool, Field(False, description="Return each prediction with its `explanation`."))
    inputs_field = schemas.limited_list(one_input, state.limits)
    request = create_model(
        "PredictRequest", __base__=StrictModel, inputs=inputs_field, options=options_field, explain=explain_field
    )
    prediction = schemas.result_model(predictor.prediction_class)
    response = create_model("PredictResponse", predictions=schemas.list_type(prediction))

    async def predict(body: Any) -> Response:
        """A prediction for each input, in order. Requests with equal options are computed as one batch."""
        options = state.make_options(predictor.predict_options, body.options)
        inputs = await state.decode_inputs(body.inputs)
        key = None if predictor.is_random(options) else ("predict", options, body.explain)

        def work(items: Sequence[Any]) -> list[bytes]:
            predictions = predictor.predict(items, options)
            if not body.explain:
                return _encode_predictions(state, predictions)
            pairs = zip(predictions, map(explain, items), strict=True)
            return [schemas.encode_json({**one.to_json(), "explanation": more.to_json()}) for one, more in pairs]

        def explain(item: Any) -> Explanation:
            state.worker.check_abandoned()
            return predictor.explain(item, predictor.quick_explain_options)

        return schemas.json_list_response("predictions", await state.worker.submit_items(key, work, inputs))

    for path in ("/predict", *([f"/{state.verb}"] if state.verb else [])):
        add_post(router, path, predict, request, response_model=response)

    stream_request = create_model("StreamRequest", __base__=StrictModel, input=(one_input, ...), options=options_field)
    stream_description = {
        "description": "Server-sent events: `partial` predictions, then `end` with the complete one, or `error`.",
        "content": {EVENT_STREAM: {"schema": EVENT_SCHEMA, "example": EVENT_EXAMPLE}},
    }

    async def stream(body: Any) -> StreamingResponse:
        """A prediction while it grows. Models that cannot return a part of it send only the end."""
        options = state.make_options(predictor.predict_options, body.options)
        (input,) = await state.decode_inputs([body.input])
        events: asyncio.Queue[bytes | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def emit(one: Prediction) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(events.put_nowait, schemas.encode_json(one.to_json()))

        key = None if predictor.is_random(options) else ("stream", options)

        def work(items: Sequence[tuple[Any, Callable[[Prediction], None]]]) -> list[bytes]:
            inputs, emitters = zip(*items, strict=True)

            def emit_row(row: int, one: Prediction) -> None:
                state.worker.check_abandoned()
                emitters[row](one)

            predictions = predictor.stream_batch(inputs, options, emit_row)
            return _encode_predictions(state, predictions)

        job = asyncio.ensure_future(state.worker.submit_items(key, work, [(input, emit)]))
        job.add_done_callback(lambda _: events.put_nowait(None))
        try:
            first = await events.get()
        except asyncio.CancelledError:  # the client is gone
            job.cancel()
            raise
        if first is None:
            await job  # an error before the first event has its own status
        return StreamingResponse(_iterate_events(job, events, first), media_type=EVENT_STREAM)

    responses = {**error_responses(404, 504), 200: stream_description}
    add_post(router, "/predict/stream", stream, stream_request, response_class=StreamingResponse, responses=responses)
    if isinstance(predictor, Scorable):
        _add_score(router, state, predictor, one_input)
    if isinstance(predictor, Alignable):
        _add_align(router, state, predictor, one_input)
    if isinstance(predictor, Tokenizable):
        _add_tokens(router, state, predictor)
    return router


def add_post(router: APIRouter, path: str, endpoint: Any, request: type[BaseModel], **settings: Any) -> None:
    """Add a route whose body is a model made at run time.

    Args:
        router: gets the route
        path: after the prefix of the router
        endpoint: called with `body`
        request: the model of the body
        settings: of `APIRouter.add_api_route`
    """
    body = inspect.Parameter("body", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=request)
    endpoint.__signature__ = inspect.Signature([body])
    settings = {"responses": error_responses(404, 504), **settings}
    name = path.strip("/").replace("/", "_") or None
    router.add_api_route(path, endpoint, methods=["POST"], name=name, **settings)


def _encode_predictions(state: ServerState, predictions: Sequence[Prediction]) -> list[bytes]:
    """The JSON of predictions, whose tokens are counted."""
    for one in predictions:
        state.metrics.count_tokens(one.token_counts)
    return [schemas.encode_json(one.to_json()) for one in predictions]


async def _iterate_events(
    job: asyncio.Future[Any], events: asyncio.Queue[bytes | None], data: bytes | None
) -> AsyncIterator[bytes]:
    try:
        while data is not None:
            yield _format_event("partial", data)
            data = await events.get()
        (complete,) = await job
        yield _format_event("end", complete)
    except Exception as error:
        if not isinstance(error, RegardError) or error.http_status == 500:
            logging.getLogger("uvicorn.error").exception("a stream failed")
            error = RequestError(500, "internal", "Something went wrong in the server; its log says what")
        yield _format_event("error", schemas.encode_json(schemas.error_body(error)))
    finally:
        job.cancel()  # a client that is gone needs no prediction


def _format_event(name: str, data: bytes) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (name.encode(), data)


def _pairs_field(state: ServerState, one_input: Any, target: Any, description: str) -> Any:
    default = None if type(None) in get_args(target) else ...
    target_field = (target, Field(default, description=description))
    pair = create_model("Pair", __base__=StrictModel, input=(one_input, ...), target=target_field)
    return schemas.limited_list(pair, state.limits)


async def _compute_pairs(
    state: ServerState, predictor: Any, pairs: Sequence[Any], batch_key: Hashable, compute: Callable[..., Sequence[Any]]
) -> Sequence[bytes]:
    """The JSON of what `compute` returns for the inputs and the targets of pairs."""
    inputs = await state.decode_inputs([pair.input for pair in pairs])
    for row, pair in enumerate(pairs):
        state.check_text(pair.target or "", f"target {row + 1}", row)

    def work(items: Sequence[tuple[Any, str | None]]) -> list[bytes]:
        inputs, targets = map(list, zip(*items, strict=True))
        _check_targets(predictor, targets)
        return [schemas.encode_json(one.to_json()) for one in compute(inputs, targets)]

    items = [(one, pair.target) for one, pair in zip(inputs, pairs, strict=True)]
    return await state.worker.submit_items(batch_key, work, items)


def _check_targets(predictor: object, targets: Sequence[str | None]) -> None:
    """Refuse a target with more tokens than the model takes."""
    if not isinstance(predictor, Tokenizable):
        return
    for row, target in enumerate(targets):
        tokens = predictor.tokenize(target or "", "target")
        count, limit = len(tokens.tokens), tokens.limit
        if limit is not None and count > limit:
            message = f"target {row + 1} has {count:,} tokens, but this model takes {limit:,}"
            raise InputTooLongError(message, row=row)


def _add_score(router: APIRouter, state: ServerState, predictor: Scorable, one_input: Any) -> None:
    pairs = _pairs_field(state, one_input, UnicodeText, "An answer to the input.")
    request = create_model("ScoreRequest", __base__=StrictModel, pairs=pairs)
    scores = {"log_prob_per_token": (float, ...), "perplexity": (float, ...)}
    scored = create_model("ScoredTarget", __base__=schemas.result_model(ScoredTarget), **scores)  # type: ignore[call-overload]
    response = create_model("ScoreResponse", scores=schemas.list_type(scored))

    async def score(body: Any) -> Response:
        """How probable given answers are, in total and by token."""
        scores = await _compute_pairs(state, predictor, body.pairs, ("score",), predictor.score)
        return schemas.json_list_response("scores", scores)

    add_post(router, "/score", score, request, response_model=response)


def _add_align(router: APIRouter, state: ServerState, predictor: Alignable, one_input: Any) -> None:
    pairs = _pairs_field(state, one_input, UnicodeText | None, "An answer to the input; null: that of the model.")
    options_field = schemas.options_field(predictor.align_options)
    request = create_model("AlignRequest", __base__=StrictModel, pairs=pairs, options=options_field)
    response = create_model("AlignResponse", alignments=schemas.list_type(schemas.result_model(AlignedText)))

    async def align(body: Any) -> Response:
        """Which words of inputs and answers belong together, by the attention weights."""
        options = schemas.make_options(predictor.align_options, body.options)
        compute = partial(predictor.align_texts, options=options)
        alignments = await _compute_pairs(state, predictor, body.pairs, ("align", options), compute)
        return schemas.json_list_response("alignments", alignments)

    add_post(router, "/align", align, request, response_model=response)


def _add_tokens(router: APIRouter, state: ServerState, predictor: Tokenizable) -> None:
    tokenization = schemas.result_model(Tokenization)
    response = create_model("TokensResponse", __base__=tokenization, count=(int, ...), fits=(bool, ...))

    def tokens(body: Any) -> Any:
        """The tokens of a text, and whether the model takes that number."""
        state.check_text(body.text, "the text")
        return predictor.tokenize(body.text, body.side).to_json()

    add_post(router, "/tokens", tokens, TokensRequest, response_model=response)
