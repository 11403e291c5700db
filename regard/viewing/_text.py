"""Text as it is seen: what belongs together as one letter, how wide it is, what to leave away."""

from __future__ import annotations

import re
import unicodedata

ZERO_WIDTH_JOINER = "\u200d"


MAX_MARKS = 4  # more of them on one letter is mischief, and runs over its neighbors


def grapheme_clusters(text: str) -> list[str]:
    """The letters of a text, each with the marks that stand on it.

    >>> [len(letter) for letter in grapheme_clusters("e\u0301t")]
    [2, 1]
    """
    found: list[str] = []
    for c in text:
        if found and _extends_cluster(c, found[-1]):
            found[-1] += c if len(found[-1]) <= MAX_MARKS else ""
        else:
            found.append(c)
    return found


def text_width(text: str) -> int:
    """How many columns the text fills where all letters are equally wide: Chinese characters and emoji fill two.

    >>> text_width("cat"), text_width("注意"), text_width("e\u0301")
    (3, 4, 1)
    """
    return sum(_cluster_width(letter) for letter in grapheme_clusters(text))


def truncate(text: str, max_width: int) -> str:
    """The text if it is at most `room` columns wide, otherwise its beginning and an ellipsis.

    >>> truncate("translation", 6), truncate("cat", 6)
    ('trans…', 'cat')
    """
    if len(text) <= max_width and text_width(text) <= max_width:
        return text
    kept, used = "", 1
    for letter in grapheme_clusters(
        text[: 8 * max_width]
    ):  # a text of a million letters is not read to its end
        used += _cluster_width(letter)
        if used > max_width:
            break
        kept += letter
    else:
        return kept if len(text) <= 8 * max_width else kept + "…"
    return kept + "…"


def wrap_lines(text: str, max_width: int) -> list[str]:
    """The text in lines of at most `room` columns, broken between words, or inside one that is too long by itself.

    >>> wrap_lines("a black cat sleeps", 8), wrap_lines("translation", 6)
    (['a black', 'cat', 'sleeps'], ['transl', 'ation'])
    """
    lines = [""]
    for word in re.findall(r"\S+\s*|\s+", text):
        for part in grapheme_clusters(word) if text_width(word.rstrip()) > max_width else [word]:
            if lines[-1] and text_width(lines[-1] + part.rstrip()) > max_width:
                lines.append("")
            lines[-1] += part
    return [line.rstrip() for line in lines]


def is_combining_mark(c: str) -> bool:
    """Whether a character stands on the one before it and fills no column: accents, variation selectors."""
    return unicodedata.category(c) in ("Mn", "Me")


def _extends_cluster(c: str, cluster: str) -> bool:
    if (
        is_combining_mark(c) or c == ZERO_WIDTH_JOINER or 0x1F3FB <= ord(c) <= 0x1F3FF
    ):  # the last: tones of skin
        return True
    if cluster.endswith(ZERO_WIDTH_JOINER):
        return True
    return (
        _is_regional_indicator(c) and len(cluster) == 1 and _is_regional_indicator(cluster)
    )  # two such letters make a flag


def _is_regional_indicator(c: str) -> bool:
    return 0x1F1E6 <= ord(c) <= 0x1F1FF


def _cluster_width(cluster: str) -> int:
    wide = (
        unicodedata.east_asian_width(cluster[0]) in "WF"
        or "\ufe0f" in cluster
        or _is_regional_indicator(cluster[0])
    )
    return 2 if wide else int(not is_combining_mark(cluster[0]) and cluster[0] != ZERO_WIDTH_JOINER)
