"""The formats in which dates are written: the patterns of CLDR for each language, as tables of pieces with links.

A piece is a part of a written date; its links join its characters to the digits of the ISO date.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import takewhile
from typing import Any, NamedTuple

from regard._imports import require_extra

__all__ = [
    "DAY", "LANGUAGE_CODES", "LITERAL", "MONTH", "OF_WEEKDAY", "YEAR", "YEARS", "DateFormat", "DatePiece", "Slot",
    "common_patterns", "digit_value", "formats_of", "get_locale", "normalize_text",
]  # fmt: skip

# As CLDR names them; zh is Chinese in simplified characters, en the English of the United States.
_LANGUAGE_LIST = (
    "ar bg bn ca cs da de el en en-GB es et eu fa fi fil fr gl he hi hr hu hy id is it ja ka kk ko lt lv mk mr "
    "ms nb ne nl pl pt ro ru sk sl sq sr sv sw ta te th tr uk ur uz vi zh zh-Hant"
)
LANGUAGE_CODES = tuple(_LANGUAGE_LIST.split())

YEARS = range(1950, 2050)
# The columns of the fields of YYYY-MM-DD.
YEAR, MONTH, DAY = (0, 1, 2, 3), (5, 6), (8, 9)
CENTURY = YEAR[:2]
# The zeros of CLDR's numbering systems; the other digits follow them in Unicode.
ZEROS = {
    "arab": "٠", "arabext": "۰", "beng": "০", "deva": "०", "gujr": "૦", "khmr": "០", "mymr": "၀",
    "tamldec": "௦", "telu": "౦", "thai": "๐",
}  # fmt: skip
HAN_DIGITS = "〇一二三四五六七八九"
# The fields of a date; Slot is the field of a part of a pattern, and the piece for each of its values.
LITERAL, OF_YEAR, OF_MONTH, OF_DAY, OF_WEEKDAY = range(5)
_NUMBERS = {"y": (OF_YEAR, YEARS, YEAR), "M": (OF_MONTH, range(1, 13), MONTH), "d": (OF_DAY, range(1, 32), DAY)}
_NAME_LENGTHS = {3: "abbreviated", 4: "wide"}

Links = tuple[tuple[int, int], ...]


class DatePiece(NamedTuple):
    """A part of a written date.

    Args:
        text: the text.
        sure_links: (character of the text, column of the ISO date) pairs that every correct alignment has.
        possible_links: pairs that a correct alignment may have.

    Example:
        >>> DatePiece("3", ((0, 9),), ((0, 8), (0, 9))).text
        '3'
    """

    text: str
    sure_links: Links = ()
    possible_links: Links = ()


Slot = tuple[int, list[DatePiece]]


def _make_number_piece(text: str, value: int, columns: tuple[int, ...]) -> DatePiece:
    """Link the text of a number to the columns of that number in the ISO date.

    Every character of the text has a possible link to every column. Where the text has digits, each of them has a sure
    link to the same digit of the number, counted from the right. A month written as a word has possible links only, and
    so has the century: each of its digits implies the other. The 0 that ISO writes before a single digit is not in the
    text; the character before that digit has a possible link to it.

    Example:
        >>> _make_number_piece("3", 3, DAY).sure_links, _make_number_piece("3", 3, DAY).possible_links
        (((0, 9),), ((0, 8), (0, 9), (-1, 8)))
        >>> _make_number_piece("May", 5, MONTH).sure_links, _make_number_piece("12月", 12, MONTH).sure_links
        ((), ((0, 5), (1, 6)))
        >>> _make_number_piece("1998", 1998, YEAR).sure_links
        ((2, 2), (3, 3))
    """
    possible = tuple((i, column) for i, sign in enumerate(text) if not sign.isspace() for column in columns)
    digits = [(i, digit) for i, sign in enumerate(text) if (digit := digit_value(sign)) is not None]
    pairs = list(zip(reversed(digits), reversed(columns), reversed(f"{value:0{len(columns)}}"), strict=False))
    if any(digit != int(expected) for (_, digit), _, expected in pairs):
        return DatePiece(text, (), possible)  # as in 二十 for 20: its 十 is not a digit
    if len(digits) == 1 and value < 10:
        possible += ((digits[0][0] - 1, columns[0]),)
    sure = sorted((i, column) for (i, _), column, _ in pairs if column not in CENTURY)
    return DatePiece(text, tuple(sure), possible)


def digit_value(sign: str) -> int | None:
    """Return the value of a digit of any script, None for other characters.

    Args:
        sign: a character.

    Returns:
        A number from 0 to 9, or None.

    Example:
        >>> digit_value("٣"), digit_value("三"), digit_value("十"), digit_value("x")
        (3, 3, None, None)
    """
    value = unicodedata.numeric(sign, -1.0)
    return int(value) if value in range(10) else None


@cache
def _make_number_pieces(values: range, columns: tuple[int, ...], width: int, system: str) -> list[DatePiece]:
    """Make the pieces of all numbers of a range.

    Example:
        >>> [piece.text for piece in _make_number_pieces(range(9, 11), DAY, 2, "latn")]
        ['09', '10']
        >>> [piece.text for piece in _make_number_pieces(range(19, 22), DAY, 1, "hanidec")]
        ['十九', '二十', '二十一']
    """
    return [_make_number_piece(_format_number(value, width, system), value, columns) for value in values]


def _format_number(value: int, width: int, system: str) -> str:
    if system == "hanidec" and value < 100:  # 二十五, not 二五
        tens, ones = divmod(value, 10)
        return (HAN_DIGITS[tens] if tens > 1 else "") + ("十" if tens else "") + (HAN_DIGITS[ones] if ones else "")
    text = f"{value % 100:02}" if value > 99 and width == 2 else f"{value:0{width}}"
    digits = HAN_DIGITS if system == "hanidec" else [chr(ord(ZEROS.get(system, "0")) + i) for i in range(10)]
    return "".join(digits[int(digit)] for digit in text)


def _make_literal_piece(text: str, before: tuple[int, ...], after: tuple[int, ...]) -> DatePiece:
    """Link the text between two fields to these fields.

    Letters written together with a field belong to it, as 年 does to a year: their links to it are possible. If both
    fields are adjacent, the letters belong to the first one.

    Example:
        >>> _make_literal_piece("年", before=YEAR, after=MONTH).possible_links
        ((0, 0), (0, 1), (0, 2), (0, 3))
        >>> _make_literal_piece(" de ", before=DAY, after=MONTH).possible_links
        ()
    """
    head = len([*takewhile(str.isalpha, text)])
    tail = 0 if head else len([*takewhile(str.isalpha, reversed(text))])
    links = [(i, column) for i in range(head) for column in before]
    links += [(i, column) for i in range(len(text) - tail, len(text)) for column in after]
    return DatePiece(text, (), tuple(links))


@dataclass(frozen=True)
class DateFormat:
    """A pattern of a language, in one style of letters and digits.

    Args:
        language: the code of the language.
        pattern: the pattern of CLDR.
        style: how letters and digits are written: plain, lower, upper, capital (of names), or a numbering system.
        slots: for each part of the pattern, its field and the pieces of all values.
        is_tagged: whether texts begin with a tag that names the language.

    Example:
        >>> formats_of("de")[0].write((0, 60, 4, 2, 0)).text
        'Montag, 3. Mai 2010'
        >>> formats_of("de")[0].write((0, 60, 4, 2, 0)).sure_links
        ((8, 9), (17, 2), (18, 3))
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
        texts: list[str] = []
        sure: list[tuple[int, int]] = []
        possible: list[tuple[int, int]] = []
        start = 0
        for field, table in self.slots:
            text, sure_links, possible_links = table[values[field]]
            sure += [(start + i, j) for i, j in sure_links]
            possible += [(start + i, j) for i, j in possible_links if start + i >= 0]  # nothing precedes the first
            start += len(text)
            texts.append(text)
        return DatePiece("".join(texts), tuple(sure), tuple(possible))

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
    for pattern in _list_patterns(locale):
        known_texts = set()
        for style, system in _list_styles(code, locale):
            if system == "hanidec" and "年" not in pattern:
                continue  # nobody writes 二〇一〇/五/三
            slots = tuple(_iter_slots(pattern, locale, code, style, system))
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


