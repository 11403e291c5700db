"""Processes that can be killed, and started without importing torch anew each time."""

import multiprocessing
import os
import tempfile
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path():
    """A folder in memory where there is one: runs wait for the disk, and a killed process does not need that."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.path.isdir("/dev/shm") else None) as folder:
        yield Path(folder)


@pytest.fixture(autouse=True)
def _no_pictures(monkeypatch, request):
    """A picture takes as long as a whole training here; one test asks for it."""
    from regard.training import logging as report

    if "picture" not in request.node.name:
        monkeypatch.setattr(report, "draw_curve", lambda *args: False)


@pytest.fixture(scope="session")
def start():
    """Start a training in a process of its own: start(folder, steps=30) or start(folder, dies=("fsync", 5))."""
    from tests.training import toy  # not before the shape checks are installed

    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.training.toy"])
    started = []

    def start(folder, dies=None, **given):
        process = context.Process(target=toy.trained, args=(str(folder), given, dies))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.join()
