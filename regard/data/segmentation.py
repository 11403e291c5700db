"""Sentence and word segmentation by rules, for spaced scripts and for Chinese and Japanese."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import pairwise

__all__ = [
    "HAN", "KANA", "SPLITTERS", "UNKNOWN_CHARACTER", "is_space_delimited", "join_characters", "separate_characters",
    "split_characters", "split_sentences", "split_token_group", "split_words", "split_words_or_characters",
]  # fmt: skip

LINE_BREAKS = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
CLOSING_MARKS = "\"'”’»›」』）】》〉〕］｝)]}"
OPENING_MARKS = "\"'“‘(["
CONTINUATION_MARKS = ",，、:：;；—-–)）%"  # after a stop, the sentence continues
LETTER_PATTERN = "[^\\W\\d_]"
HAN_AND_KANA = "\u2e80-\u2fdf\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Always a stop; none of them is part of a word or a number.
FINAL_STOPS = "。｡！？；؟۔।॥⁇⁈⁉‼‽"
STOP_PATTERN = re.compile(f"(?P<marks>[{FINAL_STOPS}!?.．…]+)(?P<after>[{re.escape(CLOSING_MARKS)}]*)")


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# The sentence continues after them.
ABBREVIATIONS_BEFORE_NAMES = _word_set(
    "mr mrs ms mx messrs dr prof st mt gen col lt sgt cpl capt cmdr maj adm rev hon gov sen pres supt insp fr mme mlle"
    " vs cf viz e.g i.e eg ie approx ca dept"
)
# The sentence continues after them if a number follows; otherwise it ends, as in "He said no."
ABBREVIATIONS_BEFORE_NUMBERS = _word_set("no nos vol vols ch fig figs eq eqs sec p pp pt")
# In the middle or at the end of a sentence: it ends only where a word follows that often begins sentences.
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
MAX_ABBREVIATION_LENGTH = 40  # characters; bounds the time for text without spaces
INITIALS_PATTERN = re.compile(f"(?:{LETTER_PATTERN}\\.)*{LETTER_PATTERN}")
WORD_OF_SEVERAL_LETTERS = re.compile(f"[\"'“‘(\\[]?{LETTER_PATTERN}{LETTER_PATTERN}")  # not I
NEXT_WORD = re.compile(f"[\"'“‘(\\[]*({LETTER_PATTERN}+)")
LIST_MARKER_PATTERN = re.compile(r"[(\[]?(?:\d{1,3}|[a-zA-Z])")  # 1. and a. before an item

HAN_CHARACTER = re.compile(f"[{HAN_AND_KANA}]")
PUNCTUATION_PATTERN = r"[^\w\s]"
SPACE_BETWEEN_HAN = re.compile(
    f"(?<=[{HAN_AND_KANA}]) (?=[{HAN_AND_KANA}]|{PUNCTUATION_PATTERN})|(?<={PUNCTUATION_PATTERN}) (?=[{HAN_AND_KANA}])"
)

HAN = "\u3005-\u3007\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
KANA = "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f"
CJK_PUNCTUATION = "\u3000-\u3004\u3008-\u3030\u303d\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
UNKNOWN_CHARACTER = "\ufffd"  # the text of a token that may be any character
UNSPACED_LETTER = re.compile(f"[{HAN}{KANA}]")
UNSPACED_CHARACTER = re.compile(f"[{HAN}{KANA}{CJK_PUNCTUATION}]")
UNSPACED_PIECE = re.compile(f"[{HAN}{KANA}{CJK_PUNCTUATION}]|[^{HAN}{KANA}{CJK_PUNCTUATION}]+")
MAX_MEAN_WORD_LENGTH = 4  # characters between spaces, in text that somebody segmented by spaces


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences; no character except surrounding spaces is lost.

    A line break ends a sentence; so do . ! ? and their full-width forms, with the quotes and brackets that close right
    after them. Abbreviations, initials, numbers and an ellipsis in the middle do not.

    Args:
        text: the text.

    Returns:
        The sentences in order, without surrounding spaces.

    Example:
        >>> split_sentences('Mr. Smith paid $3.5 million. "Why?" she asked. He didn\\'t say...')
        ['Mr. Smith paid $3.5 million.', '"Why?" she asked.', "He didn't say..."]
        >>> split_sentences("“太好了！”他说。服务一般；房间也小……不会再来")
        ['“太好了！”', '他说。', '服务一般；', '房间也小……', '不会再来']
    """
    parts = (part.strip() for line in LINE_BREAKS.split(text) for part in _split_line(line))
    return [sentence for sentence in parts if sentence]


