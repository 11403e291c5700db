"""Batches of documents, epoch after epoch, that can be taken up again at any position."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data._rows import Numbers, Rows
from regard.data.batch import UNK
from regard.data.cutting import Cut, Cutting, DocumentReport
from regard.data.documents import Document
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError

Position = dict[str, Any]


@dataclass(frozen=True)
class DocumentBatch:
    """Documents as numbers, end to end: nothing is filled up.

    `words` are those of the first sentence of the first document, of its second, and so on; `lengths` says how
    many words each sentence has, `counts` how many sentences each document has.
    """

    words: Int[Tensor, " words"]
    lengths: Int[Tensor, " sentences"]
    counts: Int[Tensor, " documents"]
    labels: Int[Tensor, " documents"]

    @classmethod
    def of(
        cls, documents: Sequence[Sequence[Sequence[int]]], labels: Sequence[int] | None = None
    ) -> DocumentBatch:
        """A batch of encoded documents.

        >>> DocumentBatch.of([[[7, 8], [9]], [[7]]]).lengths.tolist()
        [2, 1, 1]
        """
        sentences = [sentence for document in documents for sentence in document]
        return cls(
            torch.tensor([word for sentence in sentences for word in sentence], dtype=torch.long),
            torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long),
            torch.tensor([len(document) for document in documents], dtype=torch.long),
            torch.tensor(labels if labels is not None else [0] * len(documents), dtype=torch.long),
        )

    def __len__(self) -> int:
        return len(self.counts)

    @property
    def tokens(self) -> int:
        """How many labels there are to predict."""
        return len(self)

    def to(self, device: torch.device | str) -> DocumentBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def part(self, rank: int, world: int) -> DocumentBatch:
        """The share of one of `world` processes: every world-th document."""
        mine = torch.arange(len(self)) % world == rank
        sentences = mine.repeat_interleave(self.counts)
        words = sentences.repeat_interleave(self.lengths)
        return DocumentBatch(self.words[words], self.lengths[sentences], self.counts[mine], self.labels[mine])


class Shelf:
    """Labeled documents held in memory, in batches filled by words; an epoch is each document once.

    `labels` are the names of the classes in order; without them, those of the documents in the order of the
    alphabet. Batches are drawn by chance, not sorted by length: as nothing is filled up, sorting saves nothing.

    >>> words = Tokenizer.learn(["Good Bad ."], kind="word", size=10)
    >>> shelf = Shelf([Document("Good. Good.", "pos"), Document("Bad.", "neg")], words, Cutting())
    >>> shelf.labels, print(shelf.report)
    2 documents read, 2 used (6 words).
    (('neg', 'pos'), None)
    >>> batch, position = next(shelf.batches())
    >>> len(batch), position["epoch"]
    (2, 1)
    """

    def __init__(
        self,
        documents: Iterable[Document | tuple[Document, int]],
        tokenizer: Tokenizer,
        cutting: Cutting,
        *,
        labels: Sequence[str] | None = None,
        words: int = 16_384,
        seed: int = 0,
    ) -> None:
        self.report, self._most, self._seed = DocumentReport.of(cutting), words, seed
        self._name = str(documents) if not isinstance(documents, list | tuple) else "the documents"
        names, counts = [], []
        encoded: list[list[int]] = []
        for document, cut in used(documents, cutting, self.report):
            if labels is not None and document.label not in labels:
                raise self._strange(document, labels)
            names.append(document.label)
            counts.append(len(cut))
            encoded += numbers(cut, tokenizer)
        if not names:
            raise DataError(f"Nothing of {self._name} can be used: {self.report}")
        self.labels = tuple(sorted(set(names))) if labels is None else tuple(labels)
        known = {name: number for number, name in enumerate(self.labels)}
        self._rows = Rows.of(encoded)
        self._labels = np.array([known[name] for name in names], dtype=np.int64)
        self.report.unknown = int((self._rows.numbers == UNK).sum())
        self._counts = np.array(counts, dtype=np.int64)
        self._starts = np.cumsum(self._counts) - self._counts
        self.words = np.add.reduceat(self._rows.lengths, self._starts)
        self._mark = zlib.crc32(repr((cutting, len(tokenizer), self.labels, words, seed)).encode())
        for part in (self._rows.numbers, self._counts, self._labels):
            self._mark = zlib.crc32(part.tobytes(), self._mark)

    def __len__(self) -> int:
        return len(self._counts)

    def batches(self, position: Position | None = None) -> Iterator[tuple[DocumentBatch, Position]]:
        """Batches without end, each with the position after it; from a position, exactly what follows it."""
        epoch, done = self._place(position)
        while True:
            plan = self._plan(epoch)
            if done > len(plan):
                raise self._foreign()
            for number in range(done, len(plan)):
                last = number + 1 == len(plan)
                place = {"epoch": epoch + 1, "batch": 0} if last else {"epoch": epoch, "batch": number + 1}
                yield self.batch(plan[number]), {**place, "data": f"{self._mark:08x}"}
            epoch, done = epoch + 1, 0

    def in_order(self) -> Iterator[DocumentBatch]:
        """Every document once, as they were read: for evaluation."""
        for which in filled(np.arange(len(self)), self.words, self._most):
            yield self.batch(which)

    def batch(self, which: Numbers) -> DocumentBatch:
        """The documents of these numbers."""
        sentences = _spread(self._starts[which], self._counts[which])
        lengths = self._rows.lengths[sentences]
        words = self._rows.numbers[_spread(self._rows.starts[sentences], lengths)]
        found = (words.astype(np.int64), lengths, self._counts[which], self._labels[which])
        return DocumentBatch(*map(torch.from_numpy, found))

    def _plan(self, epoch: int) -> list[Numbers]:
        random = Random(f"{self._seed} {epoch}")
        order = np.argsort([random.random() for _ in range(len(self))], kind="stable")
        return filled(order, self.words, self._most)

    def _strange(self, document: Document, labels: Sequence[str]) -> DataError:
        where = f"{document.file}, line {document.line}" if document.line else f"document {self.report.read}"
        known = ", ".join(map(repr, labels))
        return DataError(
            f"{where}: the label {document.label!r} is none of the classes, which are {known}; mend it, or train "
            "with documents that have it."
        )

    def _place(self, position: Position | None) -> tuple[int, int]:
        if position is None:
            return 0, 0
        if position.get("data") != f"{self._mark:08x}":
            raise self._foreign()
        return position["epoch"], position["batch"]

    def _foreign(self) -> DataError:
        return DataError(
            f"{self._name} or its settings changed since this position was saved; put the old ones back, "
            "or begin a new run."
        )


def used(
    documents: Iterable[Document | tuple[Document, int]], cutting: Cutting, report: DocumentReport
) -> Iterator[tuple[Document, Cut]]:
    """The documents that have words, each cut; the report counts all."""
    for number, item in enumerate(documents, 1):
        document, line = (item, item.line or number) if isinstance(item, Document) else item
        cut, left = cutting.cut(document.text)
        report.note(cut, left, line)
        if cut:
            yield document, cut


def numbers(cut: Cut, tokenizer: Tokenizer) -> list[list[int]]:
    """The sentences as numbers; the tokenizer is one of kind word, so that each word is one number."""
    return [tokenizer.encode(" ".join(sentence)) for sentence in cut]


def filled(order: Numbers, words: Numbers, most: int) -> list[Numbers]:
    """Cut the order into batches of at most `most` words; a single document may have more.

    >>> [part.tolist() for part in filled(np.arange(5), np.array([3, 3, 9, 1, 4]), most=6)]
    [[0, 1], [2], [3, 4]]
    """
    cuts, total = [], 0
    for place, here in enumerate(words[order].tolist()):
        if place and total + here > most:
            cuts.append(place)
            total = 0
        total += here
    return np.split(order, cuts) if len(order) else []


def _spread(starts: Numbers, counts: Numbers) -> Numbers:
    """starts[0], starts[0] + 1, ... counts[0] of them, then those of the next."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts - starts, counts)
