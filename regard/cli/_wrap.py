"""Lines of text in which Chinese and Latin letters are mixed: rich knows words between spaces alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from unicodedata import east_asian_width

from rich.cells import cell_len
from rich.console import Console
from rich.containers import Lines
from rich.text import Text

OPENING = "（【《〈「『“‘([{"  # what follows stays on their line
CLOSING = "，。、；：！？）】》〉」』”’…—％,.;:!?)]}%"  # they stay on the line of what they follow


class Wrapped(Text):
    """Text that breaks between Chinese characters and at spaces, and never inside a word that fits into a line."""

    def wrap(self, console: Console, width: int, **options: Any) -> Lines:
        if options.get("no_wrap"):
            return super().wrap(console, width, **options)
        parts = Lines()
        for line in self.split(allow_blank=True):
            parts.extend(line.divide(breaks(line.plain, width)))
        for part in parts:
            part.rstrip()  # rich counts characters here, not columns, and would cut the line for its last space
        return Text("\n").join(parts).wrap(console, width, **options)


def breaks(text: str, room: int) -> list[int]:
    """The places where lines of at most `room` columns begin, after the first.

    >>> breaks("混合读取：layer_types=cnn,gru。", 16), breaks("layer_types=cnn,attention,gru", 16)
    ([5], [11])
    """
    found: list[int] = []
    place = used = 0
    for piece in pieces(text):
        wide = cell_len(piece.rstrip()) > room
        for number, part in enumerate(_smaller(piece, room) if wide else [piece]):
            if used and (used + cell_len(part.rstrip()) > room or (wide and not number)):
                found.append(place)
                used = 0
            place, used = place + len(part), used + cell_len(part)
    return found


def pieces(text: str) -> list[str]:
    """The parts of a text that no line breaks, each with the spaces behind it.

    >>> pieces("数字画面、MNIST 画面（data）。")
    ['数', '字', '画', '面、', 'MNIST ', '画', '面', '（data）。']
    """
    places = [0, *(place for place in range(1, len(text)) if _may_break(*text[place - 1 : place + 1]))]
    return [text[first:last] for first, last in zip(places, [*places[1:], len(text)], strict=True)]


def _may_break(before: str, after: str) -> bool:
    if before.isspace() or after.isspace():
        return not after.isspace()
    if before in OPENING or after in CLOSING:
        return False
    return any(east_asian_width(letter) in "WF" for letter in (before, after))


def _smaller(piece: str, room: int) -> Iterator[str]:
    """A piece that is wider than a line: behind its commas, or else anywhere."""
    for part in re.findall(r"[^,]*,\s*|[^,]+", piece):
        yield from [part] if cell_len(part.rstrip()) <= room else part
