"""Two real processes under torchrun: what they compute together, and what happens when one dies."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from regard.training import checkpoint
from tests.training import toy

ROOT = Path(__file__).parents[2]
HOW = ("dropout=0", "most=4", "steps=50")  # batches of one to three rows: some processes get none


def torchrun(folder, *given, restarts=0):
    return started(toy.__file__, str(folder), *given, restarts=restarts)


def started(*what, restarts=0):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [f"--max-restarts={restarts}", "--monitor-interval=0.1", *what]
    paths = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env={**os.environ, **paths}, stderr=subprocess.PIPE, text=True)


def weights(folder):
    found = checkpoint.load_latest(folder / "checkpoints")
    return {name: tensor for name, tensor in found.model.items() if tensor.is_floating_point()}


def losses(folder):
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [point["valid"]["loss"] if "valid" in point else point["loss"] for point in points]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A run of two processes that nobody disturbed."""
    folder = tmp_path_factory.mktemp("two") / "run"
    process = torchrun(folder, *HOW)
    said = _end(process)
    assert process.returncode == 0, said
    assert said.count("done: all 50 steps are done") == 1, "only the first speaks"
    assert "find_unused_parameters" not in said
    return folder


def test_two_processes_equal_one(tmp_path, two):
    toy.train(tmp_path, toy.objective(dropout=0.0), most=4, steps=50)
    one, other = weights(tmp_path), weights(two)
    assert one.keys() == other.keys()
    assert max(float((one[name] - other[name]).abs().max()) for name in one) < 1e-5
    assert losses(tmp_path) == pytest.approx(losses(two), rel=1e-4)


TRANSLATOR = [
    "model=transformer",
    "dim=16",
    "num_heads=2",
    "num_layers=1",
    "dropout=0",
    "max_length=5",
    "batch_tokens=100",
]
TRANSLATOR += ["steps=50", "warmup_steps=5", "monitor=loss", "num_threads=1", "device=cpu"]


def test_two_processes_train_the_transformer_of_one(tmp_path):
    """The whole state: also the biases of keys, whose gradient is nothing but rounding."""
    from regard.tasks import train

    process = started("-m", "regard", "train", "reverse", *TRANSLATOR, "--out", str(tmp_path / "two"))
    said = _end(process)
    assert process.returncode == 0, said
    train("reverse", tmp_path / "one", TRANSLATOR, log=toy.silent)
    one, other = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert one.keys() == other.keys()
    apart = {name: float((one[name] - other[name]).abs().max()) for name in one}
    assert max(apart.values()) < 1e-5, {name: far for name, far in apart.items() if far >= 1e-5}


@pytest.mark.slow
def test_a_killed_worker_is_restarted_from_the_last_checkpoint(tmp_path, two):
    folder = tmp_path / "run"
    process = torchrun(folder, *HOW, restarts=3)
    _until(folder / "checkpoints" / "step-00000015", process)
    os.kill(_second(process.pid), signal.SIGKILL)
    said = _end(process)
    assert process.returncode == 0, said
    assert "resumed from step" in said
    one, other = weights(folder), weights(two)
    assert all(torch.equal(one[name], other[name]) for name in other)


@pytest.mark.slow
def test_ctrl_c_stops_all_at_the_same_step(tmp_path):
    """It comes twice to each process: from the terminal, and from torchrun."""
    folder = tmp_path / "run"
    process = torchrun(folder, *HOW, "steps=100000")
    _until(folder / "checkpoints" / "step-00000015", process)
    os.kill(_second(process.pid), signal.SIGINT)
    os.kill(process.pid, signal.SIGINT)
    said = _end(process)
    last = max(checkpoint.list_steps(folder / "checkpoints"))
    assert f"stopped at step {last:,}; go on with: regard resume {folder}" in said


def _until(path, process):
    while not path.exists():
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.005)


def _end(process):
    try:
        return process.communicate(timeout=100)[1]
    finally:
        process.terminate()
        process.wait(60)


def _second(parent):
    """The process with rank 1 among the children of torchrun."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            mine = int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if mine and b"RANK=1\0" in (path / "environ").read_bytes().replace(b"LOCAL_RANK", b"LOCAL"):
                return int(path.name)
        except OSError:
            continue
    raise LookupError("there is no process with rank 1")
