"""Two real processes under torchrun: equal results, restarts and signals."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from regard.training import checkpoint
from tests.training import distributed_loader, toy

ROOT = Path(__file__).parents[2]
OPTIONS = ("dropout=0", "max_rows=4", "steps=50")  # batches of one to three rows: some processes get none


def torchrun(folder, *options, restarts=0):
    return launch(toy.__file__, str(folder), *options, restarts=restarts)


def launch(*arguments, restarts=0):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += [f"--max-restarts={restarts}", "--monitor-interval=0.1", *arguments]
    paths = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env={**os.environ, **paths}, stderr=subprocess.PIPE, text=True)


def weights(folder):
    latest = checkpoint.load_latest(folder / "checkpoints")
    return {name: tensor for name, tensor in latest.model.items() if tensor.is_floating_point()}


def losses(folder):
    points = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [point["valid"]["loss"] if "valid" in point else point["loss"] for point in points]


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """An uninterrupted run of two processes."""
    folder = tmp_path_factory.mktemp("two") / "run"
    process = torchrun(folder, *OPTIONS)
    output = _end(process)
    assert process.returncode == 0, output
    assert output.count("done: all 50 steps are done") == 1, "only the main process prints"
    assert "find_unused_parameters" not in output
    return folder


def test_two_processes_equal_one(tmp_path, two):
    toy.train(tmp_path, toy.make_model(dropout=0.0), max_rows=4, steps=50)
    first, second = weights(tmp_path), weights(two)
    assert first.keys() == second.keys()
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-5
    assert losses(tmp_path) == pytest.approx(losses(two), rel=1e-4)


TRANSLATOR = [
    "model=transformer",
    "hidden_dim=16",
    "num_heads=2",
    "num_layers=1",
    "dropout=0",
    "max_length=5",
    "batch_tokens=100",
]
TRANSLATOR += ["steps=50", "warmup_steps=5", "monitor=loss", "num_threads=1", "device=cpu"]


def test_two_processes_train_the_transformer_of_one(tmp_path):
    """All weights: also the biases of keys, whose gradient is only rounding."""
    from regard.tasks import train

    process = launch("-m", "regard", "train", "reverse", *TRANSLATOR, "--out", str(tmp_path / "two"))
    output = _end(process)
    assert process.returncode == 0, output
    train("reverse", tmp_path / "one", TRANSLATOR, log=toy.ignore)
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert first.keys() == second.keys()
    differences = {name: float((first[name] - second[name]).abs().max()) for name in first}
    assert max(differences.values()) < 1e-5, {name: value for name, value in differences.items() if value >= 1e-5}


@pytest.mark.slow
def test_a_killed_worker_is_restarted_from_the_last_checkpoint(tmp_path, two):
    folder = tmp_path / "run"
    process = torchrun(folder, *OPTIONS, restarts=3)
    _until(folder / "checkpoints" / "step-00000015", process)
    os.kill(_second(process.pid), signal.SIGKILL)
    output = _end(process)
    assert process.returncode == 0, output
    assert "resumed from step" in output
    first, second = weights(folder), weights(two)
    assert all(torch.equal(first[name], second[name]) for name in second)


def test_a_process_without_its_peer_says_so_in_one_sentence(tmp_path):
    folder = tmp_path / "run"
    options = [*TRANSLATOR, "steps=100000", "save_every=5", "--out", str(folder)]
    process = launch("-m", "regard", "train", "reverse", *options)
    _until(folder / "checkpoints" / "step-00000005", process)
    os.kill(_second(process.pid), signal.SIGKILL)
    output = _end(process)
    assert output.count("regard: another process of the training has ended") <= 1, "torchrun may end it first"
    assert "RuntimeError" not in output
    assert output.count("Traceback") <= 1, "that of torchrun"


def test_a_run_of_two_processes_says_that_it_is_resumed_by_one(tmp_path, two):
    folder, lines = shutil.copytree(two, tmp_path / "run"), []
    toy.train(folder, toy.make_model(dropout=0.0), max_rows=4, steps=60, log=lines.append)
    assert any("had 2 processes and has 1 now" in line for line in lines)


@pytest.mark.slow
def test_ctrl_c_stops_all_processes_at_the_same_step(tmp_path):
    """It comes twice to each process: from the terminal, and from torchrun."""
    folder = tmp_path / "run"
    process = torchrun(folder, *OPTIONS, "steps=100000")
    _until(folder / "checkpoints" / "step-00000015", process)
    os.kill(_second(process.pid), signal.SIGINT)
    os.kill(process.pid, signal.SIGINT)
    output = _end(process)
    last = max(checkpoint.list_steps(folder / "checkpoints"))
    assert f"stopped at step {last:,}; resume with: regard resume {folder}" in output


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
            is_child = int((path / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            if is_child and b"RANK=1\0" in (path / "environ").read_bytes().replace(b"LOCAL_RANK", b"LOCAL"):
                return int(path.name)
        except OSError:
            continue
    raise LookupError("there is no process with rank 1")


def test_two_processes_with_a_distributed_sampler_equal_one_with_larger_batches(tmp_path):
    process = launch(distributed_loader.__file__, str(tmp_path / "two"), "sampler")
    output = _end(process)
    assert "ended at step 18: all 18 steps are done" in output
    distributed_loader.train(tmp_path / "one", 4)
    first, second = weights(tmp_path / "one"), weights(tmp_path / "two")
    assert max(float((first[name] - second[name]).abs().max()) for name in first) < 1e-5


def test_a_callback_of_one_process_ends_the_training_of_all(tmp_path):
    output = _end(launch(distributed_loader.__file__, str(tmp_path), "sampler", "stop"))
    assert "ended at step 5: a callback of another process requested it" in output


def test_batches_that_cannot_be_divided_are_refused(tmp_path):
    output = _end(launch(distributed_loader.__file__, str(tmp_path), "none"))
    assert "a list cannot be divided among 2 processes; give the DataLoader a DistributedSampler" in output
