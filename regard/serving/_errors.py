"""What a client is told when something is wrong: one sentence, never a traceback."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from regard.errors import RegardError

CODES = {404: "not_found", 405: "method_not_allowed"}
SENTENCES = {404: "There is nothing at this address.", 405: "This address does not take that method."}
MEANINGS = {
    400: "The request could not be read.",
    401: "The server asks for a token, and the request had none or another.",
    403: "A page of another site asked.",
    404: "There is no such thing here, or no model that could do it.",
    408: "The body of the request did not come.",
    413: "More was asked for than the limits allow; the message names the limit.",
    421: "The request was sent to a name that is not this server's.",
    422: "The request does not fit its description; the message says where.",
    429: "Too many requests wait; the header Retry-After says how many seconds to wait before the next.",
    500: "A fault of the server; its log says which.",
    503: "The server is stopping, or not ready yet.",
    504: "The answer took longer than the limit.",
}


class Problem(BaseModel):
    """What was wrong."""

    code: str = Field(description="A word for programs, such as input_too_long.", examples=["input_too_long"])
    message: str = Field(description="One sentence for people: what is wrong, where, and what to do.")


class Refused(BaseModel):
    """The one form in which every refusal comes."""

    error: Problem


def refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How the description of a route tells which refusals it knows, beside those that every route has."""
    every = (400, 401, 403, 405, 408, 413, 421, 422, 429, 500, 503)
    told = {**MEANINGS, 405: SENTENCES[405]}
    return {status: {"model": Refused, "description": told[status]} for status in sorted({*every, *statuses})}


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer to a request that is refused."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


def error_response(error: RegardError) -> JSONResponse:
    """The answer to a request that ends with an error: code and status are those of its class."""
    return JSONResponse(error_body(error), error.http_status, getattr(error, "headers", None))


def error_body(error: RegardError) -> dict[str, Any]:
    """The one form in which every error is sent."""
    message = f"{str(error).rstrip('.')}."  # not every sentence of the library has a full stop
    return {"error": {"code": error.code, "message": message}}


def told_in_words(app: FastAPI) -> None:
    """Let every error of the application be told in that form."""
    app.add_exception_handler(RegardError, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _ours)


def sentence(problem: dict[str, Any]) -> str:
    """One problem that pydantic found, as a sentence.

    >>> sentence({"loc": ("body", "texts", 0), "msg": "Input should be a valid string", "type": "string_type"})
    'texts.0: Input should be a valid string.'
    >>> sentence({"loc": ("body", 12), "msg": "JSON decode error", "type": "json_invalid"})
    'The request is not valid JSON.'
    """
    if problem["type"] == "json_invalid":
        return "The request is not valid JSON."
    place = ".".join(str(part) for part in problem["loc"][1:])[:200] or "The request"
    return f"{_whole(place)}: {problem['msg'].removeprefix('Value error, ').rstrip('.')}."


def _whole(text: str) -> str:
    """A name that came as half a surrogate pair could not be sent back."""
    return json.dumps(text)[1:-1] if any("\ud800" <= letter <= "\udfff" for letter in text) else text


async def _refused(request: Request, refusal: Exception) -> JSONResponse:
    assert isinstance(refusal, RegardError)
    if refusal.http_status == 500:
        raise refusal  # a fault of the server, to be logged
    return error_response(refusal)


async def _invalid(request: Request, invalid: Exception) -> JSONResponse:
    assert isinstance(invalid, RequestValidationError)
    return error(422, "invalid", sentence(invalid.errors()[0]))


async def _http(request: Request, http: Exception) -> JSONResponse:
    assert isinstance(http, HTTPException)
    status = http.status_code
    usual = HTTPStatus(status).phrase
    answer = error(status, CODES.get(status, usual.lower().replace(" ", "_")), SENTENCES.get(status, f"{usual}."))
    answer.headers.update(http.headers or {})  # 405 says in Allow what would be taken
    return answer


async def _ours(request: Request, bug: Exception) -> JSONResponse:
    # The server logs the traceback; the client learns only that it is not to blame.
    return error(500, "internal", "Something went wrong in the server; its log says what.")
