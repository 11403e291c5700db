"""Dates as people write them, in many languages, and the same dates as ISO 8601 writes them.

    3. Mai 2010        ->  2010-05-03
    二〇一〇年五月三日  ->  2010-05-03
    <en> 5/3/10        ->  2010-05-03

The patterns and names are those of CLDR, from the Babel package, for the Gregorian calendar in every language (also
where another one is usual, as in Thailand). Years go from 1950 to 2049, also those of two digits. A text that
could mean different dates in different languages, or has a two-digit year, begins with a tag: its language.
"""

from __future__ import annotations

import random as chance
from collections import defaultdict
from collections.abc import Sequence
from datetime import date, timedelta
from difflib import get_close_matches
from functools import cache
from typing import Literal, NamedTuple
from zlib import crc32

from regard.data.dates.ambiguity import all_formats, held_out_patterns
from regard.data.dates.fields import DAY, MONTH, YEAR, YEARS
from regard.data.dates.formats import LANGUAGE_CODES, DateFormat, get_locale, normalize_text
from regard.data.parallel import SentencePair
from regard.errors import UnknownNameError, UsageError

SCORED_POSITIONS = YEAR + MONTH + DAY
"""The characters of an ISO date that an alignment is judged by: its digits. Its hyphens have no links."""


Split = Literal["train", "valid", "test", "patterns"]


DateValues = tuple[int, int, int, int, int]


class DateLanguage(NamedTuple):
    code: str
    english: str
    native: str


def list_languages() -> list[DateLanguage]:
    """The languages that dates are written in.

    >>> list_languages()[6]
    Language(code='de', english='German', native='Deutsch')
    """
    found = [(code, get_locale(code)) for code in LANGUAGE_CODES]
    return [DateLanguage(code, locale.english_name, locale.display_name) for code, locale in found]


class Dates:
    """Pairs of a written date and its ISO form, with links between their characters, made by chance.

    The split says which dates and which patterns are used; it does not depend on the seed.

        train     most dates, in most patterns
        valid     other dates, about half of them in years that no other split has, in the patterns of train
        test      other dates again, as for valid
        patterns  the dates of test, each in a pattern that its language does not have in train

    Links join the digits of both sides one to one where they correspond. Possible links join every digit of the
    ISO date with every character of what names its field: the month's name, both digits of a day, the 年 of a year.
    The century and the 0 before a single digit have possible links only.

    >>> Dates(split="test").eval_set(1)[0].target
    '1976-01-01'
    """

    def __init__(self, seed: int = 0, split: Split = "train", languages: Sequence[str] | None = None) -> None:
        if split not in ("train", "valid", "test", "patterns"):
            raise UnknownNameError(f"dates have no split {split!r}; take one of train, valid, test, patterns")
        self.seed = seed
        self.split = split
        self.formats = _group_formats(
            split == "patterns", LANGUAGE_CODES if languages is None else _check_languages(languages)
        )
        self.dates = _list_dates("test" if split == "patterns" else split)

    def sample(self, rng: chance.Random, count: int) -> list[SentencePair]:
        """So many pairs: languages, their patterns and the dates are equally likely; at least half in plain style."""
        draw = rng.random
        pairs = []
        for _ in range(count):
            patterns = self.formats[int(draw() * len(self.formats))]
            styles = patterns[int(draw() * len(patterns))]
            form = styles[int(max(0.0, draw() * 2 - 1) * len(styles))]
            values, iso = self.dates[int(draw() * len(self.dates))]
            text, sure, possible = form.write(values)
            pairs.append(SentencePair(text, iso, sure, possible))
        return pairs

    def eval_set(self, count: int) -> list[SentencePair]:
        """The same pairs whenever it is called: what to evaluate on."""
        return self.sample(chance.Random(f"{self.seed} {self.split}"), count)


def split_of(day: date) -> Literal["train", "valid", "test"]:
    """The split a date belongs to: that of its year, and in the years of train its own.

    >>> split_of(date(2010, 5, 3)), split_of(date(2010, 5, 6)), split_of(date(2021, 5, 3))
    ('train', 'valid', 'test')
    """
    for key in (f"{day:%Y}", day.isoformat()):
        share = crc32(key.encode()) % 20
        if share < 3:
            return "valid" if share == 0 else "test"
    return "train"


@cache
def _list_dates(split: str) -> list[tuple[DateValues, str]]:
    first, end = date(YEARS.start, 1, 1), date(YEARS.stop, 1, 1)
    days = [first + timedelta(days) for days in range((end - first).days)]
    return [(_date_values(day), day.isoformat()) for day in days if split_of(day) == split]


def _date_values(day: date) -> DateValues:
    return 0, day.year - YEARS.start, day.month - 1, day.day - 1, day.weekday()


def _group_formats(is_held_out: bool, codes: Sequence[str]) -> list[list[list[DateFormat]]]:
    """By language and pattern, the styles; either the held-out patterns or the others."""
    found: dict[str, dict[str, list[DateFormat]]] = defaultdict(lambda: defaultdict(list))
    for form in all_formats():
        if form.language in codes and ((form.language, form.pattern) in held_out_patterns()) == is_held_out:
            found[form.language][form.pattern].append(form)
    if not found:
        raise UsageError(f"no pattern of {', '.join(codes)} is held out; ask for more languages")
    return [list(patterns.values()) for patterns in found.values()]


def _check_languages(codes: Sequence[str]) -> list[str]:
    if not codes:
        raise UsageError("dates need at least one language; leave languages out to have all of them")
    for code in codes:
        if code not in LANGUAGE_CODES:
            near = get_close_matches(code, LANGUAGE_CODES, n=3, cutoff=0.4) or LANGUAGE_CODES
            raise UnknownNameError(f"dates know no language {code!r}; near it are {', '.join(near)}")
    return list(codes)
