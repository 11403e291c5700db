"""The formats in which dates are written: the patterns of CLDR for each language, as tables of pieces."""

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

__all__ = [
    "LANGUAGE_CODES", "LITERAL", "OF_WEEKDAY", "DateFormat", "Slot", "common_patterns", "formats_of", "get_locale",
    "iter_styles", "list_patterns", "normalize_text",
]  # fmt: skip

# As CLDR names them; zh is Chinese in simplified characters, en the English of the United States.
_LANGUAGE_LIST = (
    "ar bg bn ca cs da de el en en-GB es et eu fa fi fil fr gl he hi hr hu hy id is it ja ka kk ko lt lv mk mr "
    "ms nb ne nl pl pt ro ru sk sl sq sr sv sw ta te th tr uk ur uz vi zh zh-Hant"
)
LANGUAGE_CODES = tuple(_LANGUAGE_LIST.split())

Slot = tuple[int, list[DatePiece]]  # the field of a date, and the piece for each of its values
CaseFunction = Callable[[str, bool], str]  # converts a text, which is a name or is not
LITERAL, OF_YEAR, OF_MONTH, OF_DAY, OF_WEEKDAY = range(5)
_COLUMNS = {"y": YEAR, "M": MONTH, "d": DAY}
_FIELD = re.compile(r"'((?:[^']|'')*)'|(([A-Za-z])\3*)|([^A-Za-z']+)")
_LENGTHS = {3: "abbreviated", 4: "wide"}


@dataclass(frozen=True)
class DateFormat:
    """A pattern of a language, in one style of letters and digits.

    Args:
        language: the code of the language.
        pattern: the pattern of CLDR.
        style: the style, see `iter_styles`.
        slots: for each part of the pattern, its field and the pieces of all values.
        is_tagged: whether texts begin with a tag that names the language.

    Example:
        >>> formats_of("de")[0].write((0, 60, 4, 2, 0)).text
        'Montag, 3. Mai 2010'
    """

    language: str
    pattern: str
    style: str
    slots: tuple[Slot, ...]
    is_tagged: bool = False

    def write(self, values: tuple[int, ...]) -> DatePiece:
        """Write a date.

        Args:
            values: 0, year, month, day and weekday, counted from 0.

        Returns:
            The text of the date with its links.
        """
        return join_pieces([table[values[field]] for field, table in self.slots])

    @property
    def has_month_name(self) -> bool:
        """Whether the month is a word."""
        return "MMM" in self.pattern

    @property
    def has_short_year(self) -> bool:
        """Whether the year has two digits only."""
        return re.search(r"(?<!y)yy(?!y)", self.pattern) is not None


def get_locale(code: str) -> Any:
    """Return Babel's locale of a language.

    Args:
        code: one of `LANGUAGE_CODES`.

    Returns:
        A `babel.Locale`.

    Example:
        >>> get_locale("de").english_name
        'German'
    """
    return require_extra("babel", extra="recipes").Locale.parse("zh-Hans" if code == "zh" else code, sep="-")


@cache
def formats_of(code: str) -> tuple[DateFormat, ...]:
    """List the formats of a language: each of its patterns in each of its styles, the plain style first.

    Args:
        code: one of `LANGUAGE_CODES`.

    Returns:
        The formats, without language tags.

    Example:
        >>> formats_of("de")[0].pattern, formats_of("de")[0].style
        ('EEEE, d. MMMM y', 'plain')
    """
    locale = get_locale(code)
    formats = []
    for pattern in list_patterns(locale):
        known_texts = set()
        for style, system, case in iter_styles(code, locale):
            if system == "hanidec" and "年" not in pattern:
                continue  # nobody writes 二〇一〇/五/三
            slots = tuple(_iter_slots(pattern, locale, system, case))
            texts = tuple(piece.text for _, table in slots for piece in table)
            if texts not in known_texts:  # skips a style that changes nothing
                known_texts.add(texts)
                formats.append(DateFormat(code, pattern, style, slots))
    return tuple(formats)


def common_patterns(locale: Any) -> list[str]:
    """Return the most common patterns: CLDR's four lengths, and the date in digits with a four-digit year.

    Standalone names (c, L) are replaced by those within a sentence (E, M): Babel's data for the former can leak
    from one language into another (python-babel issue 1234).

    Args:
        locale: a `babel.Locale`.

    Returns:
        The patterns.

    Example:
        >>> common_patterns(get_locale("de"))[:2]
        ['EEEE, d. MMMM y', 'd. MMMM y']
    """
    lengths = [locale.date_formats[length].pattern for length in ("full", "long", "medium", "short")]
    return [_to_sentence_form(pattern) for pattern in (*lengths, str(locale.datetime_skeletons["yMd"]))]


