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

from regard.data.batching import IntArray, RaggedArray
from regard.data.document_splitter import DocumentReport, DocumentSplitter, SplitDocument
from regard.data.documents import Document
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import UNK_ID
from regard.errors import DataError

DataPosition = dict[str, Any]


@dataclass(frozen=True)
class DocumentBatch:
    """Documents as numbers, end to end: nothing is filled up.

    `words` are those of the first sentence of the first document, of its second, and so on; `lengths` says how
    many words each sentence has, `counts` how many sentences each document has.
    """

    token_ids: Int[Tensor, " words"]
    lengths: Int[Tensor, " sentences"]
    sentences_per_document: Int[Tensor, " documents"]
    labels: Int[Tensor, " documents"]

    @classmethod
    def from_documents(
        cls, documents: Sequence[Sequence[Sequence[int]]], labels: Sequence[int] | None = None
    ) -> DocumentBatch:
        """A batch of encoded documents.

        >>> DocumentBatch.from_documents([[[7, 8], [9]], [[7]]]).lengths.tolist()
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
        return len(self.sentences_per_document)

    @property
    def num_tokens(self) -> int:
        """How many labels there are to predict."""
        return len(self)

    def to(self, device: torch.device | str) -> DocumentBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def shard(self, rank: int, world_size: int) -> DocumentBatch:
        """The share of one of `world` processes: every world-th document."""
        mine = torch.arange(len(self)) % world_size == rank
        sentences = mine.repeat_interleave(self.sentences_per_document)
        words = sentences.repeat_interleave(self.lengths)
        return DocumentBatch(
            self.token_ids[words],
            self.lengths[sentences],
            self.sentences_per_document[mine],
            self.labels[mine],
        )


class DocumentBatches:
    """Labeled documents held in memory, in batches filled by words; an epoch is each document once.

    `labels` are the names of the classes in order; without them, those of the documents in the order of the
    alphabet. Batches are drawn by chance, not sorted by length: as nothing is filled up, sorting saves nothing.

    >>> words = Tokenizer.train(["Good Bad ."], model_type="word", vocab_size=10)
    >>> shelf = DocumentBatches([Document("Good. Good.", "pos"), Document("Bad.", "neg")], words, DocumentSplitter())
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
        splitter: DocumentSplitter,
        *,
        labels: Sequence[str] | None = None,
        max_tokens: int = 16_384,
        seed: int = 0,
    ) -> None:
        self.report, self._max_tokens, self._seed = DocumentReport.from_splitter(splitter), max_tokens, seed
        self._name = str(documents) if not isinstance(documents, list | tuple) else "the documents"
        names, counts = [], []
        encoded: list[list[int]] = []
        for document, cut in iter_usable(documents, splitter, self.report):
            if labels is not None and document.label not in labels:
                raise self._unknown_label_error(document, labels)
            names.append(document.label)
            counts.append(len(cut))
            encoded += encode_document(cut, tokenizer)
        if not names:
            raise DataError(f"Nothing of {self._name} can be used: {self.report}")
        self.labels = tuple(sorted(set(names))) if labels is None else tuple(labels)
        known = {name: number for number, name in enumerate(self.labels)}
        self._sentences = RaggedArray.from_rows(encoded)
        self._label_ids = np.array([known[name] for name in names], dtype=np.int64)
        self.report.unknown = int((self._sentences.values == UNK_ID).sum())
        self._sentences_per_document = np.array(counts, dtype=np.int64)
        self._starts = np.cumsum(self._sentences_per_document) - self._sentences_per_document
        self.words_per_document = np.add.reduceat(self._sentences.lengths, self._starts)
        self._data_fingerprint = zlib.crc32(
            repr((splitter, len(tokenizer), self.labels, max_tokens, seed)).encode()
        )
        for part in (self._sentences.values, self._sentences_per_document, self._label_ids):
            self._data_fingerprint = zlib.crc32(part.tobytes(), self._data_fingerprint)

    def __len__(self) -> int:
        return len(self._sentences_per_document)

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[DocumentBatch, DataPosition]]:
        """Batches without end, each with the position after it; from a position, exactly what follows it."""
        epoch, done = self._resume_point(position)
        while True:
            plan = self._plan_batches(epoch)
            if done > len(plan):
                raise self._changed_data_error()
            for number in range(done, len(plan)):
                last = number + 1 == len(plan)
                place = {"epoch": epoch + 1, "batch": 0} if last else {"epoch": epoch, "batch": number + 1}
                yield self.make_batch(plan[number]), {**place, "data": f"{self._data_fingerprint:08x}"}
            epoch, done = epoch + 1, 0

    def iter_eval_batches(self) -> Iterator[DocumentBatch]:
        """Every document once, as they were read: for evaluation."""
        for which in split_by_words(np.arange(len(self)), self.words_per_document, self._max_tokens):
            yield self.make_batch(which)

    def make_batch(self, indices: IntArray) -> DocumentBatch:
        """The documents of these numbers."""
        sentences = _expand_ranges(self._starts[indices], self._sentences_per_document[indices])
        lengths = self._sentences.lengths[sentences]
        words = self._sentences.values[_expand_ranges(self._sentences.starts[sentences], lengths)]
        found = (
            words.astype(np.int64),
            lengths,
            self._sentences_per_document[indices],
            self._label_ids[indices],
        )
        return DocumentBatch(*map(torch.from_numpy, found))

    def _plan_batches(self, epoch: int) -> list[IntArray]:
        random = Random(f"{self._seed} {epoch}")
        order = np.argsort([random.random() for _ in range(len(self))], kind="stable")
        return split_by_words(order, self.words_per_document, self._max_tokens)

    def _unknown_label_error(self, document: Document, labels: Sequence[str]) -> DataError:
        where = f"{document.file}, line {document.line}" if document.line else f"document {self.report.read}"
        known = ", ".join(map(repr, labels))
        return DataError(
            f"{where}: the label {document.label!r} is none of the classes, which are {known}; mend it, or train "
            "with documents that have it."
        )

    def _resume_point(self, position: DataPosition | None) -> tuple[int, int]:
        if position is None:
            return 0, 0
        if position.get("data") != f"{self._data_fingerprint:08x}":
            raise self._changed_data_error()
        return position["epoch"], position["batch"]

    def _changed_data_error(self) -> DataError:
        return DataError(
            f"{self._name} or its settings changed since this position was saved; put the old ones back, "
            "or begin a new run."
        )


