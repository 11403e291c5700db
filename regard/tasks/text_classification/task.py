"""Text classification: words and labels, batches of documents, networks and loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn

from regard.attention import AttentionPool, MaxPool
from regard.data import Tokenizer
from regard.data.document_batches import DocumentBatch, DocumentBatches, DocumentReport, iter_usable
from regard.data.documents import Document, DocumentSplitter
from regard.errors import DataError
from regard.models.hierarchical import FlatDocumentClassifier, HierarchicalAttentionNetwork
from regard.tasks.classification import ClassificationTask, build_pooling_attention, select_weights
from regard.tasks.datasets import EvalBatches, describe_reports
from regard.tasks.language_modeling.task import FillMaskTask, build_encoder
from regard.tasks.mechanisms import SCORES, parse_mechanism
from regard.tasks.task import AnyTask, DataSplits, TokenizerProcessor
from regard.tasks.text_classification.config import TextClassificationConfig
from regard.tasks.text_classification.predictor import TextClassifier, make_batches
from regard.training import BatchSource, load_into

__all__ = ["TextClassificationProcessor", "TextClassificationTask"]

EMBEDDINGS = "embed.weight"
DocumentModel = HierarchicalAttentionNetwork | FlatDocumentClassifier


@dataclass(frozen=True)
class TextClassificationProcessor(TokenizerProcessor):
    """What a text classifier needs in addition to its weights.

    Args:
        tokenizer: the words
        labels: the classes
        unit: unit of a sentence, word or char
        max_sentence_words, max_sentences, overflow: the limits of a document, as in the config
    """

    labels: tuple[str, ...]
    unit: Literal["word", "char"] = "word"
    max_sentence_words: int = 50
    max_sentences: int = 40
    overflow: Literal["split", "truncate"] = "split"

    @cached_property
    def splitter(self) -> DocumentSplitter:
        """Splits texts into sentences of words."""
        return DocumentSplitter(self.unit, self.max_sentence_words, self.max_sentences, self.overflow)

    def describe(self) -> dict[str, Any]:
        """The size of the vocabulary and the classes."""
        return super().describe() | {"labels": list(self.labels)}


class TextClassificationTask(ClassificationTask):
    """From a document to its class."""

    name, verb = "text-classification", "classify"
    config_class = TextClassificationConfig
    processor_class = TextClassificationProcessor
    predictor_class = TextClassifier

    def validate(self, config: TextClassificationConfig, data: DataSplits[Document]) -> None:
        """Refuse mechanisms that do not go together."""
        _build_model(config, 8, 2)

    def build_processor(
        self, config: TextClassificationConfig, data: DataSplits[Document]
    ) -> TextClassificationProcessor:
        """The most frequent words of the training documents, and their labels."""
        limits = config.max_sentence_words, config.max_sentences, config.overflow
        splitter, documents = DocumentSplitter(config.tokenizer, *limits), list(data.train)
        usable = iter_usable(documents, splitter, DocumentReport.from_splitter(splitter))
        texts = (" ".join(sentence) for _, sentences in usable for sentence in sentences)
        tokenizer = Tokenizer.train(texts, "word", config.vocab_size, lowercase=config.lowercase)
        return _make_processor(config, tokenizer, _collect_labels(documents))

    def inherit_processor(
        self, config: TextClassificationConfig, data: DataSplits[Document], other: AnyTask, folder: Path
    ) -> TextClassificationProcessor:
        """The words and labels of the other run; of a masked language model, its words."""
        if isinstance(other, FillMaskTask):
            tokenizer = FillMaskTask.processor_class.load(folder).tokenizer
            return _make_processor(config, tokenizer, _collect_labels(data.train))
        origin = TextClassificationProcessor.load(folder)
        return _make_processor(config, origin.tokenizer, origin.labels)

    def build_model(self, config: TextClassificationConfig, processor: TextClassificationProcessor) -> DocumentModel:
        """A hierarchical attention network, or a stack of layers over all words."""
        return _build_model(config, len(processor.tokenizer), len(processor.labels))

    def train_batches(self, config: TextClassificationConfig, processor: Any, examples: Any) -> DocumentBatches:
        """Documents in random order."""
        return make_batches(config, processor, examples)

    def eval_batches(
        self, config: TextClassificationConfig, processor: Any, examples: Iterable[Document]
    ) -> EvalBatches[DocumentBatch]:
        """Every document once, in order."""
        source = make_batches(config, processor, examples)
        return EvalBatches(source.iter_eval_batches(), source.report)

    def describe_data(self, config: TextClassificationConfig, batches: BatchSource, valid: Any) -> dict[str, Any]:
        """What was read, and whether validation documents were held out."""
        return describe_reports(config, batches, valid, "document")

    def can_init_from(self, other: AnyTask) -> bool:
        """Also from a masked language model, whose encoder it takes."""
        return isinstance(other, TextClassificationTask | FillMaskTask)

    def inherit_config(
        self, config: TextClassificationConfig, other: AnyTask, values: Mapping[str, Any]
    ) -> TextClassificationConfig:
        """The vocabulary options of the other run; of a masked language model, also its layers."""
        config = config.inherit_from(values)
        if not isinstance(other, FillMaskTask):
            return config
        sizes = {name: values[name] for name in ("embed_dim", "num_heads", "ffn_dim")}
        return config.replace(model="mixed", layer_types=tuple(values["layer_types"]), **sizes)

    def init_model(self, model: nn.Module, other: AnyTask, weights: Mapping[str, Tensor], origin: str) -> None:
        """All weights; those of the encoder if the other run is a masked language model."""
        if not isinstance(other, FillMaskTask):
            super().init_model(model, other, weights, origin)
            return
        encoder = select_weights(weights, "encoder")
        encoder[EMBEDDINGS] = encoder[EMBEDDINGS][:-1]  # without that of the mask
        load_into(model.get_submodule("encoder"), encoder, origin)


def _make_processor(
    config: TextClassificationConfig, tokenizer: Tokenizer, labels: tuple[str, ...]
) -> TextClassificationProcessor:
    limits = config.max_sentence_words, config.max_sentences, config.overflow
    return TextClassificationProcessor(tokenizer, labels, config.tokenizer, *limits)


def _collect_labels(documents: Iterable[Document]) -> tuple[str, ...]:
    """The labels in alphabetical order; a single one is refused."""
    usable: Sequence[Document] = [document for document in documents if document.full_text.strip()]
    labels = tuple(sorted({document.label for document in usable}))
    if len(labels) == 1:
        location = usable[0].file or "the documents"
        raise DataError(
            f"{location}: all documents have the label {labels[0]!r}; train with documents of two classes or more."
        )
    return labels


def _build_model(config: TextClassificationConfig, vocab_size: int, num_classes: int) -> DocumentModel:
    if config.model == "mixed":
        encoder, options = build_encoder(config, vocab_size), config.select("max_span", "dropout")
        return FlatDocumentClassifier(encoder, _build_pooling(config), config.embed_dim, num_classes, **options)
    poolings = _build_pooling(config), _build_pooling(config)
    options = config.select("embed_dim", "hidden_dim", "dropout")
    return HierarchicalAttentionNetwork(vocab_size, num_classes, *poolings, **options)


def _build_pooling(config: TextClassificationConfig) -> AttentionPool | MaxPool:
    """The pooling of words or sentences to one vector."""
    if config.pooling == "max":
        return MaxPool()
    dim = config.embed_dim if config.model == "mixed" else config.hidden_dim
    needs_query = parse_mechanism("score", config.score, SCORES)[0].name != "Additive"
    attention = build_pooling_attention(config, dim, dim, needs_query)
    if config.pooling == "average" or not needs_query:
        return AttentionPool(attention)
    return AttentionPool(attention, query_dim=dim, init_std=dim**-0.5)
