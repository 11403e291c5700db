"""A run killed at any moment is resumed to the same weights, bit for bit. The kills are real."""

import json
import os
import random
import signal
import time

import pytest
import torch

from regard.training import checkpoint, load_weights
from tests.training.toy import train

OPTIONS = {"steps": 40, "average_last": 3, "grad_accumulation": 2, "lr": 0.002}  # slow, so that the average is used


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """A run that was never interrupted."""
    folder = tmp_path_factory.mktemp("uninterrupted")
    train(folder, **OPTIONS)
    return folder


def assert_same(folder, uninterrupted):
    """The run has the same files as the uninterrupted one."""
    first, second = (checkpoint.load_latest(path / "checkpoints") for path in (folder, uninterrupted))
    assert first.step == second.step == 40
    for part in ("model", "training"):
        tensors, expected = getattr(first, part), getattr(second, part)
        assert tensors.keys() == expected.keys()
        assert all(torch.equal(tensors[name], expected[name]) for name in tensors)
    for name in ("best", "average"):
        tensors, expected = (load_weights(path / "weights" / f"{name}.safetensors") for path in (folder, uninterrupted))
        assert all(torch.equal(tensors[name], expected[name]) for name in expected)
    keys = ("data_position", "tokens", "best", "best_step", "validations_since_best", "scores")
    assert [first.state[key] for key in keys] == [second.state[key] for key in keys]
    assert validations(folder) == validations(uninterrupted)
    assert not list((folder / "checkpoints").glob(".*"))
    assert not list(folder.rglob("*.tmp"))


def validations(folder):
    """The scores in the metrics, which must be there once each, in order."""
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [(point["step"], "valid" in point) for point in points]
    assert steps == sorted(set(steps))
    return [(point["step"], point["valid"]) for point in points if "valid" in point]


def kill_at_random(start, folder, random, longest):
    child = start(folder, **OPTIONS)
    while not (folder / ".lock").exists() and child.is_alive():
        time.sleep(0.001)
    time.sleep(random.uniform(0, longest))
    if child.is_alive():
        os.kill(child.pid, signal.SIGKILL)
    child.join(60)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(tmp_path, start, uninterrupted, seed):
    folder, generator = tmp_path / "run", random.Random(seed)
    for _ in range(3):
        kill_at_random(start, folder, generator, 0.4)
    train(folder, **OPTIONS)
    assert_same(folder, uninterrupted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_killed_twenty_times_at_random_moments(tmp_path, start, uninterrupted, seed):
    folder, generator = tmp_path / "run", random.Random(100 + seed)
    kill_at_random(start, folder, generator, 1.0)
    train(folder, **OPTIONS)
    assert_same(folder, uninterrupted)


@pytest.mark.parametrize(
    "kill_at",
    [
        *(("fsync", calls) for calls in (1, 4, 6, 19, 31)),
        *(("half", calls) for calls in (1, 4, 18)),
        *(("replace", calls) for calls in (1, 2, 4, 6, 9)),
        ("rmtree", 2),
    ],
    ids=lambda kill_at: f"{kill_at[0]}-{kill_at[1]}",
)
def test_killed_while_writing(tmp_path, start, uninterrupted, kill_at):
    child = start(tmp_path / "run", kill_at, **OPTIONS)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    train(tmp_path / "run", **OPTIONS)
    assert_same(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("file", [checkpoint.MODEL_FILE, checkpoint.TRAINING_FILE, checkpoint.STATE_FILE])
def test_a_truncated_checkpoint_is_skipped(tmp_path, uninterrupted, file):
    train(tmp_path, **{**OPTIONS, "steps": 30})
    path = tmp_path / "checkpoints" / "step-00000030" / file
    path.write_bytes(path.read_bytes()[:-1])
    lines = []
    train(tmp_path, log=lines.append, **OPTIONS)
    assert lines[0].startswith("checkpoint step-00000030 is skipped: ")
    assert lines[1] == "resumed from step 25"
    assert_same(tmp_path, uninterrupted)


def test_sigterm_saves_a_checkpoint(tmp_path, start, uninterrupted):
    child = start(tmp_path / "run", **{**OPTIONS, "steps": 100_000})
    while not (tmp_path / "run" / "checkpoints" / "step-00000005").exists():
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGTERM)
    child.join(60)
    assert child.exitcode == 3
    assert "resume with: regard resume" in (tmp_path / "run" / "log.txt").read_text()
    log = (tmp_path / "run" / "log.txt").read_text().splitlines()[-1]
    assert f"stopped at step {max(checkpoint.list_steps(tmp_path / 'run' / 'checkpoints'))};" in log


def test_the_number_of_threads_is_restored(tmp_path):
    before = torch.get_num_threads()
    try:
        train(tmp_path, steps=5, num_threads=3)
        torch.set_num_threads(1)
        train(tmp_path, steps=10, num_threads=None)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


def test_another_number_of_processes_is_reported(tmp_path):
    train(tmp_path, steps=5)
    path = tmp_path / "checkpoints" / "step-00000005"
    state = {**checkpoint.load(path).state, "processes": 2}
    checkpoint.save(path.parent, checkpoint.load(path).model, checkpoint.load(path).training, state)
    lines = []
    train(tmp_path, log=lines.append, steps=10)
    assert any("had 2 processes and has 1 now" in line for line in lines)
    lines.clear()
    train(tmp_path, log=lines.append, steps=15)
    assert not any("processes" in line for line in lines)