def _split_line(line: str) -> Iterator[str]:
    has_capitals, start = any(c.isupper() for c in line), 0
    for stop in STOP_PATTERN.finditer(line):
        if _is_sentence_end(line, start, stop, has_capitals):
            yield line[start : stop.end()]
            start = stop.end()
    yield line[start:]


def _is_sentence_end(line: str, sentence_start: int, stop: re.Match[str], has_capitals: bool) -> bool:
    """Decide whether one or more stops in a row end the sentence; capitals, if there are any, carry information."""
    marks, (start, end) = stop["marks"], stop.span()
    following = line[end : end + 80].lstrip()
    if not following:
        return True
    if following[0] in CONTINUATION_MARKS:
        return False
    next_letter = following.lstrip(OPENING_MARKS)[:1]
    is_before_space, is_before_lowercase = line[end].isspace(), has_capitals and next_letter.islower()
    if "…" in marks or ".." in marks or "．．" in marks:
        if any(mark in FINAL_STOPS + "!?" for mark in marks):
            return not is_before_lowercase
        if _is_han(following[0]):  # …… ends a Chinese sentence
            return marks.count("…") > 1 or len(marks) > 5
        return is_before_space and next_letter.isupper() and WORD_OF_SEVERAL_LETTERS.match(following) is not None
    is_quote_inside = bool(stop["after"]) and is_before_lowercase  # as in "Why?" she asked
    if any(mark in FINAL_STOPS for mark in marks):
        return not is_quote_inside
    # as in bad.The acting: small letters before, a capitalized word right after
    before, after = line[max(start - 2, 0) : start], line[end : end + 2]
    is_missing_space = before.isalpha() and before.islower() and after[:1].isupper() and after[1:].islower()
    between_han = _is_han(line[start - 1 : start]) and _is_han(following[0])
    if "!" in marks or "?" in marks:
        return (is_before_space or between_han or is_missing_space) and not is_quote_inside
    if between_han or not is_before_space:
        return between_han or is_missing_space
    return not is_before_lowercase and _is_end_after_period(line[sentence_start:start], following)


def _is_end_after_period(sentence: str, following: str) -> bool:
    word = re.split(r"[\s\"“‘'(\[（【《]", sentence[-MAX_ABBREVIATION_LENGTH:])[-1]
    next_word = NEXT_WORD.match(following)
    is_before_number = word.lower() in ABBREVIATIONS_BEFORE_NUMBERS and following[0].isdecimal()
    is_before_name = word.lower() in ABBREVIATIONS_BEFORE_NAMES
    if is_before_number or is_before_name or LIST_MARKER_PATTERN.fullmatch(sentence[:MAX_ABBREVIATION_LENGTH].strip()):
        return False
    is_initial = INITIALS_PATTERN.fullmatch(word) and word != "I" and not _is_han(word)
    if word.lower() in AMBIGUOUS_ABBREVIATIONS or is_initial:
        return next_word is not None and next_word[1].lower() in SENTENCE_STARTERS
    return True


def _is_han(character: str) -> bool:
    return HAN_CHARACTER.match(character) is not None


def split_words(sentence: str) -> list[str]:
    """Split a sentence into words, numbers and punctuation; a Chinese character is a word, repeated marks are one.

    Args:
        sentence: the sentence.

    Returns:
        The words in order.

    Example:
        >>> split_words("It's well-made... 8/10!!!")
        ["It's", 'well', '-', 'made', '...', '8/10', '!!!']
        >>> split_words("15.4寸，很好。")
        ['15.4', '寸', '，', '很', '好', '。']
    """
    return [match[0] for match in _compile_word_pattern().finditer(sentence)]


def split_characters(sentence: str) -> list[str]:
    """Split a sentence into characters, without spaces.

    Args:
        sentence: the sentence.

    Returns:
        The characters in order.

    Example:
        >>> split_characters("a b")
        ['a', 'b']
    """
    return [character for character in sentence if not character.isspace()]


