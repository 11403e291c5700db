"""Options and recipes of image captioning."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from regard.config import Config, option
from regard.tasks.registry import make_recipe
from regard.training.config import MONITOR_HELP, TrainingConfig

__all__ = ["CaptionExplainOptions", "CaptionOptions", "CaptioningConfig"]

HARD = {"attention_scope": "hard"}


@dataclass(frozen=True, kw_only=True)
class CaptioningConfig(TrainingConfig):
    """Options of image captioning: files, images, model, loss and search.

    Example:
        >>> CaptioningConfig(attention_scope="hard").soft_warmup
        0.5
    """

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "captions", "digits", "bleu"))
    # data
    train_files: tuple[str, ...] = option(
        (), 'files to train on: .jsonl of {"image": path, "captions": [...]}', path=True
    )
    valid_files: tuple[str, ...] = option(
        (), "validation files; auto: every twentieth training image is held out", path=True, auto=True
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
        0.0, "weight of the doubly stochastic penalty", ge=0, when={"attention_scope": "soft"}
    )
    soft_fraction: float = option(
        0.5, "fraction of the training captions that use soft attention", ge=0, le=1, when=HARD
    )
    soft_warmup: float = option(
        0.5, "initial fraction of the training in which all captions use soft attention", ge=0, le=1, when=HARD
    )
    entropy_bonus: float = option(0.01, "weight of the entropy of the attention", ge=0, when=HARD)
    reward_discount: float = option(0.5, "discount of the rewards of later words", ge=0, le=1, when=HARD)
    # search
    beam_size: int = option(1, "size of the beam; 1: greedy search", ge=1)
    length_penalty: float = option(1.0, "strength of the length penalty; above 0 prefers longer captions", ge=0)

    def validate(self) -> None:
        """Refuse a score where there is no attention."""
        if self.attention_scope == "none" and self.score != "additive":
            raise self.error("score", "needs attention_scope=soft or attention_scope=hard")


@dataclass(frozen=True, kw_only=True)
class CaptionOptions(Config):
    """Options of the search for a caption; None: as in the config of the run."""

    beam_size: int | None = option(None, "hypotheses kept side by side; 1: greedy search", ge=1)
    length_penalty: float | None = option(None, "strength of the length penalty; above 0 prefers longer captions", ge=0)


@dataclass(frozen=True, kw_only=True)
class CaptionExplainOptions(CaptionOptions):
    """Options of `ImageCaptioner.explain`."""

    smooth: bool = option(True, "interpolate the weights between cells in figures")


CONFIG_CLASSES: dict[str, type[TrainingConfig]] = {"image-to-text": CaptioningConfig}
OPTION_CLASSES = {
    "image-to-text": {"predict": CaptionOptions, "evaluate": CaptionOptions, "explain": CaptionExplainOptions}
}

SCENE_SCHEDULE = "schedule=cosine lr=3e-3 warmup_steps=200 steps=6000 batch_size=32"
# Soft attention finds the digits; a larger entropy bonus only blurs it.
SCENES = f"monitor=captions {SCENE_SCHEDULE} average_last=3 entropy_bonus=0.001"
PHOTOGRAPH_SCHEDULE = "schedule=cosine lr=1e-3 warmup_steps=400 steps=3000"
PHOTOGRAPH_MODEL = "min_word_count=5 embed_dim=256 hidden_dim=512 dropout=0.5 beam_size=5"

_recipe = partial(make_recipe, "image-to-text", CaptioningConfig, "regard.tasks.captioning.task")
RECIPES = (
    _recipe(
        "digit-scenes",
        "Captions of scenes of handwritten digits, from left to right; the digits come with scikit-learn.",
        SCENES,
    ),
    _recipe(
        "mnist-scenes",
        "Captions of larger scenes of MNIST digits (data_dir=FOLDER).",
        f"{SCENES} image_size=96 conv_channels=32 steps=15000",
    ),
    _recipe(
        "flickr8k",
        "Photographs as precomputed features, five captions each (data_dir=FOLDER).",
        f"monitor=bleu {PHOTOGRAPH_SCHEDULE} {PHOTOGRAPH_MODEL} doubly_stochastic_weight=1",
    ),
    _recipe(
        "captions",
        "Your own images and captions: --train x.jsonl --valid y.jsonl.",
        "color=on schedule=cosine dropout=0.3 min_word_count=2 beam_size=5",
        reads_files=True,
    ),
)
