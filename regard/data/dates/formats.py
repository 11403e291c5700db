"""The styles in which people write the same date: their own digits, or letters small, capital or both.

The forms in which dates are written: the patterns of CLDR for each language, as tables of pieces.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from regard._imports import require_extra
from regard.data.dates.fields import (
    DAY,
    MONTH,
    YEAR,
    YEARS,
    ZEROS,
    DatePiece,
    join_pieces,
    make_literal_piece,
    make_number_piece,
    make_number_pieces,
)

CaseFunction = Callable[[str, bool], str]  # what is done to a text, which is a name or is none


def iter_styles(code: str, locale: Any) -> Iterator[tuple[str, str, CaseFunction]]:
    """The names of the styles people write in, with their numbering system and what they do to the letters."""
    yield "plain", "latn", lambda text, name: text
    native = locale.other_numbering_systems.get("native", "latn")
    if native in ZEROS or code in ("zh", "zh-Hant", "ja"):
        system = native if native in ZEROS else "hanidec"
        yield system, system, lambda text, name: text
    if code != "ka":  # Georgian has capitals in Unicode, but nobody begins a word with one
        yield "lower", "latn", lambda text, name: _lower(text, code)
        yield "upper", "latn", lambda text, name: _upper(text, code)
        yield "capital", "latn", lambda text, name: _capitalize(text, code) if name else text


def _lower(text: str, code: str) -> str:
    return text.replace("I", "ı").replace("İ", "i").lower() if code == "tr" else text.lower()


def _upper(text: str, code: str) -> str:
    if code == "tr":
        return text.replace("i", "İ").upper()
    if code == "el":  # capitals have no accents, but keep the dots that tell vowels apart
        bare = unicodedata.normalize("NFD", text).replace("\u0301", "")
        return unicodedata.normalize("NFC", bare).upper()
    return text.upper()


def _capitalize(name: str, code: str) -> str:
    return name if " " in name else _upper(name[:1], code) + name[1:]


# As CLDR names them; zh is Chinese in simplified characters, en the English of the United States.
_LANGUAGE_LIST = (
    "ar bg bn ca cs da de el en en-GB es et eu fa fi fil fr gl he hi hr hu hy id is it ja ka kk ko lt lv mk mr "
    "ms nb ne nl pl pt ro ru sk sl sq sr sv sw ta te th tr uk ur uz vi zh zh-Hant"
)


LANGUAGE_CODES = tuple(_LANGUAGE_LIST.split())


Slot = tuple[int, list[DatePiece]]  # which of the values of a date, and the piece for each of its values


LITERAL, OF_YEAR, OF_MONTH, OF_DAY, OF_WEEKDAY = range(5)


_COLUMNS = {"y": YEAR, "M": MONTH, "d": DAY}


_FIELD = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|([^A-Za-z']+)")


@dataclass(frozen=True)
class DateFormat:
    """One way to write a date: a pattern in a language, in one style of letters and digits."""

    language: str
    pattern: str
    style: str
    slots: tuple[Slot, ...]
    is_tagged: bool = False

    def write(self, values: tuple[int, ...]) -> DatePiece:
        """The text of a date and its links; `values` are 0, year, month, day and weekday, counted from 0."""
        return join_pieces([table[values[which]] for which, table in self.slots])

    @property
    def has_month_name(self) -> bool:
        """Whether the month is a word."""
        return "MMM" in self.pattern

    @property
    def has_short_year(self) -> bool:
        """Whether the year has two digits only."""
        return re.search(r"(?<!y)yy(?!y)", self.pattern) is not None


def get_locale(code: str) -> Any:
    """Babel's locale for a language of the list."""
    return require_extra("babel", extra="recipes").Locale.parse("zh-Hans" if code == "zh" else code, sep="-")


