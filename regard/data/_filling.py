"""How pairs become encoded pairs: the settings, the limits, and what is said about those that do not fit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from random import Random

from regard.data._rows import Encoded
from regard.data.batch import Pair
from regard.data.report import Report
from regard.data.tokenizer import Tokenizer
from regard.errors import DataError, UsageError

OVER = ("drop", "cut", "stop")
Numbered = tuple[Pair, int]


@dataclass(frozen=True)
class Filling:
    """How batches are filled.

    tokens        at most so many numbers in a batch: rows x the longest sentence of either side, PAD included
    max_length    at most so many tokens in a sentence, special ones not counted
    over          what to do with longer ones: drop (and count), cut (and count), or stop
    dropout       of BPE merges, drawn anew each epoch; one number, or one for each side
    noise         by how much lengths may differ before they are told apart; more mixes more and pads more
    seed          of the order and of dropout
    names         what a message should call `tokens` and `over`, where their user has other names for them
    """

    tokens: int = 4096
    max_length: int | None = None
    over: str = "drop"
    dropout: float | tuple[float, float] = 0.0
    noise: float = 1.0
    seed: int = 0
    names: tuple[str, str] = field(default=("tokens", "over"), repr=False)  # the repr marks saved positions

    def __post_init__(self) -> None:
        if self.over not in OVER:
            raise UsageError(f"over={self.over!r} is not one of {', '.join(OVER)}.")
        if self.tokens < 1 or (self.max_length is not None and self.max_length < 1):
            raise UsageError(f"tokens={self.tokens} and max_length={self.max_length} should be at least 1.")
        if not all(0 <= side <= 1 for side in self.dropouts):
            raise UsageError(f"dropout is a probability, from 0 to 1, not {self.dropout}.")

    @property
    def dropouts(self) -> tuple[float, float]:
        return self.dropout if isinstance(self.dropout, tuple) else (self.dropout, self.dropout)

    def random(self, *place: int) -> Random:
        """A generator that only the seed and the place (epoch, chunk) decide."""
        return Random(" ".join(map(str, (self.seed, *place))))


class Encoder:
    """Encodes pairs and holds them to the limits; a report counts what becomes of them."""

    def __init__(
        self, source: Tokenizer, target: Tokenizer, filling: Filling, name: str = "the pairs"
    ) -> None:
        self.tokenizers, self.filling, self.name = (source, target), filling, name
        for tokenizer, dropout in zip(self.tokenizers, filling.dropouts, strict=True):
            if dropout:
                tokenizer.sample("", dropout, Random(0))  # which refuses, if the kind knows no dropout

    def report(self) -> Report:
        return Report(self.filling.max_length, self.filling.over)

    def plain(self, pairs: Iterable[Numbered], report: Report) -> Iterator[tuple[Pair, Encoded]]:
        """The pairs that are used, each with its encoding."""
        for pair, line in pairs:
            if not (pair.source.strip() and pair.target.strip()):
                report.note("empty", line)
                continue
            encoded, fits = self._held(self._encode(pair), line)
            if fits or self.filling.over == "cut":
                self._check(encoded, line)
                report.note("used" if fits else "cut", line)
                report.count(*encoded)
                yield pair, encoded
            else:
                report.note("long", line)

    def sampled(self, pair: Pair, plain: Encoded, random: Random) -> Encoded:
        """The pair under dropout; a side that grows beyond the limits by it stays as it was."""
        source, target = (
            self._short(tokenizer.sample(text, dropout, random), usual)
            for tokenizer, text, dropout, usual in zip(
                self.tokenizers, (pair.source, pair.target), self.filling.dropouts, plain, strict=True
            )
        )
        return source, target

    def _encode(self, pair: Pair) -> Encoded:
        return self.tokenizers[0].encode(pair.source), self.tokenizers[1].encode(pair.target)

    def _short(self, drawn: Sequence[int], usual: Sequence[int]) -> Sequence[int]:
        most = self.filling.tokens - 1
        if self.filling.max_length is not None:
            most = min(most, self.filling.max_length)
        return drawn if len(drawn) <= most else usual

    def _held(self, encoded: Encoded, line: int) -> tuple[Encoded, bool]:
        most, (source, target) = self.filling.max_length, encoded
        if most is None or max(len(source), len(target)) <= most:
            return encoded, True
        if self.filling.over == "stop":
            sizes = f"{len(source):,} source and {len(target):,} target tokens, over max_length={most:,}"
            over = self.filling.names[1]
            raise DataError(
                f"Line {line} of {self.name} has {sizes}; raise it, or set {over} to drop or cut."
            )
        return (source[:most], target[:most]), False

    def _check(self, encoded: Encoded, line: int) -> None:
        width = max(map(len, encoded)) + 1  # EOS
        if width > self.filling.tokens:
            what = f"takes {width:,} tokens, but a batch holds {self.filling.tokens:,}"
            tokens = self.filling.names[0]
            raise DataError(f"Line {line} of {self.name} {what}; raise {tokens}, or set max_length.")


def numbered(pairs: Iterable[Pair | Numbered]) -> Iterator[Numbered]:
    """Pairs with their line numbers; those that bring none are counted from 1."""
    for number, item in enumerate(pairs, 1):
        yield (item, number) if isinstance(item, Pair) else item
