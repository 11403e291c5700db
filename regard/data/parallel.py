"""Parallel text from files: two plain ones side by side, one .tsv, or one .jsonl.

What became of the pairs that were read: nothing is left out in silence.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from os import PathLike
from pathlib import Path

from regard.data.text_files import count_lines, file_type, json_type_name, read_lines
from regard.data.vocabulary import UNK_ID
from regard.errors import DataError


@dataclass(frozen=True)
class SentencePair:
    """A sentence and its translation; where it is known, which of their words belong together.

    A link (i, j) joins word i of the source and word j of the target, counted from 0; for text cut into
    characters, characters take the place of words. `links` are sure, `possible` ones are no mistake.
    """

    source: str
    target: str
    sure_links: tuple[tuple[int, int], ...] | None = None
    possible_links: tuple[tuple[int, int], ...] | None = None


Links = tuple[tuple[int, int], ...]


class ParallelFiles:
    """Sentence pairs from files, one line after the other, as often as one asks.

        a.en a.de          two files: line i of both is pair i (a third may hold gold links)
        a.tsv              one file: columns[0] and columns[1], counted from 0; no quoting, no header;
                           without `columns` the first two, and then every line must have as many as the first
        a.jsonl            one file: an object a line, keys[0] and keys[1]

    Each also packed, as .gz or .xz. A third column or key is read as gold links: "0-0 1-2" are sure, "1?3" is
    possible only. Iterating gives (pair, line number), the number counted from 1; sides may be empty, which is
    for the reader's reader to judge. Whatever cannot be read raises `DataError`.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
    >>> _ = file.write_text("das Haus\\tthe house\\n")
    >>> [(pair.source, pair.target, line) for pair, line in ParallelFiles([file])]
    [('das Haus', 'the house', 1)]
    """

    def __init__(
        self,
        paths: Sequence[str | PathLike[str]],
        *,
        columns: Sequence[int] | None = None,
        keys: Sequence[str] = ("source", "target"),
    ) -> None:
        self.paths = [Path(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]
        self.columns, self.keys = (0, 1) if columns is None else tuple(columns), tuple(keys)
        self.has_columns = columns is not None
        if len(self.paths) not in (1, 2, 3):
            raise DataError(
                f"Parallel text is one .tsv, one .jsonl or two plain files, not {len(self.paths)} files."
            )
        self.file_type = file_type(self.paths[0]) if len(self.paths) == 1 else "plain"
        if self.file_type not in ("plain", ".tsv", ".jsonl"):
            raise DataError(
                f"{self.paths[0]} stands alone, so it should be a .tsv or .jsonl; or name two files."
            )
        if len(self.columns) not in (2, 3) or min(self.columns) < 0:
            raise self._option_error(
                "columns", self.columns, "two numbers from 0 on (three with links), such as 0,1"
            )
        if len(self.keys) not in (2, 3):
            raise self._option_error("keys", self.keys, "two names (three with links), such as source,target")
        for name, chosen in (("columns", self.columns), ("keys", self.keys)):
            if len(set(chosen)) < len(chosen):
                raise self._option_error(name, chosen, "different ones for source and target")

    def __str__(self) -> str:
        return " and ".join(map(str, self.paths))

    def __iter__(self) -> Iterator[tuple[SentencePair, int]]:
        for number, fields in enumerate(self._read_fields(), 1):
            yield SentencePair(fields[0], fields[1], *self._parse_links(fields, number)), number

    def count_lines(self) -> int:
        """How many lines there are; files that stand side by side must have the same number."""
        counts = [count_lines(path) for path in self.paths]
        if len(set(counts)) > 1:
            each = ", ".join(f"{path} has {n:,} lines" for path, n in zip(self.paths, counts, strict=True))
            longest = self.paths[counts.index(max(counts))]
            raise DataError(f"{each}: {longest} is longer, so its lines do not belong to the same sentences.")
        if counts[0] == 0:
            raise DataError(f"{self.paths[0]} is empty: it should have one sentence a line.")
        return counts[0]

    def _read_fields(self) -> Iterator[Sequence[str]]:
        if self.file_type == "plain":
            for sides in zip_longest(*map(read_lines, self.paths)):
                if None in sides:
                    self.count_lines()  # which raises, naming both counts
                    raise DataError(f"{self} changed while they were read; begin again.")
                yield sides
            return
        first = 0, 0
        for number, line in enumerate(read_lines(self.paths[0]), 1):
            if not line.strip():
                yield "", ""  # a blank line is an empty pair
            elif self.file_type == ".jsonl":
                yield self._parse_record(line, number)
            else:
                fields = line.split("\t")
                first = first if first[0] else (number, len(fields))
                yield self._select_columns(fields, number, *first)

    def _select_columns(
        self, fields: Sequence[str], line_number: int, first_line: int, num_columns: int
    ) -> Sequence[str]:
        """The columns that are wanted; `usual` is how many there are in line `first`."""
        has = f"{len(fields)} column{'s' * (len(fields) > 1)}"
        if max(self.columns) >= len(fields):
            wanted = f"column {max(self.columns)} is wanted (counted from 0)"
            raise self._line_error(line_number, f"{has}, but {wanted}; mend the line or choose other columns")
        if len(fields) != num_columns and not self.has_columns:
            raise self._line_error(
                line_number,
                f"{has}, but line {first_line} has {num_columns}; mend the line or choose columns",
            )
        return [fields[i] for i in self.columns]

    def _parse_record(self, line: str, line_number: int) -> Sequence[str]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._line_error(
                line_number, f"not JSON ({error}); each line should be one object"
            ) from None
        if not isinstance(record, dict):
            raise self._line_error(
                line_number, f"{json_type_name(record)}, but each line should be one object"
            )
        return [self._get_text(record, key, line_number) for key in self.keys]

    def _get_text(self, record: dict[str, object], key: str, line_number: int) -> str:
        if key not in record:
            there = ", ".join(map(repr, list(record)[:8])) or "nothing"
            raise self._line_error(
                line_number, f"no key {key!r}, only {there}; choose the keys that are there"
            )
        text = record[key]
        if not isinstance(text, str):
            raise self._line_error(line_number, f"{key!r} is {json_type_name(text)}, but should be text")
        if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
            raise self._line_error(
                line_number, f"{key!r} has a NUL or half a surrogate pair, which is no text; mend it"
            )
        return text

    def _parse_links(self, fields: Sequence[str], line_number: int) -> tuple[Links | None, Links | None]:
        if len(fields) < 3:
            return None, None
        sure: list[tuple[int, int]] = []
        possible: list[tuple[int, int]] = []
        for link in fields[2].split():
            left, mark, right = link.partition("?" if "?" in link else "-")
            if not (left.isdecimal() and right.isdecimal() and len(link) < 20):
                raise self._line_error(
                    line_number, f"the link {link[:40]!r} should read like 0-1 (sure) or 0?1 (possible)"
                )
            (possible if mark == "?" else sure).append((int(left), int(right)))
        return tuple(sure), tuple(possible)

    def _option_error(self, name: str, values: Sequence[object], expected: str) -> DataError:
        return DataError(f"{self}: {name} should be {expected}, not {','.join(map(str, values)) or 'none'}.")

    def _line_error(self, line_number: int, message: str) -> DataError:
        return DataError(f"{self.paths[-1]}, line {line_number}: {message}.")


MAX_LINE_NUMBERS = 3  # line numbers kept of each sort: enough to look one up


@dataclass
class DataReport:
    """How many pairs were read and used, and why the others were not.

    >>> report = DataReport(max_length=50, overflow="drop")
    >>> report.count_pair("used"), report.count_pair("empty", line=2), report.count_pair("long", line=7)
    (None, None, None)
    >>> print(report)
    3 pairs read, 1 used; 1 with an empty side left out (line 2); 1 over 50 tokens left out (line 7).
    >>> print(DataReport(read=3, used=3, tokens=20, unknown=1))
    3 pairs read, 3 used; 1 of 20 tokens (5 %) is not in the vocabulary.
    """

    max_length: int | None = None
    overflow: str = "drop"
    read: int = 0
    used: int = 0
    empty: int = 0
    empty_lines: list[int] = field(default_factory=list)
    too_long: int = 0
    too_long_lines: list[int] = field(default_factory=list)
    tokens: int = 0  # of what is used
    unknown: int = 0  # of these
    is_generated: bool = False  # on the fly: these are the first of many, and have no lines to look up

    def count_pair(self, outcome: str, line: int = 0) -> None:
        """One more pair was read: `used`, `empty`, `long` (left out), or `cut` (too long, used in part)."""
        self.read += 1
        self.used += outcome in ("used", "cut")
        if outcome == "empty":
            self.empty += 1
            self.empty_lines += [line] * (len(self.empty_lines) < MAX_LINE_NUMBERS)
        elif outcome in ("long", "cut"):
            self.too_long += 1
            self.too_long_lines += [line] * (len(self.too_long_lines) < MAX_LINE_NUMBERS)

    def count_tokens(self, *sides: Sequence[int]) -> None:
        """The tokens of one that is used."""
        self.tokens += sum(map(len, sides))
        self.unknown += sum(side.count(UNK_ID) for side in sides)

    def as_dict(self) -> dict[str, object]:
        """The same as plain values, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        how = "made to begin with" if self.is_generated else "read"
        parts = [f"{pluralize(self.read, 'pair')} {how}, {self.used:,} used"]
        if self.empty:
            where = self._format_lines(self.empty_lines, self.empty)
            parts.append(f"{self.empty:,} with an empty side left out{where}")
        if self.too_long:
            done = "cut" if self.overflow == "cut" else "left out"
            where = self._format_lines(self.too_long_lines, self.too_long)
            parts.append(f"{self.too_long:,} over {self.max_length:,} tokens {done}{where}")
        if self.unknown:
            share, are = 100 * self.unknown / max(self.tokens, 1), "is" if self.unknown == 1 else "are"
            of = f"{self.unknown:,} of {pluralize(self.tokens, 'token')}"
            parts.append(f"{of} ({share:.2g} %) {are} not in the vocabulary")
        return "; ".join(parts) + "."

    def _format_lines(self, line_numbers: list[int], total: int) -> str:
        return "" if self.is_generated else f" ({format_line_numbers(line_numbers, total)})"


def pluralize(number: int, noun: str) -> str:
    """So many of something.

    >>> pluralize(1, "document"), pluralize(2000, "document")
    ('1 document', '2,000 documents')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_line_numbers(line_numbers: list[int], total: int) -> str:
    more = ", ..." if total > len(line_numbers) else ""
    return f"line{'s' * (total > 1)} {', '.join(map(str, line_numbers))}{more}"