@cache
def formats_of(code: str) -> tuple[DateFormat, ...]:
    """Every form of a language: each of its patterns in each of its styles, the pattern as it is first."""
    locale = get_locale(code)
    forms = []
    for pattern in list_patterns(locale):
        seen = set()
        for style, system, case in iter_styles(code, locale):
            if system == "hanidec" and "年" not in pattern:
                continue  # nobody writes 二〇一〇/五/三
            slots = tuple(_iter_slots(pattern, locale, system, case))
            texts = tuple(piece.text for _, table in slots for piece in table)
            if texts not in seen:  # a style that changes nothing is no style
                seen.add(texts)
                forms.append(DateFormat(code, pattern, style, slots))
    return tuple(forms)


def common_patterns(locale: Any) -> list[str]:
    """The patterns that are met most: CLDR's four lengths, and the date in digits with its whole year.

    Names that stand alone (c, L) are replaced by those within a sentence (E, M): what Babel has for the former
    can leak from one language into another (python-babel issue 1234).
    """
    found = [locale.date_formats[length].pattern for length in ("full", "long", "medium", "short")]
    return [_to_sentence_form(pattern) for pattern in (*found, str(locale.datetime_skeletons["yMd"]))]


def list_patterns(locale: Any) -> list[str]:
    """The patterns with a year, a month and a day: the usual ones, then those of CLDR's skeletons, each once."""
    skeletons = sorted(locale.datetime_skeletons.items())
    more = [_to_sentence_form(str(form)) for name, form in skeletons if re.fullmatch(r"yM+[Ec]*d+", name)]
    return list(dict.fromkeys(common_patterns(locale) + more))


def _to_sentence_form(pattern: str) -> str:
    fields = (match.group() for match in _FIELD.finditer(pattern))
    return "".join(field.translate({99: "E", 76: "M"}) if field[0] in "cL" else field for field in fields)


def normalize_text(text: str) -> str:
    """Text without invisible marks of direction, its spaces all of one kind: as it is typed.

    >>> normalize_text("3\\u200f/5\\u202f2010")
    '3/5 2010'
    """
    return re.sub(r"\s", " ", re.sub("[\u200e\u200f\u061c]", "", text))


def _iter_slots(pattern: str, locale: Any, system: str, case: CaseFunction) -> Iterator[Slot]:
    fields = _split_pattern(pattern, locale)
    columns = [*(_COLUMNS.get(kind, ()) for kind, _, _ in fields), ()]  # columns[-1] is before the first
    for at, (kind, width, text) in enumerate(fields):
        if kind == "y":
            yield OF_YEAR, make_number_pieces(YEARS, YEAR, width, system)
        elif kind == "d":
            yield OF_DAY, make_number_pieces(range(1, 32), DAY, width, system)
        elif kind == "M" and width < 3:
            yield OF_MONTH, make_number_pieces(range(1, 13), MONTH, width, system)
        elif kind == "M":
            names = locale.months["format"][_LENGTHS[width]]
            yield (
                OF_MONTH,
                [
                    make_number_piece(case(normalize_text(names[month]), True), month, MONTH)
                    for month in range(1, 13)
                ],
            )
        elif kind == "E":
            names = locale.days["format"][_LENGTHS[max(width, 3)]]
            yield OF_WEEKDAY, [DatePiece(case(normalize_text(names[day]), True)) for day in range(7)]
        else:
            before, after = columns[at - 1], columns[at + 1]
            yield LITERAL, [make_literal_piece(case(normalize_text(text), False), before, after)]


_LENGTHS = {3: "abbreviated", 4: "wide"}


def _split_pattern(pattern: str, locale: Any) -> list[tuple[str, int, str]]:
    """The pattern in parts: (letter, how often it is repeated, ""), or ("", 0, text) for what is no field."""
    parts: list[tuple[str, int, str]] = []
    for match in _FIELD.finditer(pattern):
        quoted, field, letter, other = match.groups()
        if field is not None and letter in "yMdE":
            parts.append((letter, len(field), ""))
            continue
        era = locale.eras["abbreviated"][1] if letter == "G" else field
        text = other or era or (quoted.replace("''", "'") or "'")
        if parts and parts[-1][0] == "":
            text = parts.pop()[2] + text
        parts.append(("", 0, text))
    return parts
