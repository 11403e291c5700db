"""What a client is told when something is wrong: one sentence, never a traceback."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

CODES = {404: "not_found", 405: "method_not_allowed"}
SENTENCES = {
    404: "There is nothing at this address.",
    405: "This address does not take that method.",
}


class Refusal(Exception):
    """A request that is not answered, and why."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


def error(status: int, code: str, message: str) -> JSONResponse:
    """The one form in which every refusal comes."""
    return JSONResponse({"error": {"code": code, "message": message}}, status)


def told_in_words(app: FastAPI) -> None:
    """Let every error of the application be told in that form."""
    app.add_exception_handler(Refusal, _refused)
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
    place = ".".join(str(part) for part in problem["loc"][1:]) or "The request"
    return f"{place}: {problem['msg'].removeprefix('Value error, ').rstrip('.')}."


async def _refused(request: Request, refusal: Exception) -> JSONResponse:
    assert isinstance(refusal, Refusal)
    return error(refusal.status, refusal.code, refusal.message)


async def _invalid(request: Request, invalid: Exception) -> JSONResponse:
    assert isinstance(invalid, RequestValidationError)
    return error(422, "invalid", sentence(invalid.errors()[0]))


async def _http(request: Request, http: Exception) -> JSONResponse:
    assert isinstance(http, HTTPException)
    status = http.status_code
    usual = HTTPStatus(status).phrase
    answer = error(
        status, CODES.get(status, usual.lower().replace(" ", "_")), SENTENCES.get(status, f"{usual}.")
    )
    answer.headers.update(http.headers or {})  # 405 says in Allow what would be taken
    return answer


async def _ours(request: Request, bug: Exception) -> JSONResponse:
    # The server logs the traceback; the client learns only that it is not to blame.
    return error(500, "internal", "Something went wrong in the server; its log says what.")
