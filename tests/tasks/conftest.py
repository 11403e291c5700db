"""Fixtures that tests of tasks share. Imports stand inside: shapes are checked only in what is imported later."""

import pytest


@pytest.fixture
def few_scenes(monkeypatch):
    """Validate and test with some scenes only."""
    from regard.tasks import grid

    monkeypatch.setattr(grid, "NUM_VALID_SCENES", 12)
    monkeypatch.setattr(grid, "NUM_TEST_SCENES", 20)


@pytest.fixture(params=["additive", "luong", "hard", "transformer"])
def any_translator(request):
    from tests.tasks.letters import MODELS, translator

    return translator(*MODELS[request.param])
