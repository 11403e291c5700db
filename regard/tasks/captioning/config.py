"""Options of image captioning."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.training.config import MONITOR_HELP, TrainingConfig

HARD = {"attention_scope": "hard"}


@dataclass(frozen=True, kw_only=True)
class CaptioningConfig(TrainingConfig):
    """Options of image captioning: files, images, model, loss and search."""

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "captions", "digits", "bleu"))
    # data
    train_files: tuple[str, ...] = option(
        (), 'files to train on: .jsonl of {"image": path, "captions": [...]}', path=True
    )
    valid_files: tuple[str, ...] = option(
        (), "validation files; none: every twentieth training image is held out", path=True
    )
    test_files: tuple[str, ...] = option((), "test files: the default of `regard evaluate`", path=True)
    data_dir: str | None = option(None, "folder with the recipe's data (mnist-scenes, flickr8k)", path=True)
    image_size: int = option(64, "side of an image in pixels; images of other sizes are resized", ge=16)
    color: bool = option(False, "color images instead of gray ones")
    batch_size: int = option(64, "images in a batch", ge=1)
    max_length: int = option(40, "maximum length of a caption in words; longer ones are left out and reported", ge=1)
    min_word_count: int = option(1, "minimum count of a word in the training captions", ge=1, inherit=True)
    lowercase: bool = option(True, "lowercase all captions", inherit=True)
    # model
    attention_scope: Literal["soft", "hard", "none"] = option(
        "soft", "attend to all cells, to one sampled cell, or always to their mean"
    )
    score: str = option("additive", "score of a cell; `regard mechanisms --kind score`")
    conv_channels: int = option(24, "channels of the first convolution", ge=1)
    feature_dim: int = option(96, "size of a feature vector of the backbone", gt=16)
    embed_dim: int = option(64, "size of a word embedding", ge=1)
    hidden_dim: int = option(128, "size of the LSTM state", ge=1)
    dropout: float = option(0.0, "dropout probability", ge=0, lt=1)
    # loss
    label_smoothing: float = option(0.0, "label smoothing", ge=0, lt=1)
    doubly_stochastic_weight: float = option(
        0.0, "soft: weight of the doubly stochastic penalty", ge=0, when={"attention_scope": "soft"}
    )
    soft_fraction: float = option(
        0.5, "hard: fraction of the training captions that use soft attention", ge=0, le=1, when=HARD
    )
    soft_warmup: float = option(
        0.5, "hard: initial fraction of the training in which all captions use soft attention", ge=0, le=1, when=HARD
    )
    entropy_bonus: float = option(0.01, "hard: weight of the entropy of the attention", ge=0, when=HARD)
    reward_discount: float = option(0.5, "hard: discount of the rewards of later words", ge=0, le=1, when=HARD)
    # search
    beam_size: int = option(1, "size of the beam; 1: greedy search", ge=1)
    length_penalty: float = option(1.0, "strength of the length penalty; above 0 prefers longer captions", ge=0)

    def validate(self) -> None:
        """Refuse a score where there is no attention."""
        if self.attention_scope == "none" and self.score != "additive":
            raise self.option("score").error(self.score, "needs attention_scope=soft or attention_scope=hard")
