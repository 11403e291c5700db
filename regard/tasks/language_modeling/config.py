"""What the recipes on plain text can be told: those that write on, and those that fill in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.training.config import WATCH, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class TextConfig(TrainingConfig):
    """Plain text, and a Transformer's half that reads or writes it."""

    # data
    train_files: tuple[str, ...] = option((), "files of plain text to train on; also .gz or .xz", path=True)
    valid_files: tuple[str, ...] = option(
        (), "files to choose the best weights by; none: every twentieth document is held out", path=True
    )
    test_files: tuple[str, ...] = option(
        (), "files that `regard evaluate` takes if it is given none", path=True
    )
    document_separator: Literal["blank", "line"] = option(
        "blank", "documents: apart by blank lines, or one a line"
    )
    passage_length: int = option(256, "tokens in a passage; a longer document is several", ge=1)
    vocab_size: int = option(8000, "tokens that are known", ge=1, inherit=True)
    lowercase: bool = option(False, "all letters small", inherit=True)
    batch_tokens: int = option(8192, "tokens in a batch, counted as rows times the longest row", ge=1)
    # model
    dim: int = option(256, "size of a position", ge=1)
    num_heads: int = option(4, "looks side by side", ge=1)
    ffn_dim: int | None = option(None, "size inside the feed-forward network; 4 dim if none", ge=1)
    dropout: float = option(0.1, "numbers forgotten at random in training", ge=0, lt=1)

    def validate(self) -> None:
        """Check what involves several options."""
        if self.batch_tokens <= self.passage_length:
            raise self.option("batch_tokens").error(
                self.batch_tokens,
                f"must be above passage_length={self.passage_length}, to hold a passage and its first token",
            )
        if self.dim % self.num_heads or self.dim % 2:
            raise self.option("dim").error(
                self.dim, f"must be even and a multiple of num_heads={self.num_heads}"
            )


@dataclass(frozen=True, kw_only=True)
class TextGenerationConfig(TextConfig):
    """Text, and what comes next."""

    monitor: str = option("loss", WATCH, choices=("loss", "perplexity", "bits_per_character"))
    tokenizer: Literal["bpe", "unigram", "char", "word"] = option(
        "bpe", "what a text is cut into", inherit=True
    )
    num_layers: int = option(4, "layers of the decoder", ge=1)


@dataclass(frozen=True, kw_only=True)
class FillMaskConfig(TextConfig):
    """Text of which some words are hidden, and what they were."""

    monitor: str = option("loss", WATCH, choices=("loss", "perplexity", "accuracy"))
    tokenizer: Literal["word", "char"] = option(
        "word", "what a text is cut into, as for documents", inherit=True
    )
    layer_types: tuple[str, ...] = option(
        ("attention", "attention"), "layers in order, of attention, cnn, gru and lstm"
    )
    mask_prob: float = option(0.15, "words that are hidden", gt=0, lt=1)
