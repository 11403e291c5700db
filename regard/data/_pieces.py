"""How a text is cut before a vocabulary is asked: into marked words, or into characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache

MARK = "▁"  # begins each word, so that joining the pieces gives back the spaces
BASIC = 0x10000  # below are the characters of living languages; above, punctuation is ancient, except for
PICTURES = "\U0001f000-\U0001faff"  # emoji; a few long ranges keep the pattern fast


def cutter(kind: str, nfkc: bool, lowercase: bool) -> Callable[[str], list[str]]:
    """The function from a text to the pieces that are encoded one by one.

    >>> cutter("bpe", nfkc=False, lowercase=True)("Oh no, not again!")
    ['▁oh', '▁no', ',', '▁not', '▁again', '!']
    >>> cutter("word", nfkc=False, lowercase=False)("Oh no!")
    ['▁Oh', '▁no!']
    """
    cuts: dict[str, Callable[[str], list[str]]] = {
        "char": list,
        "word": _words,
        "bpe": _subwords,
        "unigram": _subwords,
    }
    cut = cuts[kind]
    if not (nfkc or lowercase):
        return cut

    def normalized(text: str) -> list[str]:
        text = unicodedata.normalize("NFKC", text) if nfkc else text
        return cut(text.lower() if lowercase else text)

    return normalized


def _words(text: str) -> list[str]:
    """A mark that stands in the text itself would read as a space, and becomes an underscore."""
    return [MARK + word for word in text.replace(MARK, "_").split()]


def _subwords(text: str) -> list[str]:
    """Words, and punctuation apart from them: "again" and "again!" should share what is learned."""
    return _pattern().findall("".join(_words(text)))


@cache
def _pattern() -> re.Pattern[str]:
    basic = map(chr, range(BASIC))
    marks = (
        "".join(re.escape(c) for c in basic if unicodedata.category(c)[0] in "PS" and c != MARK) + PICTURES
    )
    return re.compile(f"{MARK}?(?:[{marks}]+|[^{MARK}{marks}]+)")
