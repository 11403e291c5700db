"""The recipes of all kinds by name: each is a task, data for it, and the settings that go with them."""

from __future__ import annotations

from regard.errors import UnknownNameError
from regard.tasks.algorithms import recipes as machines
from regard.tasks.captioning import recipes as captions
from regard.tasks.language_modeling import recipes as texts
from regard.tasks.task import Recipe
from regard.tasks.text_classification import recipes as documents
from regard.tasks.translation import recipes as translation
from regard.tasks.vision import recipes as sights

TASKS = (translation, machines, documents, texts, captions, sights)


RECIPES = {recipe.name: recipe for kind in TASKS for recipe in kind.RECIPES}


def get_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise UnknownNameError.among("recipe", name, RECIPES)
    return RECIPES[name]
