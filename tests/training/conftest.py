"""Processes that can be killed, and that start without importing torch again."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path():
    """A folder in memory if possible: runs sync to the disk, and tests need not wait for it."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _no_plots(monkeypatch, request):
    """A plot takes as long as a training here; one test needs it."""
    from regard.training import logging

    if "plot" not in request.node.name:
        monkeypatch.setattr(logging, "plot_curve", lambda *args: False)


@pytest.fixture(scope="session")
def start():
    """Start a training in a process of its own: start(folder, steps=30) or start(folder, kill_at=("fsync", 5))."""
    from tests.training import toy  # not before the shape checks are installed

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.toy", "torch._dynamo"])  # which optimizers need
    started = []

    def start(folder, kill_at=None, **options):
        process = context.Process(target=toy.train_and_exit, args=(str(folder), options, kill_at))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()
