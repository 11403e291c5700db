"""Fixtures that tests of recipes share. Imports stand inside: shapes are checked only in what is imported later."""

import pytest


@pytest.fixture(params=["additive", "luong", "hard", "transformer"])
def any_translator(request):
    from tests.recipes.letters import MODELS, translator

    return translator(*MODELS[request.param])
