"""Which forms say by themselves what date they mean, and which need the name of their language.

The shape of a text is what is left when letters are made small, every number becomes # (#### if it has four
digits), and everything that is neither letter nor number becomes a space. Two texts that are equal have the same
shape, and a shape has finitely many readings: which of its numbers is the year, the month, the day, and which
month its words name. So it is enough to compare the shapes of all forms of all languages.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import product

from regard.data._dates_fields import Piece, digit_of
from regard.data._dates_forms import CODES, LITERAL, OF_WEEKDAY, Form, Slot, forms_of

Reading = tuple[str | int, ...]
_NUMBER = re.compile(r"[0-9〇一二三四五六七八九十]+")


def shape(text: str) -> str:
    """What two texts have in common if they could be mistaken for each other.

    >>> shape("3. Mai 2010"), shape("٣/٥/٢٠١٠"), shape("二〇一〇年五月三日")
    ('# mai ####', '# # ####', '####年#月#日')
    """
    plain = "".join([_plain(sign) for sign in text.casefold()])
    numbers = _NUMBER.sub(lambda found: "####" if len(found.group()) == 4 else "#", plain)
    return " ".join(numbers.split())


@cache
def _plain(sign: str) -> str:
    if sign.isdecimal():
        return str(digit_of(sign))
    return sign if sign.isalnum() or unicodedata.category(sign).startswith("M") else " "


def readings(form: Form) -> list[tuple[str, Reading]]:
    """Every shape that the texts of a form can have, with its reading.

    A reading says of each number what it is, and last which month it is if that is a word. Shapes depend on
    words only, so one year and one day stand for all.
    """
    weekdays = range(7) if any(which == OF_WEEKDAY for which, _ in form.slots) else [0]
    found = []
    for month, weekday in product(range(12) if form.named else [0], weekdays):
        values = (0, 60, month, 2, weekday)
        pieces = [(which, table[values[which]].text) for which, table in form.slots]
        numbers = tuple(
            "-ymdw"[which] for which, text in pieces if _NUMBER.search("".join(map(_plain, text)))
        )
        word = () if "m" in numbers else (month,)
        found.append((shape("".join([text for _, text in pieces])), numbers + word))
    return found


def doubtful(forms: Iterable[Form]) -> set[tuple[str, str]]:
    """The language and pattern of each form that has a text with more than one reading among the given forms."""
    found = [(form, readings(form)) for form in forms]
    known: dict[str, set[Reading]] = defaultdict(set)
    for _, read in found:
        for outline, reading in read:
            known[outline].add(reading)
    return {
        (form.language, form.pattern)
        for form, read in found
        if any(len(known[outline]) > 1 for outline, _ in read)
    }


def distinct(forms: Iterable[Form]) -> list[Form]:
    """The forms of one language without those that contradict themselves or an earlier one."""
    kept: list[Form] = []
    known: dict[str, Reading] = {}
    for form in forms:
        found = readings(form)
        own = dict(found)
        if all(own[outline] == reading == known.get(outline, reading) for outline, reading in found):
            known |= own
            kept.append(form)
    return kept


@cache
def all_forms() -> tuple[Form, ...]:
    """The forms of every language, each with the tag that it needs.

    A pattern is without a tag if it has a four-digit year and each of its texts, in any style, has one reading in
    all patterns of all languages. Any other pattern is tagged; it is left out if even within its language another
    pattern, or another month, has the same text.
    """
    every = [form for code in CODES for form in forms_of(code)]
    unclear = doubtful(form for form in every if not form.short)
    free: list[Form] = []
    bound: list[Form] = []
    for form in every:
        needs_tag = form.short or (form.language, form.pattern) in unclear
        (bound if needs_tag else free).append(form)
    for code in CODES:
        own = distinct(form for form in bound if form.language == code)
        tag: Slot = (LITERAL, [Piece(f"<{code}> ")])
        free += [replace(form, tagged=True, slots=(tag, *form.slots)) for form in own]
    return tuple(free)