def separate_characters(text: str) -> str:
    """Put spaces around every Han character and kana; other words stay as they are.

    Args:
        text: the text.

    Returns:
        The text with spaces, which `join_characters` removes.

    Example:
        >>> separate_characters("一只狗 in 雪地里。"), separate_characters("it's a dog.")
        ('一 只 狗 in 雪 地 里 。', "it's a dog.")
    """
    return " ".join(HAN_CHARACTER.sub(r" \g<0> ", text).split()) if HAN_CHARACTER.search(text) else text


def join_characters(text: str) -> str:
    """Remove the spaces between Han characters or kana, and between them and punctuation.

    Args:
        text: the text.

    Returns:
        The text without these spaces.

    Example:
        >>> join_characters("一 只 狗 in 雪 地 里 。"), join_characters("a dog , a cat .")
        ('一只狗 in 雪地里。', 'a dog , a cat .')
    """
    return SPACE_BETWEEN_HAN.sub("", text)


SPLITTERS: dict[str, Callable[[str], list[str]]] = {"word": split_words, "char": split_characters}


@cache
def _compile_word_pattern() -> re.Pattern[str]:
    """Compile the pattern of `split_words`; marks are what Unicode classifies as punctuation or symbol."""
    marks = "".join(re.escape(c) for c in map(chr, range(0x10000)) if unicodedata.category(c)[0] in "PS")
    letter = f"[^\\s{HAN_AND_KANA}{marks}\U0001f000-\U0001faff]"
    numbers, words = r"[0-9]+(?:[.,/:][0-9]+)+", rf"{letter}+(?:['’]{letter}+)*"
    return re.compile(rf"{numbers}|[{HAN_AND_KANA}]|{words}|(?P<mark>[^\s])(?P=mark)*")


def split_words_or_characters(text: str) -> list[str]:
    """Split a text at spaces; split Chinese and Japanese without spaces into characters and other scripts.

    Args:
        text: the text.

    Returns:
        The words in order.

    Example:
        >>> split_words_or_characters("We met in 北京."), split_words_or_characters("我用iPhone。")
        (['We', 'met', 'in', '北', '京', '.'], ['我', '用', 'iPhone', '。'])
        >>> split_words_or_characters("我 用 手机 。")
        ['我', '用', '手机', '。']
    """
    words = text.split()
    return words if is_space_delimited(words) else [piece for word in words for piece in UNSPACED_PIECE.findall(word)]


def is_space_delimited(words: Sequence[str]) -> bool:
    """Decide whether spaces delimit the words: in other scripts always, in Chinese and Japanese if they are frequent.

    Args:
        words: the text, split at spaces.

    Returns:
        Whether each item is a word.

    Example:
        >>> [is_space_delimited(text.split()) for text in ("Good morning", "科学家 一直 猜想 。", "你好。 我是学生。")]
        [True, True, False]
    """
    if not any(map(UNSPACED_LETTER.search, words)):
        return True
    borders = ((left[-1:], right) for left, right in pairwise(words))
    spaces = sum(all(map(UNSPACED_CHARACTER.match, border)) for border in borders)
    num_characters = sum(len(UNSPACED_CHARACTER.findall(word)) for word in words)
    return spaces > 0 and num_characters < MAX_MEAN_WORD_LENGTH * (spaces + 1)


def split_token_group(group: Sequence[int], surface_forms: Sequence[str]) -> list[list[int]]:
    """Split the tokens between two spaces into words: one Chinese or Japanese token each, or several of other scripts.

    An unknown token may be any character, so it is a word of its own.

    Args:
        group: positions of the tokens.
        surface_forms: the text of each token.

    Returns:
        The positions of each word.

    Example:
        >>> split_token_group(range(5), ["", "我", "用", "i", "Phone"])
        [[0, 1], [2], [3, 4]]
    """
    parts: list[list[int]] = [[]]
    last_character = ""  # empty after a bare word mark, which belongs to the next token
    for position in group:
        form = surface_forms[position]
        if last_character and form and (_is_unspaced(last_character) or _is_unspaced(form[0])):
            parts.append([])
        parts[-1].append(position)
        last_character = form[-1:] or last_character
    return parts


def _is_unspaced(character: str) -> bool:
    return character == UNKNOWN_CHARACTER or UNSPACED_CHARACTER.match(character) is not None
