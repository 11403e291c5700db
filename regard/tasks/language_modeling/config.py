"""Options of text generation and of fill-mask."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from regard.config import Config, option
from regard.tasks.registry import make_recipe
from regard.training.config import MONITOR_HELP, TrainingConfig

__all__ = ["FillMaskConfig", "FillOptions", "GenerateOptions", "LanguageModelingConfig", "TextGenerationConfig"]


@dataclass(frozen=True, kw_only=True)
class LanguageModelingConfig(TrainingConfig):
    """Options that both tasks share: text files, passages and sizes of the model."""

    # data
    train_files: tuple[str, ...] = option((), "files of plain text to train on; also .gz or .xz", path=True)
    valid_files: tuple[str, ...] = option(
        (), "validation files; auto: every twentieth document is held out", path=True, auto=True
    )
    test_files: tuple[str, ...] = option((), "test files: the default of `regard evaluate`", path=True)
    document_separator: Literal["blank", "line"] = option(
        "blank", "what separates documents: a blank line, or the end of a line"
    )
    passage_length: int = option(256, "maximum tokens of a passage; a longer document is several passages", ge=1)
    vocab_size: int = option(8000, "size of the vocabulary", ge=1, inherit=True)
    lowercase: bool = option(False, "lowercase all texts", inherit=True)
    batch_tokens: int = option(8192, "tokens of a batch: its rows times the length of the longest", ge=1)
    batch_size: int | None = option(None, "passages of a batch, in place of batch_tokens", ge=1)
    # model
    embed_dim: int = option(256, "size of an embedding and of every layer", ge=1)
    num_heads: int = option(4, "attention heads", ge=1)
    ffn_dim: int | None = option(None, "inner size of the feed-forward network; auto: 4 x embed_dim", ge=1, auto=True)
    dropout: float = option(0.1, "dropout probability", ge=0, lt=1)

    def validate(self) -> None:
        """Check what involves several options."""
        if self.batch_size is None and self.batch_tokens <= self.passage_length:
            why = f"must be above passage_length={self.passage_length}, to hold a passage and its first token"
            raise self.error("batch_tokens", why)
        if self.embed_dim % self.num_heads or self.embed_dim % 2:
            raise self.error("embed_dim", f"must be even and a multiple of num_heads={self.num_heads}")


@dataclass(frozen=True, kw_only=True)
class TextGenerationConfig(LanguageModelingConfig):
    """Options of text generation: a Transformer decoder that predicts the next token.

    Example:
        >>> TextGenerationConfig(train_files=("a.txt",), tokenizer="char").embed_dim
        256
    """

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "perplexity", "bits_per_character"))
    tokenizer: Literal["bpe", "unigram", "char", "word"] = option("bpe", "unit of a text", inherit=True)
    num_layers: int = option(4, "decoder layers", ge=1)


@dataclass(frozen=True, kw_only=True)
class FillMaskConfig(LanguageModelingConfig):
    """Options of fill-mask: an encoder that predicts masked words.

    Example:
        >>> FillMaskConfig.from_overrides(["layer_types=cnn,gru"]).layer_types
        ('cnn', 'gru')
    """

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "perplexity", "accuracy"))
    tokenizer: Literal["word", "char"] = option("word", "unit of a text, as in text classification", inherit=True)
    layer_types: tuple[str, ...] = option(
        ("attention", "attention"), "the layers in order: attention, cnn, gru or lstm"
    )
    mask_prob: float = option(0.15, "probability that a word is masked", gt=0, lt=1)


@dataclass(frozen=True, kw_only=True)
class GenerateOptions(Config):
    """Options of a generated text."""

    num_samples: int = option(1, "number of continuations", ge=1)
    max_tokens: int | None = option(None, "maximum tokens of a continuation", ge=1)
    method: Literal["sample", "greedy"] = option("sample", "sampling, or the most probable token at each step")
    temperature: float = option(1.0, "divides the logits; below 1: more probable texts", ge=0.001, le=1000)
    top_k: int = option(0, "sample only from the k most probable tokens; 0: from all", ge=0)
    top_p: float = option(
        1.0, "sample only from the most probable tokens that together have this probability", ge=1e-6, le=1
    )
    seed: int | None = option(None, "seed of the samples; auto: a random one", ge=0, lt=1 << 63, auto=True)


@dataclass(frozen=True, kw_only=True)
class FillOptions(Config):
    """Options of filled gaps."""

    num_best: int = option(1, "number of words for each gap, the most probable first", ge=1)


CONFIG_CLASSES: dict[str, type[TrainingConfig]] = {"text-generation": TextGenerationConfig, "fill-mask": FillMaskConfig}
OPTION_CLASSES = {"text-generation": {"predict": GenerateOptions}, "fill-mask": {"predict": FillOptions}}

MODULE = "regard.tasks.language_modeling.task"
DEFAULTS = "schedule=cosine lr=2e-3 warmup_steps=200 steps=5000"

_text_recipe, _mask_recipe = (
    partial(make_recipe, task, config_class, MODULE, function="from_files", reads_files=True)
    for task, config_class in CONFIG_CLASSES.items()
)
RECIPES = (
    _text_recipe("language", "Language model of your own plain text (decoder only): --train a.txt.", DEFAULTS),
    _mask_recipe(
        "masked-language",
        "Masked language model of your own plain text (encoder only): --train a.txt.",
        f"{DEFAULTS} vocab_size=30000 lowercase=on embed_dim=128",
    ),
)
