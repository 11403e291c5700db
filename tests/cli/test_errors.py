"""Which errors become a sentence, and which keep their traceback."""

import pytest

from regard.cli._errors import in_words
from tests.cli.calls import call, refused


def caught(function, *arguments):
    try:
        function(*arguments)
    except Exception as error:
        return in_words(error)
    raise AssertionError("nothing was raised")


def test_what_regard_says_is_a_sentence():
    from regard.decoding import Decoding
    from regard.training import Run

    assert caught(lambda: Decoding(beam=0)) == ("Decoding: beam must be 1 or more, not 0.", 2)
    sentence, code = caught(Run.open, "nowhere")
    assert sentence.startswith("there is no run in nowhere")
    assert code == 2


def test_what_python_and_torch_say_is_our_bug():
    import torch

    from regard.decoding import aer

    assert caught(lambda: {}["key"]) is None
    assert caught(lambda: int("x")) is None
    assert caught(lambda: torch.zeros(2) @ torch.zeros(3)) is None
    assert caught(aer, [1], [2], [3]) is None  # a TypeError in regard's own code, but raised by Python


def test_too_little_memory_is_told_in_words():
    import torch

    sentence, code = caught(lambda: torch.empty(1 << 50))
    assert sentence.startswith("there is not enough memory for this")
    assert code == 1


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    assert caught(open, tmp_path / "x") == (f"{tmp_path / 'x'}: no such file or directory", 2)


@pytest.mark.parametrize("kind", ["Diverged", "CannotWrite"])
def test_what_goes_wrong_on_the_way_is_another_code(backwards, monkeypatch, kind):
    import regard.recipes
    from regard import training

    arguments = ("step 3: the loss is nan",) if kind == "Diverged" else (28, "step 3: the disk is full")
    error = getattr(training, kind)(*arguments)
    code = compile("def fail(*_, **__): raise error", "resume.py", "exec")
    names = {"__name__": "regard.training.engine", "error": error}
    exec(code, names)
    monkeypatch.setattr(regard.recipes, "resume", names["fail"])
    refused(call("resume", backwards), "regard: step 3: the ", code=1)


def test_a_bug_keeps_its_traceback(backwards, monkeypatch):
    import regard.recipes

    monkeypatch.setattr(regard.recipes, "resume", lambda *_: {}["a bug"])
    with pytest.raises(KeyError, match="a bug"):
        call("resume", backwards)
