"""What can be told to those who put images into classes, and to those who answer questions about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import ConfigError
from regard.training.settings import Settings, setting

WATCHED = ("accuracy", "loss")
AT_LEAST_1 = ("batch", "width", "grid_dim", "dim")
NAMED = ("score", "normalize")


@dataclass(frozen=True, kw_only=True)
class Seeing(Settings):
    """What both have in common: scenes, and a network that makes a grid of them."""

    # data
    data: str | None = setting(None, "folder with the recipe's data (mnist-cluttered)")
    size: int = setting(64, "side of an image in pixels; others are stretched to it")
    clutter: int = setting(8, "pieces of other digits in a scene")
    batch: int = setting(32, "images in a batch")
    # model
    score: str = setting("additive", "attention: how well a cell answers; `regard list --kind score`")
    normalize: str | None = setting(None, "attention: how regard is shared; `regard list --kind normalizer`")
    width: int = setting(16, "channels of the first convolution")
    grid_dim: int = setting(64, "size of a cell's vector")
    dim: int = setting(64, "size of a query")
    dropout: float = setting(0.0, "numbers forgotten at random in training")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in AT_LEAST_1:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is too small: it must be at least 1")
        if self.size < 32:
            raise ConfigError(f"size={self.size} is too small: a scene has at least 32 pixels a side")
        if self.clutter < 0:
            raise ConfigError(f"clutter={self.clutter} must not be negative")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} must be at least 0 and below 1")
        if self.watch not in WATCHED:
            raise ConfigError(f"watch={self.watch} is not possible; watch is one of {', '.join(WATCHED)}")

    def alone(self, pooling: str) -> None:
        """Refuse a score or normalizer where there is no attention to have it."""
        for name in NAMED:
            if (
                pooling != "attention"
                and getattr(self, name) != type(self).__dataclass_fields__[name].default
            ):
                raise ConfigError(f"{name}={getattr(self, name)} is for pooling=attention, not for {pooling}")


@dataclass(frozen=True, kw_only=True)
class Glancing(Seeing):
    """Images, and which class each belongs to."""

    pooling: Literal["attention", "average", "max"] = setting(
        "attention", "how the cells of the grid become one vector"
    )
    queries: Literal["none", "one", "each"] = setting(
        "one", "attention: asked by nobody (additive only), by one learned query, or by one for each class"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.alone(self.pooling)
        if self.pooling != "attention" and self.queries != "one":
            raise ConfigError(f"queries={self.queries} is for pooling=attention, not for {self.pooling}")


@dataclass(frozen=True, kw_only=True)
class Answering(Seeing):
    """Images, a question about each, and its answer."""

    pooling: Literal["attention", "average"] = setting(
        "attention", "look where the question says, or always at the mean of the grid"
    )
    looks: int = setting(1, "looks one after another, each asked by what is known so far")
    reader: Literal["bag", "gru"] = setting("gru", "a question read in order, or as the mean of its words")
    embed_dim: int = setting(32, "gru: size of a word's vector")

    def __post_init__(self) -> None:
        super().__post_init__()
        self.alone(self.pooling)
        for name in ("looks", "embed_dim"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is too small: it must be at least 1")
        if self.pooling != "attention" and self.looks != 1:
            raise ConfigError(f"looks={self.looks} is for pooling=attention: the mean is always the same")
