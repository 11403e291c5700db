"""Fixtures of the tests of tasks. Imports are inside: shapes are checked only in modules that are imported later."""

import pytest


@pytest.fixture(params=["additive", "luong", "hard", "transformer"])
def any_translator(request):
    from tests.recipes.letters import MODELS, translator

    return translator(*MODELS[request.param])