def _list_patterns(locale: Any) -> list[str]:
    """List the patterns with a year, a month and a day: the common ones, then those of CLDR's skeletons, each once."""
    skeletons = sorted(locale.datetime_skeletons.items())
    more = [_to_sentence_form(str(pattern)) for name, pattern in skeletons if re.fullmatch(r"yM+[Ec]*d+", name)]
    return list(dict.fromkeys(common_patterns(locale) + more))


def _to_sentence_form(pattern: str) -> str:
    return re.sub("'[^']*'|[cL]", lambda match: {"c": "E", "L": "M"}.get(match[0], match[0]), pattern)


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


def _iter_slots(pattern: str, locale: Any, code: str, style: str, system: str) -> Iterator[Slot]:
    parts = _split_pattern(pattern, locale)
    columns = [*(_NUMBERS[letter][2] if letter in _NUMBERS else () for letter, _, _ in parts), ()]
    for position, (letter, width, text) in enumerate(parts):
        if letter == "E":
            names = locale.days["format"][_NAME_LENGTHS[max(width, 3)]]
            yield OF_WEEKDAY, [DatePiece(_write_text(names[day], style, code)) for day in range(7)]
        elif letter == "M" and width > 2:
            names = locale.months["format"][_NAME_LENGTHS[width]]
            texts = [_write_text(names[month], style, code) for month in range(1, 13)]
            yield OF_MONTH, [_make_number_piece(name, month, MONTH) for month, name in enumerate(texts, 1)]
        elif letter:
            field, values, own_columns = _NUMBERS[letter]
            yield field, _make_number_pieces(values, own_columns, width, system)
        else:
            before, after = columns[position - 1], columns[position + 1]  # columns[-1] is before the first
            text = _write_text(text, "plain" if style == "capital" else style, code)
            yield LITERAL, [_make_literal_piece(text, before, after)]


