"""Request and response models made from options, input fields and predictions, and the one form of every error."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache, reduce
from http import HTTPStatus
from operator import or_
from types import GenericAlias
from typing import Annotated, Any, ForwardRef, Literal, cast, get_args, get_origin, get_type_hints

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model, model_validator
from starlette.exceptions import HTTPException

from regard.config import Config, Option
from regard.errors import ConfigError, RegardError, RequestError, end_sentence
from regard.files import replace_non_finite
from regard.serving.worker import Limits
from regard.tasks.predictor import InputField

__all__ = [
    "ErrorBody", "ErrorResponse", "StrictModel", "UnicodeText", "encode_json",
    "error_body", "error_response", "error_responses", "input_model", "install_error_handlers",
    "json_list_response", "limited_list", "list_type", "make_options", "options_field", "options_model", "result_model",
]  # fmt: skip

INTERNAL_ERROR = "Something went wrong in the server; its log says what"
MAX_FIELDS = 100  # of an object in a request
MAX_NAME = 100  # characters of the name of an option
PROBLEMS = {  # by the type of an error of pydantic, whose words are those of a Python program
    "missing": "this field is missing",
    "extra_forbidden": "there is no such field",
    "string_type": "expected a text",
    "int_type": "expected an integer",
    "int_from_float": "expected an integer",
    "float_type": "expected a number",
    "bool_type": "expected true or false",
    "list_type": "expected a list",
    "dict_type": "expected an object",
    "model_type": "expected an object",
    "model_attributes_type": "expected an object",
    "none_required": "expected null",
    "literal_error": "expected {expected}",
    "finite_number": "must be a finite number",
    "greater_than_equal": "must be at least {ge}",
    "greater_than": "must be above {gt}",
    "less_than_equal": "must be at most {le}",
    "less_than": "must be below {lt}",
    "too_short": "at least {min_length} is needed",
    "too_long": "at most {max_length} are taken",
    "string_too_short": "at least {min_length} characters are needed",
    "string_too_long": "at most {max_length} characters are taken",
}
HTTP_ERRORS = {
    400: ("bad_request", "The body of the request is not JSON in UTF-8, or nested too deeply"),
    404: ("not_found", "There is nothing at this address"),
    405: ("method_not_allowed", "This address does not take that method"),
}
STATUS_MEANINGS = {
    400: "The request could not be read.",
    401: "The server requires a token, and the request had none or another.",
    403: "A page of another site sent the request.",
    404: "There is nothing at this address, or the model does not have this ability.",
    405: "This address does not take that method.",
    408: "The body of the request did not arrive.",
    413: "The request is above a limit; the message names it.",
    421: "The request was sent to a name that is not this server's.",
    422: "The request is invalid; the message says where.",
    429: "Too many requests are waiting; the header Retry-After has the seconds to wait.",
    500: "A fault of the server; its log says which.",
    503: "The server is stopping, or not ready yet.",
    504: "The response took longer than the limit.",
}


class StrictModel(BaseModel):
    """A request body that refuses unknown fields and values of another type."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def check_size(cls, values: Any) -> Any:
        """Refuse objects with too many fields, as listing one error for each would take seconds."""
        parts = [values, *values.values()] if isinstance(values, dict) else []
        if any(isinstance(part, dict) and len(part) > MAX_FIELDS for part in parts):
            raise ValueError(f"an object has more than {MAX_FIELDS} fields")
        return values


def _replace_surrogates(text: str) -> str:
    """Half a surrogate pair is no character and could not be sent back."""
    return text.encode("utf-8", "replace").decode()


UnicodeText = Annotated[str, AfterValidator(_replace_surrogates)]


class ErrorBody(BaseModel):
    """What is wrong; some errors have further fields, such as `row`, the index of an input."""

    model_config = ConfigDict(extra="allow")
    code: str = Field(description="A stable word for programs.", examples=["input_too_long"])
    message: str = Field(description="One sentence: what is wrong, where, what is allowed, what to do.")


class ErrorResponse(BaseModel):
    """The form of every error."""

    error: ErrorBody


