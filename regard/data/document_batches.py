"""Batches of labeled documents, concatenated without padding."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.document_splitter import DocumentReport, DocumentSplitter, SplitDocument
from regard.data.documents import Document
from regard.data.sources import IntArray, LabeledBatch, ResumableBatches, data_fingerprint, split_by_tokens
from regard.data.tokenizer import RaggedArray, Tokenizer
from regard.data.vocabulary import UNK_ID
from regard.errors import DataError

__all__ = ["DocumentBatch", "DocumentBatches", "encode_document", "iter_usable"]


@dataclass(frozen=True)
class DocumentBatch(LabeledBatch):
    """Documents as token ids, concatenated without padding.

    Args:
        token_ids: the words of the first sentence of the first document, of its second sentence, and so on.
        lengths: the number of words of each sentence.
        sentences_per_document: the number of sentences of each document.
        labels: the class of each document.

    Shape:
        token_ids: (tokens,), lengths: (sentences,), sentences_per_document and labels: (documents,).

    Example:
        >>> DocumentBatch.from_documents([[[7, 8], [9]], [[7]]]).lengths.tolist()
        [2, 1, 1]
    """

    token_ids: Int[Tensor, " tokens"]
    lengths: Int[Tensor, " sentences"]
    sentences_per_document: Int[Tensor, " documents"]
    labels: Int[Tensor, " documents"]

    @classmethod
    def from_documents(
        cls, documents: Sequence[Sequence[Sequence[int]]], labels: Sequence[int] | None = None
    ) -> DocumentBatch:
        """Collate encoded documents.

        Args:
            documents: for each document, the token ids of each sentence.
            labels: the class of each document; 0 for all by default.

        Returns:
            The batch.
        """
        sentences = [sentence for document in documents for sentence in document]
        return cls(
            torch.tensor([i for sentence in sentences for i in sentence], dtype=torch.long),
            torch.tensor([len(sentence) for sentence in sentences], dtype=torch.long),
            torch.tensor([len(document) for document in documents], dtype=torch.long),
            torch.tensor(labels if labels is not None else [0] * len(documents), dtype=torch.long),
        )

    def __len__(self) -> int:
        return len(self.labels)

    def shard(self, rank: int, world_size: int) -> DocumentBatch:
        """Return the documents of one of several processes: every `world_size`-th, from `rank` on.

        Args:
            rank: the number of the process.
            world_size: the number of processes.

        Returns:
            A batch, which is empty if there are too few documents.
        """
        documents = torch.arange(len(self)) % world_size == rank
        sentences = documents.repeat_interleave(self.sentences_per_document)
        tokens = sentences.repeat_interleave(self.lengths)
        return DocumentBatch(
            self.token_ids[tokens],
            self.lengths[sentences],
            self.sentences_per_document[documents],
            self.labels[documents],
        )


class DocumentBatches(ResumableBatches[DocumentBatch]):
    """Labeled documents in memory, in batches limited by tokens; an epoch is each document once.

    Documents come in random order, not sorted by length: without padding, sorting saves nothing.

    Args:
        documents: the documents, with or without line numbers.
        tokenizer: a tokenizer of model type `word`.
        splitter: splits documents into sentences of words.
        labels: the classes in order; by default those of the documents, sorted.
        max_tokens: the limit on the words of a batch.
        seed: seed of the order.

    Raises:
        DataError: no document can be used, or a label is not one of `labels`.

    Example:
        >>> tokenizer = Tokenizer.train(["Good Bad ."], model_type="word", vocab_size=10)
        >>> documents = [Document("Good. Good.", "pos"), Document("Bad.", "neg")]
        >>> data = DocumentBatches(documents, tokenizer, DocumentSplitter())
        >>> data.labels, print(data.report)
        2 documents read, 2 used (6 words).
        (('neg', 'pos'), None)
        >>> batch, position = next(data.batches())
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
        self.name = str(documents) if not isinstance(documents, list | tuple) else "the documents"
        names, counts = [], []
        encoded: list[list[int]] = []
        for document, sentences in iter_usable(documents, splitter, self.report):
            if labels is not None and document.label not in labels:
                raise self._unknown_label_error(document, labels)
            names.append(document.label)
            counts.append(len(sentences))
            encoded += encode_document(sentences, tokenizer)
        if not names:
            raise DataError(f"Nothing of {self.name} can be used: {self.report}")
        self.labels = tuple(sorted(set(names))) if labels is None else tuple(labels)
        label_ids = {name: i for i, name in enumerate(self.labels)}
        self._sentences = RaggedArray.from_rows(encoded)
        self._label_ids = np.array([label_ids[name] for name in names], dtype=np.int64)
        self.report.unknown = int((self._sentences.values == UNK_ID).sum())
        self._sentences_per_document = np.array(counts, dtype=np.int64)
        self._starts = np.cumsum(self._sentences_per_document) - self._sentences_per_document
        self.words_per_document = np.add.reduceat(self._sentences.lengths, self._starts)
        self.fingerprint = data_fingerprint(
            {
                "splitter": [splitter.unit, splitter.max_words, splitter.max_sentences, splitter.overflow],
                "vocab_size": len(tokenizer),
                "labels": list(self.labels),
                "max_tokens": max_tokens,
                "seed": seed,
                "token_ids": self._sentences.values,
                "lengths": self._sentences.lengths,
                "sentences_per_document": self._sentences_per_document,
                "label_ids": self._label_ids,
            }
        )

    def __len__(self) -> int:
        return len(self._sentences_per_document)

    def iter_eval_batches(self) -> Iterator[DocumentBatch]:
        """Iterate over every document once, in the order of the data, for evaluation.

        Returns:
            An iterator over batches.
        """
        order = np.arange(len(self))
        for indices in split_by_tokens(order, self.words_per_document, self._max_tokens, is_padded=False):
            yield self.make_batch(indices)

    def make_batch(self, indices: IntArray) -> DocumentBatch:
        """Collate some documents.

        Args:
            indices: their indices.

        Returns:
            The batch.
        """
        counts = self._sentences_per_document[indices]
        sentences = _expand_ranges(self._starts[indices], counts)
        lengths = self._sentences.lengths[sentences]
        token_ids = self._sentences.values[_expand_ranges(self._sentences.starts[sentences], lengths)]
        arrays = (token_ids.astype(np.int64), lengths, counts, self._label_ids[indices])
        return DocumentBatch(*map(torch.from_numpy, arrays))

    def _plan_batches(self, epoch: int) -> list[IntArray]:
        rng = Random(f"{self._seed} {epoch}")
        order = np.argsort([rng.random() for _ in range(len(self))], kind="stable")
        return split_by_tokens(order, self.words_per_document, self._max_tokens, is_padded=False)

    def _unknown_label_error(self, document: Document, labels: Sequence[str]) -> DataError:
        location = f"{document.file}, line {document.line}" if document.line else f"document {self.report.read}"
        return DataError(
            f"{location}: invalid label {document.label!r}; the classes are {', '.join(map(repr, labels))}; correct "
            "it, or train with documents that have it."
        )


