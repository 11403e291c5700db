"""Lines to translate: from arguments, a file or standard input, in blocks; and whether the model can take them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli._say import note
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Translator

FROM_FILE, FROM_PIPE = 2048, 512  # lines at once: more can be sorted better, fewer answer sooner
CHUNK = 1 << 16


class TooLong(str, Enum):
    stop = "stop"
    cut = "cut"


@dataclass(frozen=True)
class Limit:
    """How long a text may be, and what happens to a longer one: it is cut, or refused with its line."""

    translator: Translator
    over: TooLong
    where: str = "text"

    def fitted(self, texts: list[str], first: int = 1) -> list[str]:
        """The texts as the model can take them; `first` is the number of the first one's line."""
        encode, most = self.translator.source.encode, self.translator.max_length
        return [
            text if (length := len(encode(text))) <= most else self._shorter(text, length, number)
            for number, text in enumerate(texts, first)
        ]

    def _shorter(self, text: str, length: int, number: int) -> str:
        most = self.translator.max_length
        has = f"{self.where} {number} has {length:,} tokens"
        if self.over is TooLong.stop:
            raise UsageError(
                f"{has}, but this model takes {most:,} (max_length); split it, or take --too-long cut."
            )
        note(f"{has} and was cut to {most:,}")
        short, long = 0, len(text)  # so many characters fit, so many do not
        while long - short > 1:
            middle = (short + long) // 2
            fits = len(self.translator.source.encode(text[:middle])) <= most
            short, long = (middle, long) if fits else (short, middle)
        return text[:short]


def of_file(path: Path, limit: Limit) -> Iterator[list[str]]:
    """The lines of a file in blocks, after all of them were looked at: nothing is begun that cannot be ended."""
    from regard.data.text_files import read_lines

    if limit.over is TooLong.stop:
        for number, line in enumerate(read_lines(path), 1):
            limit.fitted([line], number)
    rest, first = read_lines(path), 1
    while block := list(islice(rest, FROM_FILE)):
        yield limit.fitted(block, first)
        first += len(block)


def of_stdin(limit: Limit, whole: bool = False) -> Iterator[list[str]]:
    """What stands at standard input, as soon as it is there; `whole` waits until a block is full.

    Blocks are cut by the clock, so chance (--sample) would give another answer each time without `whole`.
    """
    asking = sys.stdin.isatty()
    if asking:
        note("One line, one translation; Ctrl-D ends.")
    waiting: list[str] = []
    first = 1
    for ready in _arriving(asking):
        waiting += ready
        while len(waiting) >= (FROM_PIPE if whole and not asking else 1):
            block, waiting = waiting[:FROM_PIPE], waiting[FROM_PIPE:]
            yield limit.fitted(block, first)
            first += len(block)
    if waiting:
        yield limit.fitted(waiting, first)


def _arriving(asking: bool) -> Iterator[list[str]]:
    """The lines that came since the last look; a last one without a line end is one, too."""
    rest, number = b"", 0
    while True:
        if asking:
            sys.stderr.write("> ")
            sys.stderr.flush()
        chunk = sys.stdin.buffer.read1(CHUNK)  # type: ignore[union-attr]
        raw = (rest + chunk).split(b"\n")
        rest = raw.pop()
        if not chunk and rest:
            raw, rest = [rest], b""
        yield [_text(line, number + place) for place, line in enumerate(raw, 1)]
        number += len(raw)
        if not chunk:
            if asking:
                note("")  # the shell's own prompt begins a line
            return


def _text(raw: bytes, number: int) -> str:
    if number == 1:
        raw = raw.removeprefix(b"\xef\xbb\xbf")
    try:
        return raw.removesuffix(b"\r").decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"standard input, line {number}: byte {error.start + 1} is not UTF-8; convert it first."
        ) from None
