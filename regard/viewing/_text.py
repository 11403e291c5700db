"""Width of text in columns: grapheme clusters, truncation and wrapping."""

from __future__ import annotations

import re
import unicodedata

ZERO_WIDTH_JOINER = "\u200d"
MAX_MARKS = 4  # combining marks per cluster; more would overlap the neighbors


def grapheme_clusters(text: str) -> list[str]:
    """Split a text into grapheme clusters: base characters with their combining marks.

    Example:
        >>> [len(cluster) for cluster in grapheme_clusters("e\u0301t")]
        [2, 1]
    """
    clusters: list[str] = []
    for c in text:
        if clusters and _extends_cluster(c, clusters[-1]):
            clusters[-1] += c if len(clusters[-1]) <= MAX_MARKS else ""
        else:
            clusters.append(c)
    return clusters


def text_width(text: str) -> int:
    """Count the columns of a text in a monospaced font. Chinese characters and emoji have two.

    Example:
        >>> text_width("cat"), text_width("注意"), text_width("e\u0301")
        (3, 4, 1)
    """
    return sum(_cluster_width(cluster) for cluster in grapheme_clusters(text))


def truncate(text: str, max_width: int) -> str:
    """Cut a text to at most `max_width` columns, with an ellipsis where it is cut.

    Example:
        >>> truncate("translation", 6), truncate("cat", 6)
        ('trans…', 'cat')
    """
    if len(text) <= max_width and text_width(text) <= max_width:
        return text
    result, used = "", 1
    beginning = text[: 8 * max_width]  # a text of a million characters is not scanned to its end
    for cluster in grapheme_clusters(beginning):
        used += _cluster_width(cluster)
        if used > max_width:
            break
        result += cluster
    else:
        return result if len(text) <= 8 * max_width else result + "…"
    return result + "…"


def wrap_lines(text: str, max_width: int) -> list[str]:
    """Wrap a text to lines of at most `max_width` columns, between words, or inside a word that is too long.

    Example:
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
    """Whether a character combines with the previous one and has no width, such as accents."""
    return unicodedata.category(c) in ("Mn", "Me")


def _extends_cluster(c: str, cluster: str) -> bool:
    is_skin_tone = 0x1F3FB <= ord(c) <= 0x1F3FF
    if is_combining_mark(c) or c == ZERO_WIDTH_JOINER or is_skin_tone or cluster.endswith(ZERO_WIDTH_JOINER):
        return True
    # Two regional indicators are a flag.
    return _is_regional_indicator(c) and len(cluster) == 1 and _is_regional_indicator(cluster)


def _is_regional_indicator(c: str) -> bool:
    return 0x1F1E6 <= ord(c) <= 0x1F1FF


def _cluster_width(cluster: str) -> int:
    first = cluster[0]
    is_emoji = "\ufe0f" in cluster or _is_regional_indicator(first)
    if is_emoji or unicodedata.east_asian_width(first) in "WF":
        return 2
    return int(not is_combining_mark(first) and first != ZERO_WIDTH_JOINER)
