"""Sources of batches of sentence pairs: in memory, streamed from files, or generated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from random import Random
from typing import Any, ClassVar

import numpy as np

from regard.data.pair_batches import BatchingConfig, EncodedPairs, PairBatch, PairEncoder, Pairs, with_line_numbers
from regard.data.parallel import DataReport, ParallelFiles, SentencePair
from regard.data.sources import ChunkPlan, ResumableBatches, data_fingerprint, split_by_tokens
from regard.data.tokenizer import Tokenizer
from regard.errors import ConfigError, DataError, UsageError

__all__ = ["GeneratedPairs", "InMemoryPairs", "PairSource", "StreamedPairs", "iter_eval_batches"]


class PairSource(ResumableBatches[PairBatch]):
    """Base of the sources of sentence pairs: chunks of pairs, each planned as a function of (seed, epoch, chunk).

    Args:
        source: the tokenizer of the source side.
        target: the tokenizer of the target side.
        config: how pairs become batches.
        name: the name of the data, for messages.
        chunk_size: pairs per chunk, for sources that read them in chunks.

    Example:
        >>> issubclass(InMemoryPairs, PairSource)
        True
    """

    has_chunks = True
    is_generated: ClassVar[bool] = False  # whether the pairs are new in each epoch

    def __init__(
        self, source: Tokenizer, target: Tokenizer, config: BatchingConfig | None, name: str, chunk_size: int = 1
    ) -> None:
        self.config, self.name, self._chunk_size = config or BatchingConfig(), name, chunk_size
        self._encoder = PairEncoder(source, target, self.config, name)
        self.report = self._make_report()
        if chunk_size < 1:
            raise UsageError(f"invalid value {chunk_size} for chunk_size: must be at least 1.")

    def _set_fingerprint(self, **values: Any) -> None:
        source, target = self._encoder.tokenizers
        sizes = {"source_vocab_size": len(source), "target_vocab_size": len(target)}
        self.fingerprint = data_fingerprint({"config": self.config.as_dict(), **sizes, **values})

    def compute_report(self) -> DataReport:
        """Read and encode all pairs once; of generated ones, the first chunk, which represents the others.

        Returns:
            The report of these pairs.
        """
        report = self._make_report()
        for _ in self._encoder.encode_all(self._iter_pairs(0), report):
            pass
        return report

    def _iter_pairs(self, epoch: int) -> Iterable[tuple[SentencePair, int]]:
        """Return the pairs of an epoch, for `_read_chunks` and `compute_report`."""
        raise NotImplementedError

    def _make_report(self) -> DataReport:
        return replace(self._encoder.make_report(), is_generated=self.is_generated)

    def _read_chunks(self, epoch: int, first_chunk: int) -> Iterator[EncodedPairs]:
        """Yield the chunks of an epoch from `first_chunk` on."""
        self.report = self._make_report()
        pairs = islice(self._iter_pairs(epoch), first_chunk * self._chunk_size, None)  # skipped without encoding
        for index in range(first_chunk, self.num_chunks):
            encoded = list(self._encoder.encode_all(islice(pairs, self._chunk_size), self.report))
            yield self._encoder.make_chunk(encoded, epoch, index)

    def _plan_chunks(self, epoch: int, first_chunk: int) -> Iterator[ChunkPlan[PairBatch]]:
        is_empty = first_chunk == 0
        for index, chunk in enumerate(self._read_chunks(epoch, first_chunk), first_chunk):
            plan = chunk.plan_batches(self.config, epoch, index)
            is_empty = is_empty and not plan
            yield plan, chunk.make_batch
        if is_empty:
            raise DataError(f"Nothing of {self.name} can be used: {self.report}")


class InMemoryPairs(PairSource):
    """Sentence pairs in memory, in batches of similar length; an epoch is each pair once.

    Args:
        pairs: the pairs, with or without line numbers.
        source: the tokenizer of the source side.
        target: the tokenizer of the target side.
        config: how pairs become batches.

    Raises:
        DataError: no pair can be used.

    Example:
        >>> pairs = [SentencePair("a b c", "c b a"), SentencePair("b", "b"), SentencePair("", "a")]
        >>> tokenizer = Tokenizer.train(["a b c"], model_type="word", vocab_size=10)
        >>> data = InMemoryPairs(pairs, tokenizer, tokenizer, BatchingConfig(max_tokens=8))
        >>> print(data.report)
        3 pairs read, 2 used; 1 with an empty side left out (line 3).
        >>> batch, position = next(data.batches())
        >>> batch.source.shape, position["epoch"]
        (torch.Size([2, 4]), 1)
    """

    def __init__(
        self, pairs: Pairs, source: Tokenizer, target: Tokenizer, config: BatchingConfig | None = None
    ) -> None:
        name = str(pairs) if isinstance(pairs, ParallelFiles) else "the pairs"
        super().__init__(source, target, config, name)
        encoded = list(self._encoder.encode_all(with_line_numbers(pairs), self.report))
        if not encoded:
            raise DataError(f"Nothing of {name} can be used: {self.report}")
        self._pairs = encoded if any(self.config.dropouts) else []
        self._encoded = EncodedPairs.from_pairs([ids for _, ids in encoded])
        sides = {"source_ids": self._encoded.source, "target_ids": self._encoded.target}
        ids = {side: data_fingerprint({"ids": rows.values, "lengths": rows.lengths}) for side, rows in sides.items()}
        self._set_fingerprint(**ids)

    def __len__(self) -> int:
        return len(self._encoded)

    @property
    def padding_ratio(self) -> float:
        """The share of padding in the batches of the first epoch."""
        chunk, num_tokens, num_padded = next(self._read_chunks(0, 0)), 0, 0
        for batch in map(chunk.make_batch, chunk.plan_batches(self.config, 0, 0)):
            num_tokens += int(batch.source_lengths.sum() + batch.target_lengths.sum())
            num_padded += batch.source.numel() + batch.target.numel()
        return 1 - num_tokens / num_padded

    def compute_report(self) -> DataReport:
        """Return the report of all pairs.

        Returns:
            The report.
        """
        return self.report

    def _read_chunks(self, epoch: int, first_chunk: int) -> Iterator[EncodedPairs]:
        yield self._encoder.make_chunk(self._pairs, epoch, 0) if self._pairs else self._encoded


class StreamedPairs(PairSource):
    """Sentence pairs that are read from disk in every epoch, a chunk at a time, for text larger than memory.

    Each chunk is shuffled, sorted and batched like `InMemoryPairs`; chunks come in the order of the files. Lines are
    counted at the start, so that files of unequal length are an error before training begins. `report` counts the
    pairs read since the epoch began or was resumed, `compute_report()` all of them.

    Args:
        pairs: the files.
        source: the tokenizer of the source side.
        target: the tokenizer of the target side.
        config: how pairs become batches.
        chunk_size: pairs per chunk.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
        >>> _ = path.write_text("a b\\tb a\\nb\\tb\\n")
        >>> tokenizer = Tokenizer.train(["a b"], model_type="word", vocab_size=10)
        >>> data = StreamedPairs(ParallelFiles([path]), tokenizer, tokenizer, chunk_size=1)
        >>> next(data.batches())[1]["chunk"]
        1
    """

    def __init__(
        self,
        pairs: ParallelFiles,
        source: Tokenizer,
        target: Tokenizer,
        config: BatchingConfig | None = None,
        chunk_size: int = 50_000,
    ) -> None:
        super().__init__(source, target, config, str(pairs), chunk_size)
        self._pairs, num_lines = pairs, pairs.count_lines()
        self.num_chunks = -(-num_lines // chunk_size)
        self._set_fingerprint(lines=num_lines, chunk_size=chunk_size)

    def _iter_pairs(self, epoch: int) -> Iterable[tuple[SentencePair, int]]:
        return self._pairs


class GeneratedPairs(PairSource):
    """Generated sentence pairs without end; an epoch is one chunk of new pairs.

    `report` counts the chunk generated last, `compute_report()` the first one.

    Args:
        sample: `sample(rng, count)` returns `count` pairs; `rng` is a function of seed and epoch, and the only source
            of randomness.
        source: the tokenizer of the source side.
        target: the tokenizer of the target side.
        config: how pairs become batches.
        chunk_size: pairs per chunk.

    Example:
        >>> from regard.data.strings import Reverse
        >>> tokenizer = Tokenizer.train(["abcdefghijklmnopqrstuvwxyz"], model_type="char", vocab_size=30)
        >>> data = GeneratedPairs(Reverse().sample, tokenizer, tokenizer, chunk_size=100)
        >>> print(data.compute_report())
        100 pairs generated first, 100 used.
    """

    is_generated = True

    def __init__(
        self,
        sample: Callable[[Random, int], Sequence[SentencePair]],
        source: Tokenizer,
        target: Tokenizer,
        config: BatchingConfig | None = None,
        chunk_size: int = 8192,
    ) -> None:
        super().__init__(source, target, config, "the generated pairs", chunk_size)
        self._sample = sample
        self._set_fingerprint(generated=chunk_size)

    def batches_per_epoch(self) -> int:
        """Raise ConfigError: the pairs have no end, and an epoch is only how many are generated at once."""
        raise ConfigError("epochs: the pairs of this data are generated without end; give steps instead")

    def _iter_pairs(self, epoch: int) -> Iterable[tuple[SentencePair, int]]:
        return with_line_numbers(self._sample(Random(f"{self.config.seed} {epoch} pairs"), self._chunk_size))


def iter_eval_batches(
    pairs: Iterable[SentencePair], source: Tokenizer, target: Tokenizer, max_tokens: int = 4096
) -> Iterator[tuple[PairBatch, list[int]]]:
    """Iterate over batches for evaluation: every pair once, sorted by length, longest first.

    Nothing is left out: an empty side is only its special tokens, and a pair longer than `max_tokens` is a batch of
    its own.

    Args:
        pairs: the pairs.
        source: the tokenizer of the source side.
        target: the tokenizer of the target side.
        max_tokens: the size of a batch, padding included.

    Returns:
        An iterator over (batch, indices of its pairs), to restore the order of the outputs.

    Example:
        >>> tokenizer = Tokenizer.train(["a b"], model_type="word", vocab_size=10)
        >>> pairs = [SentencePair("a", "b"), SentencePair("a b", "b a")]
        >>> [rows for _, rows in iter_eval_batches(pairs, tokenizer, tokenizer, max_tokens=3)]
        [[1], [0]]
    """
    chunk = EncodedPairs.from_pairs([(source.encode(pair.source), target.encode(pair.target)) for pair in pairs])
    order = np.lexsort((chunk.target.lengths - chunk.source.lengths, chunk.widths))
    for indices in reversed(split_by_tokens(order, chunk.widths, max_tokens)):  # memory errors come at once
        yield chunk.make_batch(indices), indices.tolist()
