"""What can be told to those who put images into classes, and to those who answer questions about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.training.settings import WATCH, Settings

ATTENTION = {"pooling": "attention"}


@dataclass(frozen=True, kw_only=True)
class Seeing(Settings):
    """What both have in common: scenes, and a network that makes a grid of them."""

    watch: str = option("loss", WATCH, choices=("loss", "accuracy"))
    # data
    data: str | None = option(None, "folder with the recipe's data (mnist-cluttered)", path=True)
    size: int = option(64, "side of an image in pixels; others are stretched to it", ge=32, inherit=True)
    clutter: int = option(8, "pieces of other digits in a scene", ge=0)
    batch: int = option(32, "images in a batch", ge=1)
    # model
    score: str = option(
        "additive", "attention: how well a cell answers; `regard list --kind score`", when=ATTENTION
    )
    normalize: str | None = option(
        None, "attention: how regard is shared; `regard list --kind normalizer`", when=ATTENTION
    )
    width: int = option(16, "channels of the first convolution", ge=1, inherit=True)
    grid_dim: int = option(64, "size of a cell's vector", ge=1, inherit=True)
    dim: int = option(64, "size of a query", ge=1)
    dropout: float = option(0.0, "numbers forgotten at random in training", ge=0, lt=1)

    def validate(self) -> None:
        """Refuse options of attention where there is none."""
        self.refuse_unused(*(item.name for item in self.options() if item.when == ATTENTION))


@dataclass(frozen=True, kw_only=True)
class Glancing(Seeing):
    """Images, and which class each belongs to."""

    pooling: Literal["attention", "average", "max"] = option(
        "attention", "how the cells of the grid become one vector"
    )
    queries: Literal["none", "one", "each"] = option(
        "one",
        "attention: asked by nobody (additive only), by one learned query, or by one for each class",
        when=ATTENTION,
    )


@dataclass(frozen=True, kw_only=True)
class Answering(Seeing):
    """Images, a question about each, and its answer."""

    pooling: Literal["attention", "average"] = option(
        "attention", "look where the question says, or always at the mean of the grid"
    )
    looks: int = option(
        1, "looks one after another, each asked by what is known so far", ge=1, when=ATTENTION
    )
    reader: Literal["bag", "gru"] = option("gru", "a question read in order, or as the mean of its words")
    embed_dim: int = option(32, "gru: size of a word's vector", ge=1)
