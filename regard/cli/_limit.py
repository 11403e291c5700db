"""The length limit of a translator, for texts from arguments, a file or standard input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.arguments import read_file_blocks, read_stdin_blocks
from regard.cli.output import print_status
from regard.errors import UsageError

if TYPE_CHECKING:
    from regard.tasks import Translator


class TooLong(str, Enum):
    stop = "stop"
    cut = "cut"


@dataclass(frozen=True)
class Limit:
    """How long a text may be, and whether a longer one is cut or refused with its line."""

    translator: Translator
    over: TooLong
    where: str = "text"

    def fitted(self, texts: list[str], first: int = 1) -> list[str]:
        """The texts, cut where they are too long; `first` is the line number of the first one."""
        encode, most = self.translator.source.encode, self.translator.max_length
        return [
            text if (length := len(encode(text))) <= most else self._shorter(text, length, number)
            for number, text in enumerate(texts, first)
        ]

    def _shorter(self, text: str, length: int, number: int) -> str:
        most = self.translator.max_length
        has = f"{self.where} {number} has {length:,} tokens"
        if self.over is TooLong.stop:
            raise UsageError(f"{has}, but this model takes {most:,} (max_length); split it, or take --too-long cut.")
        print_status(f"{has} and was cut to {most:,}")
        short, long = 0, len(text)  # this many characters fit; this many do not
        while long - short > 1:
            middle = (short + long) // 2
            fits = len(self.translator.source.encode(text[:middle])) <= most
            short, long = (middle, long) if fits else (short, middle)
        return text[:short]


def fitted_file(path: Path, limit: Limit) -> Iterator[list[str]]:
    """The lines of a file in blocks, after all of them were checked."""
    from regard.data.text_files import read_lines

    if limit.over is TooLong.stop:
        for number, line in enumerate(read_lines(path), 1):
            limit.fitted([line], number)
    return _fitted(read_file_blocks(path), limit)


def fitted_stdin(limit: Limit, full: bool = False) -> Iterator[list[str]]:
    """The lines of standard input in blocks."""
    return _fitted(read_stdin_blocks("One line, one translation; Ctrl-D ends.", full), limit)


def _fitted(blocks: Iterator[list[str]], limit: Limit) -> Iterator[list[str]]:
    first = 1
    for block in blocks:
        yield limit.fitted(block, first)
        first += len(block)
