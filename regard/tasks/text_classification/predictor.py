"""A trained text classifier in use: classes, and the weights of sentences and words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import MaxPool
from regard.data import Tokenizer
from regard.data.document_batches import DocumentBatch, DocumentBatches
from regard.data.documents import Document, SplitDocument, Truncation, leading_spaces
from regard.data.sources import split_by_tokens
from regard.errors import DataError, EmptyInputError, UnsupportedError
from regard.models.hierarchical import FlatDocumentClassifier
from regard.tasks.classification import Classification, ClassificationPredictor, classification_tables
from regard.tasks.predictor import AttentionMap, Explanation, InputField, Report
from regard.tasks.text_classification.config import TextClassificationConfig

if TYPE_CHECKING:
    from regard.viewing.pages import HtmlPage

__all__ = ["DocumentExplanation", "TextClassifier", "TextOrSentences", "make_batches"]

TextOrSentences = str | Sequence[str]


@dataclass(frozen=True)
class DocumentExplanation(Explanation):
    """A document with its class and the attention weights of sentences and words.

    Args:
        prediction: the class, with the probabilities of all classes
        maps: the weights of the sentences, then those of the words of each sentence; none without attention
        words: the words of each sentence
        leading_spaces: before which words there is a space
    """

    prediction: Classification
    words: SplitDocument
    leading_spaces: list[list[bool]]

    @property
    def word_weights(self) -> list[Tensor] | None:
        """The weights of the words within each sentence; None without attention."""
        return [one.weights[0, 0] for one in self.maps[1:]] if self.maps else None

    @property
    def sentence_weights(self) -> Float[Tensor, " sentences"] | None:
        """The weights of the sentences within the document; None without attention."""
        return self.maps[0].weights[0, 0] if self.maps else None

    def to_text(self, *, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """The probabilities and the document, its words shaded by weight."""
        from regard.viewing.terminal import document

        probabilities = "  ".join(f"{label} {value:.3f}" for label, value in self.prediction.probabilities.items())
        return f"{probabilities}\n\n{document(**self._shaded_words(), color=color, width=width, language=language)}"

    def to_figure(self) -> Any:
        """Refused: documents have no figure."""
        raise UnsupportedError("a document is shown as .html, .txt or .json, not as a figure")

    def to_page(self, *, language: str | None = None) -> HtmlPage:
        """An HTML page with the document, its sentences and words shaded by weight."""
        from regard.viewing import pages

        return pages.document_page(
            **self._shaded_words(),
            probabilities=self.prediction.probabilities,
            truncation=vars(self.prediction.truncation) if self.prediction.truncation else None,
            language=language,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        sentences: list[dict[str, Any]] = [{"words": sentence} for sentence in self.words]
        if self.word_weights is not None and self.sentence_weights is not None:
            for index, sentence in enumerate(sentences):
                sentence["weight"] = float(self.sentence_weights[index])
                sentence["weights"] = self.word_weights[index].tolist()
        return {**self.prediction.to_json(), "sentences": sentences}

    def _shaded_words(self) -> dict[str, Any]:
        """The arguments that both drawings take: the words, their weights and spaces."""
        return {
            "tokens": self.words,
            "weights": None if self.word_weights is None else [row.tolist() for row in self.word_weights],
            "sentence_weights": None if self.sentence_weights is None else self.sentence_weights.tolist(),
            "space_before": self.leading_spaces,
        }


class TextClassifier(ClassificationPredictor[TextOrSentences, Document]):
    """A trained text classifier: what `regard.load(RUN)` returns.

    A text may also be a list of sentences.

    Example:
        classifier = regard.load("runs/documents")
        classifier.predict(["A wonderful film."])[0].probabilities
    """

    inputs = (InputField("text", "text", "the text to classify"),)

    @property
    def tokenizer(self) -> Tokenizer:
        """The words."""
        return self.processor.tokenizer

    @property
    def has_attention(self) -> bool:
        """Whether the model has attention weights to show."""
        pool = self.model.pool if isinstance(self.model, FlatDocumentClassifier) else self.model.word_level.pool
        return not isinstance(pool, MaxPool)

    def describe(self) -> dict[str, Any]:
        """The classes and the model."""
        return super().describe() | {"model": self.config.model, "labels": list(self.labels)}

    def check(self, inputs: Sequence[TextOrSentences]) -> None:
        """Raise EmptyInputError for a text without words."""
        for row, text in enumerate(inputs):
            self._split(text, row)

    def predict(self, inputs: Sequence[TextOrSentences], options: Any = None) -> list[Classification]:
        """The class of each text, with the probabilities of all classes."""
        self.require_list(inputs)
        documents = [self._split(text, row) for row, text in enumerate(inputs)]
        num_words = np.array([sum(map(len, document)) for document, _ in documents], dtype=np.int64)
        predictions = []
        for rows in split_by_tokens(np.arange(len(documents)), num_words, self.config.batch_tokens, is_padded=False):
            batch = self._make_batch([documents[row][0] for row in rows])
            for row, logits in zip(rows, self.compute_logits(*batch.model_inputs), strict=True):
                predictions.append(Classification.from_logits(logits, self.labels, documents[row][1]))
        return predictions

    @torch.no_grad()
    def explain(self, input: TextOrSentences, options: Any = None) -> DocumentExplanation:
        """The class of a text, with the weights of its sentences and words."""
        document, truncation = self._split(input, 0)
        inputs = self._make_batch([document]).to(self.device).model_inputs
        prediction = Classification.from_logits(self.compute_logits(*inputs)[0], self.labels, truncation)
        maps: list[AttentionMap] = []
        if self.has_attention:
            words, sentences = self.model.attention_weights(*inputs)
            names = [" ".join(sentence) for sentence in document]
            maps.append(AttentionMap("sentences", sentences[:1, None].cpu(), [prediction.text], names))
            for number, (weights, sentence) in enumerate(zip(words, document, strict=True), 1):
                row = weights[: len(sentence)].cpu()[None, None]
                maps.append(AttentionMap(f"sentence {number}", row, [prediction.text], sentence))
        return DocumentExplanation(prediction, tuple(maps), document, leading_spaces(input, document))

    def get_input(self, example: Document) -> TextOrSentences:
        """The text of a document."""
        return example.text

    def evaluate(self, examples: Iterable[Document], options: Any = None) -> Report:
        """Accuracy, precision and recall of each class, and the confusion matrix.

        The table `data` counts the documents that were empty, truncated or have unknown words.
        """
        documents = list(examples)
        if not documents:
            raise DataError("there is nothing to evaluate: there are no documents")
        batches = make_batches(self.config, self.processor, documents)
        true: list[str] = []
        predicted: list[str] = []
        for batch in batches.iter_eval_batches():
            true += [self.labels[index] for index in batch.labels.tolist()]
            predicted += [self.labels[index] for index in self.compute_logits(*batch.model_inputs).argmax(-1).tolist()]
        metrics, tables = classification_tables(true, predicted, self.labels)
        counts = {"data": [batches.report.as_dict()]}
        return Report(len(true), metrics, tables={**tables, **counts}, remarks=[str(batches.report)])

    @torch.no_grad()
    def compute_logits(self, *inputs: Tensor) -> Float[Tensor, "documents classes"]:
        """The logits of the classes, computed in one batch.

        Args:
            inputs: the arguments of the model, `DocumentBatch.model_inputs`
        """
        return self.model(*(tensor.to(self.device) for tensor in inputs)).float().cpu()

    def _make_batch(self, documents: Sequence[SplitDocument]) -> DocumentBatch:
        encoded = [self.tokenizer.encode_all(map(" ".join, document)) for document in documents]
        return DocumentBatch.from_documents(encoded)

    def _split(self, text: TextOrSentences, row: int) -> tuple[SplitDocument, Truncation]:
        document, truncation = self.processor.splitter.split(text)
        if not document:
            raise EmptyInputError("the text is empty: it has no words", row=row)
        return document, truncation


def make_batches(config: TextClassificationConfig, processor: Any, documents: Any) -> DocumentBatches:
    """Batches of labeled documents.

    Args:
        config: `batch_tokens`, `batch_size` and `seed`
        processor: the words, the labels and the limits of a document
        documents: with or without line numbers
    """
    options = {"labels": processor.labels, "max_tokens": config.batch_tokens, "max_rows": config.batch_size}
    return DocumentBatches(list(documents), processor.tokenizer, processor.splitter, **options, seed=config.seed)
