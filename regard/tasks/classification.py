"""What all tasks share whose answer is one of a few labels: documents, images, questions about images."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.data.document_splitter import Truncation
from regard.data.sources import InMemoryBatches
from regard.errors import DataError
from regard.tasks.predictor import Metric, Prediction, Predictor, Report
from regard.tasks.task import Task
from regard.training import Loss

__all__ = [
    "Classification",
    "ClassificationBatch",
    "ClassificationPredictor",
    "ClassificationTask",
    "classification_loss",
    "classification_tables",
    "ranked_probabilities",
]


@dataclass(frozen=True)
class ClassificationBatch:
    """Inputs with their labels.

    Args:
        inputs: the arguments of the model
        labels: indices of the labels
    """

    inputs: tuple[Tensor, ...]
    labels: Tensor

    @property
    def num_tokens(self) -> int:
        """Number of examples."""
        return len(self.labels)

    def to(self, device: Any, /) -> ClassificationBatch:
        """The batch on a device."""
        return ClassificationBatch(tuple(tensor.to(device) for tensor in self.inputs), self.labels.to(device))

    def shard(self, rank: int, world_size: int, /) -> ClassificationBatch:
        """The examples of one of several processes."""
        rows = slice(rank, None, world_size)
        return ClassificationBatch(tuple(tensor[rows] for tensor in self.inputs), self.labels[rows])


@dataclass(frozen=True)
class Classification(Prediction):
    """The most probable label, and the probability of each, the largest first.

    Args:
        probabilities: by label
        truncation: what was left out of a document that is too long
    """

    probabilities: dict[str, float] = field(default_factory=dict)
    truncation: Truncation = field(default_factory=Truncation)

    @classmethod
    def from_probabilities(
        cls, probabilities: dict[str, float], truncation: Truncation | None = None
    ) -> Classification:
        """The prediction of ranked probabilities."""
        label = next(iter(probabilities))
        return cls(label, probabilities[label], probabilities, truncation or Truncation())

    @property
    def label(self) -> str:
        """The most probable label."""
        return self.text

    @property
    def probability(self) -> float:
        """Its probability."""
        return self.score

    def to_lines(self, number: int = 1) -> list[str]:
        """The label, a tab, its probability."""
        return [f"{self.label}\t{self.probability:.4f}"]

    def remarks(self) -> list[str]:
        """What was left out of a text that is too long."""
        return [f"{self.truncation} truncated"] if self.truncation else []

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        plain = {"text": self.text, "score": self.score, "label": self.label, "probabilities": self.probabilities}
        return plain | ({"truncation": vars(self.truncation)} if self.truncation else {})


def ranked_probabilities(logits: Tensor, labels: Sequence[str]) -> dict[str, float]:
    """The probability of each label, the largest first.

    Example:
        >>> ranked_probabilities(torch.tensor([0.0, 9.0]), ("no", "yes"))
        {'yes': 0.9998766183853149, 'no': 0.00012339458044152707}
    """
    probabilities = logits.float().softmax(-1)
    return {labels[i]: float(probabilities[i]) for i in probabilities.argsort(descending=True).tolist()}


def classification_loss(logits: Tensor, labels: Tensor) -> Loss:
    """The cross entropy of the labels, summed over a batch, with the number of correct answers in percent.

    Args:
        logits: scores of the labels
        labels: indices of the correct labels

    Shape:
        - logits: (..., labels)
        - labels: (...)
    """
    total = cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), reduction="sum")
    correct = (logits.argmax(-1) == labels).sum().detach()
    return Loss(total, labels.numel(), {"accuracy": 100 * correct})


def classification_tables(
    true: Sequence[str], predicted: Sequence[str], labels: Sequence[str]
) -> tuple[dict[str, float], dict[str, list[Mapping[str, Any]]]]:
    """Metrics and tables of predicted labels.

    Args:
        true: the correct label of each example
        predicted: the label that was predicted
        labels: all labels

    Returns:
        The accuracy in percent with its standard error; precision, recall and F1 of each label, and how often each
        label is taken for which other.

    Example:
        >>> classification_tables(["a", "b", "b", "b"], ["a", "a", "b", "b"], ["a", "b"])[0]
        {'accuracy': 75.0, 'error': 21.650635094610966}
    """
    if not len(true):
        raise DataError("there is nothing to evaluate: no examples were given")
    confusion = {a: dict.fromkeys(labels, 0) for a in labels}
    for a, b in zip(true, predicted, strict=True):
        confusion[a][b] += 1
    correct, count = sum(confusion[label][label] for label in labels), len(true)
    metrics = {"accuracy": 100 * correct / count, "error": 100 * math.sqrt(correct * (count - correct) / count) / count}
    tables: dict[str, list[Mapping[str, Any]]] = {
        "labels": [{"label": label, **_label_metrics(confusion, label)} for label in labels],
        "confusion": [{"label": label, **row} for label, row in confusion.items()],
    }
    return metrics, tables


def _label_metrics(confusion: Mapping[str, Mapping[str, int]], label: str) -> dict[str, Any]:
    """Precision, recall and their harmonic mean in percent; None where nothing can be divided by."""
    hits, true = confusion[label][label], sum(confusion[label].values())
    predicted = sum(row[label] for row in confusion.values())
    return {
        "examples": true,
        "precision": 100 * hits / predicted if predicted else None,
        "recall": 100 * hits / true if true else None,
        "f1": 200 * hits / (true + predicted) if true + predicted else None,
    }


class ClassificationPredictor(Predictor[Any, Any, Classification]):
    """A classifier whose processor has `labels` and `encode(inputs)`, which returns the arguments of the model."""

    prediction_class = Classification

    @torch.no_grad()
    def predict(self, inputs: Sequence[Any], options: Any = None) -> list[Classification]:
        """The label of each input."""
        if not len(inputs):
            return []
        logits = self.model(*(part.to(self.device) for part in self.processor.encode(inputs)))
        return [
            Classification.from_probabilities(ranked_probabilities(row, self.processor.labels))
            for row in logits.float().cpu()
        ]

    def evaluate(self, examples: Iterable[tuple[Any, str]], options: Any = None) -> Report:
        """The accuracy, and precision and recall of each label."""
        pairs = list(examples)
        predicted = [one.text for one in self.predict([input for input, _ in pairs])]
        metrics, tables = classification_tables([label for _, label in pairs], predicted, self.processor.labels)
        return Report(len(pairs), metrics, tables=tables)


class ClassificationTask(Task[Any, Any, Any, ClassificationBatch]):
    """Examples (input, label); the processor has `labels` and `encode(inputs)`."""

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("accuracy", "accuracy, %"),
        Metric("loss", "nats per example", lower_is_better=True, format=".4f"),
    )

    def train_batches(self, config: Any, processor: Any, examples: Any) -> InMemoryBatches[Any, Any]:
        """Batches of `config.batch_size` examples in a random order."""
        return InMemoryBatches(
            list(examples), lambda some: self._collate(processor, some), config.batch_size, config.seed
        )

    def eval_batches(self, config: Any, processor: Any, examples: Iterable[Any]) -> Iterable[ClassificationBatch]:
        """All examples in order."""
        every = list(examples)
        for start in range(0, len(every), config.batch_size):
            yield self._collate(processor, every[start : start + config.batch_size])

    def loss(self, model: nn.Module, batch: ClassificationBatch) -> Loss:
        """Cross entropy."""
        return classification_loss(model(*batch.inputs), batch.labels)

    def _collate(self, processor: Any, examples: Sequence[Any]) -> ClassificationBatch:
        inputs, labels = zip(*examples, strict=True)
        return ClassificationBatch(
            processor.encode(inputs), torch.tensor([processor.labels.index(label) for label in labels])
        )