def iter_usable(
    documents: Iterable[Document | tuple[Document, int]], splitter: DocumentSplitter, report: DocumentReport
) -> Iterator[tuple[Document, SplitDocument]]:
    """Split documents, and leave out those without words.

    Args:
        documents: the documents, with or without line numbers.
        splitter: splits documents into sentences of words.
        report: counts every document.

    Returns:
        An iterator over the documents that are used, each with its sentences of words.

    Example:
        >>> report = DocumentReport.from_splitter(DocumentSplitter())
        >>> documents = [Document("Fine.", "pos"), Document("", "neg")]
        >>> [sentences for _, sentences in iter_usable(documents, DocumentSplitter(), report)], report.empty
        ([[['Fine', '.']]], 1)
    """
    for number, item in enumerate(documents, 1):
        document, line = (item, item.line or number) if isinstance(item, Document) else item
        sentences, truncation = splitter.split(document.text)
        report.count_document(sentences, truncation, line)
        if sentences:
            yield document, sentences


def encode_document(document: SplitDocument, tokenizer: Tokenizer) -> list[list[int]]:
    """Encode the sentences of a document.

    Args:
        document: sentences of words.
        tokenizer: a tokenizer of model type `word`, so that each word is one token.

    Returns:
        The token ids of each sentence.

    Example:
        >>> encode_document([["a", "b"], ["b"]], Tokenizer.train(["a b"], "word", 10))
        [[4, 5], [5]]
    """
    return [tokenizer.encode(" ".join(sentence)) for sentence in document]


def _expand_ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Concatenate the ranges starts[i], starts[i] + 1, ..., starts[i] + counts[i] - 1."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts - starts, counts)
