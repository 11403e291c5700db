"""Strings of letters and the same strings from behind.

    regard  ->  drager

A task of seconds, to see whether anything is learned at all.

Chinese phrases and how they are said: one syllable a character.

    成长  ->  chéng zhǎng
    长城  ->  cháng chéng

The phrases are those that the pypinyin package ships for characters whose sound depends on their neighbors.
"""

from __future__ import annotations

import random as chance
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Literal
from zlib import crc32

from regard._imports import require_extra
from regard.data.parallel import SentencePair
from regard.errors import UnknownNameError, UsageError

Split = Literal["train", "valid", "test"]


class Reverse:
    """Pairs of a string by chance and its reverse, with links between their characters.

        source[i]  is  target[length - 1 - i]

    Strings of one split are in no other; which they are in does not depend on the seed.

    >>> pair = Reverse(min_length=3, max_length=3).eval_set(1)[0]
    >>> pair.source, pair.target, pair.sure_links
    ('qpr', 'rpq', ((2, 0), (1, 1), (0, 2)))
    """

    def __init__(
        self,
        seed: int = 0,
        split: Split = "train",
        alphabet: str = "abcdefghijklmnopqrstuvwxyz",
        min_length: int = 1,
        max_length: int = 12,
    ) -> None:
        if split not in ("train", "valid", "test"):
            raise UnknownNameError(f"reverse has no split {split!r}; take one of train, valid, test")
        if not alphabet or not 1 <= min_length <= max_length:
            raise UsageError(
                f"strings of {min_length} to {max_length} of {len(alphabet)} letters cannot be made; "
                "give at least one letter and 1 <= shortest <= longest"
            )
        self.seed = seed
        self.split = split
        self.alphabet = alphabet
        self.min_length = min_length
        self.max_length = max_length

    def sample(self, rng: chance.Random, count: int) -> list[SentencePair]:
        """So many pairs, of all lengths about equally."""
        return [self._sample_pair(rng) for _ in range(count)]

    def eval_set(self, count: int) -> list[SentencePair]:
        """The same pairs whenever it is called: what to evaluate on."""
        return self.sample(chance.Random(f"{self.seed} {self.split}"), count)

    def _sample_pair(self, rng: chance.Random) -> SentencePair:
        for _ in range(1000):  # one in ten at least is of the split, unless there are next to no strings
            length = rng.randint(self.min_length, self.max_length)
            source = "".join(rng.choices(self.alphabet, k=length))
            if split_of(source) == self.split:
                return _make_reversed_pair(source)
        raise UsageError(f"no string is in the split {self.split!r}; allow more letters or longer strings")


def split_of(source: str) -> Split:
    """The split a string belongs to: eight in ten to train, one to valid, one to test.

    >>> split_of("regard")
    'train'
    """
    share = crc32(source.encode()) % 10
    return "valid" if share == 0 else "test" if share == 1 else "train"


def _make_reversed_pair(source: str) -> SentencePair:
    last = len(source) - 1
    links = tuple((last - j, j) for j in range(len(source)))
    return SentencePair(source, source[::-1], links, links)


PinyinSplit = Literal["train", "valid", "test"]


Phrases = dict[str, tuple[str, ...]]


class Pinyin:
    """Pairs of a phrase and its syllables; character i and syllable i are linked.

    Phrases are split by chance, 18 to 1 to 1. One that would be in valid or test but is a part of a phrase of
    train is in train too, so that what is asked was never answered as a whole.

    >>> [pair] = [pair for pair in Pinyin("train").pairs() if pair.source == "长城"]
    >>> pair.target, pair.sure_links
    ('cháng chéng', ((0, 0), (1, 1)))
    """

    def __init__(self, split: PinyinSplit = "train") -> None:
        if split not in ("train", "valid", "test"):
            raise UnknownNameError(f"pinyin has no split {split!r}; take one of train, valid, test")
        self.split: PinyinSplit = split

    def pairs(self) -> list[SentencePair]:
        """All pairs of the split, always in the same order."""
        return [
            _make_pinyin_pair(phrase, syllables) for phrase, syllables in _split_phrases()[self.split].items()
        ]

    def count_phrases(self) -> dict[str, int]:
        """How many phrases, different characters and different syllables there are.

        Beside them: how many phrases have a character, or a syllable for a character, that is not in train.

        >>> list(Pinyin("test").count_phrases())
        ['phrases', 'characters', 'syllables', 'with new character', 'with new sound']
        """
        phrases = _split_phrases()[self.split]
        here, train = _collect_syllables(phrases), _collect_syllables(_split_phrases()["train"])
        seen = {character for character, _ in train}
        new = [
            phrase for phrase, said in phrases.items() if not train.issuperset(zip(phrase, said, strict=True))
        ]
        return {
            "phrases": len(phrases),
            "characters": len({character for character, _ in here}),
            "syllables": len({syllable for _, syllable in here}),
            "with new character": sum(not seen.issuperset(phrase) for phrase in phrases),
            "with new sound": len(new),
        }


def clean_phrases(phrases: dict[str, Sequence[Sequence[str]]]) -> Phrases:
    """The phrases that are Han characters only and have one syllable for each, without choice.

    >>> clean_phrases({"长大": [["zhǎng"], ["dà"]], "那些": [["nà", "nèi"], ["xiē"]], "一，二": [["yī"], ["，"], ["èr"]]})
    {'长大': ('zhǎng', 'dà')}
    """
    good = {}
    for phrase, said in phrases.items():
        single = [choices[0].strip() for choices in said if len(choices) == 1]
        one_each = len(single) == len(said) == len(phrase)
        if one_each and all(map(_is_han, phrase)) and all(map(str.isalpha, single)):
            good[phrase] = tuple(unicodedata.normalize("NFC", syllable) for syllable in single)
    return good


def count_dropped_phrases() -> int:
    """How many of the package's phrases are not used, because they are not clean."""
    return len(_load_phrases()) - len(clean_phrases(_load_phrases()))


def _load_phrases() -> dict[str, Sequence[Sequence[str]]]:
    phrases: dict[str, Sequence[Sequence[str]]] = require_extra(
        "pypinyin.phrases_dict", extra="recipes"
    ).phrases_dict
    return phrases


def _is_han(sign: str) -> bool:
    return sign == "〇" or unicodedata.name(sign, "").startswith("CJK UNIFIED IDEOGRAPH")


def _make_pinyin_pair(phrase: str, syllables: tuple[str, ...]) -> SentencePair:
    links = tuple((i, i) for i in range(len(phrase)))
    return SentencePair(phrase, " ".join(syllables), links, links)


def _collect_syllables(phrases: Phrases) -> set[tuple[str, str]]:
    return {sound for phrase, said in phrases.items() for sound in zip(phrase, said, strict=True)}


@cache
def _split_phrases() -> dict[str, Phrases]:
    phrases = clean_phrases(_load_phrases())
    names = {phrase: _assign_split(phrase) for phrase in sorted(phrases)}
    inside = {part for phrase, name in names.items() if name == "train" for part in _find_substrings(phrase)}
    splits: dict[str, Phrases] = {"train": {}, "valid": {}, "test": {}}
    for phrase, name in names.items():
        splits["train" if phrase in inside else name][phrase] = phrases[phrase]
    return splits


def _assign_split(phrase: str) -> str:
    share = crc32(phrase.encode()) % 20
    return {0: "valid", 1: "test"}.get(share, "train")


def _find_substrings(phrase: str) -> set[str]:
    return {phrase[i:j] for i in range(len(phrase)) for j in range(i + 1, len(phrase) + 1)}
