"""Errors: stable codes, exit codes and HTTP statuses, and the built-in exceptions that callers catch."""

import errno
import pickle

import pytest

from regard import errors
from regard._imports import require_extra, resolve
from regard.errors import RegardError, UnknownNameError

CLASSES = [getattr(errors, name) for name in errors.__all__ if name != "RequestError"]
TABLE = {  # code, exit code, HTTP status, built-in
    "UsageError": ("usage", 2, 422, ValueError),
    "ConfigError": ("invalid_config", 2, 422, ValueError),
    "UnknownNameError": ("unknown_name", 2, 422, LookupError),
    "ShapeError": ("shape_mismatch", 2, 422, ValueError),
    "DtypeError": ("dtype_mismatch", 2, 422, TypeError),
    "InputError": ("invalid_input", 2, 422, ValueError),
    "InputTooLongError": ("input_too_long", 2, 413, ValueError),
    "EmptyInputError": ("empty_input", 2, 422, ValueError),
    "UnsupportedError": ("unsupported", 2, 404, ValueError),
    "MissingDependencyError": ("missing_dependency", 2, 422, ImportError),
    "DataError": ("invalid_data", 2, 500, ValueError),
    "DownloadError": ("download_failed", 1, 500, OSError),
    "RunError": ("run_error", 2, 500, Exception),
    "RunNotFoundError": ("run_not_found", 2, 500, FileNotFoundError),
    "RunExistsError": ("run_exists", 2, 500, FileExistsError),
    "RunLockedError": ("run_locked", 2, 500, RuntimeError),
    "RunFormatError": ("run_format", 2, 500, ValueError),
    "CheckpointCorruptError": ("checkpoint_corrupt", 2, 500, ValueError),
    "WeightsMismatchError": ("weights_mismatch", 2, 500, ValueError),
    "ExportError": ("cannot_export", 2, 500, ValueError),
    "ExportCorruptError": ("export_corrupt", 2, 500, ValueError),
    "TrainingError": ("training_error", 1, 500, Exception),
    "DivergedError": ("diverged", 1, 500, ArithmeticError),
    "StorageError": ("cannot_write", 1, 500, OSError),
    "OutOfMemoryError": ("out_of_memory", 1, 500, RuntimeError),
    "StaleStateError": ("stale_state", 1, 500, RuntimeError),
    "RegardError": ("error", 1, 500, Exception),
}


def test_the_table_has_every_class():
    assert set(TABLE) == {cls.__name__ for cls in CLASSES}


@pytest.mark.parametrize("name", TABLE)
def test_code_exit_code_status_and_builtin(name):
    cls = getattr(errors, name)
    code, exit_code, http_status, builtin = TABLE[name]
    assert (cls.code, cls.exit_code, cls.http_status) == (code, exit_code, http_status)
    assert issubclass(cls, builtin)
    assert issubclass(cls, RegardError)


@pytest.mark.parametrize("cls", CLASSES)
def test_message_json_and_pickle(cls):
    error = cls("a message")
    assert str(error) == "a message"
    assert error.to_json()["code"] == cls.code
    assert error.to_json()["message"] == "a message"
    assert str(pickle.loads(pickle.dumps(error))) == "a message"


def test_an_input_error_has_its_row():
    error = errors.InputTooLongError("too long", row=3, limit=256)
    assert error.row == 3
    assert error.to_json() == {"code": "input_too_long", "message": "too long", "row": 3, "limit": 256}
    assert "row" not in errors.InputError("wrong").to_json()


def test_a_storage_error_has_the_number_of_the_system():
    error = errors.StorageError("the disk is full", errno=errno.ENOSPC)
    assert error.errno == errno.ENOSPC
    assert str(error) == "the disk is full"


def test_a_request_error_has_its_own_code_and_status():
    error = errors.RequestError(429, "busy", "later", {"Retry-After": "1"})
    assert (error.http_status, error.code, str(error)) == (429, "busy", "later.")
    assert error.headers == {"Retry-After": "1"}
    assert errors.RequestError.http_status == 500


def test_an_unknown_name_comes_with_suggestions():
    UnknownNameError.check("recipe", "dates", ["dates", "reverse"])
    with pytest.raises(UnknownNameError, match=r"no recipe 'revers'; did you mean reverse\?") as caught:
        UnknownNameError.check("recipe", "revers", ["dates", "reverse"])
    assert caught.value.suggestions == ["reverse"]
    with pytest.raises(UnknownNameError, match="no recipe 'xyz'; choose from dates, reverse") as caught:
        UnknownNameError.check("recipe", "xyz", ["dates", "reverse"])
    assert caught.value.suggestions == []


def test_a_missing_package_is_named_with_its_extra():
    with pytest.raises(errors.MissingDependencyError) as caught:
        require_extra("no_such_module.part", extra="draw")
    assert caught.value.name == "no_such_module"
    assert 'pip install "regard[draw]"' in str(caught.value)


def test_resolve_imports_what_a_text_names():
    assert resolve("regard.errors:UnknownNameError") is UnknownNameError
    assert resolve("regard.errors:UnknownNameError.check") == UnknownNameError.check
    with pytest.raises(AttributeError):
        resolve("regard.errors:Missing")
