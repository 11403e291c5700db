"""What a classifier of documents can be told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import option
from regard.training.config import WATCH, TrainingConfig


@dataclass(frozen=True, kw_only=True)
class TextClassificationConfig(TrainingConfig):
    """Documents, and which class each belongs to."""

    monitor: str = option("loss", WATCH, choices=("loss", "accuracy"))
    # data
    train_files: tuple[str, ...] = option((), "files to train on: .tsv, .csv or .jsonl", path=True)
    valid_files: tuple[str, ...] = option(
        (), "files to choose the best weights by; none: every twentieth document is held out", path=True
    )
    test_files: tuple[str, ...] = option(
        (), "files that `regard evaluate` takes if it is given none", path=True
    )
    columns: tuple[str, ...] = option((), "label and text: columns (0,1), or names in a .csv or .jsonl")
    data_dir: str | None = option(None, "folder with the recipe's data", path=True)
    test_fold: int = option(
        0, "movie-reviews: which tenth is the test, 0 to 9; the next one chooses", ge=0, le=9
    )
    include_test_texts: bool = option(
        False, "chnsenticorp: train also on texts that its test has, as published figures do"
    )
    max_sentence_words: int = option(50, "longest sentence in words", ge=1)
    max_sentences: int = option(40, "longest document in sentences; the first ones are kept", ge=1)
    overflow: Literal["split", "truncate"] = option("split", "what to do with a longer sentence; it is counted")
    # words
    tokenizer: Literal["word", "char"] = option("word", "what a sentence is cut into", inherit=True)
    vocab_size: int = option(30_000, "words that are known, the most frequent ones", ge=1, inherit=True)
    lowercase: bool = option(True, "all letters small", inherit=True)
    batch_tokens: int = option(8192, "words in a batch", ge=1)
    # model
    model: Literal["hierarchical", "mixed"] = option(
        "hierarchical", "words into sentences into a document, or layers over all words"
    )
    pooling: Literal["attention", "average", "max"] = option(
        "attention", "how words become a sentence and sentences a document"
    )
    score: str = option(
        "additive",
        "attention: how telling a word is; `regard list --kind score`",
        when={"pooling": "attention"},
    )
    normalize: str | None = option(
        None,
        "attention: how regard is shared; `regard list --kind normalizer`",
        when={"pooling": "attention"},
    )
    embed_dim: int = option(
        100, "hierarchical: size of a word's vector", ge=1, when={"model": "hierarchical"}
    )
    dim: int = option(100, "size of a state, both directions together", ge=1)
    layer_types: tuple[str, ...] = option(
        ("cnn", "attention", "gru"),
        "mixed: layers in order, of attention, cnn, gru and lstm",
        when={"model": "mixed"},
    )
    num_heads: int = option(4, "mixed: looks of attention side by side", ge=1, when={"model": "mixed"})
    ffn_dim: int | None = option(
        None,
        "mixed: size inside attention's feed-forward network; 4 dim if none",
        ge=1,
        when={"model": "mixed"},
    )
    max_span: int = option(
        256, "mixed: words read together; a longer document is read in parts", ge=1, when={"model": "mixed"}
    )
    dropout: float = option(0.4, "numbers forgotten at random in training", ge=0, lt=1)

    def validate(self) -> None:
        """Check what involves several options."""
        if self.dim % 2:
            raise self.option("dim").error(
                self.dim, "must be even: half of it reads forwards, half backwards"
            )
        self.refuse_unused("score", "normalize")
