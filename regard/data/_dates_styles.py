"""The styles in which people write the same date: their own digits, or letters small, capital or both."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator
from typing import Any

from regard.data._dates_fields import ZEROS

Case = Callable[[str, bool], str]  # what is done to a text, which is a name or is none


def styles(code: str, locale: Any) -> Iterator[tuple[str, str, Case]]:
    """The names of the styles people write in, with their numbering system and what they do to the letters."""
    yield "plain", "latn", lambda text, name: text
    native = locale.other_numbering_systems.get("native", "latn")
    if native in ZEROS or code in ("zh", "zh-Hant", "ja"):
        system = native if native in ZEROS else "hanidec"
        yield system, system, lambda text, name: text
    if code != "ka":  # Georgian has capitals in Unicode, but nobody begins a word with one
        yield "lower", "latn", lambda text, name: _lower(text, code)
        yield "upper", "latn", lambda text, name: _upper(text, code)
        yield "capital", "latn", lambda text, name: _capital(text, code) if name else text


def _lower(text: str, code: str) -> str:
    return text.replace("I", "ı").replace("İ", "i").lower() if code == "tr" else text.lower()


def _upper(text: str, code: str) -> str:
    if code == "tr":
        return text.replace("i", "İ").upper()
    if code == "el":  # capitals have no accents, but keep the dots that tell vowels apart
        bare = unicodedata.normalize("NFD", text).replace("\u0301", "")
        return unicodedata.normalize("NFC", bare).upper()
    return text.upper()


def _capital(name: str, code: str) -> str:
    return name if " " in name else _upper(name[:1], code) + name[1:]
