"""A document that was read, its sentences and words lit by their weights: a page in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from regard.errors import UsageError
from regard.viewing.players._player import STYLES, Player
from regard.viewing.web import page


def document(
    words: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None,
    sentences: Sequence[float] | None,
    *,
    probabilities: Mapping[str, float],
    gaps: Sequence[Sequence[bool]] | None = None,
    title: str | None = None,
    left: Mapping[str, int] | None = None,
    language: str | None = None,
) -> Player:
    """A page with the weight of each sentence as a bar, and each word shaded by its share of the document.

    A word's share is its weight within its sentence times the weight of the sentence. `probabilities` are those
    of the classes, the likeliest first; `gaps` says before which words there is a space; `left` counts what was
    left out of a document too long.

    >>> document([["so", "good"]], [[0.1, 0.9]], [1.0], probabilities={"pos": 0.97, "neg": 0.03})
    Player(... characters of HTML)
    """
    if language not in (None, "en", "zh"):
        raise UsageError(f"A player speaks 'en' or 'zh', not {language!r}.")
    _check(words, weights, sentences)
    label = next(iter(probabilities), "")
    data = {
        "title": title,
        "label": label,
        "probabilities": list(probabilities.items()),
        "attends": weights is not None,
        "sentences": [
            {
                "words": list(sentence),
                "gaps": list(gaps[place]) if gaps is not None else [True] * len(sentence),
                "weight": 0 if sentences is None else float(sentences[place]),
                "weights": [0] * len(sentence) if weights is None else [float(w) for w in weights[place]],
            }
            for place, sentence in enumerate(words)
        ],
        "left": dict(left or {}),
        "language": language,
    }
    styles = (*STYLES, "document.css")
    return Player(page(title or label, ["document.js"], data, styles=styles, language=language))


def _check(words: Sequence[Sequence[Any]], weights: Any, sentences: Any) -> None:
    if not words or not all(words):
        raise UsageError("document shows at least one sentence, and every sentence has a word.")
    if weights is None and sentences is None:
        return
    if weights is None or sentences is None or len(sentences) != len(words):
        raise UsageError(f"document was given {len(words)} sentences, and should have a weight for each.")
    if [len(row) for row in weights] != [len(row) for row in words]:
        raise UsageError("document was given words and weights that are not as many in every sentence.")
