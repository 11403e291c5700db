"""A trained text classifier in use: classes, and the weights of sentences and words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import MaxPool
from regard.data import Tokenizer
from regard.data.document_batches import DocumentBatch, DocumentBatches, encode_document
from regard.data.document_splitter import DocumentSplitter, SplitDocument, Truncation, leading_spaces
from regard.data.documents import Document
from regard.errors import DataError, EmptyInputError, UnsupportedError
from regard.models.flat_document import FlatDocumentClassifier
from regard.tasks.classification import Classification, classification_tables
from regard.tasks.predictor import AttentionMap, Explanation, InputField, Predictor, Report

if TYPE_CHECKING:
    from regard.viewing.pages import HtmlPage

__all__ = ["DocumentExplanation", "TextClassifier", "TextOrSentences"]

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

    @property
    def word_shares(self) -> list[list[float]]:
        """The weight of each word within the document: its weight times that of its sentence."""
        if self.word_weights is None or self.sentence_weights is None:
            return [[0.0] * len(sentence) for sentence in self.words]
        pairs = zip(self.sentence_weights, self.word_weights, strict=True)
        return [(sentence_weight * weights).tolist() for sentence_weight, weights in pairs]

    def to_text(self, *, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """The probabilities and the document, its words shaded by weight."""
        from regard.viewing.terminal import document

        probabilities = "  ".join(f"{label} {value:.3f}" for label, value in self._probabilities.items())
        weights = self._word_weight_lists(), self._sentence_weight_list()
        shaded = document(
            self.words, *weights, space_before=self.leading_spaces, color=color, width=width, language=language
        )
        return f"{probabilities}\n\n{shaded}"

    def to_figure(self) -> Any:
        """Refused: documents have no figure."""
        raise UnsupportedError("a document is shown as .html, .txt or .json, not as a figure")

    def to_page(self, *, title: str | None = None, language: str | None = None) -> HtmlPage:
        """An HTML page with the document, its sentences and words shaded by weight."""
        from regard.viewing import pages

        truncation = self._truncation
        return pages.document_page(
            self.words,
            self._word_weight_lists(),
            self._sentence_weight_list(),
            probabilities=self._probabilities,
            space_before=self.leading_spaces,
            title=title,
            truncation=vars(truncation) if truncation else None,
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

    @property
    def _probabilities(self) -> dict[str, float]:
        assert isinstance(self.prediction, Classification)
        return self.prediction.probabilities

    @property
    def _truncation(self) -> Truncation:
        assert isinstance(self.prediction, Classification)
        return self.prediction.truncation

    def _word_weight_lists(self) -> list[list[float]] | None:
        return None if self.word_weights is None else [weights.tolist() for weights in self.word_weights]

    def _sentence_weight_list(self) -> list[float] | None:
        return None if self.sentence_weights is None else self.sentence_weights.tolist()


class TextClassifier(Predictor[TextOrSentences, Document, Classification]):
    """A trained text classifier: what `regard.load(RUN)` returns.

    A text may also be a list of sentences.
    """

    inputs = (InputField("text", "text", "the text to classify"),)
    prediction_class = Classification

    @property
    def tokenizer(self) -> Tokenizer:
        """The words."""
        tokenizer: Tokenizer = self.processor.tokenizer
        return tokenizer

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes."""
        return tuple(self.processor.labels)

    @property
    def splitter(self) -> DocumentSplitter:
        """Splits texts into sentences of words."""
        splitter: DocumentSplitter = self.processor.splitter
        return splitter

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
        for row, text in enumerate(inputs, 1):
            self._split(text, row)

    def predict(self, inputs: Sequence[TextOrSentences], options: Any = None) -> list[Classification]:
        """The class of each text, with the probabilities of all classes."""
        if isinstance(inputs, str):
            raise TypeError("predict expects a list of texts: predict([text])")
        documents = [self._split(text, row) for row, text in enumerate(inputs, 1)]
        predictions = []
        for batch in _split_into_batches(documents, self.config.batch_tokens):
            logits = self._compute_logits([document for document, _ in batch])
            for row, (_, truncation) in zip(logits, batch, strict=True):
                predictions.append(self._make_prediction(row, truncation))
        return predictions

    @torch.no_grad()
    def explain(self, input: TextOrSentences, options: Any = None) -> DocumentExplanation:
        """The class of a text, with the weights of its sentences and words."""
        document, truncation = self._split(input, 1)
        prediction = self._make_prediction(self._compute_logits([document])[0], truncation)
        maps: list[AttentionMap] = []
        if self.has_attention:
            words, sentences = self.model.attention_weights(*self._make_batch([document]))
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
        batches = DocumentBatches(
            documents, self.tokenizer, self.splitter, labels=self.labels, max_tokens=self.config.batch_tokens
        )
        true: list[str] = []
        predicted: list[str] = []
        for batch in batches.iter_eval_batches():
            true += [self.labels[index] for index in batch.labels.tolist()]
            predicted += [self.labels[index] for index in self.predict_batch(batch)]
        metrics, tables = classification_tables(true, predicted, self.labels)
        counts = {"data": [batches.report.as_dict()]}
        return Report(len(true), metrics, tables={**tables, **counts}, remarks=[str(batches.report)])

    @torch.no_grad()
    def predict_batch(self, batch: DocumentBatch) -> list[int]:
        """The index of the most probable class of each document.

        Args:
            batch: encoded documents
        """
        batch = batch.to(self.device)
        logits = self.model(batch.token_ids, batch.lengths, batch.sentences_per_document)
        indices: list[int] = logits.argmax(-1).tolist()
        return indices

    @torch.no_grad()
    def _compute_logits(self, documents: Sequence[SplitDocument]) -> Float[Tensor, "documents classes"]:
        return self.model(*self._make_batch(documents)).float().cpu()

    def _make_batch(self, documents: Sequence[SplitDocument]) -> tuple[Tensor, Tensor, Tensor]:
        encoded = [encode_document(document, self.tokenizer) for document in documents]
        batch = DocumentBatch.from_documents(encoded).to(self.device)
        return batch.token_ids, batch.lengths, batch.sentences_per_document

    def _make_prediction(self, logits: Float[Tensor, " classes"], truncation: Truncation) -> Classification:
        values = logits.softmax(-1).tolist()
        order = sorted(range(len(values)), key=lambda index: -values[index])
        probabilities = {self.labels[index]: values[index] for index in order}
        return Classification.from_probabilities(probabilities, truncation)

    def _split(self, text: TextOrSentences, row: int) -> tuple[SplitDocument, Truncation]:
        document, truncation = self.splitter.split(text)
        if not document:
            raise EmptyInputError("the text is empty: it has no words", row=row - 1)
        return document, truncation


def _split_into_batches(
    documents: Sequence[tuple[SplitDocument, Truncation]], max_words: int
) -> Iterator[Sequence[tuple[SplitDocument, Truncation]]]:
    """In order, at most `max_words` in a batch, but at least one document."""
    batch: list[tuple[SplitDocument, Truncation]] = []
    num_words = 0
    for document in documents:
        size = sum(map(len, document[0]))
        if batch and num_words + size > max_words:
            yield batch
            batch, num_words = [], 0
        batch.append(document)
        num_words += size
    if batch:
        yield batch
