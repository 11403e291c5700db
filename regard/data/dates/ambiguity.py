"""Which forms say by themselves what date they mean, and which need the name of their language.

The shape of a text is what is left when letters are made small, every number becomes # (#### if it has four
digits), and everything that is neither letter nor number becomes a space. Two texts that are equal have the same
shape, and a shape has finitely many readings: which of its numbers is the year, the month, the day, and which
month its words name. So it is enough to compare the shapes of all forms of all languages.

The patterns of dates that are kept out of training, to see whether what was learned can be rearranged.
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

DateReading = tuple[str | int, ...]


_NUMBER = re.compile(r"[0-9〇一二三四五六七八九十]+")


def text_shape(text: str) -> str:
    """What two texts have in common if they could be mistaken for each other.

    >>> text_shape("3. Mai 2010"), text_shape("٣/٥/٢٠١٠"), text_shape("二〇一〇年五月三日")
    ('# mai ####', '# # ####', '####年#月#日')
    """
    plain = "".join([_normalize_character(sign) for sign in text.casefold()])
    numbers = _NUMBER.sub(lambda found: "####" if len(found.group()) == 4 else "#", plain)
    return " ".join(numbers.split())


@cache
def _normalize_character(sign: str) -> str:
    if sign.isdecimal():
        return str(digit_value(sign))
    return sign if sign.isalnum() or unicodedata.category(sign).startswith("M") else " "


def possible_dates(date_format: DateFormat) -> list[tuple[str, DateReading]]:
    """Every shape that the texts of a form can have, with its reading.

    A reading says of each number what it is, and last which month it is if that is a word. Shapes depend on
    words only, so one year and one day stand for all.
    """
    weekdays = range(7) if any(which == OF_WEEKDAY for which, _ in date_format.slots) else [0]
    found = []
    for month, weekday in product(range(12) if date_format.has_month_name else [0], weekdays):
        values = (0, 60, month, 2, weekday)
        pieces = [(which, table[values[which]].text) for which, table in date_format.slots]
        numbers = tuple(
            "-ymdw"[which]
            for which, text in pieces
            if _NUMBER.search("".join(map(_normalize_character, text)))
        )
        word = () if "m" in numbers else (month,)
        found.append((text_shape("".join([text for _, text in pieces])), numbers + word))
    return found


def find_ambiguous(formats: Iterable[DateFormat]) -> set[tuple[str, str]]:
    """The language and pattern of each form that has a text with more than one reading among the given forms."""
    found = [(form, possible_dates(form)) for form in formats]
    known: dict[str, set[DateReading]] = defaultdict(set)
    for _, read in found:
        for outline, reading in read:
            known[outline].add(reading)
    return {
        (form.language, form.pattern)
        for form, read in found
        if any(len(known[outline]) > 1 for outline, _ in read)
    }


def filter_consistent(formats: Iterable[DateFormat]) -> list[DateFormat]:
    """The forms of one language without those that contradict themselves or an earlier one."""
    kept: list[DateFormat] = []
    known: dict[str, DateReading] = {}
    for form in formats:
        found = possible_dates(form)
        own = dict(found)
        if all(own[outline] == reading == known.get(outline, reading) for outline, reading in found):
            known |= own
            kept.append(form)
    return kept


@cache
def all_formats() -> tuple[DateFormat, ...]:
    """The forms of every language, each with the tag that it needs.

    A pattern is without a tag if it has a four-digit year and each of its texts, in any style, has one reading in
    all patterns of all languages. Any other pattern is tagged; it is left out if even within its language another
    pattern, or another month, has the same text.
    """
    every = [form for code in LANGUAGE_CODES for form in formats_of(code)]
    unclear = find_ambiguous(form for form in every if not form.has_short_year)
    free: list[DateFormat] = []
    bound: list[DateFormat] = []
    for form in every:
        needs_tag = form.has_short_year or (form.language, form.pattern) in unclear
        (bound if needs_tag else free).append(form)
    for code in LANGUAGE_CODES:
        own = filter_consistent(form for form in bound if form.language == code)
        tag: Slot = (LITERAL, [DatePiece(f"<{code}> ")])
        free += [replace(form, is_tagged=True, slots=(tag, *form.slots)) for form in own]
    return tuple(free)


PatternKey = tuple[str, str]


@cache
def held_out_patterns() -> frozenset[PatternKey]:
    """The patterns that are not in train, as (language, pattern): at most one a language, and no usual one.

    The parts of such a pattern are known from other patterns of its language; their arrangement is new: less
    than a quarter of its texts is written by any other pattern of any language.
    """
    texts = {
        (form.language, form.pattern): _sample_texts(form) for form in all_formats() if form.style == "plain"
    }
    often = Counter(text for own in texts.values() for text in own)
    new = {key for key, own in texts.items() if sum(often[text] == 1 for text in own) * 4 > len(own) * 3}
    chosen: dict[str, PatternKey] = {}
    for code, pattern in sorted(new, key=lambda key: crc32(" ".join(key).encode())):
        others = [pattern_parts(other) for language, other in texts if language == code and other != pattern]
        if pattern not in common_patterns(get_locale(code)) and pattern_parts(pattern) <= frozenset().union(
            *others
        ):
            chosen.setdefault(code, (code, pattern))
    return frozenset(chosen.values())


def _sample_texts(date_format: DateFormat) -> set[str]:
    """Some texts, with every month and every weekday."""
    return {
        date_format.write((0, 60, month, 2, (month + shift) % 7)).text
        for month in range(12)
        for shift in (0, 3)
    }


def pattern_parts(pattern: str) -> frozenset[str]:
    """What there is to learn of a pattern: its kinds of names, a short year, and the order of numbers.

    >>> sorted(pattern_parts("EEEE, d 'de' MMMM y")), sorted(pattern_parts("dd/MM/yy"))
    (['EEEE', 'MMMM'], ['dMy', 'yy'])
    """
    runs = [found.group() for found in re.finditer(r"([yMdE])\1*", re.sub("'[^']*'", "", pattern))]
    names = {run for run in runs if run == "yy" or len(run) > 2 or run == "E"}
    if any(run.startswith("MMM") for run in runs):
        return frozenset(names)
    return frozenset(names | {"".join(run[0] for run in runs if run[0] != "E")})
