"""Runs with something wrong: a file that changed, a full disk, steps that are done, invalid options."""

import errno
import json
import shutil

import pytest

from regard.data import Tokenizer
from regard.errors import CheckpointCorruptError, ConfigError, DataError, StorageError
from regard.tasks import RECIPES, resume, run_record, train
from regard.tasks.runner import resolve_config
from regard.training import RunFolder
from tests.tasks.tiny_runs import FILES, PAIRS, TINY, quiet, write_pairs

pytestmark = pytest.mark.usefixtures("small_vocabulary")


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory, small_vocabulary):
    """A run of four steps."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    train("reverse", folder, [*TINY, "steps=4"], log=quiet)
    return folder


@pytest.fixture
def run(finished_run, tmp_path):
    return shutil.copytree(finished_run, tmp_path / "run")


# -- files that changed


@pytest.mark.parametrize("which", ["train", "valid"])
@pytest.mark.parametrize("stream", ["off", "on"])
def test_resume_refuses_changed_files(tmp_path, which, stream):
    files = {name: write_pairs(tmp_path, "tsv", name) for name in ("train", "valid")}
    words = [*FILES, *(f"{name}_files={path}" for name, path in files.items()), f"streaming={stream}", "steps=2"]
    train("translation", tmp_path / "run", words, log=quiet)
    record = (tmp_path / "run" / "run.json").read_bytes()
    assert json.loads(record)["files"].keys() == set(files.values())
    write_pairs(tmp_path, "tsv", which, PAIRS[::-1])  # of the same size
    with pytest.raises(DataError) as caught:
        resume(tmp_path / "run", log=quiet, steps=4)
    assert f"{files[which]} has changed since the run began" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (tmp_path / "run" / "run.json").read_bytes() == record
    write_pairs(tmp_path, "tsv", which)
    assert resume(tmp_path / "run", log=quiet, steps=4).step == 4


def test_resume_without_recorded_files(tmp_path):
    files = write_pairs(tmp_path, "tsv")
    words = [*FILES, f"train_files={files}", f"valid_files={files}", "streaming=on", "steps=2"]
    train("translation", tmp_path / "run", words, log=quiet)
    run = RunFolder(tmp_path / "run")
    record = run.read_record()
    del record["files"]
    run.write_record(record)
    assert resume(tmp_path / "run", log=quiet, steps=3).step == 3


def test_generated_data_has_no_files(finished_run):
    assert json.loads((finished_run / "run.json").read_text())["files"] == {}


@pytest.mark.parametrize("size", [0, 5, 40, 41, 1000])
def test_a_fingerprint_covers_the_size_and_both_ends(tmp_path, monkeypatch, size):
    monkeypatch.setattr(run_record, "CHUNK_BYTES", 10)
    monkeypatch.setattr(run_record, "MAX_CHUNKS", 4)
    path = tmp_path / "a"
    path.write_bytes(bytes(size))
    fingerprints = {str(path): run_record.fingerprint_file(path)}
    run_record.check_files_unchanged(fingerprints)
    others = [bytes(size) + b"x"]
    if size:
        others += [b"x" + bytes(size - 1), bytes(size - 1) + b"x"]
    for other in others:
        path.write_bytes(other)
        with pytest.raises(DataError, match="has changed"):
            run_record.check_files_unchanged(fingerprints)


# -- a disk that is full


@pytest.mark.parametrize("place", [1, 2])
def test_a_full_disk_while_saving_tokenizers(tmp_path, monkeypatch, place):
    saved, save = [], Tokenizer.save

    def save_to_full_disk(self, path):
        saved.append(path)
        if len(saved) < place:
            return save(self, path)
        path.with_suffix(".part").write_text("{")
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "save", save_to_full_disk)
        with pytest.raises(StorageError) as caught:
            train("reverse", tmp_path / "run", TINY, log=quiet)
    assert str(caught.value).startswith(f"{tmp_path / 'run'} could not be written: no space left on device")
    assert not (tmp_path / "run").exists()
    train("reverse", tmp_path / "run", [*TINY, "steps=1"], log=quiet)


# -- resumed with other options


def test_resume_refuses_fewer_steps_than_done(run):
    before = (run / "run.json").read_bytes()
    with pytest.raises(ConfigError) as caught:
        resume(run, log=quiet, steps=3)
    assert f"invalid value '3' for steps: {run} has made 4 steps already" in str(caught.value)
    assert (run / "run.json").read_bytes() == before
    assert resume(run, log=quiet, steps=4).stop_reason == "all 4 steps are done"


def test_a_run_without_readable_checkpoints_is_not_changed(run):
    for path in run.glob("checkpoints/*/model.safetensors"):
        path.write_bytes(b"")
    before = (run / "run.json").read_bytes()
    with pytest.raises(CheckpointCorruptError, match="no checkpoint"):
        resume(run, log=quiet, steps=9)
    assert (run / "run.json").read_bytes() == before


# -- log lines


def test_the_log_of_hard_attention_shows_the_cross_entropy(tmp_path):
    lines = []
    train("reverse", tmp_path / "run", [*TINY, "normalize=sample", "steps=4"], log=lines.append)
    points = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    (point,) = [point for point in points if "nll" in point]
    assert point["loss"] != pytest.approx(point["nll"], abs=0.01), "what is trained on has more terms"
    assert any(f"loss {point['nll']:.3f}" in line for line in lines)


def test_hardmax_is_reported_as_not_trained(tmp_path):
    lines = []
    train("reverse", tmp_path / "run", [*TINY, "normalize=hardmax", "steps=1"], log=lines.append)
    assert sum("hardmax has no gradient" in line for line in lines) == 1
    resume(tmp_path / "run", log=lines.append, steps=2)
    assert sum("hardmax has no gradient" in line for line in lines) == 1


# -- configs before there is a run


@pytest.mark.parametrize("name", list(RECIPES))
def test_resolve_config_needs_no_data(name):
    config = resolve_config(name)
    assert isinstance(config, RECIPES[name].config_class)
    assert {key: getattr(config, key) for key in RECIPES[name].defaults} == dict(RECIPES[name].defaults)


@pytest.mark.parametrize(
    ("name", "words", "sentence"),
    [
        ("reverse", ["normalize=spasemax"], "did you mean sparsemax"),
        ("translation", ["score=adative"], "did you mean additive"),
        ("reverse", ["score=dot", "encoder_hidden_dim=3"], "the keys 6"),
        ("multi30k", ["data_dir=.", "language_pair=en-zh"], "invalid value 'en-zh' for language_pair"),
        ("translation", ["train_files=a.tsv"], "translation needs text to choose the best weights by"),
    ],
)
def test_resolve_config_refuses_what_train_refuses(name, words, sentence):
    with pytest.raises(ConfigError, match=sentence):
        resolve_config(name, words)


def test_resolve_config_inherits_from_another_run(finished_run):
    assert resolve_config("reverse", init_from=finished_run).tokenizer == "char"
    with pytest.raises(ConfigError, match=r"tokenizer is that of .*: char, not word"):
        resolve_config("reverse", ["tokenizer=word"], init_from=finished_run)
