"""What all tasks share whose answer is one of a few labels: documents, images, questions about images."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from regard.attention import Additive, Attention, Constant
from regard.data.documents import Truncation
from regard.data.sources import InMemoryBatches, TensorBatch
from regard.errors import ConfigError, DataError
from regard.tasks.mechanisms import SCORES, build_attention, build_normalizer, build_score, parse_mechanism
from regard.tasks.predictor import ExampleT, InputT, Metric, Prediction, Predictor, Report
from regard.tasks.task import Task
from regard.training import BatchSource, Loss

__all__ = [
    "Classification", "ClassificationBatch", "ClassificationPredictor", "ClassificationTask",
    "accuracy_with_error", "build_pooling_attention", "classification_tables", "select_weights",
]  # fmt: skip

PREDICT_BATCH_SIZE = 100  # inputs


@dataclass(frozen=True)
class ClassificationBatch(TensorBatch):
    """Inputs with their labels.

    Args:
        model_inputs: the arguments of the model
        labels: indices of the labels
    """

    model_inputs: tuple[Tensor, ...]
    labels: Tensor

    @property
    def num_tokens(self) -> int:
        """Number of examples."""
        return len(self.labels)


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
    def from_logits(
        cls, logits: Float[Tensor, " labels"], labels: Sequence[str], truncation: Truncation = Truncation()
    ) -> Classification:
        """The prediction of the logits of all labels.

        Example:
            >>> Classification.from_logits(torch.tensor([0.0, 9.0]), ("no", "yes")).probabilities
            {'yes': 0.9998766183853149, 'no': 0.00012339458044152707}
        """
        values = logits.float().softmax(-1)
        order = values.argsort(descending=True, stable=True).tolist()
        probabilities = {labels[index]: float(values[index]) for index in order}
        return cls(labels[order[0]], float(values[order[0]]), probabilities, truncation)

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
    metrics = accuracy_with_error(torch.tensor([a == b for a, b in zip(true, predicted, strict=True)]))
    tables: dict[str, list[Mapping[str, Any]]] = {
        "labels": [{"label": label, **_label_metrics(confusion, label)} for label in labels],
        "confusion": [{"label": label, **row} for label, row in confusion.items()],
    }
    return metrics, tables


def accuracy_with_error(correct: Bool[Tensor, "*examples"]) -> dict[str, float]:
    """The accuracy in percent and its standard error.

    Args:
        correct: whether each example is right

    Shape:
        - correct: any

    Example:
        >>> accuracy_with_error(torch.tensor([True, True, True, False]))
        {'accuracy': 75.0, 'error': 21.650635094610966}
    """
    rate = float(correct.double().mean())
    return {"accuracy": 100 * rate, "error": 100 * math.sqrt(rate * (1 - rate) / correct.numel())}


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


class ClassificationPredictor(Predictor[InputT, ExampleT, Classification]):
    """A classifier whose processor has `labels` and `encode(inputs)`, which returns the arguments of the model."""

    prediction_class = Classification

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes."""
        return tuple(self.processor.labels)

    def predict(self, inputs: Sequence[InputT], options: Any = None) -> list[Classification]:
        """The class of each input, with the probabilities of all classes."""
        self.require_list(inputs)
        if not len(inputs):
            return []
        logits = self.compute_logits(*self.processor.encode(inputs)).flatten(0, -2)
        return [Classification.from_logits(row, self.labels) for row in logits]

    @torch.no_grad()
    def compute_logits(self, *inputs: Tensor) -> Tensor:
        """The logits of the labels, computed in batches.

        Args:
            inputs: the arguments of the model, each with a row for each example
        """
        return self._compute_in_batches(self.model, inputs).float()

    def _compute_in_batches(self, function: Callable[..., Tensor], inputs: Sequence[Tensor]) -> Tensor:
        parts = zip(*(tensor.split(PREDICT_BATCH_SIZE) for tensor in inputs), strict=True)
        return torch.cat([function(*(tensor.to(self.device) for tensor in part)).cpu() for part in parts])

    def evaluate(self, examples: Iterable[ExampleT], options: Any = None) -> Report:
        """The accuracy, and precision and recall of each label; an example is an input and its label."""
        pairs: list[Any] = list(examples)
        predicted = [one.text for one in self.predict([input for input, _ in pairs])]
        metrics, tables = classification_tables([label for _, label in pairs], predicted, self.labels)
        return Report(len(pairs), metrics, tables=tables)


