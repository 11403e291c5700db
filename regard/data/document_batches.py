"""Batches of labeled documents, concatenated without padding; everything that is left out is counted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from random import Random

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.documents import Document, DocumentSplitter, SplitDocument, Truncation
from regard.data.parallel import MAX_LINE_NUMBERS, TextReport, describe_unknown, format_line_numbers, pluralize
from regard.data.sources import BatchWithLabels, IntArray, ResumableBatches, data_fingerprint, shuffle, split_by_tokens
from regard.data.tokenizer import RaggedArray, Tokenizer
from regard.data.vocabulary import UNK_ID
from regard.errors import DataError

__all__ = ["DocumentBatch", "DocumentBatches", "DocumentReport", "iter_usable"]


@dataclass(frozen=True)
class DocumentBatch(BatchWithLabels):
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
        labels = [0] * len(documents) if labels is None else labels
        columns = chain.from_iterable(sentences), map(len, sentences), map(len, documents), labels
        return cls(*(torch.tensor([*column], dtype=torch.long) for column in columns))

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
        rows = self.sentences_per_document[documents], self.labels[documents]
        return DocumentBatch(self.token_ids[tokens], self.lengths[sentences], *rows)


@dataclass
class DocumentReport(TextReport):
    """Counts of the documents that were read and used, and of what was left out.

    Args:
        max_words: the limit on the words of a sentence.
        max_sentences: the limit on the sentences of a document.
        overflow: what happens to longer sentences: `split` or `truncate`.
        read: documents that were read.
        used: documents that are used.
        words: their words.
        empty: empty documents, which are left out.
        empty_lines: line numbers of the first of them.
        long_sentences: sentences over `max_words`.
        omitted_words: words of them that are left out.
        long_documents: documents over `max_sentences`.
        long_document_lines: line numbers of the first of them.
        omitted_sentences: sentences of them that are left out.
        unknown: words that are not in the vocabulary.

    Example:
        >>> report = DocumentReport(max_words=40, max_sentences=2, overflow="truncate")
        >>> report.count_document([["Fine", "."]], Truncation(), line=1)
        >>> report.count_document([], Truncation(), line=2)
        >>> report.count_document([["Oh", "no"], ["Why"]], Truncation(1, 7, 3), line=9)
        >>> print(report)
        3 documents read, 2 used (5 words); 1 empty left out (line 2); 1 sentence over 40 words truncated (7 words left
        out); 1 document over 2 sentences truncated (line 9; 3 sentences left out).
    """

    max_words: int
    max_sentences: int
    overflow: str
    read: int = 0
    used: int = 0
    words: int = 0
    empty: int = 0
    empty_lines: list[int] = field(default_factory=list)
    long_sentences: int = 0
    omitted_words: int = 0
    long_documents: int = 0
    long_document_lines: list[int] = field(default_factory=list)
    omitted_sentences: int = 0
    unknown: int = 0

    @classmethod
    def from_splitter(cls, splitter: DocumentSplitter) -> DocumentReport:
        """Return an empty report for the limits of a splitter.

        Args:
            splitter: the splitter.

        Returns:
            The report.
        """
        return cls(splitter.max_words, splitter.max_sentences, splitter.overflow)

    def count_document(self, document: SplitDocument, truncation: Truncation, line: int) -> None:
        """Count one document.

        Args:
            document: its sentences of words, empty if it is left out.
            truncation: what is left out of it.
            line: its line number.
        """
        self.read += 1
        self.used += bool(document)
        self.words += sum(map(len, document))
        self.long_sentences += truncation.long_sentences
        self.omitted_words += truncation.omitted_words
        self.omitted_sentences += truncation.omitted_sentences
        if not document:
            self.empty += 1
            self.empty_lines += [line] * (len(self.empty_lines) < MAX_LINE_NUMBERS)
        if truncation.omitted_sentences:
            self.long_documents += 1
            self.long_document_lines += [line] * (len(self.long_document_lines) < MAX_LINE_NUMBERS)

    def __str__(self) -> str:
        parts = [f"{pluralize(self.read, 'document')} read, {self.used:,} used ({pluralize(self.words, 'word')})"]
        if self.empty:
            parts.append(f"{self.empty:,} empty left out ({format_line_numbers(self.empty_lines, self.empty)})")
        if self.long_sentences:
            omitted = f"truncated ({pluralize(self.omitted_words, 'word')} left out)"
            outcome = "split" if self.overflow == "split" else omitted
            parts.append(f"{pluralize(self.long_sentences, 'sentence')} over {self.max_words:,} words {outcome}")
        if self.long_documents:
            lines = format_line_numbers(self.long_document_lines, self.long_documents)
            omitted = f"{pluralize(self.omitted_sentences, 'sentence')} left out"
            count = f"{pluralize(self.long_documents, 'document')} over {self.max_sentences:,} sentences truncated"
            parts.append(f"{count} ({lines}; {omitted})")
        if self.unknown:
            parts.append(describe_unknown(self.unknown, self.words, "word"))
        return "; ".join(parts) + "."


class DocumentBatches(ResumableBatches[DocumentBatch]):
    """Labeled documents in memory, in batches limited by tokens; an epoch is each document once.

    Documents come in random order, not sorted by length: without padding, sorting saves nothing.

    Args:
        documents: the documents, with or without line numbers.
        tokenizer: a tokenizer of model type `word`.
        splitter: splits documents into sentences of words.
        labels: the classes in order; by default those of the documents, sorted.
        max_tokens: the limit on the words of a batch.
        max_rows: the number of documents in a batch, in place of `max_tokens`.
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
        max_rows: int | None = None,
        seed: int = 0,
    ) -> None:
        self.report, self._max_tokens, self._seed = DocumentReport.from_splitter(splitter), max_tokens, seed
        self._max_rows = max_rows
        self.name = str(documents) if not isinstance(documents, list | tuple) else "the documents"
        names, encoded = [], []
        for document, sentences in iter_usable(documents, splitter, self.report):
            if labels is not None and document.label not in labels:
                location = f"{document.file}, line {document.line}" if document.line else f"document {self.report.read}"
                problem = f"invalid label {document.label!r}; the classes are {', '.join(map(repr, labels))}"
                raise DataError(f"{location}: {problem}; correct it, or train with documents that have it.")
            names.append(document.label)
            encoded.append(tokenizer.encode_all(map(" ".join, sentences)))
        if not names:
            raise DataError(f"Nothing of {self.name} can be used: {self.report}")
        self.labels = tuple(sorted(set(names))) if labels is None else tuple(labels)
        self._sentences = RaggedArray.from_rows(chain.from_iterable(encoded))
        self._label_ids = np.array([self.labels.index(name) for name in names], dtype=np.int64)
        self.report.unknown = int((self._sentences.values == UNK_ID).sum())
        self._sentences_per_document = np.array([len(sentences) for sentences in encoded], dtype=np.int64)
        self._starts = np.cumsum(self._sentences_per_document) - self._sentences_per_document
        self.words_per_document = np.add.reduceat(self._sentences.lengths, self._starts)
        limits = [splitter.unit, splitter.max_words, splitter.max_sentences, splitter.overflow]
        size = {"max_tokens": max_tokens} if max_rows is None else {"max_rows": max_rows}
        options = {"splitter": limits, "vocab_size": len(tokenizer), **size, "seed": seed}
        words = {"token_ids": self._sentences.values, "lengths": self._sentences.lengths}
        classes = {"labels": list(self.labels), "label_ids": self._label_ids}
        structure = {"sentences_per_document": self._sentences_per_document}
        self.fingerprint = data_fingerprint({**options, **words, **classes, **structure})

    def __len__(self) -> int:
        return len(self._sentences_per_document)

    def iter_eval_batches(self) -> Iterator[DocumentBatch]:
        """Iterate over every document once, in the order of the data, for evaluation.

        Returns:
            An iterator over batches.
        """
        return map(self.make_batch, self._split(np.arange(len(self))))

    def make_batch(self, indices: IntArray) -> DocumentBatch:
        """Collate the documents of these indices."""
        counts = self._sentences_per_document[indices]
        sentences = _expand_ranges(self._starts[indices], counts)
        lengths = self._sentences.lengths[sentences]
        token_ids = self._sentences.values[_expand_ranges(self._sentences.starts[sentences], lengths)]
        arrays = (token_ids.astype(np.int64), lengths, counts, self._label_ids[indices])
        return DocumentBatch(*map(torch.from_numpy, arrays))

    def _plan_batches(self, epoch: int) -> list[IntArray]:
        return self._split(np.array(shuffle(range(len(self)), Random(f"{self._seed} {epoch}"))))

    def _split(self, order: IntArray) -> list[IntArray]:
        arguments = order, self.words_per_document, self._max_tokens
        return split_by_tokens(*arguments, is_padded=False, max_rows=self._max_rows)


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


def _expand_ranges(starts: IntArray, counts: IntArray) -> IntArray:
    """Concatenate the ranges starts[i], starts[i] + 1, ..., starts[i] + counts[i] - 1."""
    ends = np.cumsum(counts)
    return np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(ends - counts - starts, counts)
