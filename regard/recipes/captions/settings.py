"""What a captioner can be told."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from regard.errors import ConfigError
from regard.training.settings import Settings, setting

WATCHED = ("loss", "captions", "digits", "bleu")
AT_LEAST_1 = ("batch", "size", "max_length", "min_count", "width", "grid_dim", "embed_dim", "dim", "beam")


@dataclass(frozen=True, kw_only=True)
class Captioning(Settings):
    """Pictures, and what is said of each."""

    # data
    train: tuple[str, ...] = setting((), 'files to train on: .jsonl of {"image": path, "captions": [...]}')
    valid: tuple[str, ...] = setting(
        (), "files to choose the best weights by; without any, every twentieth image"
    )
    test: tuple[str, ...] = setting((), "files that `regard evaluate` takes if it is given none")
    data: str | None = setting(None, "folder with the recipe's data (mnist-scenes, flickr8k)")
    size: int = setting(64, "side of an image in pixels; others are stretched to it")
    color: bool = setting(False, "images in color, or in gray")
    batch: int = setting(64, "pictures in a batch")
    max_length: int = setting(40, "longest caption in words; a longer one is left out, and counted")
    min_count: int = setting(1, "how often a word must be in the training captions to be known")
    lowercase: bool = setting(True, "all letters small")
    # model
    scope: Literal["soft", "hard", "none"] = setting(
        "soft", "look at all cells more or less, at one, or always at their mean"
    )
    score: str = setting("additive", "how well a cell answers; `regard list --kind score`")
    width: int = setting(24, "channels of the first convolution")
    grid_dim: int = setting(96, "size of a cell's vector, where convolutions make it")
    embed_dim: int = setting(64, "size of a word's vector")
    dim: int = setting(128, "size of the state")
    dropout: float = setting(0.0, "numbers forgotten at random in training")
    # loss
    smoothing: float = setting(0.0, "label smoothing")
    penalty: float = setting(0.0, "soft: price of not looking at every cell alike over a whole caption")
    expected: float = setting(
        0.5, "hard: share of the captions that see the expected look while it is learned"
    )
    soft_first: float = setting(
        0.5, "hard: part of the training, at its beginning, in which all captions see the expected look"
    )
    entropy: float = setting(0.01, "hard: reward for an open choice")
    discount: float = setting(0.5, "hard: how much later words count for a look")
    # writing
    beam: int = setting(1, "captions kept side by side; 1 is greedy")
    length_penalty: float = setting(1.0, "above 0 prefers longer captions")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in AT_LEAST_1:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is too small: it must be at least 1")
        for name in ("penalty", "entropy", "length_penalty"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name)} must be a number, at least 0")
        for name in ("expected", "soft_first", "discount"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be from 0 to 1")
        for name in ("dropout", "smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 0 and below 1")
        if self.grid_dim <= 16:
            raise ConfigError(f"grid_dim={self.grid_dim} is too small: 16 numbers of a cell say where it is")
        if self.size < 16:
            raise ConfigError(f"size={self.size} is too small: an image has at least 16 pixels a side")
        if self.watch not in WATCHED:
            raise ConfigError(f"watch={self.watch} is not possible; watch is one of {', '.join(WATCHED)}")
        if self.scope == "none" and self.score != "additive":
            raise ConfigError(f"score={self.score} is for attention, and scope=none has none")
