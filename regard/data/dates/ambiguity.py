"""Which date formats are unambiguous without the name of their language, and which patterns are held out of training.

The shape of a text is what is left when letters are made small, every number becomes # (#### if it has four digits),
and everything that is neither letter nor number becomes a space. Equal texts have the same shape, and a shape has
finitely many readings: which of its numbers is the year, the month, the day, and which month its words name. So it is
enough to compare the shapes of all formats of all languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product
from zlib import crc32

from regard.data.dates.fields import DatePiece, digit_value
from regard.data.dates.formats import (
    LANGUAGE_CODES,
    LITERAL,
    OF_WEEKDAY,
    DateFormat,
    Slot,
    common_patterns,
    formats_of,
    get_locale,
)

__all__ = ["all_formats", "find_ambiguous", "held_out_patterns", "possible_dates", "text_shape"]

DateReading = tuple[str | int, ...]
PatternKey = tuple[str, str]  # language and pattern
_NUMBER = re.compile(r"[0-9〇一二三四五六七八九十]+")


def text_shape(text: str) -> str:
    """Reduce a text to its shape, which it shares with all texts that it could be confused with.

    Args:
        text: a written date.

    Returns:
        The shape.

    Example:
        >>> text_shape("3. Mai 2010"), text_shape("٣/٥/٢٠١٠"), text_shape("二〇一〇年五月三日")
        ('# mai ####', '# # ####', '####年#月#日')
    """
    normalized = "".join([_normalize_character(sign) for sign in text.casefold()])
    shape = _NUMBER.sub(lambda match: "####" if len(match.group()) == 4 else "#", normalized)
    return " ".join(shape.split())


@cache
def _normalize_character(sign: str) -> str:
    if sign.isdecimal():
        return str(digit_value(sign))
    return sign if sign.isalnum() or unicodedata.category(sign).startswith("M") else " "


def possible_dates(date_format: DateFormat) -> list[tuple[str, DateReading]]:
    """List every shape of the texts of a format, with its reading.

    A reading names the field of each number and, if the month is a word, the month. Shapes depend on words only, so one
    year and one day represent all.

    Args:
        date_format: the format.

    Returns:
        Pairs of a shape and a reading.

    Example:
        >>> possible_dates(next(f for f in formats_of("de") if f.pattern == "dd.MM.yy"))
        [('# # #', ('d', 'm', 'y'))]
    """
    has_weekday = any(field == OF_WEEKDAY for field, _ in date_format.slots)
    months = range(12) if date_format.has_month_name else [0]
    dates = []
    for month, weekday in product(months, range(7) if has_weekday else [0]):
        values = (0, 60, month, 2, weekday)
        pieces = [(field, table[values[field]].text) for field, table in date_format.slots]
        numbers = tuple(
            "-ymdw"[field] for field, text in pieces if _NUMBER.search("".join(map(_normalize_character, text)))
        )
        word = () if "m" in numbers else (month,)
        dates.append((text_shape("".join([text for _, text in pieces])), numbers + word))
    return dates


def find_ambiguous(formats: Iterable[DateFormat]) -> set[PatternKey]:
    """Find the formats with a text that has more than one reading among all formats.

    Args:
        formats: the formats.

    Returns:
        Language and pattern of each ambiguous format.

    Example:
        >>> find_ambiguous([f for f in formats_of("de") if f.pattern == "EEEE, d. MMMM y"])
        set()
    """
    dates = [(date_format, possible_dates(date_format)) for date_format in formats]
    readings: dict[str, set[DateReading]] = defaultdict(set)
    for _, pairs in dates:
        for shape, reading in pairs:
            readings[shape].add(reading)
    return {
        (date_format.language, date_format.pattern)
        for date_format, pairs in dates
        if any(len(readings[shape]) > 1 for shape, _ in pairs)
    }


def _filter_consistent(formats: Iterable[DateFormat]) -> list[DateFormat]:
    """Remove the formats of one language that contradict themselves or an earlier one.

    Args:
        formats: the formats of a language.

    Returns:
        The formats that remain.

    Example:
        >>> formats = formats_of("de")
        >>> len(_filter_consistent(formats)) <= len(formats)
        True
    """
    consistent: list[DateFormat] = []
    readings: dict[str, DateReading] = {}
    for date_format in formats:
        pairs = possible_dates(date_format)
        own_readings = dict(pairs)
        if all(own_readings[shape] == reading == readings.get(shape, reading) for shape, reading in pairs):
            readings |= own_readings
            consistent.append(date_format)
    return consistent


@cache
def all_formats() -> tuple[DateFormat, ...]:
    """List the formats of every language, each with the language tag that it needs.

    A pattern has no tag if it has a four-digit year and each of its texts, in any style, has one reading among all
    patterns of all languages. Every other pattern has a tag; it is left out if another pattern of the same language, or
    another month, has the same text.

    Returns:
        The formats.

    Example:
        >>> any(date_format.is_tagged for date_format in all_formats())
        True
    """
    every = [date_format for code in LANGUAGE_CODES for date_format in formats_of(code)]
    ambiguous = find_ambiguous(date_format for date_format in every if not date_format.has_short_year)
    untagged: list[DateFormat] = []
    tagged: list[DateFormat] = []
    for date_format in every:
        key = date_format.language, date_format.pattern
        (tagged if date_format.has_short_year or key in ambiguous else untagged).append(date_format)
    formats = untagged
    for code in LANGUAGE_CODES:
        tag: Slot = (LITERAL, [DatePiece(f"<{code}> ")])
        for date_format in _filter_consistent(f for f in tagged if f.language == code):
            formats.append(replace(date_format, is_tagged=True, slots=(tag, *date_format.slots)))
    return tuple(formats)


@cache
def held_out_patterns() -> frozenset[PatternKey]:
    """Return the patterns that are not in train: at most one per language, and no common one.

    The parts of such a pattern are in other patterns of its language; their arrangement is new: less than a quarter of
    its texts is also a text of another pattern of any language.

    Returns:
        Language and pattern of each.

    Example:
        >>> len({language for language, _ in held_out_patterns()}) == len(held_out_patterns())
        True
    """
    texts = {
        (date_format.language, date_format.pattern): _sample_texts(date_format)
        for date_format in all_formats()
        if date_format.style == "plain"
    }
    counts = Counter(text for group in texts.values() for text in group)
    new = {key for key, group in texts.items() if sum(counts[text] == 1 for text in group) * 4 > len(group) * 3}
    chosen: dict[str, PatternKey] = {}
    for code, pattern in sorted(new, key=lambda key: crc32(" ".join(key).encode())):
        others = [_pattern_parts(other) for language, other in texts if language == code and other != pattern]
        is_common = pattern in common_patterns(get_locale(code))
        if not is_common and _pattern_parts(pattern) <= frozenset().union(*others):
            chosen.setdefault(code, (code, pattern))
    return frozenset(chosen.values())


def _sample_texts(date_format: DateFormat) -> set[str]:
    """Return some texts, with every month and every weekday."""
    return {date_format.write((0, 60, month, 2, (month + shift) % 7)).text for month in range(12) for shift in (0, 3)}


def _pattern_parts(pattern: str) -> frozenset[str]:
    """Return what a model has to learn of a pattern: its types of names, a short year, the order of its numbers.

    Args:
        pattern: a pattern of CLDR.

    Returns:
        The parts.

    Example:
        >>> sorted(_pattern_parts("EEEE, d 'de' MMMM y")), sorted(_pattern_parts("dd/MM/yy"))
        (['EEEE', 'MMMM'], ['dMy', 'yy'])
    """
    runs = [match.group() for match in re.finditer(r"([yMdE])\1*", re.sub("'[^']*'", "", pattern))]
    names = {run for run in runs if run == "yy" or len(run) > 2 or run == "E"}
    if any(run.startswith("MMM") for run in runs):
        return frozenset(names)
    return frozenset(names | {"".join(run[0] for run in runs if run[0] != "E")})
