"""How many files of the package the common calls enter, after a warm-up: a call that crosses few files is easy to read.

The limits are upper bounds. Who moves code may lower them; a change that raises one needs a reason.
"""

import contextlib
import io
import sys
import threading
from collections import defaultdict
from pathlib import Path

import pytest
import torch

import regard

pytestmark = pytest.mark.bare  # the shape checks enter other files
ROOT = str(Path(regard.__file__).parent)
SMALL = {"max_length": 5, "batch_tokens": 256, "hidden_dim": 16, "embed_dim": 8, "num_threads": 1}


class FileRecorder:
    """Records the files of the package whose functions are called, in every thread that starts inside."""

    def __init__(self):
        self.files = defaultdict(set)
        self.is_active = False

    def __enter__(self):
        threading.setprofile(self.record)
        sys.setprofile(self.record)
        return self

    def __exit__(self, *_):
        sys.setprofile(None)
        threading.setprofile(None)

    def record(self, frame, event, argument):
        code = frame.f_code
        if self.is_active and event == "call" and code.co_filename.startswith(ROOT):
            self.files[code.co_filename[len(ROOT) + 1 :]].add(code.co_name)

    def count(self, function, warm_up=2):
        """The number of files that a call enters."""
        for _ in range(warm_up):
            function()
        self.is_active = True
        function()
        self.is_active = False
        return len(self.files)


def count_files(function):
    with FileRecorder() as recorder:
        count = recorder.count(function)
    return count, sorted(recorder.files)


def call_command(*arguments):
    from regard.cli import main

    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output), pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    assert not end.value.code, output.getvalue()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """An RNN with additive attention and greedy search."""
    from regard.tasks import train

    folder = tmp_path_factory.mktemp("files") / "run"
    train("reverse", folder, steps=2, average_last=0, monitor="loss", log=lambda line: None, **SMALL)
    return folder


def test_attend():
    query, key = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    count, files = count_files(lambda: regard.attend(query, key, key))
    assert count <= 6, files


def test_translate(run):
    count, files = count_files(lambda: call_command("translate", run, "star", "time"))
    assert count <= 31, files  # 30, and the check that of epochs and steps only one is set


def test_show(run, tmp_path):
    count, files = count_files(lambda: call_command("show", run, "star", "--out", tmp_path / "star.html"))
    assert count <= 46, files  # 45, and that check


def test_post_translate(run):
    testclient = pytest.importorskip("starlette.testclient", reason="needs fastapi and httpx")
    from regard.serving import build_app

    recorder, predictor = FileRecorder(), regard.load(run)
    with recorder, testclient.TestClient(build_app(predictor, host="testserver")) as client:  # the worker starts inside

        def post():
            assert client.post("/v1/translate", json={"inputs": ["star", "time"]}).status_code == 200

        count = recorder.count(post)
    assert count <= 20, sorted(recorder.files)


def test_training_step_of_an_rnn(tmp_path, monkeypatch):
    """From one call of `Trainer.backward` to the next, without validation and checkpoints."""
    from regard.tasks import train
    from regard.training.trainer import Trainer

    recorder, backward, counts = FileRecorder(), Trainer.backward, []
    recorder.is_active = True

    def count_step(trainer, batches):
        counts.append(len(recorder.files))
        recorder.files.clear()
        return backward(trainer, batches)

    monkeypatch.setattr(Trainer, "backward", count_step)
    with recorder:
        train("reverse", tmp_path / "run", steps=8, average_last=0, log=lambda line: None, **SMALL)
    assert min(counts[2:]) <= 25, counts  # a slow step also prints a line
