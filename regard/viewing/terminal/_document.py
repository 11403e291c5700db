"""A document for the terminal: a bar for each sentence, and its words on the color of their weight."""

from __future__ import annotations

from collections.abc import Sequence

from regard.errors import UsageError
from regard.viewing._letters import width as wide
from regard.viewing.terminal._screen import COLORS, SHADES, clean, columns_of, spoken, step, wants_color

BAR = 8  # columns of a sentence's bar
EIGHTHS = " ▏▎▍▌▋▊▉█"
LIGHT = 7  # the first of COLORS that black letters are read on
LONGEST = 60
PLAIN = {
    "en": "before a word: ▒ ▓ █ over 1/4, 1/2, 3/4 of the largest share, {:.2g}",
    "zh": "词前：▒ ▓ █ 超过最大份额 {:.2g} 的 1/4、1/2、3/4",
}
COLORED = {"en": "share of the document: {} up to {:.2g}", "zh": "在全文中的份额：{} 至多 {:.2g}"}


def document(
    words: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None,
    sentences: Sequence[float] | None,
    *,
    gaps: Sequence[Sequence[bool]] | None = None,
    color: bool | None = None,
    width: int | None = None,
    language: str = "en",
) -> str:
    """Draw sentences of words: at the left the weight of each sentence, behind each word its share of the document.

    A word's share is its weight times that of its sentence. In color, the brighter the more; without, one of four
    shades stands before the words that have more than a quarter of what the most regarded one has. `gaps` says
    before which words there is a space; `language` ("en" or "zh") is that of the legend.

    >>> print(document([["so", "good"], ["ok"]], [[0.1, 0.9], [1.0]], [0.8, 0.2], color=False, width=40))
    0.80 ████████ so █good
    0.20 ██       ▒ok
    before a word: ▒ ▓ █ over 1/4, 1/2, 3/4 of the largest share, 0.72
    """
    color, room = wants_color() if color is None else color, columns_of(width)
    shares = _shares(words, weights, sentences)
    top = max((share for row in shares for share in row), default=0.0)
    most = max(sentences, default=0.0) if sentences is not None else 0.0
    lines = []
    for place, sentence in enumerate(words):
        head = "" if sentences is None else f"{sentences[place]:4.2f} {_bar(sentences[place], most)} "
        before = gaps[place] if gaps is not None else [True] * len(sentence)
        pieces = [
            (space, *_piece(word, share, top, color))
            for word, share, space in zip(sentence, shares[place], before, strict=True)
        ]
        lines += _wrapped(head, _joined(sentence, pieces), room)
    return "\n".join([*lines, *_legend(top, color, language)])


def _shares(
    words: Sequence[Sequence[str]],
    weights: Sequence[Sequence[float]] | None,
    sentences: Sequence[float] | None,
) -> list[list[float]]:
    if weights is None or sentences is None:
        return [[0.0] * len(sentence) for sentence in words]
    if [len(row) for row in weights] != [len(row) for row in words] or len(sentences) != len(words):
        raise UsageError("document wants one weight for each sentence, and one for each word of it.")
    return [[share * weight for weight in row] for share, row in zip(sentences, weights, strict=True)]


def _bar(weight: float, most: float) -> str:
    eighths = round(8 * BAR * weight / most) if most > 0 else 0
    full, rest = divmod(eighths, 8)
    return ("█" * full + EIGHTHS[rest] * (rest > 0)).ljust(BAR)


def _piece(word: str, share: float, top: float, color: bool) -> tuple[str, int]:
    """A word as it is printed, and how wide it is."""
    shown = clean(word, LONGEST)
    if not color:
        on = step(share, top, len(SHADES)) if top > 0 else 0
        shown = (SHADES[on - 1] if on > 1 else "") + shown
        return shown, wide(shown)
    on = step(share, top, len(COLORS)) if top > 0 else 0
    if on < 2:
        return shown, wide(shown)
    letters = 16 if on > LIGHT else 231
    return f"\x1b[48;5;{COLORS[on - 1]};38;5;{letters}m{shown}\x1b[0m", wide(shown)


def _wrapped(head: str, pieces: Sequence[tuple[bool, str, int]], room: int) -> list[str]:
    lines, line, used, empty = [], head, wide(head), True
    for space, shown, size in pieces:
        gap = 1 if space and not empty else 0
        if not empty and used + gap + size > room:
            lines.append(line.rstrip())
            line, used, gap = " " * wide(head), wide(head), 0
        line, used, empty = line + " " * gap + shown, used + gap + size, False
    return [*lines, line.rstrip()]


def _joined(words: Sequence[str], pieces: Sequence[tuple[bool, str, int]]) -> list[tuple[bool, str, int]]:
    """Marks stay on the line of the word that they follow without a space."""
    units: list[tuple[bool, str, int]] = []
    for word, (space, shown, size) in zip(words, pieces, strict=True):
        if units and not space and not word[:1].isalnum():
            before = units[-1]
            units[-1] = (before[0], before[1] + shown, before[2] + size)
        else:
            units.append((space, shown, size))
    return units


def _legend(top: float, color: bool, language: str) -> list[str]:
    if top <= 0:
        return []
    if not color:
        return [spoken(PLAIN, language).format(top)]
    ramp = "".join(f"\x1b[48;5;{code}m  \x1b[0m" for code in COLORS[1:])
    return [spoken(COLORED, language).format(ramp, top)]
