"""What the recipes on plain text can be told: those that write on, and those that fill in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from regard.errors import ConfigError
from regard.training.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class Text(Settings):
    """Plain text, and a Transformer's half that reads or writes it."""

    # data
    train: tuple[str, ...] = setting((), "files of plain text to train on; also .gz or .xz")
    valid: tuple[str, ...] = setting(
        (), "files to choose the best weights by; none: every twentieth document is held out"
    )
    test: tuple[str, ...] = setting((), "files that `regard evaluate` takes if it is given none")
    apart: Literal["blank", "line"] = setting("blank", "documents: apart by blank lines, or one a line")
    length: int = setting(256, "tokens in a passage; a longer document is several")
    vocab: int = setting(8000, "tokens that are known")
    lowercase: bool = setting(False, "all letters small")
    batch_tokens: int = setting(8192, "tokens in a batch, counted as rows times the longest row")
    # model
    dim: int = setting(256, "size of a position")
    heads: int = setting(4, "looks side by side")
    hidden_dim: int | None = setting(None, "size inside the feed-forward network; 4 dim if none")
    dropout: float = setting(0.1, "numbers forgotten at random in training")

    measured: ClassVar[tuple[str, ...]] = ("loss", "perplexity")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("length", "vocab", "batch_tokens", "dim", "heads", "hidden_dim"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is too small: it must be at least 1")
        if self.batch_tokens <= self.length:
            raise ConfigError(
                f"batch_tokens={self.batch_tokens} holds no passage of length={self.length} and its first token"
            )
        if self.dim % self.heads or self.dim % 2:
            raise ConfigError(f"dim={self.dim} must be even and a multiple of heads={self.heads}")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} must be at least 0 and below 1")
        if self.watch not in self.measured:
            raise ConfigError(
                f"watch={self.watch} is not possible; watch is one of {', '.join(self.measured)}"
            )


@dataclass(frozen=True, kw_only=True)
class Language(Text):
    """Text, and what comes next."""

    tokenizer: Literal["bpe", "unigram", "char", "word"] = setting("bpe", "what a text is cut into")
    layers: int = setting(4, "layers of the decoder")

    measured: ClassVar[tuple[str, ...]] = ("loss", "perplexity", "bits_per_character")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.layers < 1:
            raise ConfigError(f"layers={self.layers} is too small: it must be at least 1")


@dataclass(frozen=True, kw_only=True)
class MaskedLanguage(Text):
    """Text of which some words are hidden, and what they were."""

    tokenizer: Literal["word", "char"] = setting("word", "what a text is cut into, as for documents")
    layers: tuple[str, ...] = setting(
        ("attention", "attention"), "layers in order, of attention, cnn, gru and lstm"
    )
    share: float = setting(0.15, "words that are hidden")

    measured: ClassVar[tuple[str, ...]] = ("loss", "perplexity", "accuracy")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.share < 1:
            raise ConfigError(f"share={self.share} must be above 0 and below 1")
