"""Tasks: what is trained on which data, and what a trained model can do.

    train("reverse", "runs/reverse")        a recipe -> the folder of a run
    predictor = load("runs/reverse")        a run -> a predictor

Importing the package does not import torch: a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.tasks.abilities import Alignable, Scorable, ScoredTarget, Tokenizable
    from regard.tasks.algorithms.config import AlgorithmConfig
    from regard.tasks.algorithms.predictor import AlgorithmPredictor
    from regard.tasks.captioning.config import CaptioningConfig
    from regard.tasks.captioning.predictor import ImageCaptioner
    from regard.tasks.language_modeling.config import FillMaskConfig, TextGenerationConfig
    from regard.tasks.language_modeling.predictor import FillMask, TextGenerator
    from regard.tasks.loading import load, recipe_name
    from regard.tasks.predictor import AttentionMap, Explanation, InputField, Metric, Prediction, Predictor, Report
    from regard.tasks.registry import (
        RECIPES,
        TASKS,
        Recipe,
        TaskEntry,
        get_options,
        get_recipe,
        get_task,
        list_verbs,
        make_config,
    )
    from regard.tasks.run_record import read_record
    from regard.tasks.runner import resume, train
    from regard.tasks.sequence_loss import NextTokenLoss
    from regard.tasks.task import DataSplits, LazyExamples, Processor, Task
    from regard.tasks.text_classification.config import TextClassificationConfig
    from regard.tasks.text_classification.predictor import TextClassifier
    from regard.tasks.translation.config import TranslationConfig
    from regard.tasks.translation.evaluation import evaluate
    from regard.tasks.translation.predictor import Translator
    from regard.tasks.vision.config import ImageClassificationConfig, VisualQAConfig
    from regard.tasks.vision.predictor import ImageClassifier, VisualQA

__all__ = [
    "RECIPES",
    "TASKS",
    "AlgorithmConfig",
    "AlgorithmPredictor",
    "Alignable",
    "AttentionMap",
    "CaptioningConfig",
    "DataSplits",
    "Explanation",
    "FillMask",
    "FillMaskConfig",
    "ImageCaptioner",
    "ImageClassificationConfig",
    "ImageClassifier",
    "InputField",
    "LazyExamples",
    "Metric",
    "NextTokenLoss",
    "Prediction",
    "Predictor",
    "Processor",
    "Recipe",
    "Report",
    "Scorable",
    "ScoredTarget",
    "Task",
    "TaskEntry",
    "TextClassificationConfig",
    "TextClassifier",
    "TextGenerationConfig",
    "TextGenerator",
    "Tokenizable",
    "TranslationConfig",
    "Translator",
    "VisualQA",
    "VisualQAConfig",
    "evaluate",
    "get_options",
    "get_recipe",
    "get_task",
    "list_verbs",
    "load",
    "make_config",
    "read_record",
    "recipe_name",
    "resume",
    "train",
]

_LAZY_NAMES = {
    "RECIPES": "registry",
    "TASKS": "registry",
    "AlgorithmConfig": "algorithms.config",
    "AlgorithmPredictor": "algorithms.predictor",
    "Alignable": "abilities",
    "AttentionMap": "predictor",
    "CaptioningConfig": "captioning.config",
    "DataSplits": "task",
    "Explanation": "predictor",
    "FillMask": "language_modeling.predictor",
    "FillMaskConfig": "language_modeling.config",
    "ImageCaptioner": "captioning.predictor",
    "ImageClassificationConfig": "vision.config",
    "ImageClassifier": "vision.predictor",
    "InputField": "predictor",
    "LazyExamples": "task",
    "Metric": "predictor",
    "NextTokenLoss": "sequence_loss",
    "Prediction": "predictor",
    "Predictor": "predictor",
    "Processor": "task",
    "Recipe": "registry",
    "Report": "predictor",
    "Scorable": "abilities",
    "ScoredTarget": "abilities",
    "Task": "task",
    "TaskEntry": "registry",
    "TextClassificationConfig": "text_classification.config",
    "TextClassifier": "text_classification.predictor",
    "TextGenerationConfig": "language_modeling.config",
    "TextGenerator": "language_modeling.predictor",
    "Tokenizable": "abilities",
    "TranslationConfig": "translation.config",
    "Translator": "translation.predictor",
    "VisualQA": "vision.predictor",
    "VisualQAConfig": "vision.config",
    "evaluate": "translation.evaluation",
    "get_options": "registry",
    "get_recipe": "registry",
    "get_task": "registry",
    "list_verbs": "registry",
    "load": "loading",
    "make_config": "registry",
    "read_record": "run_record",
    "recipe_name": "loading",
    "resume": "runner",
    "train": "runner",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'regard.tasks' has no attribute {name!r}")
    value = getattr(import_module(f"regard.tasks.{_LAZY_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
