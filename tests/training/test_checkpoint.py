"""Checkpoints: complete or absent, and verified when they are read."""

import json
import os
import pickle
import resource

import pytest
import torch

from regard.errors import CheckpointCorruptError, RunFormatError, StorageError
from regard.training import checkpoint

FILES = (checkpoint.MODEL_FILE, checkpoint.TRAINING_FILE, checkpoint.STATE_FILE)


def save(folder, step, keep=3):
    model = {"weight": torch.full((3, 4), float(step)), "bias": torch.arange(4.0)}
    return checkpoint.save(
        folder, model, {"exp_avg/weight": torch.ones(3, 4)}, {"step": step, "data_position": None}, keep
    )


def test_what_is_saved_is_loaded(tmp_path):
    path = save(tmp_path, 7)
    loaded = checkpoint.load(path)
    assert loaded.step == 7
    assert loaded.state == {"step": 7, "data_position": None}
    assert torch.equal(loaded.model["weight"], torch.full((3, 4), 7.0))
    assert torch.equal(loaded.training["exp_avg/weight"], torch.ones(3, 4))
    assert json.loads((path / "state.json").read_bytes())["format"] == 2


def test_without_checkpoints_there_is_none_to_load(tmp_path):
    assert checkpoint.load_latest(tmp_path) is None
    assert checkpoint.load_latest(tmp_path / "nowhere") is None


def test_the_last_few_are_kept(tmp_path):
    for step in (0, 5, 10):
        save(tmp_path, step, keep=2)
    assert list(checkpoint.list_steps(tmp_path)) == [5, 10]


def test_a_damaged_later_checkpoint_does_not_replace_a_good_one(tmp_path):
    (save(tmp_path, 10) / checkpoint.MODEL_FILE).unlink()
    save(tmp_path, 5, keep=1)
    assert list(checkpoint.list_steps(tmp_path)) == [5]
    save(tmp_path, 5, keep=1)
    assert checkpoint.load_latest(tmp_path).step == 5


@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "longer", "folder"])
def test_a_damaged_file_is_detected_and_the_previous_checkpoint_is_used(tmp_path, file, damage):
    save(tmp_path, 1)
    path = save(tmp_path, 2) / file
    content = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes({"truncated": content[:-3], "empty": b"", "longer": content + b"x"}[damage])
    lines = []
    assert checkpoint.load_latest(tmp_path, lines.append).step == 1
    assert len(lines) == 1
    assert lines[0].startswith("checkpoint step-00000002 is skipped: ")


@pytest.mark.parametrize("file", FILES)
def test_every_flipped_bit_is_detected(tmp_path, file):
    """Every flipped bit is detected, or (a blank between tokens of JSON) changes nothing."""
    path = save(tmp_path, 2)
    before, content = checkpoint.load(path), (path / file).read_bytes()
    for place in range(0, len(content), 7):
        for bit in (1, 128):
            damaged = bytearray(content)
            damaged[place] ^= bit
            (path / file).write_bytes(damaged)
            try:
                after = checkpoint.load(path)
            except CheckpointCorruptError:
                continue
            assert file == checkpoint.STATE_FILE
            assert after.state == before.state


def test_if_all_checkpoints_are_damaged_an_error_is_raised(tmp_path):
    for step in (1, 2):
        (save(tmp_path, step) / checkpoint.MODEL_FILE).unlink()
    with pytest.raises(
        CheckpointCorruptError, match=r"no checkpoint .* can be used \(step-00000002: model.safetensors is missing"
    ):
        checkpoint.load_latest(tmp_path)


@pytest.mark.parametrize(
    ("number", "message"),
    [(1, r"was written by regard 0\.1; train it again, or use regard 0\.1$"), (3, r"has format 3, .* reads format 2")],
)
def test_other_formats_are_refused(tmp_path, monkeypatch, number, message):
    monkeypatch.setattr(checkpoint, "FORMAT", number)
    save(tmp_path, 1)
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    with pytest.raises(RunFormatError, match=message):
        checkpoint.load_latest(tmp_path)


def test_unfinished_checkpoints_are_ignored_and_removed(tmp_path):
    save(tmp_path, 1)
    unfinished = tmp_path / f"{checkpoint.TEMP_PREFIX}77"
    unfinished.mkdir()
    (unfinished / checkpoint.MODEL_FILE).write_bytes(b"half")
    assert checkpoint.load_latest(tmp_path).step == 1
    checkpoint.remove_unfinished(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]


@pytest.mark.parametrize("file", FILES)
def test_a_full_disk_is_one_sentence_and_the_old_checkpoint_remains(tmp_path, file):
    """A real limit on the size of files, reached during a write."""
    limit = (save(tmp_path, 1) / file).stat().st_size - 1
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StorageError) as error:
            save(tmp_path, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert str(error.value) == f"the checkpoint {tmp_path}/step-00000002 could not be written: file too large"
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000001"]
    assert checkpoint.load_latest(tmp_path).step == 1


def test_a_step_that_is_saved_again_never_disappears(tmp_path, monkeypatch):
    """At the end of a training a step is validated after it was saved, and saved again."""
    tensors = {"weight": torch.ones(2)}, {"exp_avg/weight": torch.ones(2)}
    path = checkpoint.save(tmp_path, *tensors, {"step": 9, "last_validated_step": 5}, keep=1)
    removed = []
    monkeypatch.setattr(checkpoint, "_remove", removed.append)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(StorageError, match="no space left"):
            checkpoint.save(tmp_path, *tensors, {"step": 9, "last_validated_step": 9}, keep=1)
    assert checkpoint.load(path).state["last_validated_step"] == 5
    checkpoint.save(tmp_path, *tensors, {"step": 9, "last_validated_step": 9}, keep=1)
    assert checkpoint.load(path).state["last_validated_step"] == 9
    assert not removed
    assert sorted(file.name for file in path.iterdir()) == sorted(FILES)


def test_a_checkpoint_is_readable_by_others(tmp_path):
    path = save(tmp_path, 1)
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    assert os.stat(path).st_mode == os.stat(fresh).st_mode, "it must not be readable by the owner only"


def test_nothing_is_unpickled(tmp_path, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a pickle was read")

    save(tmp_path, 1)
    for name in ("load", "loads", "Unpickler"):
        monkeypatch.setattr(pickle, name, refuse)
    assert checkpoint.load_latest(tmp_path).step == 1
