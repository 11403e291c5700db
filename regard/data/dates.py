"""Dates as people write them, in many languages, and the same dates in ISO 8601.

    3. Mai 2010        ->  2010-05-03
    二〇一〇年五月三日  ->  2010-05-03
    <en> 5/3/10        ->  2010-05-03

Patterns and names are those of CLDR, from the Babel package, for the Gregorian calendar in every language (also where
another one is common, as in Thailand). Years go from 1950 to 2049, also those of two digits. A text that could mean
different dates in different languages, or has a two-digit year, begins with a tag that names its language.

The shape of a text is what is left when letters are made small, every number becomes # (#### if it has four digits),
and everything that is neither letter nor number becomes a space. Equal texts have the same shape, and a shape has
finitely many readings: which of its numbers is the year, the month, the day, and which month its words name. So the
shapes of all formats of all languages tell which texts need a tag.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import date, timedelta
from functools import cache
from itertools import compress, filterfalse, product
from random import Random
from typing import Literal, NamedTuple
from zlib import crc32

from regard.data import date_formats
from regard.data.date_formats import DAY, LANGUAGE_CODES, MONTH, YEAR, YEARS, DateFormat, formats_of, get_locale
from regard.data.parallel import SentencePair
from regard.errors import UnknownNameError, UsageError

__all__ = [
    "SCORED_POSITIONS", "DateLanguage", "Dates", "all_formats", "find_ambiguous", "held_out_patterns",
    "list_languages", "possible_dates", "split_of", "text_shape",
]  # fmt: skip

SCORED_POSITIONS = YEAR + MONTH + DAY
"""The characters of an ISO date on which alignments are scored: its digits. Its hyphens have no links."""

SPLITS = ("train", "valid", "test", "patterns")
Split = Literal["train", "valid", "test", "patterns"]
DateValues = tuple[int, int, int, int, int]
DateReading = tuple[str | int, ...]
PatternKey = tuple[str, str]  # language and pattern
_NUMBER = re.compile(r"[0-9〇一二三四五六七八九十]+")


class DateLanguage(NamedTuple):
    """A language of dates.

    Args:
        code: its code.
        english: its English name.
        native: its own name.

    Example:
        >>> list_languages()[0].english
        'Arabic'
    """

    code: str
    english: str
    native: str


def list_languages() -> list[DateLanguage]:
    """List the languages of dates.

    Returns:
        The languages, sorted by code.

    Example:
        >>> list_languages()[6]
        DateLanguage(code='de', english='German', native='Deutsch')
    """
    locales = [(code, get_locale(code)) for code in LANGUAGE_CODES]
    return [DateLanguage(code, locale.english_name, locale.display_name) for code, locale in locales]


class Dates:
    """Pairs of a written date and its ISO form, generated, with links between their characters.

    The split decides which dates and which patterns are used; it does not depend on the seed.

        train     most dates, in most patterns
        valid     other dates, about half of them in years that no other split has, in the patterns of train
        test      other dates again, as for valid
        patterns  the dates of test, each in a pattern that its language does not have in train

    Sure links join corresponding digits of both sides. Possible links join every digit of the ISO date with every
    character that names its field: the month's name, both digits of a day, the 年 of a year. The century and the 0
    before a single digit have possible links only.

    Args:
        seed: seed of `eval_set`.
        split: one of the splits above.
        languages: codes of languages; all by default.

    Example:
        >>> Dates(split="test").eval_set(1)[0].target
        '1976-01-01'
    """

    def __init__(self, seed: int = 0, split: Split = "train", languages: Sequence[str] | None = None) -> None:
        UnknownNameError.check("split", split, SPLITS)
        self.seed, self.split = seed, split
        codes = LANGUAGE_CODES if languages is None else tuple(languages)
        if not codes:
            raise UsageError("dates need at least one language; omit languages to use all of them")
        for code in codes:
            UnknownNameError.check("language", code, LANGUAGE_CODES)
        self.formats = _group_formats(split == "patterns", codes)
        self.dates = _list_dates("test" if split == "patterns" else split)

    def sample(self, rng: Random, count: int) -> list[SentencePair]:
        """Generate pairs: languages, their patterns and dates are uniform; at least half are in plain style.

        Args:
            rng: the source of randomness.
            count: the number of pairs.

        Returns:
            The pairs.
        """
        draw = rng.random
        pairs = []
        for _ in range(count):
            patterns = self.formats[int(draw() * len(self.formats))]
            styles = patterns[int(draw() * len(patterns))]
            date_format = styles[int(max(0.0, draw() * 2 - 1) * len(styles))]
            values, iso = self.dates[int(draw() * len(self.dates))]
            text, sure, possible = date_format.write(values)
            pairs.append(SentencePair(text, iso, sure, possible))
        return pairs

    def eval_set(self, count: int) -> list[SentencePair]:
        """Return pairs to evaluate on, the same ones in every call.

        Args:
            count: the number of pairs.

        Returns:
            The pairs.
        """
        return self.sample(Random(f"{self.seed} {self.split}"), count)


def split_of(day: date) -> Literal["train", "valid", "test"]:
    """Return the split of a date: that of its year, and in the years of train its own.

    Args:
        day: the date.

    Returns:
        The name of the split.

    Example:
        >>> split_of(date(2010, 5, 3)), split_of(date(2010, 5, 6)), split_of(date(2021, 5, 3))
        ('train', 'valid', 'test')
    """
    for key in (f"{day:%Y}", day.isoformat()):
        bucket = crc32(key.encode()) % 20
        if bucket < 3:
            return "valid" if bucket == 0 else "test"
    return "train"


@cache
def _list_dates(split: str) -> list[tuple[DateValues, str]]:
    first, end = date(YEARS.start, 1, 1), date(YEARS.stop, 1, 1)
    days = [first + timedelta(days) for days in range((end - first).days)]
    fields = [(0, day.year - first.year, day.month - 1, day.day - 1, day.weekday()) for day in days]
    return [(values, day.isoformat()) for values, day in zip(fields, days, strict=True) if split_of(day) == split]


def _group_formats(is_held_out: bool, codes: Sequence[str]) -> list[list[list[DateFormat]]]:
    """Group styles by language and pattern, of either the held-out patterns or the others."""
    groups: dict[str, dict[str, list[DateFormat]]] = defaultdict(lambda: defaultdict(list))
    for date_format in all_formats():
        key = date_format.language, date_format.pattern
        if date_format.language in codes and (key in held_out_patterns()) == is_held_out:
            groups[date_format.language][date_format.pattern].append(date_format)
    if not groups:
        raise UsageError(f"no pattern of {', '.join(codes)} is held out; choose more languages")
    return [list(patterns.values()) for patterns in groups.values()]


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
    return " ".join(_NUMBER.sub(lambda match: "####" if len(match.group()) == 4 else "#", normalized).split())


@cache
def _normalize_character(sign: str) -> str:
    if sign.isdecimal():
        return str(date_formats.digit_value(sign))
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
    has_weekday = any(field == date_formats.OF_WEEKDAY for field, _ in date_format.slots)
    months = range(12) if "MMM" in date_format.pattern else [0]
    dates = []
    for month, weekday in product(months, range(7) if has_weekday else [0]):
        values = (0, 60, month, 2, weekday)
        pieces = [(field, table[values[field]].text) for field, table in date_format.slots]
        is_number = (_NUMBER.search("".join(map(_normalize_character, text))) is not None for _, text in pieces)
        numbers = tuple("-ymdw"[field] for field, _ in compress(pieces, is_number))
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
    ambiguous = (one for one, pairs in dates if any(len(readings[shape]) > 1 for shape, _ in pairs))
    return {(date_format.language, date_format.pattern) for date_format in ambiguous}


def _filter_consistent(formats: Iterable[DateFormat]) -> list[DateFormat]:
    """Remove the formats of one language that contradict themselves or an earlier one."""
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

    def needs_tag(date_format: DateFormat) -> bool:
        return date_format.has_short_year or (date_format.language, date_format.pattern) in ambiguous

    formats, tagged = [*filterfalse(needs_tag, every)], [*filter(needs_tag, every)]
    for code in LANGUAGE_CODES:
        tag = (date_formats.LITERAL, [date_formats.DatePiece(f"<{code}> ")])
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
    plain = [date_format for date_format in all_formats() if date_format.style == "plain"]
    days = [(0, 60, month, 2, (month + shift) % 7) for month in range(12) for shift in (0, 3)]
    texts = {(one.language, one.pattern): {one.write(values).text for values in days} for one in plain}
    counts = Counter(text for group in texts.values() for text in group)
    new = {key for key, group in texts.items() if sum(counts[text] == 1 for text in group) * 4 > len(group) * 3}
    chosen: dict[str, PatternKey] = {}
    for code, pattern in sorted(new, key=lambda key: crc32(" ".join(key).encode())):
        others = [_pattern_parts(other) for language, other in texts if language == code and other != pattern]
        is_common = pattern in date_formats.common_patterns(get_locale(code))
        if not is_common and _pattern_parts(pattern) <= frozenset().union(*others):
            chosen.setdefault(code, (code, pattern))
    return frozenset(chosen.values())


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
