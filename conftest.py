"""Fixtures and options shared by all tests and doctests.

Shapes. The package is imported through an import hook (tests/shape_checks.py), so that beartype checks the shapes and
types of every call against its signature. torch.compile cannot trace through the hook, and the hook refuses a wrong
shape before regard's own check does. Tests of torch.compile and of error messages are therefore marked
``@pytest.mark.bare`` and run in a second pass, without the hook:

    pytest                        all tests except the bare ones, with shape checks
    pytest -m "bare and not slow" the bare tests
    REGARD_SHAPES=0 pytest        all tests, without shape checks

`make test` runs the first two.

Examples. Docstrings may use `torch` and the public names of `regard.attention` without an import.

Randomness. The seed is set before each test; hypothesis draws the same examples in every run.
"""

import gc
import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import torch

from tests import shape_checks

HAS_GPU = torch.cuda.is_available() or torch.backends.mps.is_available()

hypothesis.settings.register_profile("regard", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("regard")


def _selects_bare_tests(config: pytest.Config) -> bool:
    return "bare" in (config.option.markexpr or "").replace("not bare", "")


def _shapes_are_checked(config: pytest.Config) -> bool:
    setting = os.environ.get("REGARD_SHAPES")
    if setting is not None:
        return setting != "0"
    return not _selects_bare_tests(config)


def pytest_configure(config: pytest.Config) -> None:
    if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores, so each takes one, as do their processes
        torch.set_num_threads(1)
        os.environ.setdefault("OMP_NUM_THREADS", "1")
    if _shapes_are_checked(config):
        if "regard" in sys.modules:
            raise pytest.UsageError("regard was imported before its shapes could be checked: by a conftest.py?")
        shape_checks.install("regard")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector, and never let it visit what was imported: a full pass takes a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Whether to skip a file: the pass of the bare tests need not import the files that have none."""
    if _selects_bare_tests(config) and collection_path.suffix == ".py":
        return "bare" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not HAS_GPU:
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no GPU here"))
    if _shapes_are_checked(config):
        bare = [item for item in items if item.get_closest_marker("bare")]
        items[:] = [item for item in items if not item.get_closest_marker("bare")]
        config.hook.pytest_deselected(items=bare)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if _shapes_are_checked(config):
        terminalreporter.write_line('shapes were checked; `pytest -m "bare and not slow"` runs the bare tests')


@pytest.fixture(autouse=True)
def _seed() -> None:
    if HAS_GPU:
        torch.manual_seed(0)
    else:  # torch.manual_seed also formats the stack for each kind of device that is not there
        torch.default_generator.manual_seed(0)


@pytest.fixture(autouse=True)
def _names_of_examples(request: pytest.FixtureRequest, doctest_namespace: dict[str, Any]) -> None:
    if isinstance(request.node, pytest.DoctestItem):
        from regard import attention

        public = {name: getattr(attention, name) for name in attention.__all__}
        doctest_namespace.update(public, torch=torch)
