"""Which errors become a sentence, and which keep their traceback."""

import pytest

from regard.cli.main import to_regard_error
from regard.errors import DivergedError, OutOfMemoryError, StorageError
from tests.cli.calls import assert_refused, call


def caught(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return to_regard_error(error)
    raise AssertionError("nothing was raised")


def test_errors_of_regard_are_known():
    from regard.decoding import DecodingConfig
    from regard.training import RunFolder

    error = caught(lambda: DecodingConfig(beam_size=0))
    assert (error.code, error.exit_code) == ("invalid_config", 2)
    error = caught(RunFolder.open, "nowhere")
    assert str(error).startswith("no run in nowhere")
    assert (error.code, error.exit_code) == ("run_not_found", 2)


def test_errors_of_python_and_torch_are_bugs():
    import torch

    from regard.decoding import alignment_error_rate

    assert caught(lambda: {}["key"]) is None
    assert caught(lambda: int("x")) is None
    assert caught(lambda: torch.zeros(2) @ torch.zeros(3)) is None
    assert caught(alignment_error_rate, [1], [2], [3]) is None  # a TypeError in regard's own code, but raised by Python


def test_too_little_memory_is_known():
    import torch

    error = caught(lambda: torch.empty(1 << 50))
    assert isinstance(error, OutOfMemoryError)
    assert str(error).startswith("there is not enough memory for this")
    assert error.exit_code == 1


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    error = caught(open, tmp_path / "x")
    assert (str(error), error.exit_code) == (f"{tmp_path / 'x'}: no such file or directory", 2)


@pytest.mark.parametrize("error", [DivergedError("step 3: the loss is nan"), StorageError("step 3: the disk is full")])
def test_failures_during_training_exit_with_1(backwards, monkeypatch, error):
    import regard.tasks

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(regard.tasks, "resume", fail)
    assert_refused(call("resume", backwards), "regard: step 3: the ", code=1)


def test_a_bug_keeps_its_traceback(backwards, monkeypatch):
    import regard.tasks

    monkeypatch.setattr(regard.tasks, "resume", lambda *_: {}["a bug"])
    with pytest.raises(KeyError, match="a bug"):
        call("resume", backwards)
