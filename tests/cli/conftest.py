"""One small run for all tests of the command line: it writes up to four letters backwards, and hardly errs."""

import json
import lzma

import pytest

from tests.cli.calls import run

TINY = ["tokenizer=char", "hidden_dim=8", "monitor=loss", "average_last=0", "beam_size=1"]
SMALL = ["max_length=4", "hidden_dim=48", "embed_dim=16", "batch_tokens=800", "warmup_steps=20", "lr=0.02", "dropout=0"]


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """What `regard train` answered, and where the run is."""
    folder = tmp_path_factory.mktemp("runs") / "backwards"
    words = [*SMALL, "steps=150", "validate_every=50", "save_every=50", "average_last=2"]
    answer = run("train", "reverse", *words, "--out", str(folder), "--json")
    assert answer.returncode == 0, answer.stderr
    return folder, json.loads(answer.stdout), answer.stderr


@pytest.fixture
def texts(tmp_path):
    """Parallel text: a packed pair of files with empty lines, and a .tsv."""
    lines = ["ab", "bca", "", "c"] * 5
    with lzma.open(tmp_path / "a.x.xz", "wt", encoding="utf-8") as file:
        file.write("".join(f"{line}\n" for line in lines))
    (tmp_path / "a.y").write_text("".join(f"{line[::-1]}\n" for line in lines), encoding="utf-8")
    (tmp_path / "b.tsv").write_text("ab\tba\nabc\tcba\n", encoding="utf-8")
    return tmp_path


@pytest.fixture(scope="session")
def backwards(trained):
    """The folder of the run."""
    return trained[0]
