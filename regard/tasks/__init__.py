"""Tasks: what is trained on which data, and what a trained model can do.

    train("reverse", "runs/reverse")        a recipe -> the folder of a run
    predictor = load("runs/reverse")        a run -> a predictor

Importing the package does not import torch: a name that needs it is imported when it is first used.
"""

from typing import TYPE_CHECKING

from regard._imports import lazy_names
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
    read_record,
    recipe_name,
)

if TYPE_CHECKING:
    from regard.tasks.abilities import Alignable, Scorable, ScoredTarget, Tokenizable
    from regard.tasks.algorithms.config import AlgorithmConfig
    from regard.tasks.algorithms.predictor import AlgorithmPredictor
    from regard.tasks.captioning.config import CaptioningConfig
    from regard.tasks.captioning.predictor import ImageCaptioner
    from regard.tasks.language_modeling.config import FillMaskConfig, TextGenerationConfig
    from regard.tasks.language_modeling.predictor import FillMask, TextGenerator
    from regard.tasks.loading import load
    from regard.tasks.predictor import AttentionMap, Explanation, InputField, Metric, Prediction, Predictor, Report
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
    "RECIPES", "TASKS", "AlgorithmConfig", "AlgorithmPredictor", "Alignable", "AttentionMap", "CaptioningConfig",
    "DataSplits", "Explanation", "FillMask", "FillMaskConfig", "ImageCaptioner", "ImageClassificationConfig",
    "ImageClassifier", "InputField", "LazyExamples", "Metric", "NextTokenLoss", "Prediction", "Predictor",
    "Processor", "Recipe", "Report", "Scorable", "ScoredTarget", "Task", "TaskEntry", "TextClassificationConfig",
    "TextClassifier", "TextGenerationConfig", "TextGenerator", "Tokenizable", "TranslationConfig", "Translator",
    "VisualQA", "VisualQAConfig", "evaluate", "get_options", "get_recipe", "get_task", "list_verbs", "load",
    "make_config", "read_record", "recipe_name", "resume", "train",
]  # fmt: skip

__getattr__ = lazy_names(
    __name__,
    {
        "abilities": ("Alignable", "Scorable", "ScoredTarget", "Tokenizable"),
        "algorithms.config": ("AlgorithmConfig",),
        "algorithms.predictor": ("AlgorithmPredictor",),
        "captioning.config": ("CaptioningConfig",),
        "captioning.predictor": ("ImageCaptioner",),
        "language_modeling.config": ("FillMaskConfig", "TextGenerationConfig"),
        "language_modeling.predictor": ("FillMask", "TextGenerator"),
        "loading": ("load",),
        "predictor": ("AttentionMap", "Explanation", "InputField", "Metric", "Prediction", "Predictor", "Report"),
        "runner": ("resume", "train"),
        "sequence_loss": ("NextTokenLoss",),
        "task": ("DataSplits", "LazyExamples", "Processor", "Task"),
        "text_classification.config": ("TextClassificationConfig",),
        "text_classification.predictor": ("TextClassifier",),
        "translation.config": ("TranslationConfig",),
        "translation.evaluation": ("evaluate",),
        "translation.predictor": ("Translator",),
        "vision.config": ("ImageClassificationConfig", "VisualQAConfig"),
        "vision.predictor": ("ImageClassifier", "VisualQA"),
    },
)


def __dir__() -> list[str]:
    return sorted(__all__)
