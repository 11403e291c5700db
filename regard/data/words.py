"""A sentence as words: with the punctuation apart, also where a script has no spaces."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from functools import cache

from regard.data.sentences import HAN

CUTS: dict[str, Callable[[str], list[str]]] = {}
EACH = re.compile(f"[{HAN}]")
SIGN = r"[^\w\s]"
BETWEEN = re.compile(f"(?<=[{HAN}]) (?=[{HAN}]|{SIGN})|(?<={SIGN}) (?=[{HAN}])")


def words(sentence: str) -> list[str]:
    """Words, numbers and marks in order; a Chinese character is a word, repeated marks are one.

    >>> words("It's well-made... 8/10!!!")
    ["It's", 'well', '-', 'made', '...', '8/10', '!!!']
    >>> words("15.4寸，很好。")
    ['15.4', '寸', '，', '很', '好', '。']
    """
    return [match[0] for match in _pattern().finditer(sentence)]


def characters(sentence: str) -> list[str]:
    """Every character but spaces."""
    return [character for character in sentence if not character.isspace()]


def apart(text: str) -> str:
    """The text with spaces around every Han character and kana; whatever else stands between spaces is left whole.

    >>> apart("一只狗 in 雪地里。"), apart("it's a dog.")
    ('一 只 狗 in 雪 地 里 。', "it's a dog.")
    """
    return " ".join(EACH.sub(r" \g<0> ", text).split()) if EACH.search(text) else text


def together(text: str) -> str:
    """The same without the spaces between those characters, and between them and the marks beside them.

    >>> together("一 只 狗 in 雪 地 里 。"), together("a dog , a cat .")
    ('一只狗 in 雪地里。', 'a dog , a cat .')
    """
    return BETWEEN.sub("", text)


CUTS |= {"word": words, "char": characters}


@cache
def _pattern() -> re.Pattern[str]:
    """Marks are what Unicode calls punctuation or a symbol; marks of vowels belong to their letters."""
    marks = "".join(re.escape(c) for c in map(chr, range(0x10000)) if unicodedata.category(c)[0] in "PS")
    letter = f"[^\\s{HAN}{marks}\U0001f000-\U0001faff]"
    return re.compile(
        rf"[0-9]+(?:[.,/:][0-9]+)+|[{HAN}]|{letter}+(?:['’]{letter}+)*|(?P<mark>[^\s])(?P=mark)*"
    )
