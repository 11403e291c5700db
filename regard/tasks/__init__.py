"""Recipes: the only place where data, model and task meet. One named experiment is one small typed object.

>>> make_config("reverse", ["steps=10"]).steps
10
"""

from regard.tasks.algorithms.config import AlgorithmConfig
from regard.tasks.algorithms.predictor import AlgorithmPredictor
from regard.tasks.captioning.config import CaptioningConfig
from regard.tasks.captioning.predictor import ImageCaptioner
from regard.tasks.language_modeling.config import FillMaskConfig, TextGenerationConfig
from regard.tasks.language_modeling.predictor import FillMask, TextGenerator
from regard.tasks.registry import RECIPES, get_recipe
from regard.tasks.runner import load, load_translator, make_config, read_record, recipe_name, resume, train
from regard.tasks.sequence_loss import NextTokenLoss
from regard.tasks.task import Experiment, Recipe, Task
from regard.tasks.text_classification.config import TextClassificationConfig
from regard.tasks.text_classification.predictor import TextClassifier
from regard.tasks.translation.config import TranslationConfig
from regard.tasks.translation.evaluation import evaluate
from regard.tasks.translation.predictor import Translator
from regard.tasks.vision.config import ImageClassificationConfig, VisualQAConfig
from regard.tasks.vision.predictor import ImageClassifier, VisualQA

__all__ = [
    "RECIPES",
    "AlgorithmConfig",
    "AlgorithmPredictor",
    "CaptioningConfig",
    "Experiment",
    "FillMask",
    "FillMaskConfig",
    "ImageCaptioner",
    "ImageClassificationConfig",
    "ImageClassifier",
    "NextTokenLoss",
    "Recipe",
    "Task",
    "TextClassificationConfig",
    "TextClassifier",
    "TextGenerationConfig",
    "TextGenerator",
    "TranslationConfig",
    "Translator",
    "VisualQA",
    "VisualQAConfig",
    "evaluate",
    "get_recipe",
    "load",
    "load_translator",
    "make_config",
    "read_record",
    "recipe_name",
    "resume",
    "train",
]
