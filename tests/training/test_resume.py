"""Killed at any moment, a run goes on to the same weights, bit for bit. The kills are real ones."""

import json
import os
import random
import signal
import time

import pytest
import torch

from regard.training import checkpoint, load_weights
from tests.training.toy import train

HOW = {"steps": 40, "average": 3, "accumulate": 2, "lr": 0.002}  # slow, so that the average is of use


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that nobody disturbed."""
    folder = tmp_path_factory.mktemp("whole")
    train(folder, **HOW)
    return folder


def assert_same(folder, whole):
    """All that a run leaves is what the undisturbed one left."""
    one, other = (checkpoint.load_latest(path / "checkpoints") for path in (folder, whole))
    assert one.step == other.step == 40
    for kind in ("model", "training"):
        mine, right = getattr(one, kind), getattr(other, kind)
        assert mine.keys() == right.keys()
        assert all(torch.equal(mine[name], right[name]) for name in mine)
    for name in ("best", "average"):
        mine, right = (load_weights(path / "weights" / f"{name}.safetensors") for path in (folder, whole))
        assert all(torch.equal(mine[name], right[name]) for name in right)
    keys = ("position", "tokens", "best", "best_step", "stale", "scores")
    assert [one.state[key] for key in keys] == [other.state[key] for key in keys]
    assert validations(folder) == validations(whole)
    assert not list((folder / "checkpoints").glob(".*"))
    assert not list(folder.rglob("*.tmp"))


def validations(folder):
    """The scores in the metrics, which must be there once each, in order."""
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    steps = [(point["step"], "valid" in point) for point in points]
    assert steps == sorted(set(steps))
    return [(point["step"], point["valid"]) for point in points if "valid" in point]


def kill_at_random(start, folder, chance, longest):
    child = start(folder, **HOW)
    while not (folder / ".lock").exists() and child.is_alive():
        time.sleep(0.001)
    time.sleep(chance.uniform(0, longest))
    if child.is_alive():
        os.kill(child.pid, signal.SIGKILL)
    child.join(60)


@pytest.mark.parametrize("seed", range(3))
def test_killed_at_random_moments(tmp_path, start, whole, seed):
    folder, chance = tmp_path / "run", random.Random(seed)
    for _ in range(3):
        kill_at_random(start, folder, chance, 0.4)
    train(folder, **HOW)
    assert_same(folder, whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_killed_twenty_times_at_random_moments(tmp_path, start, whole, seed):
    folder, chance = tmp_path / "run", random.Random(100 + seed)
    kill_at_random(start, folder, chance, 1.0)
    train(folder, **HOW)
    assert_same(folder, whole)


@pytest.mark.parametrize(
    "dies",
    [
        *(("fsync", calls) for calls in (1, 4, 6, 19, 31)),
        *(("half", calls) for calls in (1, 4, 18)),
        *(("rename", calls) for calls in (1, 5)),
        *(("replace", calls) for calls in (1, 4)),
        ("rmtree", 2),
    ],
    ids=lambda dies: f"{dies[0]}-{dies[1]}",
)
def test_killed_in_the_midst_of_writing(tmp_path, start, whole, dies):
    child = start(tmp_path / "run", dies, **HOW)
    child.join(60)
    assert child.exitcode == -signal.SIGKILL
    train(tmp_path / "run", **HOW)
    assert_same(tmp_path / "run", whole)


@pytest.mark.parametrize("file", [checkpoint.MODEL_FILE, checkpoint.TRAINING_FILE, checkpoint.STATE_FILE])
def test_a_truncated_checkpoint_is_passed_over(tmp_path, whole, file):
    train(tmp_path, **{**HOW, "steps": 30})
    path = tmp_path / "checkpoints" / "step-00000030" / file
    path.write_bytes(path.read_bytes()[:-1])
    said = []
    train(tmp_path, say=said.append, **HOW)
    assert said[0].startswith("checkpoint step-00000030 is passed over: ")
    assert said[1] == "resumed from step 25"
    assert_same(tmp_path, whole)


def test_terminated_politely_it_saves_first(tmp_path, start, whole):
    child = start(tmp_path / "run", **{**HOW, "steps": 100_000})
    while not (tmp_path / "run" / "checkpoints" / "step-00000005").exists():
        time.sleep(0.001)
    os.kill(child.pid, signal.SIGTERM)
    child.join(60)
    assert child.exitcode == 3
    assert "go on with: regard resume" in (tmp_path / "run" / "log.txt").read_text()
    log = (tmp_path / "run" / "log.txt").read_text().splitlines()[-1]
    assert f"stopped at step {max(checkpoint.list_steps(tmp_path / 'run' / 'checkpoints'))};" in log


def test_the_number_of_threads_is_kept(tmp_path):
    before = torch.get_num_threads()
    try:
        train(tmp_path, steps=5, threads=3)
        torch.set_num_threads(1)
        train(tmp_path, steps=10, threads=None)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
