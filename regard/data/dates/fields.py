"""The pieces of a written date, and which characters of them stand for which digits of the ISO date."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

Links = tuple[tuple[int, int], ...]


YEARS = range(1950, 2050)


# Where the fields of YYYY-MM-DD stand.
YEAR, MONTH, DAY = (0, 1, 2, 3), (5, 6), (8, 9)


CENTURY = YEAR[:2]


class DatePiece(NamedTuple):
    """A stretch of a written date; its links count characters from the beginning of the stretch."""

    text: str
    sure: Links = ()
    possible: Links = ()


def make_number_piece(text: str, value: int, columns: tuple[int, ...]) -> DatePiece:
    """The piece that stands for one number of the ISO date, linked to the columns of that number.

    Any character of the piece may be looked at for any digit of the number: these links are possible. Where the
    piece has digits itself, each of them is surely linked to the same digit of the number, counted from the
    right. A month written as a word has possible links only, and so has the century: it is 19 or 20, one sign of
    two digits, and either of them tells it. The 0 that ISO writes before a single digit is not written here; its
    place is before that digit, so what stands there is possible too.

    >>> make_number_piece("3", 3, DAY)
    Piece(text='3', sure=((0, 9),), possible=((0, 8), (0, 9), (-1, 8)))
    >>> make_number_piece("May", 5, MONTH).sure, make_number_piece("12月", 12, MONTH).sure, make_number_piece("1998", 1998, YEAR).sure
    ((), ((0, 5), (1, 6)), ((2, 2), (3, 3)))
    """
    possible = tuple((i, column) for i, sign in enumerate(text) if not sign.isspace() for column in columns)
    digits = [(i, digit) for i, sign in enumerate(text) if (digit := digit_value(sign)) is not None]
    written = [int(digit) for digit in f"{value:0{len(columns)}}"]
    pairs = list(zip(reversed(digits), reversed(list(zip(columns, written, strict=True))), strict=False))
    if any(digit != wanted for (_, digit), (_, wanted) in pairs):
        return DatePiece(text, (), possible)  # as in 二十 for 20: its 十 is no digit
    if len(digits) == 1 and value < 10:
        possible += ((digits[0][0] - 1, columns[0]),)
    sure = sorted((i, column) for (i, _), (column, _) in pairs if column not in CENTURY)
    return DatePiece(text, tuple(sure), possible)


def digit_value(sign: str) -> int | None:
    """The value of a digit of any script, None for any other sign.

    >>> digit_value("٣"), digit_value("三"), digit_value("十"), digit_value("x")
    (3, 3, None, None)
    """
    value = unicodedata.numeric(sign, -1.0)
    return int(value) if value in range(10) else None


# The zeros of CLDR's numbering systems; the other digits follow them in Unicode.
ZEROS = {
    "arab": "٠", "arabext": "۰", "beng": "০", "deva": "०", "gujr": "૦", "khmr": "០", "mymr": "၀",
    "tamldec": "௦", "telu": "౦", "thai": "๐",
}  # fmt: skip


HAN_DIGITS = "〇一二三四五六七八九"


@cache
def make_number_pieces(values: range, columns: tuple[int, ...], width: int, system: str) -> list[DatePiece]:
    """The pieces for numbers, in one numbering system: as they are, or with `width` digits.

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
    """A number under 100 as it is said in Chinese and Japanese: 二十五, not 二五."""
    tens, ones = divmod(value, 10)
    return (
        (HAN_DIGITS[tens] if tens > 1 else "") + ("十" if tens else "") + (HAN_DIGITS[ones] if ones else "")
    )


def make_literal_piece(text: str, before: tuple[int, ...], after: tuple[int, ...]) -> DatePiece:
    """The piece for what stands between the fields whose columns are given.

    Letters written together with a field belong to it, as 年 does to a year: their links to it are possible.
    Where the fields on both sides could claim them, they are the first one's.

    >>> make_literal_piece("年", before=YEAR, after=MONTH).possible
    ((0, 0), (0, 1), (0, 2), (0, 3))
    >>> make_literal_piece(" de ", before=DAY, after=MONTH).possible
    ()
    """
    head = _count_leading_letters(text)
    tail = 0 if head else _count_leading_letters(text[::-1])
    owned = [(i, column) for i in range(head) for column in before]
    owned += [(i, column) for i in range(len(text) - tail, len(text)) for column in after]
    return DatePiece(text, (), tuple(owned))


def _count_leading_letters(text: str) -> int:
    """How many letters the text begins with."""
    return next((i for i, sign in enumerate(text) if not sign.isalpha()), len(text))


def join_pieces(pieces: Sequence[DatePiece]) -> DatePiece:
    """Pieces one after the other, as one.

    >>> join_pieces([make_number_piece("3", 3, DAY), make_literal_piece(". ", DAY, MONTH), make_number_piece("5", 5, MONTH)]).sure
    ((0, 9), (3, 6))
    """
    sure: list[tuple[int, int]] = []
    possible: list[tuple[int, int]] = []
    start = 0
    for text, certain, maybe in pieces:
        sure += [(start + i, j) for i, j in certain]
        possible += [(start + i, j) for i, j in maybe if start + i >= 0]  # before the first there is nothing
        start += len(text)
    return DatePiece("".join([piece[0] for piece in pieces]), tuple(sure), tuple(possible))
