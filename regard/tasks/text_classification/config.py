"""Options of text classification."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal

from regard.config import Config, option
from regard.tasks.registry import make_recipe
from regard.training.config import MONITOR_HELP, TrainingConfig

__all__ = ["TextClassificationConfig"]

ATTENTION = {"pooling": "attention"}
HIERARCHICAL, MIXED = {"model": "hierarchical"}, {"model": "mixed"}


@dataclass(frozen=True, kw_only=True)
class TextClassificationConfig(TrainingConfig):
    """Options of a document classifier: files, splitting, vocabulary and model.

    Example:
        >>> TextClassificationConfig.from_overrides(["pooling=max"]).pooling
        'max'
    """

    monitor: str = option("loss", MONITOR_HELP, choices=("loss", "accuracy"))
    # data
    train_files: tuple[str, ...] = option((), "files to train on: .tsv, .csv or .jsonl", path=True)
    valid_files: tuple[str, ...] = option(
        (), "validation files; auto: every twentieth training document is held out", path=True, auto=True
    )
    test_files: tuple[str, ...] = option((), "test files: the default of `regard evaluate`", path=True)
    columns: tuple[str, ...] = option((), "columns of label and text: numbers (0,1), or names in a .csv or .jsonl")
    data_dir: str | None = option(None, "folder with the recipe's data", path=True)
    test_fold: int = option(
        0, "movie-reviews: the fold that is the test set, 0 to 9; the next one is the validation set", ge=0, le=9
    )
    include_test_texts: bool = option(
        False, "chnsenticorp: also train on texts that occur in the test set, as published results do"
    )
    max_sentence_words: int = option(50, "maximum length of a sentence in words", ge=1)
    max_sentences: int = option(40, "maximum length of a document in sentences; the first ones are kept", ge=1)
    overflow: Literal["split", "truncate"] = option(
        "split", "what happens to a longer sentence; the number of these is reported"
    )
    # words
    tokenizer: Literal["word", "char"] = option("word", "unit of a sentence", inherit=True)
    vocab_size: int = option(30_000, "size of the vocabulary: the most frequent words", ge=1, inherit=True)
    lowercase: bool = option(True, "lowercase all texts", inherit=True)
    batch_tokens: int = option(8192, "words in a batch", ge=1)
    batch_size: int | None = option(None, "documents in a batch, in place of batch_tokens", ge=1)
    # model
    model: Literal["hierarchical", "mixed"] = option(
        "hierarchical", "words to sentences to a document, or a stack of layers over all words"
    )
    pooling: Literal["attention", "average", "max"] = option(
        "attention", "pooling of words to a sentence and of sentences to a document"
    )
    score: str = option("additive", "score of a word; `regard mechanisms --kind score`", when=ATTENTION)
    normalize: str | None = option(
        None, "how scores become weights; `regard mechanisms --kind normalizer`", when=ATTENTION
    )
    embed_dim: int = option(100, "size of a word embedding; mixed: size of every layer", ge=1)
    hidden_dim: int = option(100, "size of a GRU state, both directions together", ge=1, when=HIERARCHICAL)
    layer_types: tuple[str, ...] = option(
        ("cnn", "attention", "gru"), "the layers in order: attention, cnn, gru or lstm", when=MIXED
    )
    num_heads: int = option(4, "attention heads", ge=1, when=MIXED)
    ffn_dim: int | None = option(
        None, "inner size of the feed-forward network; auto: 4 x embed_dim", ge=1, when=MIXED, auto=True
    )
    max_span: int = option(256, "words encoded together; a longer document is encoded in spans", ge=1, when=MIXED)
    dropout: float = option(0.4, "dropout probability", ge=0, lt=1)

    def validate(self) -> None:
        """Check what involves several options."""
        if self.model == "hierarchical" and self.hidden_dim % 2:
            raise self.error("hidden_dim", "must be even: one half is the forward state, the other the backward state")
        self.refuse_unused("score", "normalize")


CONFIG_CLASSES: dict[str, type[TrainingConfig]] = {"text-classification": TextClassificationConfig}
OPTION_CLASSES: dict[str, dict[str, type[Config]]] = {"text-classification": {}}

SCHEDULE = "schedule=cosine warmup_steps=100 steps=1500 validate_every=250 save_every=250"
DEFAULTS = f"monitor=accuracy lr=2e-3 {SCHEDULE}"

_recipe = partial(make_recipe, "text-classification", TextClassificationConfig, "regard.tasks.text_classification.data")
RECIPES = (
    _recipe(
        "documents",
        "Your own labeled documents: --train x.tsv --valid y.tsv (hierarchical attention network).",
        DEFAULTS,
        reads_files=True,
    ),
    _recipe("imdb", "English film reviews, positive or negative (IMDB).", DEFAULTS),
    _recipe(
        "movie-reviews",
        "English film reviews, split into sentences, in ten folds (Pang and Lee 2004).",
        f"{DEFAULTS} max_sentences=80 steps=1000 validate_every=100",
    ),
    _recipe(
        "chnsenticorp",
        "Chinese reviews of hotels, computers and books, positive or negative (ChnSentiCorp).",
        f"{DEFAULTS} tokenizer=char vocab_size=8000 steps=800 validate_every=100",
    ),
    _recipe(
        "mixed",
        "Your own labeled documents, encoded by a stack of layers: layer_types=cnn,attention,gru.",
        f"{DEFAULTS} model=mixed embed_dim=96 dropout=0.3 lr=1e-3",
        reads_files=True,
    ),
)
