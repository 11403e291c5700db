"""Parallel text from files: two plain ones side by side, one .tsv, or one .jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from os import PathLike
from pathlib import Path

from regard.data._json import called
from regard.data._lines import count, kind_of, lines
from regard.data.batch import Pair
from regard.errors import DataError

Links = tuple[tuple[int, int], ...]


class Parallel:
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
    >>> [(pair.source, pair.target, line) for pair, line in Parallel([file])]
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
        self.chosen = columns is not None
        if len(self.paths) not in (1, 2, 3):
            raise DataError(
                f"Parallel text is one .tsv, one .jsonl or two plain files, not {len(self.paths)} files."
            )
        self.kind = kind_of(self.paths[0]) if len(self.paths) == 1 else "plain"
        if self.kind not in ("plain", ".tsv", ".jsonl"):
            raise DataError(
                f"{self.paths[0]} stands alone, so it should be a .tsv or .jsonl; or name two files."
            )
        if len(self.columns) not in (2, 3) or min(self.columns) < 0:
            raise self._unfit(
                "columns", self.columns, "two numbers from 0 on (three with links), such as 0,1"
            )
        if len(self.keys) not in (2, 3):
            raise self._unfit("keys", self.keys, "two names (three with links), such as source,target")
        for name, chosen in (("columns", self.columns), ("keys", self.keys)):
            if len(set(chosen)) < len(chosen):
                raise self._unfit(name, chosen, "different ones for source and target")

    def __str__(self) -> str:
        return " and ".join(map(str, self.paths))

    def __iter__(self) -> Iterator[tuple[Pair, int]]:
        for number, fields in enumerate(self._fields(), 1):
            yield Pair(fields[0], fields[1], *self._links(fields, number)), number

    def count(self) -> int:
        """How many lines there are; files that stand side by side must have the same number."""
        counts = [count(path) for path in self.paths]
        if len(set(counts)) > 1:
            each = ", ".join(f"{path} has {n:,} lines" for path, n in zip(self.paths, counts, strict=True))
            longest = self.paths[counts.index(max(counts))]
            raise DataError(f"{each}: {longest} is longer, so its lines do not belong to the same sentences.")
        if counts[0] == 0:
            raise DataError(f"{self.paths[0]} is empty: it should have one sentence a line.")
        return counts[0]

    def _fields(self) -> Iterator[Sequence[str]]:
        if self.kind == "plain":
            for sides in zip_longest(*map(lines, self.paths)):
                if None in sides:
                    self.count()  # which raises, naming both counts
                    raise DataError(f"{self} changed while they were read; begin again.")
                yield sides
            return
        first = 0, 0
        for number, line in enumerate(lines(self.paths[0]), 1):
            if not line.strip():
                yield "", ""  # a blank line is an empty pair
            elif self.kind == ".jsonl":
                yield self._values(line, number)
            else:
                fields = line.split("\t")
                first = first if first[0] else (number, len(fields))
                yield self._columns(fields, number, *first)

    def _columns(self, fields: Sequence[str], number: int, first: int, usual: int) -> Sequence[str]:
        """The columns that are wanted; `usual` is how many there are in line `first`."""
        has = f"{len(fields)} column{'s' * (len(fields) > 1)}"
        if max(self.columns) >= len(fields):
            wanted = f"column {max(self.columns)} is wanted (counted from 0)"
            raise self._error(number, f"{has}, but {wanted}; mend the line or choose other columns")
        if len(fields) != usual and not self.chosen:
            raise self._error(number, f"{has}, but line {first} has {usual}; mend the line or choose columns")
        return [fields[i] for i in self.columns]

    def _values(self, line: str, number: int) -> Sequence[str]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._error(number, f"not JSON ({error}); each line should be one object") from None
        if not isinstance(record, dict):
            raise self._error(number, f"{called(record)}, but each line should be one object")
        return [self._value(record, key, number) for key in self.keys]

    def _value(self, record: dict[str, object], key: str, number: int) -> str:
        if key not in record:
            there = ", ".join(map(repr, list(record)[:8])) or "nothing"
            raise self._error(number, f"no key {key!r}, only {there}; choose the keys that are there")
        text = record[key]
        if not isinstance(text, str):
            raise self._error(number, f"{key!r} is {called(text)}, but should be text")
        if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
            raise self._error(
                number, f"{key!r} has a NUL or half a surrogate pair, which is no text; mend it"
            )
        return text

    def _links(self, fields: Sequence[str], number: int) -> tuple[Links | None, Links | None]:
        if len(fields) < 3:
            return None, None
        sure: list[tuple[int, int]] = []
        possible: list[tuple[int, int]] = []
        for link in fields[2].split():
            left, mark, right = link.partition("?" if "?" in link else "-")
            if not (left.isdecimal() and right.isdecimal() and len(link) < 20):
                raise self._error(
                    number, f"the link {link[:40]!r} should read like 0-1 (sure) or 0?1 (possible)"
                )
            (possible if mark == "?" else sure).append((int(left), int(right)))
        return tuple(sure), tuple(possible)

    def _unfit(self, name: str, chosen: Sequence[object], should: str) -> DataError:
        return DataError(f"{self}: {name} should be {should}, not {','.join(map(str, chosen)) or 'none'}.")

    def _error(self, number: int, sentence: str) -> DataError:
        return DataError(f"{self.paths[-1]}, line {number}: {sentence}.")
