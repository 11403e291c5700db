"""Text classification: words and labels, batches of documents, networks and loss."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from regard.attention import Additive, Attention, AttentionPool, Constant, MaxPool
from regard.data import Tokenizer
from regard.data.document_batches import DocumentBatch, DocumentBatches, iter_usable
from regard.data.document_splitter import DocumentReport, DocumentSplitter
from regard.data.documents import Document
from regard.errors import DataError
from regard.files import write_json
from regard.models.flat_document import FlatDocumentClassifier
from regard.models.hierarchical import HierarchicalAttentionNetwork
from regard.tasks.classification import classification_loss
from regard.tasks.datasets import EvalBatches, describe_reports
from regard.tasks.language_modeling.task import FillMaskTask, build_encoder
from regard.tasks.mechanisms import SCORES, build_attention, build_normalizer, build_score, parse_mechanism
from regard.tasks.predictor import Metric
from regard.tasks.task import DataSplits, Processor, Task
from regard.tasks.text_classification.config import TextClassificationConfig
from regard.tasks.text_classification.predictor import TextClassifier
from regard.training import BatchSource, Loss, load_into

__all__ = ["TextClassificationProcessor", "TextClassificationTask"]

ENCODER, EMBEDDINGS = "encoder.", "embed.weight"  # prefix and name of weights
DocumentModel = HierarchicalAttentionNetwork | FlatDocumentClassifier


@dataclass(frozen=True)
class TextClassificationProcessor(Processor):
    """What a text classifier needs beside its weights.

    Args:
        tokenizer: the words
        labels: the classes
        unit: unit of a sentence, word or char
        max_sentence_words, max_sentences, overflow: the limits of a document, as in the config
    """

    tokenizer: Tokenizer
    labels: tuple[str, ...]
    unit: str = "word"
    max_sentence_words: int = 50
    max_sentences: int = 40
    overflow: str = "split"

    @cached_property
    def splitter(self) -> DocumentSplitter:
        """Splits texts into sentences of words."""
        return DocumentSplitter(self.unit, self.max_sentence_words, self.max_sentences, self.overflow)

    def save(self, folder: Path) -> None:
        """Write tokenizer.json and processor.json."""
        self.tokenizer.save(folder / "tokenizer.json")
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "tokenizer"}
        write_json(folder / "processor.json", values)

    def describe(self) -> dict[str, Any]:
        """The size of the vocabulary and the classes."""
        return {"vocab_size": len(self.tokenizer), "labels": list(self.labels)}

    @classmethod
    def load(cls, folder: Path) -> TextClassificationProcessor:
        """Read what `save` wrote."""
        return cls(Tokenizer.load(folder / "tokenizer.json"), **cls.read_values(folder))


class TextClassificationTask(Task[TextClassificationConfig, TextClassificationProcessor, Document, DocumentBatch]):
    """From a document to its class."""

    name, verb = "text-classification", "classify"
    config_class = TextClassificationConfig
    processor_class = TextClassificationProcessor
    predictor_class = TextClassifier
    metrics = (
        Metric("accuracy", "accuracy, %"),
        Metric("error", "standard error, %", lower_is_better=True),
        Metric("loss", "loss, nats", lower_is_better=True, format=".4f"),
    )

    def validate(self, config: TextClassificationConfig, data: DataSplits[Document]) -> None:
        """Refuse mechanisms that do not go together."""
        _build_model(config, 8, 2)

    def build_processor(
        self, config: TextClassificationConfig, data: DataSplits[Document]
    ) -> TextClassificationProcessor:
        """The most frequent words of the training documents, and their labels."""
        splitter, documents = _make_splitter(config), list(data.train)
        usable = iter_usable(documents, splitter, DocumentReport.from_splitter(splitter))
        texts = (" ".join(sentence) for _, sentences in usable for sentence in sentences)
        tokenizer = Tokenizer.train(texts, "word", config.vocab_size, lowercase=config.lowercase)
        return _make_processor(config, tokenizer, _collect_labels(documents))

    def inherit_processor(
        self,
        config: TextClassificationConfig,
        data: DataSplits[Document],
        other: Task[Any, Any, Any, Any],
        folder: Path,
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

    def train_batches(
        self, config: TextClassificationConfig, processor: TextClassificationProcessor, examples: Any
    ) -> DocumentBatches:
        """Documents in random order."""
        return _make_batches(config, processor, examples)

    def eval_batches(
        self, config: TextClassificationConfig, processor: TextClassificationProcessor, examples: Iterable[Document]
    ) -> EvalBatches[DocumentBatch]:
        """Every document once, in order."""
        source = _make_batches(config, processor, examples)
        return EvalBatches(source.iter_eval_batches(), source.report)

    def loss(self, model: nn.Module, batch: DocumentBatch) -> Loss:
        """The cross entropy of the labels, summed."""
        return classification_loss(model(batch.token_ids, batch.lengths, batch.sentences_per_document), batch.labels)

    def describe_data(
        self, config: TextClassificationConfig, batches: BatchSource, valid: Iterable[DocumentBatch]
    ) -> Mapping[str, Any]:
        """What was read, and whether validation documents were held out."""
        is_held_out = bool(config.train_files) and not config.valid_files
        return describe_reports(batches, valid, "document" if is_held_out else None)

    def can_init_from(self, other: Task[Any, Any, Any, Any]) -> bool:
        """Also from a masked language model, whose encoder it takes."""
        return isinstance(other, TextClassificationTask | FillMaskTask)

    def inherit_config(self, config: TextClassificationConfig, other: Mapping[str, Any]) -> TextClassificationConfig:
        """The vocabulary options of the other run; of a masked language model, also its layers."""
        config = config.inherit_from(other)
        if "mask_prob" not in other:  # the config of a text classifier
            return config
        sizes = {name: other[name] for name in ("embed_dim", "num_heads", "ffn_dim")}
        return config.replace(model="mixed", layer_types=tuple(other["layer_types"]), **sizes)

    def init_model(self, model: nn.Module, weights: Mapping[str, Tensor], origin: str) -> None:
        """All weights; those of the encoder if the other run is a masked language model."""
        embeddings, head = weights.get(f"{ENCODER}{EMBEDDINGS}"), weights.get("lm_head.weight")
        if embeddings is None or head is None or len(embeddings) != len(head):
            super().init_model(model, weights, origin)
            return
        assert isinstance(model, FlatDocumentClassifier)
        encoder = {name.removeprefix(ENCODER): tensor for name, tensor in weights.items() if name.startswith(ENCODER)}
        encoder[EMBEDDINGS] = embeddings[:-1]  # without that of the mask
        load_into(model.encoder, encoder, origin)


def _make_splitter(config: TextClassificationConfig) -> DocumentSplitter:
    return DocumentSplitter(config.tokenizer, config.max_sentence_words, config.max_sentences, config.overflow)


def _make_processor(
    config: TextClassificationConfig, tokenizer: Tokenizer, labels: tuple[str, ...]
) -> TextClassificationProcessor:
    limits = config.max_sentence_words, config.max_sentences, config.overflow
    return TextClassificationProcessor(tokenizer, labels, config.tokenizer, *limits)


def _make_batches(
    config: TextClassificationConfig, processor: TextClassificationProcessor, examples: Any
) -> DocumentBatches:
    return DocumentBatches(
        list(examples),
        processor.tokenizer,
        processor.splitter,
        labels=processor.labels,
        max_tokens=config.batch_tokens,
        seed=config.seed,
    )


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
        return FlatDocumentClassifier(
            build_encoder(config, vocab_size),
            _build_pooling(config),
            config.embed_dim,
            num_classes,
            max_span=config.max_span,
            dropout=config.dropout,
        )
    return HierarchicalAttentionNetwork(
        vocab_size,
        num_classes,
        _build_pooling(config),
        _build_pooling(config),
        embed_dim=config.embed_dim,
        hidden_dim=config.hidden_dim,
        dropout=config.dropout,
    )


def _build_pooling(config: TextClassificationConfig) -> AttentionPool | MaxPool:
    """The pooling of words or sentences to one vector."""
    if config.pooling == "max":
        return MaxPool()
    if config.pooling == "average":
        return AttentionPool(Attention(Constant()))
    dim = config.embed_dim if config.model == "mixed" else config.hidden_dim
    normalize = build_normalizer(config.normalize)
    if parse_mechanism("score", config.score, SCORES)[0] == "Additive":  # it needs no query
        return AttentionPool(build_attention("global", Additive(None, dim, dim), normalize, dim, dim, 1))
    score = build_score(config.score, dim, dim, dim)
    attention = build_attention("global", score, normalize, dim, dim, 1)
    return AttentionPool(attention, query_dim=dim, init_std=dim**-0.5)
