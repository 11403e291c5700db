"""What the sources of batches share: chunks, plans, and positions to go on from.

Batches for training, epoch after epoch, that can be taken up again at any position.
"""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random

import numpy as np

from regard.data.batching import IntArray, split_by_tokens
from regard.data.pair_batches import (
    BatchingConfig,
    EncodedPair,
    EncodedPairs,
    NumberedPair,
    PairBatch,
    PairEncoder,
    with_line_numbers,
)
from regard.data.parallel import DataReport, ParallelFiles, SentencePair
from regard.data.sources import DataPosition
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError, UsageError


class PairSource(ABC):
    """Chunks of pairs, each planned by (seed, epoch, chunk) alone."""

    num_chunks = 1  # an epoch has

    def __init__(
        self, source: Tokenizer, target: Tokenizer, config: BatchingConfig | None, name: str
    ) -> None:
        self.config = config or BatchingConfig()
        self._encoder = PairEncoder(source, target, self.config, name)
        self._data_fingerprint = zlib.crc32(repr((self.config, len(source), len(target))).encode())
        self.report = self._encoder.make_report()

    @abstractmethod
    def _read_chunks(self, epoch: int, first_chunk: int) -> Iterator[EncodedPairs]:
        """The chunks of an epoch from `first` on."""

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[PairBatch, DataPosition]]:
        """Batches without end, each with the position after it; from a position, exactly what follows it."""
        epoch, first, done = self._resume_point(position)
        while True:
            found = False
            for index, chunk in enumerate(self._read_chunks(epoch, first), first):
                plan = self._plan_batches(chunk, epoch, index)
                if done > len(plan):
                    raise self._changed_data_error()
                for number in range(done, len(plan)):
                    found = True
                    yield (
                        chunk.make_batch(plan[number]),
                        self._position_after(epoch, index, number + 1, len(plan)),
                    )
                done = 0
            if not found and first == 0:
                raise DataError(f"Nothing of {self._encoder.name} can be used: {self.report}")
            epoch, first = epoch + 1, 0

    def _plan_batches(self, chunk: EncodedPairs, epoch: int, index: int) -> list[IntArray]:
        return chunk.plan_batches(
            self.config.max_tokens, self.config.length_noise, self.config.make_rng(epoch, index)
        )

    def _position_after(self, epoch: int, index: int, num_done: int, num_planned: int) -> DataPosition:
        if num_done == num_planned:
            index, num_done = index + 1, 0
        if index == self.num_chunks:
            epoch, index = epoch + 1, 0
        return {"epoch": epoch, "chunk": index, "batch": num_done, "data": f"{self._data_fingerprint:08x}"}

    def _resume_point(self, position: DataPosition | None) -> tuple[int, int, int]:
        if position is None:
            return 0, 0, 0
        if position.get("data") != f"{self._data_fingerprint:08x}":
            raise self._changed_data_error()
        return position["epoch"], position["chunk"], position["batch"]

    def _changed_data_error(self) -> DataError:
        return DataError(
            f"{self._encoder.name} or its settings changed since this position was saved; put the old ones back, "
            "or begin a new run."
        )


def encode_chunk(
    encoder: PairEncoder, pairs: list[tuple[SentencePair, EncodedPair]], epoch: int, index: int
) -> EncodedPairs:
    """The encoded pairs as a chunk, under dropout if there is any."""
    if not any(encoder.config.dropouts):
        return EncodedPairs.from_pairs([encoded for _, encoded in pairs])
    random = Random(f"{encoder.config.seed} {epoch} {index} dropout")
    return EncodedPairs.from_pairs(
        [encoder.encode_with_dropout(pair, encoded, random) for pair, encoded in pairs]
    )


class InMemoryPairs(PairSource):
    """Pairs held in memory, in batches of near lengths; an epoch is each pair once.

    >>> pairs = [SentencePair("a b c", "c b a"), SentencePair("b", "b"), SentencePair("", "a")]
    >>> words = Tokenizer.train(["a b c"], model_type="word", vocab_size=10)
    >>> corpus = InMemoryPairs(pairs, words, words, BatchingConfig(max_tokens=8))
    >>> print(corpus.report)
    3 pairs read, 2 used; 1 with an empty side left out (line 3).
    >>> batch, position = next(corpus.batches())
    >>> batch.source.shape, position["epoch"]
    (torch.Size([2, 4]), 1)
    """

    def __init__(
        self,
        pairs: Iterable[SentencePair | NumberedPair],
        source: Tokenizer,
        target: Tokenizer,
        config: BatchingConfig | None = None,
    ) -> None:
        name = str(pairs) if isinstance(pairs, ParallelFiles) else "the pairs"
        super().__init__(source, target, config, name)
        used = list(self._encoder.encode_all(with_line_numbers(pairs), self.report))
        if not used:
            raise DataError(f"Nothing of {name} can be used: {self.report}")
        self._pairs = used if any(self.config.dropouts) else []
        self._encoded = EncodedPairs.from_pairs([encoded for _, encoded in used])
        for rows in (self._encoded.source, self._encoded.target):
            self._data_fingerprint = zlib.crc32(
                rows.values.tobytes(), zlib.crc32(rows.lengths.tobytes(), self._data_fingerprint)
            )

    def __len__(self) -> int:
        return len(self._encoded)

    @property
    def padding_ratio(self) -> float:
        """The share of PAD in the batches of the first epoch."""
        chunk = self._encode_epoch(0)
        return chunk.padding_ratio(self._plan_batches(chunk, 0, 0))

    def _read_chunks(self, epoch: int, first_chunk: int) -> Iterator[EncodedPairs]:
        yield self._encode_epoch(epoch)

    def _encode_epoch(self, epoch: int) -> EncodedPairs:
        return encode_chunk(self._encoder, self._pairs, epoch, 0) if self._pairs else self._encoded