def list_patterns(locale: Any) -> list[str]:
    """List the patterns with a year, a month and a day: the common ones, then those of CLDR's skeletons, each once.

    Args:
        locale: a `babel.Locale`.

    Returns:
        The patterns.

    Example:
        >>> list_patterns(get_locale("de"))[:2]
        ['EEEE, d. MMMM y', 'd. MMMM y']
    """
    skeletons = sorted(locale.datetime_skeletons.items())
    more = [_to_sentence_form(str(pattern)) for name, pattern in skeletons if re.fullmatch(r"yM+[Ec]*d+", name)]
    return list(dict.fromkeys(common_patterns(locale) + more))


def _to_sentence_form(pattern: str) -> str:
    fields = (match.group() for match in _FIELD.finditer(pattern))
    return "".join(field.translate({99: "E", 76: "M"}) if field[0] in "cL" else field for field in fields)


def normalize_text(text: str) -> str:
    """Remove invisible direction marks and unify spaces, as people type.

    Args:
        text: the text.

    Returns:
        The normalized text.

    Example:
        >>> normalize_text("3\\u200f/5\\u202f2010")
        '3/5 2010'
    """
    return re.sub(r"\s", " ", re.sub("[\u200e\u200f\u061c]", "", text))


def _iter_slots(pattern: str, locale: Any, system: str, case: CaseFunction) -> Iterator[Slot]:
    parts = _split_pattern(pattern, locale)
    columns = [*(_COLUMNS.get(letter, ()) for letter, _, _ in parts), ()]  # columns[-1] is before the first
    for position, (letter, width, text) in enumerate(parts):
        if letter == "y":
            yield OF_YEAR, make_number_pieces(YEARS, YEAR, width, system)
        elif letter == "d":
            yield OF_DAY, make_number_pieces(range(1, 32), DAY, width, system)
        elif letter == "M" and width < 3:
            yield OF_MONTH, make_number_pieces(range(1, 13), MONTH, width, system)
        elif letter == "M":
            names = locale.months["format"][_LENGTHS[width]]
            texts = [(case(normalize_text(names[month]), True), month) for month in range(1, 13)]
            yield OF_MONTH, [make_number_piece(name, month, MONTH) for name, month in texts]
        elif letter == "E":
            names = locale.days["format"][_LENGTHS[max(width, 3)]]
            yield OF_WEEKDAY, [DatePiece(case(normalize_text(names[day]), True)) for day in range(7)]
        else:
            before, after = columns[position - 1], columns[position + 1]
            yield LITERAL, [make_literal_piece(case(normalize_text(text), False), before, after)]


def _split_pattern(pattern: str, locale: Any) -> list[tuple[str, int, str]]:
    """Split a pattern into (letter, number of repetitions, "") for fields and ("", 0, text) for other text."""
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


def iter_styles(code: str, locale: Any) -> Iterator[tuple[str, str, CaseFunction]]:
    """Iterate over the styles in which people write a date: native digits, small letters, capitals, capitalized names.

    Args:
        code: the code of the language.
        locale: its `babel.Locale`.

    Returns:
        An iterator over (name of the style, numbering system, function that converts letters).

    Example:
        >>> [name for name, _, _ in iter_styles("de", get_locale("de"))]
        ['plain', 'lower', 'upper', 'capital']
    """
    yield "plain", "latn", lambda text, is_name: text
    native = locale.other_numbering_systems.get("native", "latn")
    if native in ZEROS or code in ("zh", "zh-Hant", "ja"):
        system = native if native in ZEROS else "hanidec"
        yield system, system, lambda text, is_name: text
    if code != "ka":  # Georgian has capitals in Unicode, but words do not begin with them
        yield "lower", "latn", lambda text, is_name: _lower(text, code)
        yield "upper", "latn", lambda text, is_name: _upper(text, code)
        yield "capital", "latn", lambda text, is_name: _capitalize(text, code) if is_name else text


def _lower(text: str, code: str) -> str:
    return text.replace("I", "ı").replace("İ", "i").lower() if code == "tr" else text.lower()


def _upper(text: str, code: str) -> str:
    if code == "tr":
        return text.replace("i", "İ").upper()
    if code == "el":  # capitals have no accents, but keep the diaeresis
        without_accents = unicodedata.normalize("NFD", text).replace("\u0301", "")
        return unicodedata.normalize("NFC", without_accents).upper()
    return text.upper()


def _capitalize(name: str, code: str) -> str:
    return name if " " in name else _upper(name[:1], code) + name[1:]
