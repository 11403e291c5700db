"""A font for every letter: found among those of the system, or a hint which one to install.

matplotlib draws with a list of font families and takes, letter by letter, the first that has it. Here that list is
made. Letters that no font has become a box, with one warning a script instead of one a letter.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

from regard._imports import require_extra

BOX = "□"
ALWAYS = "DejaVu Sans"  # comes with matplotlib
HAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "IDEOGRAPHIC", "FULLWIDTH")
# Words in the names of fonts that have Chinese characters; the first words are asked first.
FLAVORS = {
    "chinese": ("CJK SC", "Han Sans SC", "PingFang SC", "YaHei", "SimHei", "WenQuanYi", "Heiti", "CJK"),
    "japanese": ("CJK JP", "Han Sans JP", "Hiragino", "Yu Gothic", "Meiryo", "IPA", "Takao", "CJK"),
    "korean": ("CJK KR", "Han Sans KR", "Apple SD Gothic", "Malgun", "Nanum", "CJK"),
}
UNFIT = ("Last Resort", "Color Emoji")  # boxes instead of letters; pictures that matplotlib cannot draw

_said: set[str] = set()


class MissingGlyphs(UserWarning):
    """No font of the system has these letters."""


def dressed(texts: list[str]) -> tuple[list[str], list[str]]:
    """The texts with boxes for the letters that no font has, and the families to draw them with."""
    letters = set("".join(texts))
    families, missing = _families(letters)
    if missing:
        _hint(missing)
        table = {ord(c): None if _is_invisible(c) else BOX for c in missing}
        texts = [text.translate(table) for text in texts]
    return texts, families


def has_letters(family: str, letters: Iterable[str]) -> bool:
    """Whether the font that matplotlib takes for a family has all these letters."""
    manager = require_extra("matplotlib.font_manager", extra="draw")
    path = manager.findfont(manager.FontProperties(family=[family]))
    known = _letters_of(str(path), getattr(path, "face_index", 0))  # a .ttc holds several faces
    return all(ord(c) in known for c in letters)


def _families(letters: set[str]) -> tuple[list[str], set[str]]:
    manager = require_extra("matplotlib.font_manager", extra="draw")
    families = list(dict.fromkeys([*manager.FontProperties().get_family(), ALWAYS]))
    letters = {c for c in letters if not any(has_letters(family, c) for family in families)}
    flavor, missing = _flavor(letters), set()
    for c in sorted(letters):
        if any(has_letters(family, c) for family in families[2:]):
            continue
        found = _family_with(c, flavor)
        families += [found] if found else []
        missing |= set() if found else {c}
    return families, missing


def _flavor(letters: set[str]) -> str:
    scripts = {_script(c) for c in letters}
    if scripts & {"HIRAGANA", "KATAKANA"}:
        return "japanese"
    return "korean" if "HANGUL" in scripts and "CJK" not in scripts else "chinese"


@cache
def _family_with(c: str, flavor: str) -> str | None:
    script = _script(c)
    wanted = FLAVORS[flavor] if script in HAN else (script, "Emoji", "Symbol")

    def rank(entry: Any) -> tuple[Any, ...]:
        place = next((i for i, word in enumerate(wanted) if word.lower() in entry.name.lower()), len(wanted))
        plain = entry.style == "normal" and entry.weight in (400, "normal", "regular")
        return place, not plain, "Mono" in entry.name, "Serif" in entry.name, entry.name

    for entries in _sources():
        fit = (entry for entry in entries if not any(word in entry.name for word in UNFIT))
        for entry in sorted(fit, key=rank):
            if ord(c) in _letters_of(entry.fname, getattr(entry, "index", 0)):
                return str(entry.name)
    return None


def _sources() -> Iterator[list[Any]]:
    """First the fonts that matplotlib remembers, then those installed since it last looked."""
    manager = require_extra("matplotlib.font_manager", extra="draw")
    known = manager.fontManager.ttflist
    yield list(known)
    count, paths = len(known), {entry.fname for entry in known}
    for path in sorted(set(manager.findSystemFonts()) - paths):
        try:
            manager.fontManager.addfont(path)
        except (OSError, RuntimeError, KeyError, ValueError):
            continue  # not a font that matplotlib can read
    yield known[count:]


@cache
def _letters_of(path: str, index: int) -> frozenset[int]:
    """The code points of a font; none if it cannot be drawn at any size."""
    load = require_extra("matplotlib.ft2font", extra="draw").FT2Font
    try:
        font = load(path, face_index=index) if index else load(path)
    except (OSError, RuntimeError, TypeError):
        return frozenset()
    return frozenset(font.get_charmap()) if getattr(font, "scalable", True) else frozenset()


def _script(c: str) -> str:
    """The first word of a character's name, which is that of its script: CJK, DEVANAGARI, ARABIC."""
    return unicodedata.name(c, "UNKNOWN").split()[0].split("-")[0]


def _is_invisible(c: str) -> bool:
    return unicodedata.category(c) == "Cf" or 0xFE00 <= ord(c) <= 0xFE0F


def _hint(missing: set[str]) -> None:
    by_font: dict[str, str] = {}
    for c in sorted(missing):
        if not _is_invisible(c):
            by_font[_advice(c)] = by_font.get(_advice(c), "") + c
    for font, letters in by_font.items():
        if font not in _said:
            _said.add(font)
            shown = ", ".join(f"{c} (U+{ord(c):04X})" for c in letters[:3]) + (" ..." if letters[3:] else "")
            warnings.warn(
                f"No font here has {shown}; boxes stand for what is missing. Install {font}.",
                MissingGlyphs,
                stacklevel=2,
            )


def _advice(c: str) -> str:
    script = _script(c)
    if script == "UNKNOWN":
        return "a font that has them, if there is one"
    if script in HAN:
        return "Noto Sans CJK (Debian, Ubuntu: fonts-noto-cjk)"
    if unicodedata.category(c) == "So":
        return "Noto Emoji, the one without color, or Symbola (Debian, Ubuntu: fonts-symbola)"
    return (
        f"a font for this script, such as Noto Sans {script.capitalize()} (Debian, Ubuntu: fonts-noto-core)"
    )