class StreamedPairs(PairSource):
    """Pairs read from disk in every epoch, a chunk at a time, for text that is larger than memory.

    Each chunk is shuffled, sorted and filled as a `Corpus` is; chunks come in the order of the files. The lines
    are counted first, so that files of unequal length are noticed before an hour of training; `report` speaks
    of the lines read since the epoch began or was taken up again, `survey()` of all.
    """

    def __init__(
        self,
        pairs: ParallelFiles,
        source: Tokenizer,
        target: Tokenizer,
        config: BatchingConfig | None = None,
        chunk_size: int = 50_000,
    ) -> None:
        super().__init__(source, target, config, str(pairs))
        self._pairs, self._chunk_size = pairs, _check_chunk_size(chunk_size)
        lines = pairs.count_lines()
        self.num_chunks = -(-lines // chunk_size)
        self._data_fingerprint = zlib.crc32(repr((lines, chunk_size)).encode(), self._data_fingerprint)

    def compute_report(self) -> DataReport:
        """Read and encode everything once, for the report."""
        report = self._encoder.make_report()
        for _ in self._encoder.encode_all(self._pairs, report):
            pass
        return report

    def _read_chunks(self, epoch: int, first_chunk: int) -> Iterator[EncodedPairs]:
        self.report = self._encoder.make_report()
        lines = islice(
            self._pairs, first_chunk * self._chunk_size, None
        )  # those before are read over, not encoded
        for index in range(first_chunk, self.num_chunks):
            used = list(self._encoder.encode_all(islice(lines, self._chunk_size), self.report))
            yield encode_chunk(self._encoder, used, epoch, index)


class GeneratedPairs(PairSource):
    """Pairs made on the fly, never the same ones twice; an epoch is a chunk of them.

    `make(random, count)` gives that many pairs, and draws whatever it draws from `random`, which (seed,
    epoch) decides. `report` speaks of the chunk made last, `survey()` of the first.
    """

    def __init__(
        self,
        sample: Callable[[Random, int], Sequence[SentencePair]],
        source: Tokenizer,
        target: Tokenizer,
        config: BatchingConfig | None = None,
        chunk_size: int = 8192,
    ) -> None:
        super().__init__(source, target, config, "the generated pairs")
        self._sample, self._chunk_size = sample, _check_chunk_size(chunk_size)
        self._data_fingerprint = zlib.crc32(repr(chunk_size).encode(), self._data_fingerprint)

    def compute_report(self) -> DataReport:
        """Make and encode one chunk, for the report: the others are like it."""
        report = self._make_report()
        for _ in self._encode_pairs(0, report):
            pass
        return report

    def _read_chunks(self, epoch: int, first_chunk: int) -> Iterator[EncodedPairs]:
        self.report = self._make_report()
        yield encode_chunk(self._encoder, list(self._encode_pairs(epoch, self.report)), epoch, 0)

    def _encode_pairs(self, epoch: int, report: DataReport) -> Iterator[tuple[SentencePair, EncodedPair]]:
        made = self._sample(Random(f"{self.config.seed} {epoch} pairs"), self._chunk_size)
        return self._encoder.encode_all(with_line_numbers(made), report)

    def _make_report(self) -> DataReport:
        return replace(self._encoder.make_report(), is_generated=True)


def iter_eval_batches(
    pairs: Iterable[SentencePair], source: Tokenizer, target: Tokenizer, max_tokens: int = 4096
) -> Iterator[tuple[PairBatch, list[int]]]:
    """Batches for evaluation: every pair once, sorted by length, with the row numbers to put outputs back in order.

    Nothing is left out: an empty side is only its special tokens, and a pair longer than `tokens` is alone.
    """
    encoded = [(source.encode(pair.source), target.encode(pair.target)) for pair in pairs]
    chunk = EncodedPairs.from_pairs(encoded)
    order = np.lexsort((chunk.target.lengths - chunk.source.lengths, chunk.widths))
    for which in reversed(
        split_by_tokens(order, chunk.widths, max_tokens)
    ):  # the longest first: if memory fails, at once
        yield chunk.make_batch(which), which.tolist()


def _check_chunk_size(chunk_size: int) -> int:
    if chunk_size < 1:
        raise UsageError(f"chunk={chunk_size} should be at least 1.")
    return chunk_size