def _split_pattern(pattern: str, locale: Any) -> list[tuple[str, int, str]]:
    """Split a pattern into (letter, number of repetitions, "") for fields and ("", 0, text) for other text."""
    parts: list[tuple[str, int, str]] = []
    for kind, token in require_extra("babel.dates", extra="recipes").tokenize_pattern(pattern):
        if kind == "field" and token[0] in "yMdE":
            parts.append((*token, ""))
            continue
        text = token if kind == "chars" else locale.eras["abbreviated"][1] if token[0] == "G" else token[0] * token[1]
        if parts and parts[-1][0] == "":
            text = parts.pop()[2] + text
        parts.append(("", 0, text))
    return parts


def _list_styles(code: str, locale: Any) -> list[tuple[str, str]]:
    """List the styles in which people write a date, each with its numbering system."""
    styles = [("plain", "latn")]
    native = locale.other_numbering_systems.get("native", "latn")
    if native in ZEROS or code in ("zh", "zh-Hant", "ja"):
        styles.append((native, native) if native in ZEROS else ("hanidec", "hanidec"))
    if code != "ka":  # Georgian has capitals in Unicode, but words do not begin with them
        styles += [("lower", "latn"), ("upper", "latn"), ("capital", "latn")]
    return styles


def _write_text(text: str, style: str, code: str) -> str:
    text = normalize_text(text)
    if style == "lower":
        return (text.replace("I", "ı").replace("İ", "i") if code == "tr" else text).lower()
    if style == "capital" and " " not in text:
        return _write_text(text[:1], "upper", code) + text[1:]
    if style != "upper":
        return text
    if code == "el":  # capitals have no accents, but keep the diaeresis
        text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).replace("\u0301", ""))
    return (text.replace("i", "İ") if code == "tr" else text).upper()
