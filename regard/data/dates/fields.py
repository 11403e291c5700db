"""Pieces of a written date, and the links of their characters to the digits of the ISO date."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

__all__ = [
    "CENTURY", "DAY", "MONTH", "YEAR", "YEARS", "ZEROS", "DatePiece", "digit_value", "join_pieces",
    "make_literal_piece", "make_number_piece", "make_number_pieces",
]  # fmt: skip

Links = tuple[tuple[int, int], ...]

YEARS = range(1950, 2050)
# The columns of the fields of YYYY-MM-DD.
YEAR, MONTH, DAY = (0, 1, 2, 3), (5, 6), (8, 9)
CENTURY = YEAR[:2]
# The zeros of CLDR's numbering systems; the other digits follow them in Unicode.
ZEROS = {
    "arab": "٠", "arabext": "۰", "beng": "০", "deva": "०", "gujr": "૦", "khmr": "០", "mymr": "၀",
    "tamldec": "௦", "telu": "౦", "thai": "๐",
}  # fmt: skip
HAN_DIGITS = "〇一二三四五六七八九"


class DatePiece(NamedTuple):
    """A part of a written date.

    Args:
        text: the text.
        sure_links: (character of the text, column of the ISO date) pairs that every correct alignment has.
        possible_links: pairs that a correct alignment may have.

    Example:
        >>> DatePiece("3", ((0, 9),), ((0, 8), (0, 9))).text
        '3'
    """

    text: str
    sure_links: Links = ()
    possible_links: Links = ()


def make_number_piece(text: str, value: int, columns: tuple[int, ...]) -> DatePiece:
    """Link the text of a number to the columns of that number in the ISO date.

    Every character of the text has a possible link to every column. Where the text has digits, each of them has a sure
    link to the same digit of the number, counted from the right. A month written as a word has possible links only, and
    so has the century: each of its digits implies the other. The 0 that ISO writes before a single digit is not in the
    text; the character before that digit has a possible link to it.

    Args:
        text: the text.
        value: the number.
        columns: its columns in the ISO date.

    Returns:
        The piece.

    Example:
        >>> make_number_piece("3", 3, DAY).sure_links, make_number_piece("3", 3, DAY).possible_links
        (((0, 9),), ((0, 8), (0, 9), (-1, 8)))
        >>> make_number_piece("May", 5, MONTH).sure_links, make_number_piece("12月", 12, MONTH).sure_links
        ((), ((0, 5), (1, 6)))
        >>> make_number_piece("1998", 1998, YEAR).sure_links
        ((2, 2), (3, 3))
    """
    possible = tuple((i, column) for i, sign in enumerate(text) if not sign.isspace() for column in columns)
    digits = [(i, digit) for i, sign in enumerate(text) if (digit := digit_value(sign)) is not None]
    expected = [int(digit) for digit in f"{value:0{len(columns)}}"]
    pairs = list(zip(reversed(digits), reversed(list(zip(columns, expected, strict=True))), strict=False))
    if any(digit != other for (_, digit), (_, other) in pairs):
        return DatePiece(text, (), possible)  # as in 二十 for 20: its 十 is not a digit
    if len(digits) == 1 and value < 10:
        possible += ((digits[0][0] - 1, columns[0]),)
    sure = sorted((i, column) for (i, _), (column, _) in pairs if column not in CENTURY)
    return DatePiece(text, tuple(sure), possible)


def digit_value(sign: str) -> int | None:
    """Return the value of a digit of any script, None for other characters.

    Args:
        sign: a character.

    Returns:
        A number from 0 to 9, or None.

    Example:
        >>> digit_value("٣"), digit_value("三"), digit_value("十"), digit_value("x")
        (3, 3, None, None)
    """
    value = unicodedata.numeric(sign, -1.0)
    return int(value) if value in range(10) else None


@cache
def make_number_pieces(values: range, columns: tuple[int, ...], width: int, system: str) -> list[DatePiece]:
    """Make the pieces of all numbers of a range.

    Args:
        values: the numbers.
        columns: their columns in the ISO date.
        width: the smallest number of digits; 2 shortens a year to two digits.
        system: the numbering system, as CLDR names it.

    Returns:
        A piece for each number.

    Example:
        >>> [piece.text for piece in make_number_pieces(range(9, 11), DAY, 2, "latn")]
        ['09', '10']
        >>> [piece.text for piece in make_number_pieces(range(19, 22), DAY, 1, "hanidec")]
        ['十九', '二十', '二十一']
    """
    return [make_number_piece(_format_number(value, width, system), value, columns) for value in values]


def _format_number(value: int, width: int, system: str) -> str:
    if system == "hanidec" and value < 100:
        return _spell_han_number(value)
    text = f"{value % 100:02}" if value > 99 and width == 2 else f"{value:0{width}}"
    digits = HAN_DIGITS if system == "hanidec" else [chr(ord(ZEROS.get(system, "0")) + i) for i in range(10)]
    return "".join(digits[int(digit)] for digit in text)


def _spell_han_number(value: int) -> str:
    """Spell a number under 100 in Chinese and Japanese: 二十五, not 二五."""
    tens, ones = divmod(value, 10)
    return (HAN_DIGITS[tens] if tens > 1 else "") + ("十" if tens else "") + (HAN_DIGITS[ones] if ones else "")


def make_literal_piece(text: str, before: tuple[int, ...], after: tuple[int, ...]) -> DatePiece:
    """Link the text between two fields to these fields.

    Letters written together with a field belong to it, as 年 does to a year: their links to it are possible. If both
    fields are adjacent, the letters belong to the first one.

    Args:
        text: the text.
        before: the columns of the field before it.
        after: the columns of the field after it.

    Returns:
        The piece.

    Example:
        >>> make_literal_piece("年", before=YEAR, after=MONTH).possible_links
        ((0, 0), (0, 1), (0, 2), (0, 3))
        >>> make_literal_piece(" de ", before=DAY, after=MONTH).possible_links
        ()
    """
    head = _count_leading_letters(text)
    tail = 0 if head else _count_leading_letters(text[::-1])
    links = [(i, column) for i in range(head) for column in before]
    links += [(i, column) for i in range(len(text) - tail, len(text)) for column in after]
    return DatePiece(text, (), tuple(links))


def _count_leading_letters(text: str) -> int:
    return next((i for i, sign in enumerate(text) if not sign.isalpha()), len(text))


def join_pieces(pieces: Sequence[DatePiece]) -> DatePiece:
    """Concatenate pieces.

    Args:
        pieces: the pieces in order.

    Returns:
        One piece with the links of all.

    Example:
        >>> pieces = [make_number_piece("3", 3, DAY), make_literal_piece(". ", DAY, MONTH)]
        >>> join_pieces([*pieces, make_number_piece("5", 5, MONTH)]).sure_links
        ((0, 9), (3, 6))
    """
    sure: list[tuple[int, int]] = []
    possible: list[tuple[int, int]] = []
    start = 0
    for text, sure_links, possible_links in pieces:
        sure += [(start + i, j) for i, j in sure_links]
        possible += [(start + i, j) for i, j in possible_links if start + i >= 0]  # nothing precedes the first
        start += len(text)
    return DatePiece("".join([piece[0] for piece in pieces]), tuple(sure), tuple(possible))
