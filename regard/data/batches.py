"""Batches for training, epoch after epoch, that can be taken up again at any position."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random

import numpy as np

from regard.data._filling import Filling, Numbered, numbered
from regard.data._rows import Chunk, Encoded, filled
from regard.data._source import Source, varied
from regard.data.batch import Batch, Pair
from regard.data.readers import Parallel
from regard.data.report import Report
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError, UsageError


class Corpus(Source):
    """Pairs held in memory, in batches of near lengths; an epoch is each pair once.

    >>> pairs = [Pair("a b c", "c b a"), Pair("b", "b"), Pair("", "a")]
    >>> words = Tokenizer.learn(["a b c"], kind="word", size=10)
    >>> corpus = Corpus(pairs, words, words, Filling(tokens=8))
    >>> print(corpus.report)
    3 pairs read, 2 used; 1 with an empty side left out (line 3).
    >>> batch, position = next(corpus.batches())
    >>> batch.source.shape, position["epoch"]
    (torch.Size([2, 4]), 1)
    """

    def __init__(
        self,
        pairs: Iterable[Pair | Numbered],
        source: Tokenizer,
        target: Tokenizer,
        filling: Filling | None = None,
    ) -> None:
        name = str(pairs) if isinstance(pairs, Parallel) else "the pairs"
        super().__init__(source, target, filling, name)
        used = list(self._encoder.plain(numbered(pairs), self.report))
        if not used:
            raise DataError(f"Nothing of {name} can be used: {self.report}")
        self._pairs = used if any(self.filling.dropouts) else []
        self._plain = Chunk.of([encoded for _, encoded in used])
        for rows in (self._plain.source, self._plain.target):
            self._mark = zlib.crc32(rows.numbers.tobytes(), zlib.crc32(rows.lengths.tobytes(), self._mark))

    def __len__(self) -> int:
        return len(self._plain)

    @property
    def padding(self) -> float:
        """The share of PAD in the batches of the first epoch."""
        chunk = self._chunk(0)
        return chunk.padding(self._plan(chunk, 0, 0))

    def _read(self, epoch: int, first: int) -> Iterator[Chunk]:
        yield self._chunk(epoch)

    def _chunk(self, epoch: int) -> Chunk:
        return varied(self._encoder, self._pairs, epoch, 0) if self._pairs else self._plain


class Stream(Source):
    """Pairs read from disk in every epoch, a chunk at a time, for text that is larger than memory.

    Each chunk is shuffled, sorted and filled as a `Corpus` is; chunks come in the order of the files. The lines
    are counted first, so that files of unequal length are noticed before an hour of training; `report` speaks
    of the lines read since the epoch began or was taken up again, `survey()` of all.
    """

    def __init__(
        self,
        pairs: Parallel,
        source: Tokenizer,
        target: Tokenizer,
        filling: Filling | None = None,
        chunk: int = 50_000,
    ) -> None:
        super().__init__(source, target, filling, str(pairs))
        self._pairs, self._size = pairs, _positive(chunk)
        lines = pairs.count()
        self.chunks = -(-lines // chunk)
        self._mark = zlib.crc32(repr((lines, chunk)).encode(), self._mark)

    def survey(self) -> Report:
        """Read and encode everything once, for the report."""
        report = self._encoder.report()
        for _ in self._encoder.plain(self._pairs, report):
            pass
        return report

    def _read(self, epoch: int, first: int) -> Iterator[Chunk]:
        self.report = self._encoder.report()
        lines = islice(self._pairs, first * self._size, None)  # those before are read over, not encoded
        for index in range(first, self.chunks):
            used = list(self._encoder.plain(islice(lines, self._size), self.report))
            yield varied(self._encoder, used, epoch, index)


class Generated(Source):
    """Pairs made on the fly, never the same ones twice; an epoch is a chunk of them.

    `make(random, count)` gives that many pairs, and draws whatever it draws from `random`, which (seed,
    epoch) decides. `report` speaks of the chunk made last, `survey()` of the first.
    """

    def __init__(
        self,
        make: Callable[[Random, int], Sequence[Pair]],
        source: Tokenizer,
        target: Tokenizer,
        filling: Filling | None = None,
        chunk: int = 8192,
    ) -> None:
        super().__init__(source, target, filling, "the generated pairs")
        self._make, self._size = make, _positive(chunk)
        self._mark = zlib.crc32(repr(chunk).encode(), self._mark)

    def survey(self) -> Report:
        """Make and encode one chunk, for the report: the others are like it."""
        report = self._counts()
        for _ in self._pairs(0, report):
            pass
        return report

    def _read(self, epoch: int, first: int) -> Iterator[Chunk]:
        self.report = self._counts()
        yield varied(self._encoder, list(self._pairs(epoch, self.report)), epoch, 0)

    def _pairs(self, epoch: int, report: Report) -> Iterator[tuple[Pair, Encoded]]:
        made = self._make(Random(f"{self.filling.seed} {epoch} pairs"), self._size)
        return self._encoder.plain(numbered(made), report)

    def _counts(self) -> Report:
        return replace(self._encoder.report(), made=True)


def in_order(
    pairs: Iterable[Pair], source: Tokenizer, target: Tokenizer, tokens: int = 4096
) -> Iterator[tuple[Batch, list[int]]]:
    """Batches for evaluation: every pair once, sorted by length, with the row numbers to put outputs back in order.

    Nothing is left out: an empty side is only its special tokens, and a pair longer than `tokens` is alone.
    """
    encoded = [(source.encode(pair.source), target.encode(pair.target)) for pair in pairs]
    chunk = Chunk.of(encoded)
    order = np.lexsort((chunk.target.lengths - chunk.source.lengths, chunk.width))
    for which in reversed(filled(order, chunk.width, tokens)):  # the longest first: if memory fails, at once
        yield chunk.batch(which), which.tolist()


def _positive(chunk: int) -> int:
    if chunk < 1:
        raise UsageError(f"chunk={chunk} should be at least 1.")
    return chunk