class ClassificationTask(Task[Any, Any, Any, Any]):
    """Examples (input, label) by default; the processor has `labels` and `encode(inputs)`.

    Batches have `model_inputs` and `labels`.
    """

    metrics: ClassVar[tuple[Metric, ...]] = (
        Metric("accuracy", "accuracy, %"),
        Metric("error", "standard error, %", lower_is_better=True),
        Metric("loss", "loss, nats", lower_is_better=True, format=".4f"),
    )

    def train_batches(self, config: Any, processor: Any, examples: Any) -> BatchSource:
        """Batches of `config.batch_size` examples in a random order."""
        return InMemoryBatches(list(examples), partial(self._collate, processor), config.batch_size, config.seed)

    def eval_batches(self, config: Any, processor: Any, examples: Iterable[Any]) -> Iterable[Any]:
        """All examples in order."""
        rows = list(examples)
        for start in range(0, len(rows), config.batch_size):
            yield self._collate(processor, rows[start : start + config.batch_size])

    def loss(self, model: nn.Module, batch: Any) -> Loss:
        """The cross entropy of the labels, summed, with the number of correct answers in percent."""
        logits, labels = model(*batch.model_inputs), batch.labels
        total = cross_entropy(logits.flatten(0, -2).float(), labels.flatten(), reduction="sum")
        return Loss(total, labels.numel(), {"accuracy": 100 * (logits.argmax(-1) == labels).sum()})

    def _collate(self, processor: Any, examples: Sequence[Any]) -> ClassificationBatch:
        inputs, labels = zip(*examples, strict=True)
        return ClassificationBatch(
            processor.encode(inputs), torch.tensor([processor.labels.index(label) for label in labels])
        )


def build_pooling_attention(config: Any, key_dim: int, hidden_dim: int, has_query: bool = True) -> Attention:
    """The attention that pools vectors to one, as a config describes it; their mean with `pooling=average`.

    Args:
        config: the options `pooling`, `score` and `normalize`
        key_dim: size of the vectors
        hidden_dim: size of a query and of the hidden layer of the score
        has_query: whether it has a query

    Example:
        >>> from regard.tasks.vision.config import ImageClassificationConfig
        >>> build_pooling_attention(ImageClassificationConfig(), key_dim=8, hidden_dim=4).score
        Additive(...)
    """
    if config.pooling == "average":
        return Attention(Constant())
    normalize = build_normalizer(config.normalize)
    if has_query:
        score = build_score(config.score, hidden_dim, key_dim, hidden_dim)
    elif parse_mechanism("score", config.score, SCORES)[0].name == "Additive":
        score = Additive(None, key_dim, hidden_dim)
    else:
        raise ConfigError(f"score={config.score} needs a query; learned_queries=none requires score=additive")
    return build_attention("global", score, normalize, hidden_dim, hidden_dim, 1)


def select_weights(weights: Mapping[str, Tensor], module: str) -> dict[str, Tensor]:
    """The weights of a part of a model, as a state dict of this part.

    Args:
        weights: the state dict of the model
        module: the name of the part

    Returns:
        The tensors of the part, under their names in it.

    Example:
        >>> select_weights({"encoder.bias": torch.zeros(1), "classifier.bias": torch.ones(2)}, "encoder")
        {'bias': tensor([0.])}
    """
    prefix = f"{module}."
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}
