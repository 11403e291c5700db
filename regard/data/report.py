"""What became of the pairs that were read: nothing is left out in silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

from regard.data.batch import UNK

SHOWN = 3  # line numbers kept of each sort: enough to look one up


@dataclass
class Report:
    """How many pairs were read and used, and why the others were not.

    >>> report = Report(max_length=50, over="drop")
    >>> report.note("used"), report.note("empty", line=2), report.note("long", line=7)
    (None, None, None)
    >>> print(report)
    3 pairs read, 1 used; 1 with an empty side left out (line 2); 1 over 50 tokens left out (line 7).
    >>> print(Report(read=3, used=3, tokens=20, unknown=1))
    3 pairs read, 3 used; 1 of 20 tokens (5 %) is not in the vocabulary.
    """

    max_length: int | None = None
    over: str = "drop"
    read: int = 0
    used: int = 0
    empty: int = 0
    empty_lines: list[int] = field(default_factory=list)
    too_long: int = 0
    too_long_lines: list[int] = field(default_factory=list)
    tokens: int = 0  # of what is used
    unknown: int = 0  # of these
    made: bool = False  # on the fly: these are the first of many, and have no lines to look up

    def note(self, what: str, line: int = 0) -> None:
        """One more pair was read: `used`, `empty`, `long` (left out), or `cut` (too long, used in part)."""
        self.read += 1
        self.used += what in ("used", "cut")
        if what == "empty":
            self.empty += 1
            self.empty_lines += [line] * (len(self.empty_lines) < SHOWN)
        elif what in ("long", "cut"):
            self.too_long += 1
            self.too_long_lines += [line] * (len(self.too_long_lines) < SHOWN)

    def count(self, *sides: Sequence[int]) -> None:
        """The tokens of one that is used."""
        self.tokens += sum(map(len, sides))
        self.unknown += sum(side.count(UNK) for side in sides)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        how = "made to begin with" if self.made else "read"
        parts = [f"{counted(self.read, 'pair')} {how}, {self.used:,} used"]
        if self.empty:
            where = self._where(self.empty_lines, self.empty)
            parts.append(f"{self.empty:,} with an empty side left out{where}")
        if self.too_long:
            done = "cut" if self.over == "cut" else "left out"
            where = self._where(self.too_long_lines, self.too_long)
            parts.append(f"{self.too_long:,} over {self.max_length:,} tokens {done}{where}")
        if self.unknown:
            share, are = 100 * self.unknown / max(self.tokens, 1), "is" if self.unknown == 1 else "are"
            of = f"{self.unknown:,} of {counted(self.tokens, 'token')}"
            parts.append(f"{of} ({share:.2g} %) {are} not in the vocabulary")
        return "; ".join(parts) + "."

    def _where(self, first: list[int], total: int) -> str:
        return "" if self.made else f" ({_lines(first, total)})"


def counted(number: int, what: str) -> str:
    """So many of something.

    >>> counted(1, "document"), counted(2000, "document")
    ('1 document', '2,000 documents')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def _lines(first: list[int], total: int) -> str:
    more = ", ..." if total > len(first) else ""
    return f"line{'s' * (total > 1)} {', '.join(map(str, first))}{more}"
