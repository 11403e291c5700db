"""Options of image classification and of visual question answering."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from regard.config import Config, option
from regard.tasks.registry import make_recipe
from regard.training.config import MONITOR_HELP, TrainingConfig

__all__ = ["GridExplainOptions", "ImageClassificationConfig", "VisionConfig", "VisualQAConfig"]

ATTENTION = {"pooling": "attention"}


@dataclass(frozen=True, kw_only=True)
class VisionConfig(TrainingConfig):
    """Options that both tasks share: scenes, and the backbone that encodes them as a grid."""

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "accuracy"))
    # data
    data_dir: str | None = option(None, "folder with the recipe's data (mnist-cluttered)", path=True)
    image_size: int = option(64, "side of an image in pixels; images of other sizes are resized", ge=32, inherit=True)
    num_distractors: int = option(8, "fragments of other digits in a scene", ge=0)
    batch_size: int = option(32, "images in a batch", ge=1)
    # model
    score: str = option("additive", "score of a cell; `regard mechanisms --kind score`", when=ATTENTION)
    normalize: str | None = option(
        None, "how scores become weights; `regard mechanisms --kind normalizer`", when=ATTENTION
    )
    conv_channels: int = option(16, "channels of the first convolution", ge=1, inherit=True)
    feature_dim: int = option(64, "size of a feature vector of the backbone", ge=1, inherit=True)
    hidden_dim: int = option(64, "size of a query", ge=1)
    dropout: float = option(0.0, "dropout probability", ge=0, lt=1)

    def validate(self) -> None:
        """Refuse options of attention where there is no attention."""
        self.refuse_unused(*(item.name for item in self.options() if item.when == ATTENTION))


@dataclass(frozen=True, kw_only=True)
class ImageClassificationConfig(VisionConfig):
    """Options of an image classifier.

    Example:
        >>> ImageClassificationConfig(learned_queries="each").pooling
        'attention'
    """

    pooling: Literal["attention", "average", "max"] = option("attention", "pooling of the grid to one vector")
    learned_queries: Literal["none", "one", "each"] = option(
        "one", "no query (additive score only), one learned query, or one for each class", when=ATTENTION
    )


@dataclass(frozen=True, kw_only=True)
class VisualQAConfig(VisionConfig):
    """Options of visual question answering.

    Example:
        >>> VisualQAConfig(num_hops=2).question_encoder
        'gru'
    """

    pooling: Literal["attention", "average"] = option(
        "attention", "attend to the grid with the question as query, or always take its mean"
    )
    num_hops: int = option(1, "attention steps, each with a query updated by the one before", ge=1, when=ATTENTION)
    question_encoder: Literal["bag", "gru"] = option(
        "gru", "encode a question with a GRU, or as the mean of its word embeddings"
    )
    embed_dim: int = option(32, "gru: size of a word embedding", ge=1)


@dataclass(frozen=True, kw_only=True)
class GridExplainOptions(Config):
    """Options of an explanation with weights over the grid of an image."""

    smooth: bool = option(True, "interpolate the weights between cells in figures")


CONFIG_CLASSES: dict[str, type[TrainingConfig]] = {
    "image-classification": ImageClassificationConfig,
    "visual-question-answering": VisualQAConfig,
}
OPTION_CLASSES = {name: {"explain": GridExplainOptions} for name in CONFIG_CLASSES}

SCHEDULE = "schedule=cosine warmup_steps=100 steps=1500 validate_every=250 save_every=250"
DEFAULTS = f"monitor=accuracy lr=3e-3 {SCHEDULE}"

_image_recipe, _question_recipe = (
    partial(make_recipe, task, config_class, "regard.tasks.vision.task")
    for task, config_class in CONFIG_CLASSES.items()
)
RECIPES = (
    _image_recipe(
        "digits",
        "One handwritten digit among distractors, found by a learned query; the digits come with scikit-learn.",
        DEFAULTS,
    ),
    _image_recipe(
        "mnist-cluttered",
        "One MNIST digit among distractors, in larger images (data_dir=FOLDER).",
        f"{DEFAULTS} image_size=96",
    ),
    _question_recipe(
        "digit-questions",
        'Questions about scenes of digits ("how many 3s", "what is left of the 4"), answered with attention.',
        f"{DEFAULTS} warmup_steps=200 steps=6000 validate_every=500 save_every=500",
    ),
)
