"""Dates as people write them, in many languages, and the same dates in ISO 8601.

    3. Mai 2010        ->  2010-05-03
    二〇一〇年五月三日  ->  2010-05-03
    <en> 5/3/10        ->  2010-05-03

Patterns and names are those of CLDR, from the Babel package, for the Gregorian calendar in every language (also where
another one is common, as in Thailand). Years go from 1950 to 2049, also those of two digits. A text that could mean
different dates in different languages, or has a two-digit year, begins with a tag that names its language.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import date, timedelta
from difflib import get_close_matches
from functools import cache
from random import Random
from typing import Literal, NamedTuple
from zlib import crc32

from regard.data.dates.ambiguity import all_formats, held_out_patterns
from regard.data.dates.fields import DAY, MONTH, YEAR, YEARS
from regard.data.dates.formats import LANGUAGE_CODES, DateFormat, get_locale
from regard.data.parallel import SentencePair
from regard.errors import UnknownNameError, UsageError

__all__ = ["SCORED_POSITIONS", "DateLanguage", "Dates", "held_out_patterns", "list_languages", "split_of"]

SCORED_POSITIONS = YEAR + MONTH + DAY
"""The characters of an ISO date on which alignments are scored: its digits. Its hyphens have no links."""

SPLITS = ("train", "valid", "test", "patterns")
Split = Literal["train", "valid", "test", "patterns"]
DateValues = tuple[int, int, int, int, int]


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
        if split not in SPLITS:
            raise UnknownNameError(f"dates have no split {split!r}; choose one of {', '.join(SPLITS)}")
        self.seed = seed
        self.split = split
        codes = LANGUAGE_CODES if languages is None else _check_languages(languages)
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
    return [(_date_values(day), day.isoformat()) for day in days if split_of(day) == split]


def _date_values(day: date) -> DateValues:
    return 0, day.year - YEARS.start, day.month - 1, day.day - 1, day.weekday()


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


def _check_languages(codes: Sequence[str]) -> list[str]:
    if not codes:
        raise UsageError("dates need at least one language; omit languages to use all of them")
    for code in codes:
        if code not in LANGUAGE_CODES:
            near = get_close_matches(code, LANGUAGE_CODES, n=3, cutoff=0.4) or LANGUAGE_CODES
            raise UnknownNameError(f"dates have no language {code!r}; similar ones are {', '.join(near)}")
    return list(codes)
