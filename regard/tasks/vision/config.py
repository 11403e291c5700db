"""What can be told to those who put images into classes, and to those who answer questions about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.training.config import MONITOR_HELP, TrainingConfig

ATTENTION = {"pooling": "attention"}


@dataclass(frozen=True, kw_only=True)
class VisionConfig(TrainingConfig):
    """What both have in common: scenes, and a network that makes a grid of them."""

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "accuracy"))
    # data
    data_dir: str | None = option(None, "folder with the recipe's data (mnist-cluttered)", path=True)
    image_size: int = option(
        64, "side of an image in pixels; others are stretched to it", ge=32, inherit=True
    )
    num_distractors: int = option(8, "pieces of other digits in a scene", ge=0)
    batch_size: int = option(32, "images in a batch", ge=1)
    # model
    score: str = option(
        "additive", "attention: how well a cell answers; `regard list --kind score`", when=ATTENTION
    )
    normalize: str | None = option(
        None, "attention: how regard is shared; `regard list --kind normalizer`", when=ATTENTION
    )
    conv_channels: int = option(16, "channels of the first convolution", ge=1, inherit=True)
    feature_dim: int = option(64, "size of a cell's vector", ge=1, inherit=True)
    hidden_dim: int = option(64, "size of a query", ge=1)
    dropout: float = option(0.0, "numbers forgotten at random in training", ge=0, lt=1)

    def validate(self) -> None:
        """Refuse options of attention where there is none."""
        self.refuse_unused(*(item.name for item in self.options() if item.when == ATTENTION))


@dataclass(frozen=True, kw_only=True)
class ImageClassificationConfig(VisionConfig):
    """Images, and which class each belongs to."""

    pooling: Literal["attention", "average", "max"] = option(
        "attention", "how the cells of the grid become one vector"
    )
    query_type: Literal["none", "one", "each"] = option(
        "one",
        "attention: asked by nobody (additive only), by one learned query, or by one for each class",
        when=ATTENTION,
    )


@dataclass(frozen=True, kw_only=True)
class VisualQAConfig(VisionConfig):
    """Images, a question about each, and its answer."""

    pooling: Literal["attention", "average"] = option(
        "attention", "look where the question says, or always at the mean of the grid"
    )
    num_hops: int = option(
        1, "looks one after another, each asked by what is known so far", ge=1, when=ATTENTION
    )
    question_encoder: Literal["bag", "gru"] = option(
        "gru", "a question read in order, or as the mean of its words"
    )
    embed_dim: int = option(32, "gru: size of a word's vector", ge=1)
