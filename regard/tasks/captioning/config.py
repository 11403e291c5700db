"""What a captioner can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.training.config import MONITOR_HELP, TrainingConfig

HARD = {"attention_scope": "hard"}


@dataclass(frozen=True, kw_only=True)
class CaptioningConfig(TrainingConfig):
    """Pictures, and what is said of each."""

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "captions", "digits", "bleu"))
    # data
    train_files: tuple[str, ...] = option(
        (), 'files to train on: .jsonl of {"image": path, "captions": [...]}', path=True
    )
    valid_files: tuple[str, ...] = option(
        (), "files to choose the best weights by; without any, every twentieth image", path=True
    )
    test_files: tuple[str, ...] = option(
        (), "files that `regard evaluate` takes if it is given none", path=True
    )
    data_dir: str | None = option(None, "folder with the recipe's data (mnist-scenes, flickr8k)", path=True)
    image_size: int = option(64, "side of an image in pixels; others are stretched to it", ge=16)
    color: bool = option(False, "images in color, or in gray")
    batch_size: int = option(64, "pictures in a batch", ge=1)
    max_length: int = option(40, "longest caption in words; a longer one is left out, and counted", ge=1)
    min_word_count: int = option(
        1, "how often a word must be in the training captions to be known", ge=1, inherit=True
    )
    lowercase: bool = option(True, "all letters small", inherit=True)
    # model
    attention_scope: Literal["soft", "hard", "none"] = option(
        "soft", "look at all cells more or less, at one, or always at their mean"
    )
    score: str = option("additive", "how well a cell answers; `regard list --kind score`")
    conv_channels: int = option(24, "channels of the first convolution", ge=1)
    feature_dim: int = option(96, "size of a cell's vector, where convolutions make it", gt=16)
    embed_dim: int = option(64, "size of a word's vector", ge=1)
    hidden_dim: int = option(128, "size of the state", ge=1)
    dropout: float = option(0.0, "numbers forgotten at random in training", ge=0, lt=1)
    # loss
    label_smoothing: float = option(0.0, "label smoothing", ge=0, lt=1)
    doubly_stochastic_weight: float = option(
        0.0,
        "soft: price of not looking at every cell alike over a whole caption",
        ge=0,
        when={"attention_scope": "soft"},
    )
    soft_fraction: float = option(
        0.5,
        "hard: share of the captions that see the expected look while it is learned",
        ge=0,
        le=1,
        when=HARD,
    )
    soft_warmup: float = option(
        0.5,
        "hard: part of the training, at its beginning, in which all captions see the expected look",
        ge=0,
        le=1,
        when=HARD,
    )
    entropy_bonus: float = option(0.01, "hard: reward for an open choice", ge=0, when=HARD)
    reward_discount: float = option(0.5, "hard: how much later words count for a look", ge=0, le=1, when=HARD)
    # writing
    beam_size: int = option(1, "captions kept side by side; 1 is greedy", ge=1)
    length_penalty: float = option(1.0, "above 0 prefers longer captions", ge=0)

    def validate(self) -> None:
        """Refuse a score without attention."""
        if self.attention_scope == "none" and self.score != "additive":
            raise self.option("score").error(self.score, "needs attention_scope=soft or attention_scope=hard")