def options_model(options: type[Config]) -> type[BaseModel]:
    """A model with the fields, bounds and defaults of a config.

    Args:
        options: the config
    """

    def check(values: Any) -> Any:
        if isinstance(values, dict) and len(values) <= MAX_FIELDS:
            for name, value in values.items():
                one = options.option(name[:MAX_NAME])
                one.check(tuple(value) if isinstance(value, list) else value)
        return values

    fields: dict[str, Any] = {}
    for one in options.options():
        bounds: dict[str, Any] = dict(one.bounds) if {int, float} & {one.type, *get_args(one.type)} else {}
        default = list(one.default) if isinstance(one.default, tuple) else one.default
        fields[one.name] = (Annotated[_json_type(one), Field(description=one.help, **bounds)], default)
    validators: dict[str, Any] = {"check_options": model_validator(mode="before")(check)}
    return create_model(options.__name__, __base__=StrictModel, __validators__=validators, **fields)


def options_field(options: type[Config]) -> Any:
    """The field `options` of a request: an `options_model`, whose defaults are taken if there are none.

    Args:
        options: the config
    """
    model = options_model(options)
    return model, Field(default_factory=model)


def _json_type(one: Option) -> Any:
    """The type of an option in JSON: lists for tuples, a Literal where choices are listed."""
    kinds = get_args(one.type) if type(None) in get_args(one.type) else (one.type,)
    converted: dict[Any, Any] = {
        str: Literal[one.choices] if one.choices else UnicodeText,
        float: Annotated[float, Field(allow_inf_nan=False)],
    }
    return reduce(
        or_,
        [list_type(get_args(kind)[0]) if get_origin(kind) is tuple else converted.get(kind, kind) for kind in kinds],
    )


def list_type(item: Any) -> Any:
    """The type of a list whose items have a type that is made at run time; its first invalid item is the error.

    Args:
        item: the type of the items
    """
    return Annotated[GenericAlias(list, (item,)), Field(fail_fast=True)]


def limited_list(item: Any, limits: Limits) -> Any:
    """The field of a list of inputs, whose length is checked before its items.

    Args:
        item: the type of the items
        limits: of inputs
    """

    def check(values: Any) -> Any:
        if isinstance(values, list) and len(values) > limits.max_inputs:
            message = f"There are {len(values):,} inputs; at most {limits.max_inputs} are taken"
            raise RequestError(413, "too_many_inputs", message)
        return values

    return Annotated[list_type(item), BeforeValidator(check)], Field(min_length=1)


def make_options(options: type[Config], body: BaseModel) -> Any:
    """The config of a request; equal options are one object.

    Args:
        options: the config
        body: an instance of its `options_model`
    """
    values = ((name, getattr(body, name)) for name in sorted(body.model_fields_set))
    hashable = ((name, tuple(value) if isinstance(value, list) else value) for name, value in values)
    return _cached_options(cast(Any, options), *hashable)


@lru_cache(maxsize=1024)
def _cached_options(options: Callable[..., Config], *values: tuple[str, Any]) -> Config:
    return options(**dict(values))


def input_model(inputs: Sequence[InputField]) -> Any:
    """The type of an input: a text, or an object with a field for each part. Images and sounds are base64.

    Args:
        inputs: the parts
    """
    if len(inputs) == 1:
        return Annotated[UnicodeText, Field(description=_describe_field(inputs[0]))]
    fields: dict[str, Any] = {one.name: (UnicodeText, Field(description=_describe_field(one))) for one in inputs}
    return create_model("Input", __base__=StrictModel, **fields)


def _describe_field(field: InputField) -> str:
    formats = {"text": "", "image": "; a PNG, JPEG or WebP file as base64", "audio": "; a file as base64"}
    return f"{field.help}{formats[field.kind]}"


def result_model(result: type[Any]) -> type[BaseModel]:
    """The schema of a dataclass in a response; fields with a default may be absent.

    Args:
        result: the dataclass, such as a `Prediction`
    """
    hints, help_texts = get_type_hints(result), _argument_help(result)
    fields: dict[str, Any] = {}
    for one in dataclasses.fields(result):
        is_required = one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        default: dict[str, Any] = {} if is_required else {"default_factory": lambda: None}  # never used
        field = Field(description=help_texts.get(one.name), **default)
        fields[one.name] = (_replace_self(hints[one.name], result), field)
    model = create_model(result.__name__, __doc__=(result.__doc__ or "").split("\n")[0], **fields)
    model.model_rebuild(_types_namespace={result.__name__: model})
    return model


def _replace_self(kind: Any, cls: type[Any]) -> Any:
    """A type with tuples as lists, and references to the class itself by name."""
    if kind is cls:
        return ForwardRef(cls.__name__)
    is_list = get_origin(kind) is tuple and get_args(kind)[-1:] == (...,)
    return list_type(_replace_self(get_args(kind)[0], cls)) if is_list else kind


