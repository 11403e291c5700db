"""A trained network that reads documents: which class, how surely, and where it looked."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.data import Tokenizer
from regard.data.cutting import Cut, Cutting, Left, gaps
from regard.data.documents import Document
from regard.data.shelf import DocumentBatch, Shelf, numbers
from regard.errors import DataError, EmptyInputError
from regard.models.hierarchical import Hierarchical, Largest
from regard.models.whole import Whole
from regard.recipes.documents.settings import Classification

if TYPE_CHECKING:
    from regard.viewing.players import Player

Text = str | Sequence[str]


@dataclass(frozen=True)
class Classified:
    """The likeliest class of a document, the probability of each, and what was left out of a document too long."""

    label: str
    probabilities: dict[str, float]
    left: Left = field(default_factory=Left)

    @property
    def probability(self) -> float:
        return self.probabilities[self.label]

    def to_json(self) -> dict[str, Any]:
        plain = {"label": self.label, "probabilities": self.probabilities}
        return plain | ({"left_out": vars(self.left)} if self.left else {})


@dataclass(frozen=True)
class Reading:
    """A document with its class and the weights at both levels; None for a model that has none.

    `words[i]` are the words of sentence i and `weights[i]` their weights within it; `sentences[i]` is the weight
    of that sentence within the document.
    """

    classified: Classified
    words: Cut
    weights: list[Tensor] | None  # of the words of each sentence
    sentences: Float[Tensor, " sentences"] | None
    gaps: list[list[bool]]  # before which words there is a space

    def shares(self) -> list[list[float]]:
        """What each word has of the whole document: its weight times that of its sentence."""
        if self.weights is None or self.sentences is None:
            return [[0.0] * len(sentence) for sentence in self.words]
        pairs = zip(self.sentences, self.weights, strict=True)
        return [(share * weights).tolist() for share, weights in pairs]

    def drawn(self, color: bool | None = None, width: int | None = None, language: str = "en") -> str:
        """For the terminal."""
        from regard.viewing.terminal import document

        seen = self._weights(), self._sentences()
        return document(self.words, *seen, gaps=self.gaps, color=color, width=width, language=language)

    def player(self, title: str | None = None, language: str | None = None) -> Player:
        """A page in one file: the text, its sentences and words lit by weight."""
        from regard.viewing import players

        return players.document(
            self.words,
            self._weights(),
            self._sentences(),
            probabilities=self.classified.probabilities,
            gaps=self.gaps,
            title=title,
            left=None if not self.classified.left else vars(self.classified.left),
            language=language,
        )

    def to_json(self) -> dict[str, Any]:
        """Plain lists and numbers."""
        plain = {
            **self.classified.to_json(),
            "sentences": [{"words": sentence} for sentence in self.words],
        }
        for place, told in enumerate(plain["sentences"]):
            if self.weights is not None and self.sentences is not None:
                told |= {"weight": float(self.sentences[place]), "weights": self.weights[place].tolist()}
        return plain

    def _weights(self) -> list[list[float]] | None:
        return None if self.weights is None else [weights.tolist() for weights in self.weights]

    def _sentences(self) -> list[float] | None:
        return None if self.sentences is None else self.sentences.tolist()


class Classifier:
    """A model with its words and classes. `regard.load(RUN)` gives one."""

    def __init__(
        self, model: Hierarchical | Whole, words: Tokenizer, labels: Sequence[str], settings: Classification
    ):
        self.model, self.words, self.labels, self.settings = model.eval(), words, tuple(labels), settings
        self.cutting = cutting_of(settings)

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    @property
    def attends(self) -> bool:
        """Whether there are weights to look at."""
        pool = self.model.pool if isinstance(self.model, Whole) else self.model.of_words.pool
        return not isinstance(pool, Largest)

    def classify(self, texts: Sequence[Text]) -> list[Classified]:
        """The class of each text; a text may also be a list of sentences. An empty one is refused."""
        if isinstance(texts, str):
            raise TypeError("classify takes many texts: classify([text])")
        cuts = [self._cut(text, place) for place, text in enumerate(texts, 1)]
        found = []
        for some in _batches(cuts, self.settings.batch_tokens):
            for scores, (_, left) in zip(self._scores([cut for cut, _ in some]), some, strict=True):
                found.append(self._classified(scores, left))
        return found

    @torch.no_grad()
    def look(self, text: Text) -> Reading:
        """The class of a text, with the weight of each sentence and of each word."""
        cut, left = self._cut(text, 1)
        classified = self._classified(self._scores([cut])[0], left)
        if not self.attends:
            return Reading(classified, cut, None, None, gaps(text, cut))
        words, sentences = self.model.looks(*self._batch([cut]))
        weights = [row[: len(sentence)].cpu() for row, sentence in zip(words, cut, strict=True)]
        return Reading(classified, cut, weights, sentences[0].cpu(), gaps(text, cut))

    @torch.no_grad()
    def said(self, batch: DocumentBatch) -> list[int]:
        """The number of the likeliest class of each document in a batch."""
        here = batch.to(self.device)
        return self.model(here.words, here.lengths, here.counts).argmax(-1).tolist()

    @torch.no_grad()
    def _scores(self, cuts: Sequence[Cut]) -> Float[Tensor, "documents classes"]:
        return self.model(*self._batch(cuts)).float().cpu()

    def _batch(self, cuts: Sequence[Cut]) -> tuple[Tensor, Tensor, Tensor]:
        batch = DocumentBatch.of([numbers(cut, self.words) for cut in cuts]).to(self.device)
        return batch.words, batch.lengths, batch.counts

    def _classified(self, scores: Float[Tensor, " classes"], left: Left) -> Classified:
        shares = scores.softmax(-1).tolist()
        order = sorted(range(len(shares)), key=lambda place: -shares[place])
        return Classified(self.labels[order[0]], {self.labels[i]: shares[i] for i in order}, left)

    def _cut(self, text: Text, place: int) -> tuple[Cut, Left]:
        cut, left = self.cutting.cut(text)
        if not cut:
            raise EmptyInputError(f"text {place} is empty: there is nothing to read in it")
        return cut, left


def cutting_of(settings: Classification) -> Cutting:
    """How the settings say that documents are cut."""
    return Cutting(settings.tokenizer, settings.max_words, settings.max_sentences, settings.too_long)


def judged(classifier: Classifier, documents: Sequence[Document]) -> dict[str, Any]:
    """How often it is right, for each class how often it says so and how often rightly, and what it takes for what.

    `data` is what became of the documents: how many were empty or cut, and how many words are unknown.
    """
    if not documents:
        raise DataError("there is nothing to evaluate: no documents were given")
    labels, most = classifier.labels, classifier.settings.batch_tokens
    shelf = Shelf(documents, classifier.words, classifier.cutting, labels=labels, words=most)
    table = {true: dict.fromkeys(labels, 0) for true in labels}
    for batch in shelf.in_order():
        for true, said in zip(batch.labels.tolist(), classifier.said(batch), strict=True):
            table[labels[true]][labels[said]] += 1
    right, count = sum(table[label][label] for label in labels), len(shelf)
    return {
        "documents": count,
        "empty": shelf.report.empty,
        "right": right,
        "accuracy": 100 * right / count,
        "error": 100 * math.sqrt(right * (count - right) / count) / count,
        "classes": {label: _class(table, label) for label in labels},
        "confusion": table,
        "data": shelf.report.as_dict(),
    }


def _class(table: dict[str, dict[str, int]], label: str) -> dict[str, Any]:
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


def _batches(cuts: Sequence[tuple[Cut, Left]], most: int) -> Iterator[Sequence[tuple[Cut, Left]]]:
    """In order, at most so many words at once, but at least one document."""
    some: list[tuple[Cut, Left]] = []
    total = 0
    for one in cuts:
        here = sum(map(len, one[0]))
        if some and total + here > most:
            yield some
            some, total = [], 0
        some.append(one)
        total += here
    if some:
        yield some
