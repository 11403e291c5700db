"""Recipes: the only place where data, model and task meet. One named experiment is one small typed object.

>>> settings_of("reverse", ["steps=10"]).steps
10
"""

from regard.recipes._recipes import RECIPES, recipe
from regard.recipes._runs import load, load_translator, read, recipe_of, resume, settings_of, train
from regard.recipes._task import Experiment, Recipe, Task
from regard.recipes.captions.captioner import Captioner
from regard.recipes.captions.settings import Captioning
from regard.recipes.documents.classifier import Classifier
from regard.recipes.documents.settings import Classification
from regard.recipes.machines.machine import Machine
from regard.recipes.machines.settings import Remembering
from regard.recipes.sights.glancer import Glancer
from regard.recipes.sights.respondent import Respondent
from regard.recipes.sights.settings import Answering, Glancing
from regard.recipes.texts.guesser import Guesser
from regard.recipes.texts.settings import Language, MaskedLanguage
from regard.recipes.texts.writer import Writer
from regard.recipes.translation.evaluation import evaluate
from regard.recipes.translation.objective import NextWord
from regard.recipes.translation.settings import Translation
from regard.recipes.translation.translator import Translator

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
    "Task",
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
