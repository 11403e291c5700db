"""The patterns of dates that are kept out of training, to see whether what was learned can be rearranged."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from zlib import crc32

from regard.data._dates_forms import Form, locale_of, usual
from regard.data._dates_readings import all_forms

Key = tuple[str, str]


@cache
def held_out() -> frozenset[Key]:
    """The patterns that are not in train, as (language, pattern): at most one a language, and no usual one.

    The parts of such a pattern are known from other patterns of its language; their arrangement is new: less
    than a quarter of its texts is written by any other pattern of any language.
    """
    texts = {(form.language, form.pattern): _texts(form) for form in all_forms() if form.style == "plain"}
    often = Counter(text for own in texts.values() for text in own)
    new = {key for key, own in texts.items() if sum(often[text] == 1 for text in own) * 4 > len(own) * 3}
    chosen: dict[str, Key] = {}
    for code, pattern in sorted(new, key=lambda key: crc32(" ".join(key).encode())):
        others = [parts(other) for language, other in texts if language == code and other != pattern]
        if pattern not in usual(locale_of(code)) and parts(pattern) <= frozenset().union(*others):
            chosen.setdefault(code, (code, pattern))
    return frozenset(chosen.values())


def _texts(form: Form) -> set[str]:
    """Some texts, with every month and every weekday."""
    return {
        form.write((0, 60, month, 2, (month + shift) % 7)).text for month in range(12) for shift in (0, 3)
    }


def parts(pattern: str) -> frozenset[str]:
    """What there is to learn of a pattern: its kinds of names, a short year, and the order of numbers.

    >>> sorted(parts("EEEE, d 'de' MMMM y")), sorted(parts("dd/MM/yy"))
    (['EEEE', 'MMMM'], ['dMy', 'yy'])
    """
    runs = [found.group() for found in re.finditer(r"([yMdE])\1*", re.sub("'[^']*'", "", pattern))]
    names = {run for run in runs if run == "yy" or len(run) > 2 or run == "E"}
    if any(run.startswith("MMM") for run in runs):
        return frozenset(names)
    return frozenset(names | {"".join(run[0] for run in runs if run[0] != "E")})