def iter_usable(
    documents: Iterable[Document | tuple[Document, int]], splitter: DocumentSplitter, report: DocumentReport
) -> Iterator[tuple[Document, SplitDocument]]:
    """The documents that have words, each cut; the report counts all."""
    for number, item in enumerate(documents, 1):
        document, line = (item, item.line or number) if isinstance(item, Document) else item
        cut, left = splitter.split(document.text)
        report.count_document(cut, left, line)
        if cut:
            yield document, cut


def encode_document(document: SplitDocument, tokenizer: Tokenizer) -> list[list[int]]:
    """The sentences as numbers; the tokenizer is one of kind word, so that each word is one number."""
    return [tokenizer.encode(" ".join(sentence)) for sentence in document]


def split_by_words(order: IntArray, lengths: IntArray, max_tokens: int) -> list[IntArray]:
    """Cut the order into batches of at most `most` words; a single document may have more.

    >>> [part.tolist() for part in split_by_words(np.arange(5), np.array([3, 3, 9, 1, 4]), max_tokens=6)]
    [[0, 1], [2], [3, 4]]
    """
    cuts, total = [], 0
    for place, here in enumerate(lengths[order].tolist()):
        if place and total + here > max_tokens:
            cuts.append(place)
            total = 0
        total += here
    return np.split(order, cuts) if len(order) else []


def _expand_ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """starts[0], starts[0] + 1, ... counts[0] of them, then those of the next."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts - starts, counts)
