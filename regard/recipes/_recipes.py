"""The recipes of all kinds by name: each is a task, data for it, and the settings that go with them."""

from __future__ import annotations

from regard.errors import UnknownNameError
from regard.recipes._task import Recipe
from regard.recipes.captions import _recipes as captions
from regard.recipes.documents import _recipes as documents
from regard.recipes.machines import _recipes as machines
from regard.recipes.sights import _recipes as sights
from regard.recipes.texts import _recipes as texts
from regard.recipes.translation import _recipes as translation

KINDS = (translation, machines, documents, texts, captions, sights)
RECIPES = {recipe.name: recipe for kind in KINDS for recipe in kind.RECIPES}


def recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise UnknownNameError.among("recipe", name, RECIPES)
    return RECIPES[name]
