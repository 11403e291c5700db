"""Strings of letters and the same strings from behind.

    regard  ->  drager

A task of seconds, to see whether anything is learned at all.
"""

from __future__ import annotations

import random as chance
from typing import Literal
from zlib import crc32

from regard.data.batch import Pair
from regard.errors import UnknownNameError, UsageError

Split = Literal["train", "valid", "test"]


class Reverse:
    """Pairs of a string by chance and its reverse, with links between their characters.

        source[i]  is  target[length - 1 - i]

    Strings of one split are in no other; which they are in does not depend on the seed.

    >>> pair = Reverse(shortest=3, longest=3).fixed(1)[0]
    >>> pair.source, pair.target, pair.links
    ('qpr', 'rpq', ((2, 0), (1, 1), (0, 2)))
    """

    def __init__(
        self,
        seed: int = 0,
        split: Split = "train",
        letters: str = "abcdefghijklmnopqrstuvwxyz",
        shortest: int = 1,
        longest: int = 12,
    ) -> None:
        if split not in ("train", "valid", "test"):
            raise UnknownNameError(f"reverse has no split {split!r}; take one of train, valid, test")
        if not letters or not 1 <= shortest <= longest:
            raise UsageError(
                f"strings of {shortest} to {longest} of {len(letters)} letters cannot be made; "
                "give at least one letter and 1 <= shortest <= longest"
            )
        self.seed = seed
        self.split = split
        self.letters = letters
        self.shortest = shortest
        self.longest = longest

    def make(self, random: chance.Random, count: int) -> list[Pair]:
        """So many pairs, of all lengths about equally."""
        return [self._one(random) for _ in range(count)]

    def fixed(self, count: int) -> list[Pair]:
        """The same pairs whenever it is called: what to evaluate on."""
        return self.make(chance.Random(f"{self.seed} {self.split}"), count)

    def _one(self, random: chance.Random) -> Pair:
        for _ in range(1000):  # one in ten at least is of the split, unless there are next to no strings
            length = random.randint(self.shortest, self.longest)
            source = "".join(random.choices(self.letters, k=length))
            if split_of(source) == self.split:
                return _pair(source)
        raise UsageError(f"no string is in the split {self.split!r}; allow more letters or longer strings")


def split_of(source: str) -> Split:
    """The split a string belongs to: eight in ten to train, one to valid, one to test.

    >>> split_of("regard")
    'train'
    """
    share = crc32(source.encode()) % 10
    return "valid" if share == 0 else "test" if share == 1 else "train"


def _pair(source: str) -> Pair:
    last = len(source) - 1
    links = tuple((last - j, j) for j in range(len(source)))
    return Pair(source, source[::-1], links, links)
