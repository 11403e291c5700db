"""What a classifier of documents can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.errors import ConfigError
from regard.training.settings import Settings, setting


@dataclass(frozen=True, kw_only=True)
class Classification(Settings):
    """Documents, and which class each belongs to."""

    # data
    train: tuple[str, ...] = setting((), "files to train on: .tsv, .csv or .jsonl")
    valid: tuple[str, ...] = setting(
        (), "files to choose the best weights by; none: every twentieth document is held out"
    )
    test: tuple[str, ...] = setting((), "files that `regard evaluate` takes if it is given none")
    columns: tuple[str, ...] = setting((), "label and text: columns (0,1), or names in a .csv or .jsonl")
    data: str | None = setting(None, "folder with the recipe's data")
    fold: int = setting(0, "movie-reviews: which tenth is the test, 0 to 9; the next one chooses")
    leak: bool = setting(
        False, "chnsenticorp: train also on texts that its test has, as published figures do"
    )
    max_words: int = setting(50, "longest sentence in words")
    max_sentences: int = setting(40, "longest document in sentences; the first ones are kept")
    too_long: Literal["split", "cut"] = setting("split", "what to do with a longer sentence; it is counted")
    # words
    tokenizer: Literal["word", "char"] = setting("word", "what a sentence is cut into")
    vocab: int = setting(30_000, "words that are known, the most frequent ones")
    lowercase: bool = setting(True, "all letters small")
    batch_tokens: int = setting(8192, "words in a batch")
    # model
    model: Literal["hierarchical", "mixed"] = setting(
        "hierarchical", "words into sentences into a document, or layers over all words"
    )
    pooling: Literal["attention", "average", "max"] = setting(
        "attention", "how words become a sentence and sentences a document"
    )
    score: str = setting("additive", "attention: how telling a word is; `regard list --kind score`")
    normalize: str | None = setting(None, "attention: how regard is shared; `regard list --kind normalizer`")
    embed_dim: int = setting(100, "hierarchical: size of a word's vector")
    dim: int = setting(100, "size of a state, both directions together")
    layers: tuple[str, ...] = setting(
        ("cnn", "attention", "gru"), "mixed: layers in order, of attention, cnn, gru and lstm"
    )
    heads: int = setting(4, "mixed: looks of attention side by side")
    hidden_dim: int | None = setting(
        None, "mixed: size inside attention's feed-forward network; 4 dim if none"
    )
    span: int = setting(256, "mixed: words read together; a longer document is read in parts")
    dropout: float = setting(0.4, "numbers forgotten at random in training")

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in (
            "vocab",
            "dim",
            "embed_dim",
            "batch_tokens",
            "max_words",
            "max_sentences",
            "heads",
            "span",
        ):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} is too small: it must be at least 1")
        if self.dim % 2:
            raise ConfigError(f"dim={self.dim} must be even: half of it is read forwards, half backwards")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} must be at least 0 and below 1")
        if not 0 <= self.fold <= 9:
            raise ConfigError(f"fold={self.fold} is not possible; fold is from 0 to 9")
        if self.watch not in ("accuracy", "loss"):
            raise ConfigError(f"watch={self.watch} is not possible; watch is one of accuracy, loss")
        if self.pooling != "attention" and (self.score, self.normalize) != ("additive", None):
            raise ConfigError(f"score and normalize are those of pooling=attention, not of {self.pooling}")
