"""Where a sentence ends: English and other spaced scripts, and Chinese, by rules that can be read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
CLOSING = "\"'”’»›」』）】》〉〕］｝)]}"
GOES_ON = ",，、:：;；—-–)）%"  # what stands between a stop and the rest of its own sentence
LETTER = "[^\\W\\d_]"
HAN = "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Always a stop; nothing of them is part of a word or a number.
FIRM = "。｡！？；؟۔।॥⁇⁈⁉‼‽"
STOP = re.compile(f"(?P<marks>[{FIRM}!?.．…]+)(?P<after>[{re.escape(CLOSING)}]*)")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name: what follows belongs to it, whatever it looks like.
BEFORE = _words(
    "mr mrs ms mx messrs dr prof st mt gen col lt sgt cpl capt cmdr maj adm rev hon gov sen pres supt insp fr mme mlle"
    " vs cf viz e.g i.e eg ie approx ca dept"
)
# The same before a number only; the others of these end a sentence, as in "He said no."
NUMBERS = _words("no nos vol vols ch fig figs eq eqs sec p pp pt")
# At the end of a sentence or not: a new one begins only where the next word is one that often begins sentences.
EITHER = _words(
    "etc inc ltd co corp bros jr sr esq phd ph.d m.d b.a m.a d.c a.m p.m al ed eds ave blvd rd jan feb apr jun jul aug"
    " sept oct nov dec tue tues thu thur thurs fri hr hrs lb lbs"
)
STARTERS = _words(
    "a after all although an and another as at because before both but by despite during each even every few first"
    " for from he her here his how however i if in instead it its just last later many maybe meanwhile more most my"
    " neither nevertheless no nobody not nothing now of on once one only or other our overall perhaps she since so"
    " some still that the their then there therefore these they this those though thus to under unless until"
    " unlike was we were what when where whether which while who why with yet you your"
)
LONGEST = 40  # characters of a word that can be an abbreviation: a text of nothing but those is not read over and over
INITIALS = re.compile(f"(?:{LETTER}\\.)*{LETTER}")
NUMBERED = re.compile(r"[(\[]?(?:\d{1,3}|[a-zA-Z])")  # 1. and a. before what they number


def sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without the spaces around them; no other character is lost.

    A line break ends a sentence; so do . ! ? and their full-width sisters, with the quotes and brackets
    that close right behind them. Abbreviations, initials, numbers and an ellipsis in the middle do not.

    >>> sentences('Mr. Smith paid $3.5 million. "Why?" she asked. He didn\\'t say...')
    ['Mr. Smith paid $3.5 million.', '"Why?" she asked.', "He didn't say..."]
    >>> sentences("“太好了！”他说。服务一般；房间也小……不会再来")
    ['“太好了！”', '他说。', '服务一般；', '房间也小……', '不会再来']
    """
    found: list[str] = []
    for line in BREAKS.split(text):
        found += _of_line(line)
    return found


def _of_line(line: str) -> Iterator[str]:
    cased, begin = any(c.isupper() for c in line), 0
    for match in STOP.finditer(line):
        if _ends(Place(line, begin, match["marks"], match.start(), match.end(), bool(match["after"]), cased)):
            yield from _kept(line[begin : match.end()])
            begin = match.end()
    yield from _kept(line[begin:])


def _kept(sentence: str) -> Iterator[str]:
    if sentence.strip():
        yield sentence.strip()


class Place(NamedTuple):
    """Some stops in a row, and what stands around them."""

    line: str
    begin: int  # of the sentence so far
    marks: str
    start: int  # of the stops
    end: int  # of what closes behind them
    closed: bool
    cased: bool  # the line has capitals, so small letters say something

    @property
    def rest(self) -> str:
        """What follows, from its first character that is no space."""
        return self.line[self.end : self.end + 80].lstrip()

    @property
    def apart(self) -> bool:
        """Nothing follows, or a space does."""
        return self.end == len(self.line) or self.line[self.end].isspace()

    @property
    def word(self) -> str:
        """What stands before the stops, back to a space or an opening mark."""
        near = self.line[max(self.begin, self.start - LONGEST) : self.start]
        return re.split(r"[\s\"“‘'(\[（【《]", near)[-1]

    @property
    def small(self) -> bool:
        """The next word begins with a small letter, which begins no sentence where there are capitals."""
        next_letter = self.rest.lstrip("\"'“‘([")[:1]
        return self.cased and next_letter.islower()


def _ends(place: Place) -> bool:
    if not place.rest:
        return True
    if place.rest[0] in GOES_ON:
        return False
    if "…" in place.marks or ".." in place.marks or "．．" in place.marks:
        return _after_ellipsis(place)
    if any(mark in FIRM for mark in place.marks):
        return not (place.closed and place.small)
    beside = _han(place.line[place.start - 1 : place.start]) and _han(place.rest[:1])
    if "!" in place.marks or "?" in place.marks:
        return (place.apart or beside or _missing_space(place)) and not (place.closed and place.small)
    return _after_dot(place, beside)


def _after_ellipsis(place: Place) -> bool:
    """…… ends a Chinese sentence; three dots end one where the next word is capitalized, and not as I is."""
    if any(mark in FIRM + "!?" for mark in place.marks):
        return not place.small
    if _han(place.rest[:1]):
        return place.marks.count("…") > 1 or len(place.marks) > 5
    return (
        place.apart and re.match(f"[\"'“‘(\\[]?{LETTER}{LETTER}", place.rest) is not None and _capital(place)
    )


def _capital(place: Place) -> bool:
    return place.rest.lstrip("\"'“‘([")[:1].isupper()


def _after_dot(place: Place, beside: bool) -> bool:
    if beside:
        return True
    if not place.apart:
        return _missing_space(place)
    if place.small:
        return False
    word, next_word = place.word, re.match(f"[\"'“‘(\\[]*({LETTER}+)", place.rest)
    starts = next_word is not None and next_word[1].lower() in STARTERS
    if NUMBERED.fullmatch(place.line[place.begin : min(place.start, place.begin + LONGEST)].strip()):
        return False
    if word.lower() in BEFORE or (word.lower() in NUMBERS and place.rest[:1].isdecimal()):
        return False
    if word.lower() in EITHER or (INITIALS.fullmatch(word) and word != "I" and not _han(word)):
        return starts
    return True


def _missing_space(place: Place) -> bool:
    """bad.The acting: small letters before, a capitalized word right behind."""
    before, behind = place.line[max(place.start - 2, 0) : place.start], place.line[place.end : place.end + 2]
    return before.isalpha() and before.islower() and behind[:1].isupper() and behind[1:].islower()


def _han(character: str) -> bool:
    return re.match(f"[{HAN}]", character) is not None
