"""From sentence pairs to padded batches: encoding, length limits, and planning by length."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from random import Random
from typing import ClassVar

import numpy as np
from jaxtyping import Int
from torch import Tensor

from regard.data.parallel import DataReport, SentencePair
from regard.data.sources import IntArray, TensorBatch, shuffle, split_by_tokens
from regard.data.tokenizer import RaggedArray, Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.errors import DataError, UsageError, require_choice

__all__ = ["BatchingConfig", "EncodedPairs", "PairBatch", "PairEncoder", "with_line_numbers"]

OVERFLOW_CHOICES = ("drop", "truncate", "error")
NumberedPair = tuple[SentencePair, int]
Pairs = Iterable[SentencePair | NumberedPair]
EncodedPair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class PairBatch(TensorBatch):
    """Sentence pairs of similar length, padded with `PAD_ID`; `num_tokens` counts the target tokens to predict.

    Every source ends with `EOS_ID`; every target begins with `BOS_ID` and ends with `EOS_ID`; lengths count these.

    Args:
        source: token ids of the sources.
        source_lengths: their lengths.
        target: token ids of the targets.
        target_lengths: their lengths.

    Shape:
        source: (batch, src_len), target: (batch, tgt_len), lengths: (batch,).

    Example:
        >>> PairBatch.from_pairs([([7, 8], [9]), ([7], [9, 9])]).target.tolist()
        [[2, 9, 3, 0], [2, 9, 9, 3]]
    """

    source: Int[Tensor, "batch src_len"]
    source_lengths: Int[Tensor, " batch"]
    target: Int[Tensor, "batch tgt_len"]
    target_lengths: Int[Tensor, " batch"]
    padded: ClassVar[Mapping[str, str]] = {"source": "source_lengths", "target": "target_lengths"}

    @classmethod
    def from_pairs(cls, pairs: list[tuple[list[int], list[int]]]) -> PairBatch:
        """Collate encoded pairs.

        Args:
            pairs: token ids of source and target, without special tokens.

        Returns:
            The batch.
        """
        return EncodedPairs.from_pairs(pairs).make_batch(np.arange(len(pairs)))


@dataclass(frozen=True)
class BatchingConfig:
    """How pairs become batches.

    Args:
        max_tokens: the size of a batch: rows x longest sentence of either side, padding included.
        max_pairs: the number of pairs in a batch, in place of `max_tokens`.
        max_length: the limit on the tokens of a sentence, without special tokens.
        overflow: what to do with longer sentences: `drop` (and count), `truncate` (and count) or `error`.
        dropout: BPE-dropout, drawn anew in each epoch; one probability, or one for each side.
        length_noise: random amount, in tokens, that is added to lengths before sorting; more noise mixes more and
            pads more.
        seed: seed of the order and of dropout.
        option_names: names of `max_tokens` and `overflow` in messages, where users know them under other names.

    Example:
        >>> BatchingConfig(max_tokens=512, dropout=0.1).dropouts
        (0.1, 0.1)
    """

    max_tokens: int = 4096
    max_pairs: int | None = None
    max_length: int | None = None
    overflow: str = "drop"
    dropout: float | tuple[float, float] = 0.0
    length_noise: float = 1.0
    seed: int = 0
    option_names: tuple[str, str] = field(default=("max_tokens", "overflow"), repr=False, compare=False)

    def __post_init__(self) -> None:
        require_choice("overflow", self.overflow, OVERFLOW_CHOICES)
        if self.max_pairs is not None and self.max_pairs < 1:
            raise UsageError(f"invalid value {self.max_pairs} for max_pairs: must be at least 1.")
        if self.max_tokens < 1 or (self.max_length is not None and self.max_length < 1):
            raise UsageError(f"max_tokens={self.max_tokens} and max_length={self.max_length} must be at least 1.")
        if not all(0 <= side <= 1 for side in self.dropouts):
            raise UsageError(f"invalid value {self.dropout} for dropout: must be a probability, from 0 to 1.")

    @property
    def dropouts(self) -> tuple[float, float]:
        """The dropout of source and target."""
        return self.dropout if isinstance(self.dropout, tuple) else (self.dropout, self.dropout)

    def as_dict(self) -> dict[str, object]:
        """Return the options that decide the batches, by stable names, for fingerprints.

        Returns:
            Plain values by name.
        """
        values = asdict(self) | {"dropout": list(self.dropouts)}
        omitted = {"option_names"} | ({"max_pairs"} if self.max_pairs is None else {"max_tokens"})
        return {name: value for name, value in values.items() if name not in omitted}


class PairEncoder:
    """Encodes pairs and applies the length limits; a report counts what becomes of them.

    Args:
        source: the tokenizer of the source side.
        target: the tokenizer of the target side.
        config: the limits.
        name: the name of the data, for messages.

    Example:
        >>> tokenizer = Tokenizer.train(["a b"], "word", 10)
        >>> encoder = PairEncoder(tokenizer, tokenizer, BatchingConfig())
        >>> report = encoder.make_report()
        >>> [encoded for _, encoded in encoder.encode_all([(SentencePair("a", "b"), 1)], report)]
        [([4], [5])]
    """

    def __init__(self, source: Tokenizer, target: Tokenizer, config: BatchingConfig, name: str = "the pairs") -> None:
        self.tokenizers, self.config, self.name = (source, target), config, name
        for tokenizer, dropout in zip(self.tokenizers, config.dropouts, strict=True):
            if dropout:
                tokenizer.encode_with_dropout("", dropout, Random(0))  # raises if it has no dropout

    def make_report(self) -> DataReport:
        """Return an empty report for these limits.

        Returns:
            The report.
        """
        return DataReport(self.config.max_length, self.config.overflow)

    def encode_all(
        self, pairs: Iterable[NumberedPair], report: DataReport
    ) -> Iterator[tuple[SentencePair, EncodedPair]]:
        """Encode pairs and leave out those that are empty or over the limits.

        Args:
            pairs: pairs with their line numbers.
            report: counts every pair.

        Returns:
            An iterator over the pairs that are used, each with its token ids.
        """
        limit, overflow = self.config.max_length, self.config.overflow
        for pair, line in pairs:
            if not (pair.source.strip() and pair.target.strip()):
                report.count_pair("empty", line)
                continue
            source, target = self.tokenizers[0].encode(pair.source), self.tokenizers[1].encode(pair.target)
            is_long = limit is not None and max(len(source), len(target)) > limit
            if is_long and overflow == "error":
                sizes = f"{len(source):,} source and {len(target):,} target tokens, over max_length={limit:,}"
                remedy = f"raise it, or set {self.config.option_names[1]} to drop or truncate"
                raise DataError(f"Line {line} of {self.name} has {sizes}; {remedy}.")
            if is_long and overflow == "drop":
                report.count_pair("dropped", line)
                continue
            encoded = source[:limit], target[:limit]
            if self.config.max_pairs is None and (width := max(map(len, encoded)) + 1) > self.config.max_tokens:
                problem = f"takes {width:,} tokens, but a batch holds {self.config.max_tokens:,}"
                remedy = f"raise {self.config.option_names[0]}, or set max_length"
                raise DataError(f"Line {line} of {self.name} {problem}; {remedy}.")
            report.count_pair("truncated" if is_long else "used", line)
            report.count_tokens(*encoded)
            yield pair, encoded

    def encode_with_dropout(self, pair: SentencePair, encoded: EncodedPair, rng: Random) -> EncodedPair:
        """Encode a pair with BPE-dropout; a side that exceeds the limits by it keeps its encoding without dropout.

        Args:
            pair: the pair.
            encoded: its encoding without dropout.
            rng: the source of randomness.

        Returns:
            The token ids of both sides.
        """
        max_tokens = sys.maxsize if self.config.max_pairs else self.config.max_tokens
        limit = min(max_tokens - 1, self.config.max_length or max_tokens)
        sides = zip(self.tokenizers, (pair.source, pair.target), self.config.dropouts, strict=True)
        sampled = [tokenizer.encode_with_dropout(text, dropout, rng) for tokenizer, text, dropout in sides]
        source, target = (ids if len(ids) <= limit else old for ids, old in zip(sampled, encoded, strict=True))
        return source, target

    def make_chunk(self, pairs: Sequence[tuple[SentencePair, EncodedPair]], epoch: int, index: int) -> EncodedPairs:
        """Collect encoded pairs as a chunk, with BPE-dropout if it is configured.

        Args:
            pairs: pairs with their encoding without dropout.
            epoch: the epoch, which decides the dropout together with `index`.
            index: the number of the chunk.

        Returns:
            The chunk.
        """
        if not any(self.config.dropouts):
            return EncodedPairs.from_pairs([encoded for _, encoded in pairs])
        rng = Random(f"{self.config.seed} {epoch} {index} dropout")
        return EncodedPairs.from_pairs([self.encode_with_dropout(pair, encoded, rng) for pair, encoded in pairs])


def with_line_numbers(pairs: Pairs) -> Iterator[NumberedPair]:
    """Attach line numbers to pairs that have none, counted from 1.

    Args:
        pairs: pairs, or pairs with their line numbers.

    Returns:
        An iterator over pairs with line numbers.

    Example:
        >>> [line for _, line in with_line_numbers([SentencePair("a", "b"), (SentencePair("c", "d"), 7)])]
        [1, 7]
    """
    for number, item in enumerate(pairs, 1):
        yield (item, number) if isinstance(item, SentencePair) else item


@dataclass(frozen=True)
class EncodedPairs:
    """Encoded pairs, with special tokens, from which batches are gathered.

    Args:
        source: token ids of the sources, each with `EOS_ID`.
        target: token ids of the targets, each with `BOS_ID` and `EOS_ID`.

    Example:
        >>> pairs = EncodedPairs.from_pairs([([7, 8], [9]), ([7], [9, 9])])
        >>> pairs.make_batch(np.array([1])).source.tolist()
        [[7, 3]]
    """

    source: RaggedArray
    target: RaggedArray

    @classmethod
    def from_pairs(cls, pairs: Sequence[EncodedPair]) -> EncodedPairs:
        """Concatenate encoded pairs.

        Args:
            pairs: token ids of source and target, without special tokens.

        Returns:
            The pairs as two arrays.
        """
        sources = RaggedArray.from_rows((*source, EOS_ID) for source, _ in pairs)
        return cls(sources, RaggedArray.from_rows((BOS_ID, *target, EOS_ID) for _, target in pairs))

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def widths(self) -> IntArray:
        """The columns that each pair needs in a batch: the longer of its source and of its predictions."""
        return np.maximum(self.source.lengths, self.target.lengths - 1)

    def make_batch(self, indices: IntArray) -> PairBatch:
        """Gather pairs as a batch.

        Args:
            indices: the pairs.

        Returns:
            The batch.
        """
        return PairBatch(*self.source.padded(indices), *self.target.padded(indices))

    def plan_batches(self, config: BatchingConfig, epoch: int, index: int) -> list[IntArray]:
        """Plan batches of pairs of similar length, in random order.

        Pairs are sorted by the longer side first and by the difference to the shorter side second: on Multi30k this
        leaves half the padding of sorting by the longer side alone. Only `Random.random` is used, whose numbers
        Python guarantees not to change.

        Args:
            config: the size of a batch, the noise of lengths, and the seed.
            epoch: the epoch, which decides the order together with the seed and `index`.
            index: the number of the chunk.

        Returns:
            The pairs of each batch.
        """
        rng = Random(f"{config.seed} {epoch} {index}")
        noise = np.array([(rng.random(), rng.random()) for _ in range(len(self))]).reshape(-1, 2)
        longer = np.floor(self.widths + config.length_noise * noise[:, 0])
        order = np.lexsort((self.target.lengths - self.source.lengths + 2 * noise[:, 1], longer))
        return shuffle(split_by_tokens(order, self.widths, config.max_tokens, max_rows=config.max_pairs), rng)
