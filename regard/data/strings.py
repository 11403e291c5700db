"""Pairs of strings without files: reversed strings, and Chinese phrases with their pinyin."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from random import Random
from typing import Literal
from zlib import crc32

from regard._imports import require_extra
from regard.data.parallel import SentencePair
from regard.errors import UnknownNameError, UsageError

__all__ = ["Pinyin", "Reverse", "clean_phrases", "split_of"]

Split = Literal["train", "valid", "test"]
SPLITS = ("train", "valid", "test")
BUCKETS = {0: "valid", 1: "test"}  # of 20 buckets of phrases; the others are train
Phrases = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Reverse:
    """Pairs of a random string and its reverse, with links between their characters: regard -> drager.

        source[i]  is  target[length - 1 - i]

    A task of seconds, to check that a model learns. Strings of one split are in no other; the split of a string does
    not depend on the seed.

    Args:
        seed: seed of `eval_set`.
        split: `train`, `valid` or `test`.
        alphabet: the characters of the strings.
        min_length: the smallest length.
        max_length: the largest length.

    Example:
        >>> pair = Reverse(min_length=3, max_length=3).eval_set(1)[0]
        >>> pair.source, pair.target, pair.sure_links
        ('qpr', 'rpq', ((2, 0), (1, 1), (0, 2)))
    """

    seed: int = 0
    split: Split = "train"
    alphabet: str = "abcdefghijklmnopqrstuvwxyz"
    min_length: int = 1
    max_length: int = 12

    def __post_init__(self) -> None:
        UnknownNameError.check("split", self.split, SPLITS)
        if not self.alphabet or not 1 <= self.min_length <= self.max_length:
            strings = f"strings of {self.min_length} to {self.max_length} of {len(self.alphabet)} letters"
            remedy = "give at least one letter and 1 <= min_length <= max_length"
            raise UsageError(f"{strings} cannot be generated; {remedy}")

    def sample(self, rng: Random, count: int) -> list[SentencePair]:
        """Generate pairs, of all lengths about equally.

        Args:
            rng: the source of randomness.
            count: the number of pairs.

        Returns:
            The pairs.
        """
        return [self._sample_pair(rng) for _ in range(count)]

    def eval_set(self, count: int) -> list[SentencePair]:
        """Return pairs to evaluate on, the same ones in every call.

        Args:
            count: the number of pairs.

        Returns:
            The pairs.
        """
        return self.sample(Random(f"{self.seed} {self.split}"), count)

    def _sample_pair(self, rng: Random) -> SentencePair:
        for _ in range(1000):  # at least one in ten is in the split, unless there are very few strings
            length = rng.randint(self.min_length, self.max_length)
            source = "".join(rng.choices(self.alphabet, k=length))
            if split_of(source) == self.split:
                links = tuple((length - 1 - j, j) for j in range(length))
                return SentencePair(source, source[::-1], links, links)
        raise UsageError(f"no string is in the split {self.split!r}; allow more letters or longer strings")


def split_of(source: str) -> Split:
    """Return the split of a string: eight in ten are in train, one in valid, one in test.

    Args:
        source: the string.

    Returns:
        The name of the split.

    Example:
        >>> split_of("regard")
        'train'
    """
    bucket = crc32(source.encode()) % 10
    return "valid" if bucket == 0 else "test" if bucket == 1 else "train"


@dataclass(frozen=True)
class Pinyin:
    """Pairs of a Chinese phrase and its pinyin, one syllable per character; character i and syllable i are linked.

        成长  ->  chéng zhǎng
        长城  ->  cháng chéng

    The phrases are those of the pypinyin package, for characters whose pronunciation depends on their neighbors. They
    are split by a checksum, 18 to 1 to 1. A phrase of valid or test that is a part of a phrase of train moves to train,
    so that no test phrase occurs in training.

    Args:
        split: `train`, `valid` or `test`.

    Example:
        >>> [pair] = [pair for pair in Pinyin("train").pairs() if pair.source == "长城"]
        >>> pair.target, pair.sure_links
        ('cháng chéng', ((0, 0), (1, 1)))
    """

    split: Split = "train"

    def __post_init__(self) -> None:
        UnknownNameError.check("split", self.split, SPLITS)

    def pairs(self) -> list[SentencePair]:
        """Return all pairs of the split, always in the same order.

        Returns:
            The pairs.
        """
        pairs = []
        for phrase, syllables in _split_phrases()[self.split].items():
            links = tuple((i, i) for i in range(len(phrase)))
            pairs.append(SentencePair(phrase, " ".join(syllables), links, links))
        return pairs


def clean_phrases(phrases: dict[str, Sequence[Sequence[str]]]) -> Phrases:
    """Select the phrases of Han characters only that have exactly one syllable for each.

    Args:
        phrases: for each phrase, the possible syllables of each character.

    Returns:
        For each selected phrase, its syllables.

    Example:
        >>> phrases = {"长大": [["zhǎng"], ["dà"]], "那些": [["nà", "nèi"], ["xiē"]]}
        >>> clean_phrases(phrases | {"一，二": [["yī"], ["，"], ["èr"]]})
        {'长大': ('zhǎng', 'dà')}
    """
    selected = {}
    for phrase, syllables in phrases.items():
        single = [choices[0].strip() for choices in syllables if len(choices) == 1]
        is_complete = len(single) == len(syllables) == len(phrase)
        if is_complete and all(map(_is_han, phrase)) and all(map(str.isalpha, single)):
            selected[phrase] = tuple(unicodedata.normalize("NFC", syllable) for syllable in single)
    return selected


def _is_han(character: str) -> bool:
    return character == "〇" or unicodedata.name(character, "").startswith("CJK UNIFIED IDEOGRAPH")


@cache
def _split_phrases() -> dict[str, Phrases]:
    phrases = clean_phrases(require_extra("pypinyin.phrases_dict", extra="recipes").phrases_dict)
    names = {phrase: BUCKETS.get(crc32(phrase.encode()) % 20, "train") for phrase in sorted(phrases)}
    train = [phrase for phrase, name in names.items() if name == "train"]
    inside = {phrase[i:j] for phrase in train for i, j in combinations(range(len(phrase) + 1), 2)}
    splits: dict[str, Phrases] = {name: {} for name in SPLITS}
    for phrase, name in names.items():
        splits["train" if phrase in inside else name][phrase] = phrases[phrase]
    return splits
