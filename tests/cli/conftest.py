"""One small run for all tests of the command line: it writes up to four letters backwards, and hardly errs."""

import json

import pytest

from tests.cli.calls import run

SMALL = ["max_length=4", "dim=48", "embed_dim=16", "batch_tokens=800", "warmup=20", "lr=0.02", "dropout=0"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """What `regard train` answered, and where the run is."""
    folder = tmp_path_factory.mktemp("runs") / "backwards"
    words = [*SMALL, "steps=150", "validate_every=50", "save_every=50", "average=2"]
    answer = run("train", "reverse", *words, "--out", str(folder), "--json")
    assert answer.returncode == 0, answer.stderr
    return folder, json.loads(answer.stdout), answer.stderr


@pytest.fixture(scope="session")
def backwards(trained):
    """The folder of the run."""
    return trained[0]
