"""Documents with their labels, from files: one .tsv, .csv or .jsonl, or several of them one after the other."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from regard.data.parallel import pluralize
from regard.data.text_files import file_type, json_type_name, read_lines
from regard.errors import DataError

FILE_TYPES = (".tsv", ".csv", ".jsonl")


DEFAULT_COLUMNS = ("label", "text")


SENTENCES_KEY = "sentences"  # the key of a .jsonl whose texts are split already


@dataclass(frozen=True)
class Document:
    """A text and what it is called; the text is whole, or already sentences. One that was read knows where it stood."""

    text: str | tuple[str, ...]
    label: str
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)  # counted from 1; 0 for one that was not read

    @property
    def full_text(self) -> str:
        """The text as one string, a line for each sentence that came apart."""
        return self.text if isinstance(self.text, str) else "\n".join(self.text)


class DocumentFiles:
    """Labeled documents from files, as often as one asks.

        a.tsv      columns[0] is the label, columns[1] the text, counted from 0; no quoting, no header
        a.csv      columns are names in the first row, or counted from 0 where there is no such row; quotes as usual
        a.jsonl    an object a line; columns are keys; without a text, a list of "sentences"

    Each also packed, as .gz or .xz. A .tsv has these two columns alone unless others are chosen, and no row may have
    more columns than the first: with a tab or a comma inside a text, the rest of it would be lost. `escaped` says that
    a line break inside a text is written \\n, as two characters. Iterating gives (document, line number), the number
    counted from 1; a text may be empty, which is for the reader's reader to judge. Whatever cannot be read raises
    `DataError`.

    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp(), "a.tsv")
    >>> _ = file.write_text("pos\\tA fine film.\\n")
    >>> [(document.label, document.text, line) for document, line in DocumentFiles([file])]
    [('pos', 'A fine film.', 1)]
    """

    def __init__(
        self,
        paths: Sequence[str | PathLike[str]],
        *,
        columns: Sequence[int | str] = (),
        escaped: bool = False,
    ) -> None:
        self.paths = [Path(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]
        self.escaped = escaped
        self.columns = tuple(columns)
        if self.columns and len(self.columns) != 2:
            raise DataError(f"columns should be two, of the label and of the text, not {len(self.columns)}.")
        for path in self.paths:
            if file_type(path) not in FILE_TYPES:
                raise DataError(
                    f"{path} should be a {', '.join(FILE_TYPES[:-1])} or {FILE_TYPES[-1]}, packed or not."
                )
            if file_type(path) == ".tsv":
                self._column_numbers(path)
        if not self.paths:
            raise DataError("Documents come from one file or more, and none is named.")

    def __str__(self) -> str:
        return " and ".join(map(str, self.paths))

    def __iter__(self) -> Iterator[tuple[Document, int]]:
        readers = {".tsv": self._read_tsv, ".csv": self._read_csv, ".jsonl": self._read_jsonl}
        for path in self.paths:
            yield from readers[file_type(path)](path)

    def _read_tsv(self, path: Path) -> Iterator[tuple[Document, int]]:
        columns, most = self._column_numbers(path), 0 if self.columns else len(DEFAULT_COLUMNS)
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                yield _make_blank_document(path, number), number
                continue
            fields = line.split("\t")
            most = most or len(fields)
            _check_row(path, number, fields, columns, most)
            yield self._make_document(path, number, fields[columns[0]], fields[columns[1]]), number

    def _column_numbers(self, path: Path) -> tuple[int, int]:
        label, text = self.columns or (0, 1)
        if not (isinstance(label, int) and isinstance(text, int) and min(label, text) >= 0):
            raise DataError(f"{path} has no names for its columns; give their numbers, counted from 0: 0,1.")
        return label, text

    def _read_csv(self, path: Path) -> Iterator[tuple[Document, int]]:
        rows = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
        where: tuple[int, int] | None = None
        most = 0
        try:
            for row in rows:
                most = most or len(row)
                if where is None:
                    where, named = self._find_columns(path, row)
                    if named:
                        continue
                if not row:
                    yield _make_blank_document(path, rows.line_num), rows.line_num
                    continue
                _check_row(path, rows.line_num, row, where, most)
                yield self._make_document(path, rows.line_num, row[where[0]], row[where[1]]), rows.line_num
        except csv.Error as error:
            raise line_error(
                path, rows.line_num, f"not CSV ({error}); mend the quotes, or take a .jsonl"
            ) from None

    def _find_columns(self, path: Path, row: list[str]) -> tuple[tuple[int, int], bool]:
        """The places of label and text in a row, and whether this first row is one of names."""
        label, text = self.columns or DEFAULT_COLUMNS
        if isinstance(label, int) and isinstance(text, int):
            return (label, text), False
        there = [name.strip() for name in row]
        if missing := [name for name in (label, text) if name not in there]:
            what = f"no column {missing[0]!r} in the first row, only {', '.join(map(repr, there[:8]))}"
            raise line_error(path, 1, f"{what}; name the columns of label and text, or give their numbers")
        return (there.index(str(label)), there.index(str(text))), True

    def _read_jsonl(self, path: Path) -> Iterator[tuple[Document, int]]:
        label, text = map(str, self.columns or DEFAULT_COLUMNS)
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                yield _make_blank_document(path, number), number
                continue
            found = parse_record(path, number, line)
            key = SENTENCES_KEY if text not in found and SENTENCES_KEY in found else text
            for name in (label, key):
                if name not in found:
                    there = ", ".join(map(repr, list(found)[:8])) or "nothing"
                    raise line_error(
                        path, number, f"no key {name!r}, only {there}; choose keys that are there"
                    )
            yield self._make_document(path, number, found[label], found[key]), number

    def _make_document(self, path: Path, line_number: int, label: Any, text: Any) -> Document:
        parts = text if isinstance(text, list) else [text]
        if not all(isinstance(part, str) for part in parts):
            kind = next(json_type_name(part) for part in parts if not isinstance(part, str))
            raise line_error(
                path, line_number, f"the text is {kind}, but should be text or a list of sentences"
            )
        if any("\0" in part or any("\ud800" <= c <= "\udfff" for c in part) for part in parts):
            raise line_error(
                path, line_number, "the text has a NUL or half a surrogate pair, which is no text; mend it"
            )
        if isinstance(label, bool) or not isinstance(label, str | int):
            raise line_error(
                path,
                line_number,
                f"the label is {json_type_name(label)}, but should be text or a whole number",
            )
        if not str(label).strip() and any(part.strip() for part in parts):
            raise line_error(path, line_number, "the text has no label; give it one, or take it out")
        if self.escaped:
            parts = [part.replace("\\n", "\n") for part in parts]
        found = tuple(parts) if isinstance(text, list) else parts[0]
        return Document(found, str(label).strip(), str(path), line_number)


def parse_record(path: Path, line_number: int, line: str) -> dict[str, Any]:
    """The object that a line of a .jsonl is."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise line_error(path, line_number, f"not JSON ({error}); each line should be one object") from None
    if not isinstance(found, dict):
        raise line_error(path, line_number, f"{json_type_name(found)}, but each line should be one object")
    return found


def _make_blank_document(path: Path, line_number: int) -> Document:
    """What a blank line is."""
    return Document("", "", str(path), line_number)


def _check_row(
    path: Path, line_number: int, fields: Sequence[str], columns: tuple[int, int], max_columns: int
) -> None:
    """Refuse a row that lacks a column, or has more than it should, so that a part of a text would be lost."""
    there = pluralize(len(fields), "column")
    if max(columns) >= len(fields):
        what = f"{there}, but column {max(columns)} is wanted (counted from 0)"
        raise line_error(path, line_number, f"{what}; mend the line or choose other columns")
    if len(fields) > max_columns:
        mend = "take the tabs out of the text" if file_type(path) == ".tsv" else "put the text in quotes"
        what = f"{there}, but there should be {max_columns}"
        raise line_error(path, line_number, f"{what}; {mend}, or choose the columns of label and text")


def line_error(path: Path, line_number: int, message: str) -> DataError:
    """What is wrong with a line, and what to do."""
    return DataError(f"{path}, line {line_number}: {message}.")
