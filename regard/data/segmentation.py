"""Where a sentence ends: English and other spaced scripts, and Chinese, by rules that can be read.

A sentence as words: with the punctuation apart, also where a script has no spaces.

Chinese and Japanese, whose words stand without spaces between them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise
from typing import NamedTuple

LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


CLOSING_MARKS = "\"'”’»›」』）】》〉〕］｝)]}"


CONTINUATION_MARKS = ",，、:：;；—-–)）%"  # what stands between a stop and the rest of its own sentence


LETTER_PATTERN = "[^\\W\\d_]"


HAN_AND_KANA = (
    "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
)


# Always a stop; nothing of them is part of a word or a number.
FINAL_STOPS = "。｡！？；؟۔।॥⁇⁈⁉‼‽"


STOP_PATTERN = re.compile(f"(?P<marks>[{FINAL_STOPS}!?.．…]+)(?P<after>[{re.escape(CLOSING_MARKS)}]*)")


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Before a name: what follows belongs to it, whatever it looks like.
ABBREVIATIONS_BEFORE_NAMES = _word_set(
    "mr mrs ms mx messrs dr prof st mt gen col lt sgt cpl capt cmdr maj adm rev hon gov sen pres supt insp fr mme mlle"
    " vs cf viz e.g i.e eg ie approx ca dept"
)


# The same before a number only; the others of these end a sentence, as in "He said no."
ABBREVIATIONS_BEFORE_NUMBERS = _word_set("no nos vol vols ch fig figs eq eqs sec p pp pt")


# At the end of a sentence or not: a new one begins only where the next word is one that often begins sentences.
AMBIGUOUS_ABBREVIATIONS = _word_set(
    "etc inc ltd co corp bros jr sr esq phd ph.d m.d b.a m.a d.c a.m p.m al ed eds ave blvd rd jan feb apr jun jul aug"
    " sept oct nov dec tue tues thu thur thurs fri hr hrs lb lbs"
)


SENTENCE_STARTERS = _word_set(
    "a after all although an and another as at because before both but by despite during each even every few first"
    " for from he her here his how however i if in instead it its just last later many maybe meanwhile more most my"
    " neither nevertheless no nobody not nothing now of on once one only or other our overall perhaps she since so"
    " some still that the their then there therefore these they this those though thus to under unless until"
    " unlike was we were what when where whether which while who why with yet you your"
)


MAX_ABBREVIATION_LENGTH = 40  # characters of a word that can be an abbreviation: a text of nothing but those is not read over and over


INITIALS_PATTERN = re.compile(f"(?:{LETTER_PATTERN}\\.)*{LETTER_PATTERN}")


LIST_MARKER_PATTERN = re.compile(r"[(\[]?(?:\d{1,3}|[a-zA-Z])")  # 1. and a. before what they number


def split_sentences(text: str) -> list[str]:
    """The sentences of a text, in order, without the spaces around them; no other character is lost.

    A line break ends a sentence; so do . ! ? and their full-width sisters, with the quotes and brackets
    that close right behind them. Abbreviations, initials, numbers and an ellipsis in the middle do not.

    >>> sentences('Mr. Smith paid $3.5 million. "Why?" she asked. He didn\\'t say...')
    ['Mr. Smith paid $3.5 million.', '"Why?" she asked.', "He didn't say..."]
    >>> sentences("“太好了！”他说。服务一般；房间也小……不会再来")
    ['“太好了！”', '他说。', '服务一般；', '房间也小……', '不会再来']
    """
    found: list[str] = []
    for line in LINE_BREAKS.split(text):
        found += _split_line(line)
    return found


def _split_line(line: str) -> Iterator[str]:
    cased, begin = any(c.isupper() for c in line), 0
    for match in STOP_PATTERN.finditer(line):
        if _is_sentence_end(
            StopContext(line, begin, match["marks"], match.start(), match.end(), bool(match["after"]), cased)
        ):
            yield from _strip_nonempty(line[begin : match.end()])
            begin = match.end()
    yield from _strip_nonempty(line[begin:])


def _strip_nonempty(sentence: str) -> Iterator[str]:
    if sentence.strip():
        yield sentence.strip()


class StopContext(NamedTuple):
    """Some stops in a row, and what stands around them."""

    line: str
    sentence_start: int  # of the sentence so far
    marks: str
    start: int  # of the stops
    end: int  # of what closes behind them
    has_closing: bool
    has_capitals: bool  # the line has capitals, so small letters say something

    @property
    def following(self) -> str:
        """What follows, from its first character that is no space."""
        return self.line[self.end : self.end + 80].lstrip()

    @property
    def is_before_space(self) -> bool:
        """Nothing follows, or a space does."""
        return self.end == len(self.line) or self.line[self.end].isspace()

    @property
    def preceding_word(self) -> str:
        """What stands before the stops, back to a space or an opening mark."""
        near = self.line[max(self.sentence_start, self.start - MAX_ABBREVIATION_LENGTH) : self.start]
        return re.split(r"[\s\"“‘'(\[（【《]", near)[-1]

    @property
    def is_before_lowercase(self) -> bool:
        """The next word begins with a small letter, which begins no sentence where there are capitals."""
        next_letter = self.following.lstrip("\"'“‘([")[:1]
        return self.has_capitals and next_letter.islower()


def _is_sentence_end(context: StopContext) -> bool:
    if not context.following:
        return True
    if context.following[0] in CONTINUATION_MARKS:
        return False
    if "…" in context.marks or ".." in context.marks or "．．" in context.marks:
        return _is_end_after_ellipsis(context)
    if any(mark in FINAL_STOPS for mark in context.marks):
        return not (context.has_closing and context.is_before_lowercase)
    beside = _is_han(context.line[context.start - 1 : context.start]) and _is_han(context.following[:1])
    if "!" in context.marks or "?" in context.marks:
        return (context.is_before_space or beside or _is_missing_space(context)) and not (
            context.has_closing and context.is_before_lowercase
        )
    return _is_end_after_period(context, beside)


def _is_end_after_ellipsis(context: StopContext) -> bool:
    """…… ends a Chinese sentence; three dots end one where the next word is capitalized, and not as I is."""
    if any(mark in FINAL_STOPS + "!?" for mark in context.marks):
        return not context.is_before_lowercase
    if _is_han(context.following[:1]):
        return context.marks.count("…") > 1 or len(context.marks) > 5
    return (
        context.is_before_space
        and re.match(f"[\"'“‘(\\[]?{LETTER_PATTERN}{LETTER_PATTERN}", context.following) is not None
        and _is_before_capital(context)
    )


def _is_before_capital(context: StopContext) -> bool:
    return context.following.lstrip("\"'“‘([")[:1].isupper()


def _is_end_after_period(context: StopContext, between_han: bool) -> bool:
    if between_han:
        return True
    if not context.is_before_space:
        return _is_missing_space(context)
    if context.is_before_lowercase:
        return False
    word, next_word = context.preceding_word, re.match(f"[\"'“‘(\\[]*({LETTER_PATTERN}+)", context.following)
    starts = next_word is not None and next_word[1].lower() in SENTENCE_STARTERS
    if LIST_MARKER_PATTERN.fullmatch(
        context.line[
            context.sentence_start : min(context.start, context.sentence_start + MAX_ABBREVIATION_LENGTH)
        ].strip()
    ):
        return False
    if word.lower() in ABBREVIATIONS_BEFORE_NAMES or (
        word.lower() in ABBREVIATIONS_BEFORE_NUMBERS and context.following[:1].isdecimal()
    ):
        return False
    if word.lower() in AMBIGUOUS_ABBREVIATIONS or (
        INITIALS_PATTERN.fullmatch(word) and word != "I" and not _is_han(word)
    ):
        return starts
    return True


def _is_missing_space(context: StopContext) -> bool:
    """bad.The acting: small letters before, a capitalized word right behind."""
    before, behind = (
        context.line[max(context.start - 2, 0) : context.start],
        context.line[context.end : context.end + 2],
    )
    return before.isalpha() and before.islower() and behind[:1].isupper() and behind[1:].islower()


def _is_han(character: str) -> bool:
    return re.match(f"[{HAN_AND_KANA}]", character) is not None


SPLITTERS: dict[str, Callable[[str], list[str]]] = {}


HAN_CHARACTER = re.compile(f"[{HAN_AND_KANA}]")


PUNCTUATION_PATTERN = r"[^\w\s]"


SPACE_BETWEEN_HAN = re.compile(
    f"(?<=[{HAN_AND_KANA}]) (?=[{HAN_AND_KANA}]|{PUNCTUATION_PATTERN})|(?<={PUNCTUATION_PATTERN}) (?=[{HAN_AND_KANA}])"
)


def split_words(sentence: str) -> list[str]:
    """Words, numbers and marks in order; a Chinese character is a word, repeated marks are one.

    >>> split_words("It's well-made... 8/10!!!")
    ["It's", 'well', '-', 'made', '...', '8/10', '!!!']
    >>> split_words("15.4寸，很好。")
    ['15.4', '寸', '，', '很', '好', '。']
    """
    return [match[0] for match in _compile_word_pattern().finditer(sentence)]


def split_characters(sentence: str) -> list[str]:
    """Every character but spaces."""
    return [character for character in sentence if not character.isspace()]


def separate_characters(text: str) -> str:
    """The text with spaces around every Han character and kana; whatever else stands between spaces is left whole.

    >>> separate_characters("一只狗 in 雪地里。"), separate_characters("it's a dog.")
    ('一 只 狗 in 雪 地 里 。', "it's a dog.")
    """
    return " ".join(HAN_CHARACTER.sub(r" \g<0> ", text).split()) if HAN_CHARACTER.search(text) else text


def join_characters(text: str) -> str:
    """The same without the spaces between those characters, and between them and the marks beside them.

    >>> join_characters("一 只 狗 in 雪 地 里 。"), join_characters("a dog , a cat .")
    ('一只狗 in 雪地里。', 'a dog , a cat .')
    """
    return SPACE_BETWEEN_HAN.sub("", text)


SPLITTERS |= {"word": split_words, "char": split_characters}


@cache
def _compile_word_pattern() -> re.Pattern[str]:
    """Marks are what Unicode calls punctuation or a symbol; marks of vowels belong to their letters."""
    marks = "".join(re.escape(c) for c in map(chr, range(0x10000)) if unicodedata.category(c)[0] in "PS")
    letter = f"[^\\s{HAN_AND_KANA}{marks}\U0001f000-\U0001faff]"
    return re.compile(
        rf"[0-9]+(?:[.,/:][0-9]+)+|[{HAN_AND_KANA}]|{letter}+(?:['’]{letter}+)*|(?P<mark>[^\s])(?P=mark)*"
    )


HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"


KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"


CJK_PUNCTUATION = "\u3000-\u3004\u3008-\u3030\u303d\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"  # their punctuation


UNKNOWN_CHARACTER = "\ufffd"  # for a token that stands for any character


UNSPACED_LETTER, UNSPACED_CHARACTER = (
    re.compile(f"[{HAN}{KANA}]"),
    re.compile(f"[{HAN}{KANA}{CJK_PUNCTUATION}]"),
)


UNSPACED_PIECE = re.compile(f"[{HAN}{KANA}{CJK_PUNCTUATION}]|[^{HAN}{KANA}{CJK_PUNCTUATION}]+")


MAX_MEAN_WORD_LENGTH = 4  # characters between spaces, if somebody put them there to cut words


def split_words_or_characters(text: str) -> list[str]:
    """What stands between spaces; of text that has none, each character, and what is in another script.

    >>> split_words_or_characters("We met in 北京."), split_words_or_characters("我用iPhone。"), split_words_or_characters("我 用 手机 。")
    (['We', 'met', 'in', '北', '京', '.'], ['我', '用', 'iPhone', '。'], ['我', '用', '手机', '。'])
    """
    spaced = text.split()
    return (
        spaced
        if is_space_delimited(spaced)
        else [piece for word in spaced for piece in UNSPACED_PIECE.findall(word)]
    )


def is_space_delimited(words: Sequence[str]) -> bool:
    """Whether words are what stands between spaces: in other scripts, and where there is one every few characters.

    >>> [is_space_delimited(text.split()) for text in ("Good morning", "科学家 一直 猜想 。", "你好。 我是学生。")]
    [True, True, False]
    """
    if not any(map(UNSPACED_LETTER.search, words)):
        return True
    neighbors = pairwise(words)
    between = sum(
        bool(UNSPACED_CHARACTER.match(one[-1:]) and UNSPACED_CHARACTER.match(other))
        for one, other in neighbors
    )
    return between > 0 and sum(
        len(UNSPACED_CHARACTER.findall(word)) for word in words
    ) < MAX_MEAN_WORD_LENGTH * (between + 1)


def split_token_group(group: Sequence[int], surface_forms: Sequence[str]) -> list[list[int]]:
    """The tokens of what stands between two spaces, by words: one token each, or several of another script.

    >>> split_token_group(range(5), ["", "我", "用", "i", "Phone"])
    [[0, 1], [2], [3, 4]]

    An unknown token stands for one character that nobody knows, so it is a word of its own.
    """
    parts: list[list[int]] = [[]]
    before = ""  # the last character so far: a mere sign of a space is none, so what follows it stays with it
    for position in group:
        here = surface_forms[position]
        if before and here and (_is_unspaced(before) or _is_unspaced(here[0])):
            parts.append([])
        parts[-1].append(position)
        before = here[-1:] or before
    return parts


def _is_unspaced(character: str) -> bool:
    return character == UNKNOWN_CHARACTER or UNSPACED_CHARACTER.match(character) is not None
