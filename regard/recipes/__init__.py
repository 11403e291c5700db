"""Recipes: the only place where data, model and task meet. One named experiment is one small typed object.

>>> settings_of("reverse", ["steps=10"]).steps
10
"""

from regard.recipes._captioning_settings import Captioning
from regard.recipes._parse import SettingError
from regard.recipes._recipes import RECIPES, recipe
from regard.recipes._runs import load, load_translator, read, recipe_of, resume, settings_of, train
from regard.recipes._seeing_settings import Answering, Glancing
from regard.recipes._task import Experiment, Recipe, Task
from regard.recipes.captioner import Captioner
from regard.recipes.classifier import Classifier
from regard.recipes.evaluation import evaluate
from regard.recipes.glancer import Glancer
from regard.recipes.guesser import Guesser
from regard.recipes.machine import Machine
from regard.recipes.objective import NextWord
from regard.recipes.respondent import Respondent
from regard.recipes.settings import Classification, Remembering, Translation
from regard.recipes.text_settings import Language, MaskedLanguage
from regard.recipes.translator import TooLong, Translator
from regard.recipes.writer import Writer

__all__ = [
    "RECIPES",
    "Answering",
    "Captioner",
    "Captioning",
    "Classification",
    "Classifier",
    "Experiment",
    "Glancer",
    "Glancing",
    "Guesser",
    "Language",
    "Machine",
    "MaskedLanguage",
    "NextWord",
    "Recipe",
    "Remembering",
    "Respondent",
    "SettingError",
    "Task",
    "TooLong",
    "Translation",
    "Translator",
    "Writer",
    "evaluate",
    "load",
    "load_translator",
    "read",
    "recipe",
    "recipe_of",
    "resume",
    "settings_of",
    "train",
]
