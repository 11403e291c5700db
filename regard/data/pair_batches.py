"""What a model is given: a batch of sentences as numbers.

Many sentences in one array, and batches of them: planned by length, filled by tokens.

How pairs become encoded pairs: the settings, the limits, and what is said about those that do not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from regard.data.batching import IntArray, RaggedArray, pad_rows, split_by_tokens
from regard.data.parallel import DataReport, SentencePair
from regard.data.tokenizer import Tokenizer
from regard.data.vocabulary import BOS_ID, EOS_ID
from regard.errors import DataError, UsageError


@dataclass(frozen=True)
class PairBatch:
    """Pairs of sentences of similar length, filled up with PAD.

    Every source ends with EOS; every target begins with BOS and ends with EOS; lengths count these.
    """

    source: Int[Tensor, "rows source"]
    source_lengths: Int[Tensor, " rows"]
    target: Int[Tensor, "rows target"]
    target_lengths: Int[Tensor, " rows"]

    @classmethod
    def from_pairs(cls, pairs: list[tuple[list[int], list[int]]]) -> PairBatch:
        """A batch of encoded pairs, without special tokens.

        >>> PairBatch.from_pairs([([7, 8], [9]), ([7], [9, 9])]).target.tolist()
        [[2, 9, 3, 0], [2, 9, 9, 3]]
        """
        sources = [[*source, EOS_ID] for source, _ in pairs]
        targets = [[BOS_ID, *target, EOS_ID] for _, target in pairs]
        return cls(*pad_rows(sources), *pad_rows(targets))

    def __len__(self) -> int:
        return self.source.shape[0]

    @property
    def num_tokens(self) -> int:
        """How many target tokens there are to predict."""
        return int(self.target_lengths.sum()) - len(self)

    def to(self, device: torch.device | str) -> PairBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def shard(self, rank: int, world_size: int) -> PairBatch:
        """The share of one of `world` processes: every world-th row, without the columns it does not need."""
        rows = {name: value[rank::world_size] for name, value in vars(self).items()}
        source, target = (
            int(rows[n].max()) if len(rows[n]) else 0 for n in ("source_lengths", "target_lengths")
        )
        rows["source"], rows["target"] = rows["source"][:, :source], rows["target"][:, :target]
        return PairBatch(**rows)


EncodedPair = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class EncodedPairs:
    """Encoded pairs, special tokens in place, from which batches are taken."""

    source: RaggedArray
    target: RaggedArray

    @classmethod
    def from_pairs(cls, pairs: Sequence[EncodedPair]) -> EncodedPairs:
        sources = RaggedArray.from_rows((*source, EOS_ID) for source, _ in pairs)
        return cls(sources, RaggedArray.from_rows((BOS_ID, *target, EOS_ID) for _, target in pairs))

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def widths(self) -> IntArray:
        """What a pair takes in a batch: the longer of its source and of what is to be predicted."""
        return np.maximum(self.source.lengths, self.target.lengths - 1)

    def make_batch(self, indices: IntArray) -> PairBatch:
        return PairBatch(*self.source.padded(indices), *self.target.padded(indices))

    def plan_batches(self, max_tokens: int, length_noise: float, rng: Random) -> list[IntArray]:
        """The rows of each batch: pairs of near lengths together, in an order that `random` decides.

        Sorted by the longer side first, by how much the other is shorter second: on Multi30k this leaves half
        the padding of sorting by the longer side alone. Only Random.random is used, whose numbers
        Python promises not to change.
        """
        chance = np.array([(rng.random(), rng.random()) for _ in range(len(self))]).reshape(-1, 2)
        longer = np.floor(self.widths + length_noise * chance[:, 0])
        order = np.lexsort((self.target.lengths - self.source.lengths + 2 * chance[:, 1], longer))
        plan = split_by_tokens(order, self.widths, max_tokens)
        shuffled = sorted(range(len(plan)), key=[rng.random() for _ in plan].__getitem__)
        return [plan[i] for i in shuffled]

    def padding_ratio(self, plan: Iterable[IntArray]) -> float:
        """The share of PAD among all numbers of the batches."""
        real = padded = 0
        for which in plan:
            for lengths in (self.source.lengths[which], self.target.lengths[which]):
                real += int(lengths.sum())
                padded += int(lengths.max()) * len(lengths)
        return 1 - real / padded if padded else 0.0


OVERFLOW_CHOICES = ("drop", "cut", "stop")


NumberedPair = tuple[SentencePair, int]


@dataclass(frozen=True)
class BatchingConfig:
    """How batches are filled.

    tokens        at most so many numbers in a batch: rows x the longest sentence of either side, PAD included
    max_length    at most so many tokens in a sentence, special ones not counted
    over          what to do with longer ones: drop (and count), cut (and count), or stop
    dropout       of BPE merges, drawn anew each epoch; one number, or one for each side
    noise         by how much lengths may differ before they are told apart; more mixes more and pads more
    seed          of the order and of dropout
    names         what a message should call `tokens` and `over`, where their user has other names for them
    """

    max_tokens: int = 4096
    max_length: int | None = None
    overflow: str = "drop"
    dropout: float | tuple[float, float] = 0.0
    length_noise: float = 1.0
    seed: int = 0
    option_names: tuple[str, str] = field(
        default=("tokens", "over"), repr=False
    )  # the repr marks saved positions

    def __post_init__(self) -> None:
        if self.overflow not in OVERFLOW_CHOICES:
            raise UsageError(f"over={self.overflow!r} is not one of {', '.join(OVERFLOW_CHOICES)}.")
        if self.max_tokens < 1 or (self.max_length is not None and self.max_length < 1):
            raise UsageError(
                f"tokens={self.max_tokens} and max_length={self.max_length} should be at least 1."
            )
        if not all(0 <= side <= 1 for side in self.dropouts):
            raise UsageError(f"dropout is a probability, from 0 to 1, not {self.dropout}.")

    @property
    def dropouts(self) -> tuple[float, float]:
        return self.dropout if isinstance(self.dropout, tuple) else (self.dropout, self.dropout)

    def make_rng(self, *position: int) -> Random:
        """A generator that only the seed and the place (epoch, chunk) decide."""
        return Random(" ".join(map(str, (self.seed, *position))))


class PairEncoder:
    """Encodes pairs and holds them to the limits; a report counts what becomes of them."""

    def __init__(
        self, source: Tokenizer, target: Tokenizer, config: BatchingConfig, name: str = "the pairs"
    ) -> None:
        self.tokenizers, self.config, self.name = (source, target), config, name
        for tokenizer, dropout in zip(self.tokenizers, config.dropouts, strict=True):
            if dropout:
                tokenizer.encode_with_dropout(
                    "", dropout, Random(0)
                )  # which refuses, if the kind knows no dropout

    def make_report(self) -> DataReport:
        return DataReport(self.config.max_length, self.config.overflow)

    def encode_all(
        self, pairs: Iterable[NumberedPair], report: DataReport
    ) -> Iterator[tuple[SentencePair, EncodedPair]]:
        """The pairs that are used, each with its encoding."""
        for pair, line in pairs:
            if not (pair.source.strip() and pair.target.strip()):
                report.count_pair("empty", line)
                continue
            encoded, fits = self._apply_limits(self._encode(pair), line)
            if fits or self.config.overflow == "cut":
                self._check_width(encoded, line)
                report.count_pair("used" if fits else "cut", line)
                report.count_tokens(*encoded)
                yield pair, encoded
            else:
                report.count_pair("long", line)

    def encode_with_dropout(self, pair: SentencePair, encoded: EncodedPair, rng: Random) -> EncodedPair:
        """The pair under dropout; a side that grows beyond the limits by it stays as it was."""
        source, target = (
            self._fall_back_if_long(tokenizer.encode_with_dropout(text, dropout, rng), usual)
            for tokenizer, text, dropout, usual in zip(
                self.tokenizers, (pair.source, pair.target), self.config.dropouts, encoded, strict=True
            )
        )
        return source, target

    def _encode(self, pair: SentencePair) -> EncodedPair:
        return self.tokenizers[0].encode(pair.source), self.tokenizers[1].encode(pair.target)

    def _fall_back_if_long(self, sampled: Sequence[int], default: Sequence[int]) -> Sequence[int]:
        most = self.config.max_tokens - 1
        if self.config.max_length is not None:
            most = min(most, self.config.max_length)
        return sampled if len(sampled) <= most else default

    def _apply_limits(self, encoded: EncodedPair, line: int) -> tuple[EncodedPair, bool]:
        most, (source, target) = self.config.max_length, encoded
        if most is None or max(len(source), len(target)) <= most:
            return encoded, True
        if self.config.overflow == "stop":
            sizes = f"{len(source):,} source and {len(target):,} target tokens, over max_length={most:,}"
            over = self.config.option_names[1]
            raise DataError(
                f"Line {line} of {self.name} has {sizes}; raise it, or set {over} to drop or cut."
            )
        return (source[:most], target[:most]), False

    def _check_width(self, encoded: EncodedPair, line: int) -> None:
        width = max(map(len, encoded)) + 1  # EOS
        if width > self.config.max_tokens:
            what = f"takes {width:,} tokens, but a batch holds {self.config.max_tokens:,}"
            tokens = self.config.option_names[0]
            raise DataError(f"Line {line} of {self.name} {what}; raise {tokens}, or set max_length.")


def with_line_numbers(pairs: Iterable[SentencePair | NumberedPair]) -> Iterator[NumberedPair]:
    """Pairs with their line numbers; those that bring none are counted from 1."""
    for number, item in enumerate(pairs, 1):
        yield (item, number) if isinstance(item, SentencePair) else item
