"""Chinese phrases and how they are said: one syllable a character.

    成长  ->  chéng zhǎng
    长城  ->  cháng chéng

The phrases are those that the pypinyin package ships for characters whose sound depends on their neighbors.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Literal
from zlib import crc32

from regard._imports import require_extra
from regard.data.batch import Pair
from regard.errors import UnknownNameError

Split = Literal["train", "valid", "test"]
Phrases = dict[str, tuple[str, ...]]


class Pinyin:
    """Pairs of a phrase and its syllables; character i and syllable i are linked.

    Phrases are split by chance, 18 to 1 to 1. One that would be in valid or test but is a part of a phrase of
    train is in train too, so that what is asked was never answered as a whole.

    >>> [pair] = [pair for pair in Pinyin("train").pairs() if pair.source == "长城"]
    >>> pair.target, pair.links
    ('cháng chéng', ((0, 0), (1, 1)))
    """

    def __init__(self, split: Split = "train") -> None:
        if split not in ("train", "valid", "test"):
            raise UnknownNameError(f"pinyin has no split {split!r}; take one of train, valid, test")
        self.split: Split = split

    def pairs(self) -> list[Pair]:
        """All pairs of the split, always in the same order."""
        return [_pair(phrase, syllables) for phrase, syllables in _splits()[self.split].items()]

    def counts(self) -> dict[str, int]:
        """How many phrases, different characters and different syllables there are.

        Beside them: how many phrases have a character, or a syllable for a character, that is not in train.

        >>> list(Pinyin("test").counts())
        ['phrases', 'characters', 'syllables', 'with new character', 'with new sound']
        """
        phrases = _splits()[self.split]
        here, train = _sounds(phrases), _sounds(_splits()["train"])
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


def clean(phrases: dict[str, Sequence[Sequence[str]]]) -> Phrases:
    """The phrases that are Han characters only and have one syllable for each, without choice.

    >>> clean({"长大": [["zhǎng"], ["dà"]], "那些": [["nà", "nèi"], ["xiē"]], "一，二": [["yī"], ["，"], ["èr"]]})
    {'长大': ('zhǎng', 'dà')}
    """
    good = {}
    for phrase, said in phrases.items():
        single = [choices[0].strip() for choices in said if len(choices) == 1]
        one_each = len(single) == len(said) == len(phrase)
        if one_each and all(map(_han, phrase)) and all(map(str.isalpha, single)):
            good[phrase] = tuple(unicodedata.normalize("NFC", syllable) for syllable in single)
    return good


def dropped() -> int:
    """How many of the package's phrases are not used, because they are not clean."""
    return len(_shipped()) - len(clean(_shipped()))


def _shipped() -> dict[str, Sequence[Sequence[str]]]:
    phrases: dict[str, Sequence[Sequence[str]]] = require_extra(
        "pypinyin.phrases_dict", extra="recipes"
    ).phrases_dict
    return phrases


def _han(sign: str) -> bool:
    return sign == "〇" or unicodedata.name(sign, "").startswith("CJK UNIFIED IDEOGRAPH")


def _pair(phrase: str, syllables: tuple[str, ...]) -> Pair:
    links = tuple((i, i) for i in range(len(phrase)))
    return Pair(phrase, " ".join(syllables), links, links)


def _sounds(phrases: Phrases) -> set[tuple[str, str]]:
    return {sound for phrase, said in phrases.items() for sound in zip(phrase, said, strict=True)}


@cache
def _splits() -> dict[str, Phrases]:
    phrases = clean(_shipped())
    names = {phrase: _by_chance(phrase) for phrase in sorted(phrases)}
    inside = {part for phrase, name in names.items() if name == "train" for part in _parts(phrase)}
    splits: dict[str, Phrases] = {"train": {}, "valid": {}, "test": {}}
    for phrase, name in names.items():
        splits["train" if phrase in inside else name][phrase] = phrases[phrase]
    return splits


def _by_chance(phrase: str) -> str:
    share = crc32(phrase.encode()) % 20
    return {0: "valid", 1: "test"}.get(share, "train")


def _parts(phrase: str) -> set[str]:
    return {phrase[i:j] for i in range(len(phrase)) for j in range(i + 1, len(phrase) + 1)}
