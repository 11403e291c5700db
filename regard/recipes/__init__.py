"""Recipes: the only place where data, model and task meet. One named experiment is one small typed object.

>>> settings_of("reverse", ["steps=10"]).steps
10
"""

from regard.recipes._parse import SettingError
from regard.recipes._recipes import RECIPES, recipe
from regard.recipes._runs import load, load_translator, read, resume, settings_of, train
from regard.recipes._task import Experiment, Recipe, Task
from regard.recipes.classifier import Classifier
from regard.recipes.evaluation import evaluate
from regard.recipes.machine import Machine
from regard.recipes.objective import NextWord
from regard.recipes.settings import Classification, Remembering, Translation
from regard.recipes.translator import TooLong, Translator

__all__ = [
    "RECIPES",
    "Classification",
    "Classifier",
    "Experiment",
    "Machine",
    "NextWord",
    "Recipe",
    "Remembering",
    "SettingError",
    "Task",
    "TooLong",
    "Translation",
    "Translator",
    "evaluate",
    "load",
    "load_translator",
    "read",
    "recipe",
    "resume",
    "settings_of",
    "train",
]
