"""Runs and files of a stranger: nothing is written outside, and nothing hangs, fills the memory or moves the cursor."""

import gzip
import json
import lzma
import os
import shutil

import pytest

from regard.errors import DataError, RegardError, RunError
from tests.fuzz.damage import memory_limit, remove_checksums
from tests.serving.servers import tiny_run

pytestmark = pytest.mark.bare
DEEP = "[" * 100_000 + "]" * 100_000
WRITTEN = ("run.json", "log.txt", "metrics.jsonl", "curve.png", ".lock", "checkpoints", "weights", "processor")


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return tiny_run(tmp_path_factory.mktemp("hostile") / "translation", tokenizer="char")


@pytest.fixture
def run(original, tmp_path):
    return shutil.copytree(original, tmp_path / "run")


def call(capsys, *arguments):
    """What a command prints: a result, or one sentence and an exit code."""
    from regard.cli import main

    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return end.value.code, out, err


# -- links


@pytest.mark.parametrize("name", WRITTEN)
def test_links_in_a_run_are_refused(run, tmp_path, name):
    from regard.tasks import load, resume

    outside = tmp_path / "outside"
    (outside if (run / name).is_dir() else outside.parent).mkdir(exist_ok=True)
    if (run / name).exists():
        shutil.move(run / name, outside)
    else:
        outside.touch()
    (run / name).symlink_to(outside)
    before = {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()}
    for use in (lambda: resume(run, log=lambda line: None, steps=4), lambda: load(run)):
        with pytest.raises(RunError, match="is a link or a device"):
            use()
    assert before == {path: path.read_bytes() for path in [outside, *outside.rglob("*")] if path.is_file()}


def test_the_run_itself_may_be_a_link(run, tmp_path):
    from regard.tasks import resume

    (tmp_path / "link").symlink_to(run)
    assert resume(tmp_path / "link", log=lambda line: None, steps=3).step == 3


# -- files without end


@pytest.mark.parametrize("name", ["run.json", "metrics.jsonl", "processor/source.json", "weights/best.safetensors"])
@pytest.mark.parametrize("command", ["info", "translate", "resume"])
def test_a_named_pipe_is_refused(run, capsys, time_limit, name, command):
    (run / name).unlink()
    os.mkfifo(run / name)
    with time_limit():
        code, _, err = call(capsys, command, run, *(["abc"] if command == "translate" else []))
    assert code == 2
    assert err.startswith("regard: ")
    assert err.count("\n") == 1


def test_a_line_of_a_small_compressed_file_may_be_larger_than_memory(tmp_path, monkeypatch):
    from regard.data import text_files

    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "a.xz"
    path.write_bytes(lzma.compress(b"a\n" + bytes([98]) * (100 << 20)))
    with memory_limit(50_000_000), pytest.raises(DataError, match=r"a\.xz, line 2: it is longer than 1,048,576 bytes"):
        list(text_files.read_lines(path))


def test_a_compressed_file_of_digits_may_be_larger_than_memory(tmp_path, monkeypatch):
    from regard.data import images

    monkeypatch.setattr(images, "MAX_IDX_BYTES", 1 << 20)
    for name in ("images-idx3", "labels-idx1"):
        header = b"\0\0\x08\x01" + (100 << 20).to_bytes(4, "big")
        (tmp_path / f"t10k-{name}-ubyte.gz").write_bytes(gzip.compress(header + bytes(100 << 20), 1))
    with memory_limit(50_000_000), pytest.raises(DataError, match="is not a complete file of MNIST"):
        images.load_mnist(tmp_path, "test")


# -- deep JSON


@pytest.mark.parametrize("name", ["run.json", "processor/processor.json", "processor/source.json"])
def test_deep_json_is_refused(run, name):
    from regard.tasks import load

    (run / name).write_text(DEEP)
    if name != "run.json":
        remove_checksums(run)
    with pytest.raises(RegardError, match=r"nested too deeply|RecursionError"):
        load(run)


def test_deep_json_in_metrics_is_left_out(run, capsys):
    points = (run / "metrics.jsonl").read_bytes()
    (run / "metrics.jsonl").write_bytes(DEEP.encode() + b'\n{"step": "x", "tokens_per_second": "y"}\n' + points)
    assert call(capsys, "info", run)[0] == 0


def test_deep_json_in_a_checkpoint_and_in_weights_is_refused(run):
    import safetensors.torch
    import torch

    from regard.training import checkpoint, load_weights

    path = run / "weights" / "best.safetensors"
    for shared in (DEEP, '{"a": ["b"]}', "[]", "1"):
        safetensors.torch.save_file({"b": torch.ones(1)}, path, {"shared": shared})
        with pytest.raises(RegardError, match="damaged or not a safetensors file"):
            load_weights(path)
    for path in run.glob("checkpoints/*/state.json"):
        path.write_text(DEEP)
    with pytest.raises(RegardError, match=r"no checkpoint .* can be used"):
        checkpoint.load_latest(run / "checkpoints")


# -- control characters


def test_control_characters_of_a_run_are_escaped(run, capsys):
    remove_checksums(run)
    record = json.loads((run / "run.json").read_text())
    hostile = "\x1b]0;title\x07\x1b[2J\r"
    record |= {"regard_version": hostile, "processor": {hostile: hostile}}
    (run / "run.json").write_text(json.dumps(record))
    code, out, _ = call(capsys, "info", run)
    assert code == 0
    assert "\\x1b]0;title" in out
    assert not set(out) & set("\x1b\x07\r")
    (run / "run.json").write_text(json.dumps({**record, "recipe": hostile}))
    code, _, err = call(capsys, "evaluate", run)
    assert code == 2
    assert "\\x1b" in err or "'" in err
    assert not set(err) & set("\x1b\x07\r")


def test_control_characters_of_a_vocabulary_are_escaped_in_a_terminal(run, capsys, monkeypatch):
    import sys

    from regard.data import Tokenizer

    remove_checksums(run)
    saved = json.loads((run / "processor" / "target.json").read_text())
    tokens = saved["tokens"]
    saved["tokens"] = [*tokens[:4], *(f"\x1b]{token}\x07" for token in tokens[4:])]
    (run / "processor" / "target.json").write_text(json.dumps(saved))
    assert Tokenizer.load(run / "processor" / "target.json").decode([4, 5]).count("\x1b") == 2
    for is_terminal in (True, False):
        monkeypatch.setattr(sys.stdout, "isatty", lambda is_terminal=is_terminal: is_terminal)
        code, out, _ = call(capsys, "translate", run, "abc def")
        assert code == 0
        assert ("\x1b" in out) is not is_terminal
