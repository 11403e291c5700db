"""Errors that a user can cause or act on.

Each class has a stable `code`, an exit code for the command line and a status for HTTP; sentences may change, codes may
not. Each class also inherits the built-in exception that callers catch, such as ValueError or FileNotFoundError.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

__all__ = [
    "CheckpointCorruptError", "ConfigError", "DataError", "DivergedError", "DownloadError", "DtypeError",
    "EmptyInputError", "ExportCorruptError", "ExportError", "InputError", "InputTooLongError",
    "MissingDependencyError", "OutOfMemoryError", "RegardError", "RequestError", "RunError", "RunExistsError",
    "RunFormatError", "RunLockedError", "RunNotFoundError", "ShapeError", "StaleStateError", "StorageError",
    "TrainingError", "UnknownNameError", "UnsupportedError", "UsageError", "WeightsMismatchError",
]  # fmt: skip


class RegardError(Exception):
    """Base class of all errors of regard.

    Args:
        message: one sentence: what is wrong, where, what is allowed, what to do
        details: values for programs, such as `row=3`; `to_json` includes them

    Example:
        >>> error = RegardError("no weights", path="a.safetensors")
        >>> error.to_json()
        {'code': 'error', 'message': 'no weights', 'path': 'a.safetensors'}
    """

    code: str = "error"
    exit_code: int = 1
    http_status: int = 500

    def __init__(self, message: str = "", **details: Any) -> None:
        super().__init__(message)
        self.details = details

    def to_json(self) -> dict[str, Any]:
        """The error as a JSON object with `code`, `message` and the details."""
        return {"code": self.code, "message": str(self), **self.details}


class UsageError(RegardError, ValueError):
    """An argument, option or command that cannot be used."""

    code, exit_code, http_status = "usage", 2, 422


class ConfigError(UsageError):
    """A configuration option that does not exist or has an invalid value."""

    code = "invalid_config"


class UnknownNameError(UsageError, LookupError):
    """No recipe, task, mechanism, split, device or engine has this name.

    Args:
        message: the sentence
        suggestions: the names that come closest
        details: more fields of the error
    """

    code = "unknown_name"

    def __init__(self, message: str = "", *, suggestions: Iterable[str] = (), **details: Any) -> None:
        self.suggestions = list(suggestions)
        super().__init__(message, suggestions=self.suggestions, **details)

    @classmethod
    def check(cls, kind: str, name: str, known: Iterable[str]) -> None:
        """Raise the error for a name that is none of the known ones.

        Example:
            >>> UnknownNameError.check("recipe", "revers", ["dates", "reverse"])
            Traceback (most recent call last):
            regard.errors.UnknownNameError: no recipe 'revers'; did you mean reverse?
        """
        if name not in (known := list(known)):
            raise cls(f"no {kind} {name!r}{suggest(name, known)}", suggestions=closest(name, known))


class ShapeError(UsageError):
    """A tensor has a shape that does not fit."""

    code = "shape_mismatch"


class DtypeError(UsageError, TypeError):
    """A tensor has a dtype, or an argument a type, that does not fit."""

    code = "dtype_mismatch"


class InputError(UsageError):
    """An input that a model cannot take; `row` is its index among the inputs, if there are several.

    Args:
        message: the sentence
        row: the index of the input, counted from 0
        details: more fields of the error
    """

    code = "invalid_input"

    def __init__(self, message: str = "", *, row: int | None = None, **details: Any) -> None:
        self.row = row
        super().__init__(message, **({} if row is None else {"row": row}), **details)


class InputTooLongError(InputError):
    """An input is longer than the model or a limit allows."""

    code, http_status = "input_too_long", 413


class EmptyInputError(InputError):
    """An input is empty."""

    code = "empty_input"


class UnsupportedError(UsageError):
    """This model, engine or format cannot do what was requested."""

    code, http_status = "unsupported", 404


class MissingDependencyError(UsageError, ImportError):
    """A package of an extra is not installed.

    Args:
        message: the sentence
        name: the name of the package
        details: more fields of the error
    """

    code = "missing_dependency"

    def __init__(self, message: str = "", *, name: str | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.msg, self.name = message, name


class DataError(RegardError, ValueError):
    """A data file is wrong; the sentence names the file, the line and the remedy."""

    code, exit_code = "invalid_data", 2


class DownloadError(DataError, OSError):
    """A file could not be downloaded."""

    code, exit_code = "download_failed", 1


class RunError(RegardError):
    """Something is wrong with the folder of a run or of an exported model."""

    code, exit_code = "run_error", 2


class RunNotFoundError(RunError, FileNotFoundError):
    """There is no run, or a part of it is missing."""

    code = "run_not_found"


class RunExistsError(RunError, FileExistsError):
    """The folder for a new run or export is in use."""

    code = "run_exists"


class RunLockedError(RunError, RuntimeError):
    """Another process trains in the folder of the run."""

    code = "run_locked"


class RunFormatError(RunError, ValueError):
    """A run, checkpoint or export was written by another version, or its record is damaged."""

    code = "run_format"


class CheckpointCorruptError(RunError, ValueError):
    """A checkpoint is not what was written."""

    code = "checkpoint_corrupt"


class WeightsMismatchError(RunError, ValueError):
    """Weights do not fit the model."""

    code = "weights_mismatch"


class ExportError(RunError, ValueError):
    """A model that a format cannot represent; the sentence says why, and what to do instead."""

    code = "cannot_export"


class ExportCorruptError(RunError, ValueError):
    """An exported model is damaged."""

    code = "export_corrupt"


class TrainingError(RegardError):
    """A training failed on the way."""

    code = "training_error"


class DivergedError(TrainingError, ArithmeticError):
    """A loss or a gradient is not finite."""

    code = "diverged"


class StorageError(TrainingError, OSError):
    """The disk is full or not writable.

    Args:
        message: the sentence
        errno: the number of the system's error
        details: more fields of the error
    """

    code = "cannot_write"

    def __init__(self, message: str = "", *, errno: int | None = None, **details: Any) -> None:
        super().__init__(message, **details)
        self.errno = errno


class OutOfMemoryError(TrainingError, RuntimeError):
    """There is not enough memory."""

    code = "out_of_memory"


class StaleStateError(RegardError, RuntimeError):
    """Weights are read, or a cached state is used, after what it was computed from has changed."""

    code = "stale_state"


class RequestError(RegardError):
    """A request that the server does not answer.

    Args:
        http_status: the status of the response
        code: the code that is sent to the client
        message: the sentence
        headers: headers of the response
    """

    def __init__(self, http_status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(end_sentence(message))
        self.http_status, self.code = http_status, code
        self.headers = dict(headers or {})


def as_out_of_memory(error: BaseException) -> OutOfMemoryError | None:
    """The error for too little memory, if that is what an exception of Python or PyTorch says."""
    texts = ("can't allocate memory", "out of memory")  # of a processor, and of a GPU
    if not isinstance(error, MemoryError | RuntimeError) or not any(text in str(error) for text in texts):
        return None
    return OutOfMemoryError(
        "there is not enough memory for this; a smaller hidden_dim, num_layers, batch_tokens or beam_size needs less"
    )


def as_lost_process(error: BaseException) -> TrainingError | None:
    """The error for a process whose connection to another one is lost, if that is what PyTorch says."""
    texts = ("Connection closed by peer", "Connection reset by peer", "Broken pipe", "remote process exited")
    if not isinstance(error, RuntimeError) or not any(text in str(error) for text in texts):
        return None
    return TrainingError(
        "another process of the training has ended, and this one cannot continue without it; regard resume continues"
        " from the latest checkpoint"
    )


def require_choice(name: str, value: object, choices: Iterable[str], caller: str | None = None) -> None:
    """Raise UsageError if an argument has none of its allowed values.

    Args:
        name: of the argument
        value: its value
        choices: the allowed values
        caller: what takes the argument
    """
    if value not in (choices := tuple(choices)):
        prefix = f"{caller}: " if caller else ""
        raise UsageError(f"{prefix}invalid value {value!r} for {name}: must be one of {', '.join(choices)}")


def end_sentence(text: str) -> str:
    """A sentence with its full stop; one that asks something has none.

    Example:
        >>> end_sentence("it is empty"), end_sentence("did you mean lr?")
        ('it is empty.', 'did you mean lr?')
    """
    return text if text.endswith("?") else f"{text.rstrip('.')}."


def closest(name: str, known: Sequence[str]) -> list[str]:
    """At most three of the known names that resemble a name, the closest first."""
    return difflib.get_close_matches(name, known, 3, 0.5)


def suggest(name: str, known: Sequence[str]) -> str:
    """The end of a sentence about an unknown name.

    Example:
        >>> suggest("cosin", ["constant", "cosine"]), suggest("x", ["constant", "cosine"])
        ('; did you mean cosine?', '; choose from constant, cosine')
    """
    if names := closest(name, known):
        return f"; did you mean {' or '.join(names)}?"
    return f"; choose from {', '.join(known)}" if known else ""
