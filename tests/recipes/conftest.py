"""Fixtures that tests of recipes share. Imports stand inside: shapes are checked only in what is imported later."""

import pytest


@pytest.fixture(scope="module")
def small_vocabulary():
    """Letters are known after some hundred strings."""
    from regard.tasks.translation import data as _material

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_material, "VOCAB_SAMPLE_SIZE", 500)
        yield


@pytest.fixture
def few_scenes(monkeypatch):
    """Choose and test by some pictures only."""
    from regard.tasks.captioning import data as _material

    monkeypatch.setattr(_material, "NUM_VALID_SCENES", 12)
    monkeypatch.setattr(_material, "NUM_TEST_SCENES", 20)


@pytest.fixture(params=["additive", "luong", "hard", "transformer"])
def any_translator(request):
    from tests.recipes.letters import MODELS, translator

    return translator(*MODELS[request.param])
