"""Text as it is seen: what belongs together as one letter, how wide it is, what to leave away."""

from __future__ import annotations

import re
import unicodedata

JOINER = "\u200d"
MOST_MARKS = 4  # more of them on one letter is mischief, and runs over its neighbors


def clusters(text: str) -> list[str]:
    """The letters of a text, each with the marks that stand on it.

    >>> [len(letter) for letter in clusters("e\u0301t")]
    [2, 1]
    """
    found: list[str] = []
    for c in text:
        if found and _belongs(c, found[-1]):
            found[-1] += c if len(found[-1]) <= MOST_MARKS else ""
        else:
            found.append(c)
    return found


def width(text: str) -> int:
    """How many columns the text fills where all letters are equally wide: Chinese characters and emoji fill two.

    >>> width("cat"), width("注意"), width("e\u0301")
    (3, 4, 1)
    """
    return sum(_width(letter) for letter in clusters(text))


def shortened(text: str, room: int) -> str:
    """The text if it is at most `room` columns wide, otherwise its beginning and an ellipsis.

    >>> shortened("translation", 6), shortened("cat", 6)
    ('trans…', 'cat')
    """
    if len(text) <= room and width(text) <= room:
        return text
    kept, used = "", 1
    for letter in clusters(text[: 8 * room]):  # a text of a million letters is not read to its end
        used += _width(letter)
        if used > room:
            break
        kept += letter
    else:
        return kept if len(text) <= 8 * room else kept + "…"
    return kept + "…"


def in_lines(text: str, room: int) -> list[str]:
    """The text in lines of at most `room` columns, broken between words, or inside one that is too long by itself.

    >>> in_lines("a black cat sleeps", 8), in_lines("translation", 6)
    (['a black', 'cat', 'sleeps'], ['transl', 'ation'])
    """
    lines = [""]
    for word in re.findall(r"\S+\s*|\s+", text):
        for part in clusters(word) if width(word.rstrip()) > room else [word]:
            if lines[-1] and width(lines[-1] + part.rstrip()) > room:
                lines.append("")
            lines[-1] += part
    return [line.rstrip() for line in lines]


def is_mark(c: str) -> bool:
    """Whether a character stands on the one before it and fills no column: accents, variation selectors."""
    return unicodedata.category(c) in ("Mn", "Me")


def _belongs(c: str, before: str) -> bool:
    if is_mark(c) or c == JOINER or 0x1F3FB <= ord(c) <= 0x1F3FF:  # the last: tones of skin
        return True
    if before.endswith(JOINER):
        return True
    return _is_flag(c) and len(before) == 1 and _is_flag(before)  # two such letters make a flag


def _is_flag(c: str) -> bool:
    return 0x1F1E6 <= ord(c) <= 0x1F1FF


def _width(letter: str) -> int:
    wide = unicodedata.east_asian_width(letter[0]) in "WF" or "\ufe0f" in letter or _is_flag(letter[0])
    return 2 if wide else int(not is_mark(letter[0]) and letter[0] != JOINER)