def _argument_help(cls: type[Any]) -> dict[str, str]:
    """The lines of "Args:" in a docstring, by name."""
    _, _, section = (cls.__doc__ or "").partition("Args:\n")
    lines = re.findall(r"^\s+([\w, ]+): (.+)$", section, re.MULTILINE)
    return {name: text for names, text in lines for name in names.split(", ")}


def encode_json(value: Any) -> bytes:
    """Compact JSON, null for what is not finite. Called in the computing thread; the event loop only sends it.

    Args:
        value: plain lists and numbers
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        text = json.dumps(replace_non_finite(value), ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def json_list_response(name: str, parts: Iterable[bytes]) -> Response:
    """A response with one list, whose parts are JSON already.

    Args:
        name: of the list
        parts: its elements

    Example:
        >>> json_list_response("texts", [b'"a"', b'"b"']).body
        b'{"texts":["a","b"]}'
    """
    return Response(b'{"%s":[%s]}' % (name.encode(), b",".join(parts)), media_type="application/json")


def error_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The description of the errors of a route.

    Args:
        statuses: in addition to those that every route has
    """
    return {
        status: {"model": ErrorResponse, "description": meaning}
        for status, meaning in STATUS_MEANINGS.items()
        if status not in (404, 504) or status in statuses
    }


def error_body(error: RegardError) -> dict[str, Any]:
    """The JSON of an error.

    Args:
        error: with code, sentence and details
    """
    return {"error": error.to_json() | {"message": end_sentence(str(error))}}


def error_response(error: RegardError) -> Response:
    """The response to a request that fails; code and status are those of the error's class.

    Args:
        error: with code, sentence and details
    """
    headers = error.headers if isinstance(error, RequestError) else None
    return Response(encode_json(error_body(error)), error.http_status, headers, "application/json")


def install_error_handlers(app: FastAPI, describe_missing: Callable[[Request], RegardError | None]) -> None:
    """Send every error of an application in the one form.

    Args:
        app: the application
        describe_missing: the error for an address that does not exist, if there is more to say than that
    """

    @app.exception_handler(RegardError)
    async def send(request: Request, error: RegardError) -> Response:
        if error.http_status == 500:
            raise error  # a fault of the server, which is logged
        return error_response(error)

    @app.exception_handler(RequestValidationError)
    async def send_invalid(request: Request, error: RequestValidationError) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        sentence = describe_validation_error(error.errors()[0])
        if request.method == "POST" and not (kind == "application/json" or kind.endswith("+json")):
            sentence = "The header Content-Type must be application/json"
        return error_response(RequestError(422, "invalid_request", sentence))

    @app.exception_handler(HTTPException)
    async def send_http(request: Request, error: HTTPException) -> Response:
        status, phrase = error.status_code, HTTPStatus(error.status_code).phrase
        missing = describe_missing(request) if status == 404 else None
        code, sentence = HTTP_ERRORS.get(status, (phrase.lower().replace(" ", "_"), phrase))
        response = error_response(missing or RequestError(status, code, sentence))
        response.headers.update(error.headers or {})  # 405 has the allowed methods in Allow
        return response

    @app.exception_handler(Exception)
    async def send_internal(request: Request, error: Exception) -> Response:
        return error_response(RequestError(500, "internal", INTERNAL_ERROR))  # the traceback is logged


def describe_validation_error(problem: Mapping[str, Any]) -> str:
    """One problem that pydantic found, as a sentence.

    Args:
        problem: of `ValidationError.errors()`

    Example:
        >>> describe_validation_error({"loc": ("body", "inputs", 0), "msg": "", "type": "string_type"})
        'inputs.0: expected a text'
        >>> describe_validation_error({"loc": ("body", 12), "msg": "JSON decode error", "type": "json_invalid"})
        'The request is not valid JSON'
    """
    if problem["type"] == "json_invalid":
        return "The request is not valid JSON"
    context = problem.get("ctx", {})
    if isinstance(context.get("error"), ConfigError):
        return str(context["error"])
    place = ".".join(str(part) for part in problem["loc"][1:])[:200] or "The request"
    if any("\ud800" <= character <= "\udfff" for character in place):
        place = json.dumps(place)[1:-1]
    sentence = PROBLEMS.get(problem["type"], "the value is not valid").format(**context)
    return f"{place}: {context.get('error', sentence)}"
