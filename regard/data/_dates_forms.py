"""The forms in which dates are written: the patterns of CLDR for each language, as tables of pieces."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from regard._imports import require_extra
from regard.data._dates_fields import (
    DAY,
    MONTH,
    YEAR,
    YEARS,
    Piece,
    joined,
    literal,
    number,
    numbers,
)
from regard.data._dates_styles import Case, styles

# As CLDR names them; zh is Chinese in simplified characters, en the English of the United States.
_LIST = (
    "ar bg bn ca cs da de el en en-GB es et eu fa fi fil fr gl he hi hr hu hy id is it ja ka kk ko lt lv mk mr "
    "ms nb ne nl pl pt ro ru sk sl sq sr sv sw ta te th tr uk ur uz vi zh zh-Hant"
)
CODES = tuple(_LIST.split())

Slot = tuple[int, list[Piece]]  # which of the values of a date, and the piece for each of its values
LITERAL, OF_YEAR, OF_MONTH, OF_DAY, OF_WEEKDAY = range(5)
_COLUMNS = {"y": YEAR, "M": MONTH, "d": DAY}
_FIELD = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|([^A-Za-z']+)")


@dataclass(frozen=True)
class Form:
    """One way to write a date: a pattern in a language, in one style of letters and digits."""

    language: str
    pattern: str
    style: str
    slots: tuple[Slot, ...]
    tagged: bool = False

    def write(self, values: tuple[int, ...]) -> Piece:
        """The text of a date and its links; `values` are 0, year, month, day and weekday, counted from 0."""
        return joined([table[values[which]] for which, table in self.slots])

    @property
    def named(self) -> bool:
        """Whether the month is a word."""
        return "MMM" in self.pattern

    @property
    def short(self) -> bool:
        """Whether the year has two digits only."""
        return re.search(r"(?<!y)yy(?!y)", self.pattern) is not None


def locale_of(code: str) -> Any:
    """Babel's locale for a language of the list."""
    return require_extra("babel", extra="recipes").Locale.parse("zh-Hans" if code == "zh" else code, sep="-")


@cache
def forms_of(code: str) -> tuple[Form, ...]:
    """Every form of a language: each of its patterns in each of its styles, the pattern as it is first."""
    locale = locale_of(code)
    forms = []
    for pattern in patterns(locale):
        seen = set()
        for style, system, case in styles(code, locale):
            if system == "hanidec" and "年" not in pattern:
                continue  # nobody writes 二〇一〇/五/三
            slots = tuple(_slots(pattern, locale, system, case))
            texts = tuple(piece.text for _, table in slots for piece in table)
            if texts not in seen:  # a style that changes nothing is no style
                seen.add(texts)
                forms.append(Form(code, pattern, style, slots))
    return tuple(forms)


def usual(locale: Any) -> list[str]:
    """The patterns that are met most: CLDR's four lengths, and the date in digits with its whole year.

    Names that stand alone (c, L) are replaced by those within a sentence (E, M): what Babel has for the former
    can leak from one language into another (python-babel issue 1234).
    """
    found = [locale.date_formats[length].pattern for length in ("full", "long", "medium", "short")]
    return [_sentence(pattern) for pattern in (*found, str(locale.datetime_skeletons["yMd"]))]


def patterns(locale: Any) -> list[str]:
    """The patterns with a year, a month and a day: the usual ones, then those of CLDR's skeletons, each once."""
    skeletons = sorted(locale.datetime_skeletons.items())
    more = [_sentence(str(form)) for name, form in skeletons if re.fullmatch(r"yM+[Ec]*d+", name)]
    return list(dict.fromkeys(usual(locale) + more))


def _sentence(pattern: str) -> str:
    fields = (match.group() for match in _FIELD.finditer(pattern))
    return "".join(field.translate({99: "E", 76: "M"}) if field[0] in "cL" else field for field in fields)


def plain(text: str) -> str:
    """Text without invisible marks of direction, its spaces all of one kind: as it is typed.

    >>> plain("3\\u200f/5\\u202f2010")
    '3/5 2010'
    """
    return re.sub(r"\s", " ", re.sub("[\u200e\u200f\u061c]", "", text))


def _slots(pattern: str, locale: Any, system: str, case: Case) -> Iterator[Slot]:
    fields = _fields(pattern, locale)
    columns = [*(_COLUMNS.get(kind, ()) for kind, _, _ in fields), ()]  # columns[-1] is before the first
    for at, (kind, width, text) in enumerate(fields):
        if kind == "y":
            yield OF_YEAR, numbers(YEARS, YEAR, width, system)
        elif kind == "d":
            yield OF_DAY, numbers(range(1, 32), DAY, width, system)
        elif kind == "M" and width < 3:
            yield OF_MONTH, numbers(range(1, 13), MONTH, width, system)
        elif kind == "M":
            names = locale.months["format"][_LENGTHS[width]]
            yield OF_MONTH, [number(case(plain(names[month]), True), month, MONTH) for month in range(1, 13)]
        elif kind == "E":
            names = locale.days["format"][_LENGTHS[max(width, 3)]]
            yield OF_WEEKDAY, [Piece(case(plain(names[day]), True)) for day in range(7)]
        else:
            before, after = columns[at - 1], columns[at + 1]
            yield LITERAL, [literal(case(plain(text), False), before, after)]


_LENGTHS = {3: "abbreviated", 4: "wide"}


def _fields(pattern: str, locale: Any) -> list[tuple[str, int, str]]:
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
