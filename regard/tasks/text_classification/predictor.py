"""A trained network that reads documents: which class, how surely, and where it looked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
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
from regard.errors import DataError, EmptyInputError
from regard.models.flat_document import FlatDocumentClassifier
from regard.models.hierarchical import HierarchicalAttentionNetwork
from regard.tasks.classification import Classification
from regard.tasks.text_classification.config import TextClassificationConfig

if TYPE_CHECKING:
    from regard.viewing.pages import HtmlPage

TextOrSentences = str | Sequence[str]


@dataclass(frozen=True)
class DocumentExplanation:
    """A document with its class and the weights at both levels; None for a model that has none.

    `words[i]` are the words of sentence i and `weights[i]` their weights within it; `sentences[i]` is the weight
    of that sentence within the document.
    """

    prediction: Classification
    words: SplitDocument
    word_weights: list[Tensor] | None  # of the words of each sentence
    sentence_weights: Float[Tensor, " sentences"] | None
    leading_spaces: list[list[bool]]  # before which words there is a space

    def word_shares(self) -> list[list[float]]:
        """What each word has of the whole document: its weight times that of its sentence."""
        if self.word_weights is None or self.sentence_weights is None:
            return [[0.0] * len(sentence) for sentence in self.words]
        pairs = zip(self.sentence_weights, self.word_weights, strict=True)
        return [(share * weights).tolist() for share, weights in pairs]

    def to_text(self, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """For the terminal."""
        from regard.viewing.terminal import document

        seen = self._word_weight_lists(), self._sentence_weight_list()
        return document(
            self.words, *seen, space_before=self.leading_spaces, color=color, width=width, language=language
        )

    def to_page(self, title: str | None = None, language: str | None = None) -> HtmlPage:
        """A page in one file: the text, its sentences and words lit by weight."""
        from regard.viewing import pages as players

        return players.document_page(
            self.words,
            self._word_weight_lists(),
            self._sentence_weight_list(),
            probabilities=self.prediction.probabilities,
            space_before=self.leading_spaces,
            title=title,
            truncation=None if not self.prediction.truncation else vars(self.prediction.truncation),
            language=language,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        plain = {
            **self.prediction.to_json(),
            "sentences": [{"words": sentence} for sentence in self.words],
        }
        for place, told in enumerate(plain["sentences"]):
            if self.word_weights is not None and self.sentence_weights is not None:
                told |= {
                    "weight": float(self.sentence_weights[place]),
                    "weights": self.word_weights[place].tolist(),
                }
        return plain

    def _word_weight_lists(self) -> list[list[float]] | None:
        return None if self.word_weights is None else [weights.tolist() for weights in self.word_weights]

    def _sentence_weight_list(self) -> list[float] | None:
        return None if self.sentence_weights is None else self.sentence_weights.tolist()


class TextClassifier:
    """A model with its words and classes. `regard.load(RUN)` gives one."""

    def __init__(
        self,
        model: HierarchicalAttentionNetwork | FlatDocumentClassifier,
        tokenizer: Tokenizer,
        labels: Sequence[str],
        config: TextClassificationConfig,
    ):
        self.model, self.tokenizer, self.labels, self.config = model.eval(), tokenizer, tuple(labels), config
        self.splitter = make_splitter(config)

    @property
    def device(self) -> torch.device:
        return self.model.classifier.weight.device

    @property
    def has_attention(self) -> bool:
        """Whether there are weights to look at."""
        pool = (
            self.model.pool if isinstance(self.model, FlatDocumentClassifier) else self.model.word_level.pool
        )
        return not isinstance(pool, MaxPool)

    def classify(self, texts: Sequence[TextOrSentences]) -> list[Classification]:
        """The class of each text; a text may also be a list of sentences. An empty one is refused."""
        if isinstance(texts, str):
            raise TypeError("classify takes many texts: classify([text])")
        cuts = [self._split(text, place) for place, text in enumerate(texts, 1)]
        found = []
        for some in _split_into_batches(cuts, self.config.batch_tokens):
            for scores, (_, left) in zip(self._compute_logits([cut for cut, _ in some]), some, strict=True):
                found.append(self._make_prediction(scores, left))
        return found

    @torch.no_grad()
    def explain(self, text: TextOrSentences) -> DocumentExplanation:
        """The class of a text, with the weight of each sentence and of each word."""
        cut, left = self._split(text, 1)
        classified = self._make_prediction(self._compute_logits([cut])[0], left)
        if not self.has_attention:
            return DocumentExplanation(classified, cut, None, None, leading_spaces(text, cut))
        words, sentences = self.model.attention_weights(*self._make_batch([cut]))
        weights = [row[: len(sentence)].cpu() for row, sentence in zip(words, cut, strict=True)]
        return DocumentExplanation(classified, cut, weights, sentences[0].cpu(), leading_spaces(text, cut))

    @torch.no_grad()
    def predict_batch(self, batch: DocumentBatch) -> list[int]:
        """The number of the likeliest class of each document in a batch."""
        here = batch.to(self.device)
        return self.model(here.token_ids, here.lengths, here.sentences_per_document).argmax(-1).tolist()

    @torch.no_grad()
    def _compute_logits(self, documents: Sequence[SplitDocument]) -> Float[Tensor, "documents classes"]:
        return self.model(*self._make_batch(documents)).float().cpu()

    def _make_batch(self, documents: Sequence[SplitDocument]) -> tuple[Tensor, Tensor, Tensor]:
        batch = DocumentBatch.from_documents([encode_document(cut, self.tokenizer) for cut in documents]).to(
            self.device
        )
        return batch.token_ids, batch.lengths, batch.sentences_per_document

    def _make_prediction(self, logits: Float[Tensor, " classes"], truncation: Truncation) -> Classification:
        shares = logits.softmax(-1).tolist()
        order = sorted(range(len(shares)), key=lambda place: -shares[place])
        return Classification.from_probabilities({self.labels[i]: shares[i] for i in order}, truncation)

    def _split(self, text: TextOrSentences, number: int) -> tuple[SplitDocument, Truncation]:
        cut, left = self.splitter.split(text)
        if not cut:
            raise EmptyInputError(f"text {number} is empty: there is nothing to read in it")
        return cut, left


def make_splitter(config: TextClassificationConfig) -> DocumentSplitter:
    """How the settings say that documents are cut."""
    return DocumentSplitter(
        config.tokenizer, config.max_sentence_words, config.max_sentences, config.overflow
    )


def classification_report(classifier: TextClassifier, documents: Sequence[Document]) -> dict[str, Any]:
    """How often it is right, for each class how often it says so and how often rightly, and what it takes for what.

    `data` is what became of the documents: how many were empty or cut, and how many words are unknown.
    """
    if not documents:
        raise DataError("there is nothing to evaluate: no documents were given")
    labels, most = classifier.labels, classifier.config.batch_tokens
    shelf = DocumentBatches(
        documents, classifier.tokenizer, classifier.splitter, labels=labels, max_tokens=most
    )
    table = {true: dict.fromkeys(labels, 0) for true in labels}
    for batch in shelf.iter_eval_batches():
        for true, said in zip(batch.labels.tolist(), classifier.predict_batch(batch), strict=True):
            table[labels[true]][labels[said]] += 1
    right, count = sum(table[label][label] for label in labels), len(shelf)
    return {
        "documents": count,
        "empty": shelf.report.empty,
        "right": right,
        "accuracy": 100 * right / count,
        "error": 100 * math.sqrt(right * (count - right) / count) / count,
        "classes": {label: _class_metrics(table, label) for label in labels},
        "confusion": table,
        "data": shelf.report.as_dict(),
    }


def _class_metrics(table: dict[str, dict[str, int]], label: str) -> dict[str, Any]:
    """Precision, recall and their harmonic mean, in a hundred; None where there is nothing to divide by."""
    hits, true = table[label][label], sum(table[label].values())
    said = sum(row[label] for row in table.values())
    both = true + said
    return {
        "documents": true,
        "precision": 100 * hits / said if said else None,
        "recall": 100 * hits / true if true else None,
        "f1": 200 * hits / both if both else None,
    }


def _split_into_batches(
    documents: Sequence[tuple[SplitDocument, Truncation]], max_words: int
) -> Iterator[Sequence[tuple[SplitDocument, Truncation]]]:
    """In order, at most so many words at once, but at least one document."""
    some: list[tuple[SplitDocument, Truncation]] = []
    total = 0
    for one in documents:
        here = sum(map(len, one[0]))
        if some and total + here > max_words:
            yield some
            some, total = [], 0
        some.append(one)
        total += here
    if some:
        yield some
