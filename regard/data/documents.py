"""Labeled documents from .tsv, .csv and .jsonl files."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

from regard.data.parallel import pluralize
from regard.data.text_files import (
    TextFiles,
    check_characters,
    file_type,
    get_value,
    json_type_name,
    line_error,
    parse_record,
    read_lines,
)
from regard.errors import DataError

__all__ = ["Document", "DocumentFiles"]

FILE_TYPES = (".tsv", ".csv", ".jsonl")
DEFAULT_COLUMNS = ("label", "text")
SENTENCES_KEY = "sentences"  # the key of a .jsonl whose texts are split already


@dataclass(frozen=True)
class Document:
    """A labeled text.

    Args:
        text: the text, or its sentences if it is split already.
        label: the class.
        file: the file it was read from; not compared.
        line: its line, counted from 1, 0 if it was not read from a file; not compared.

    Example:
        >>> Document(("Fine.", "Really."), "pos").full_text
        'Fine.\\nReally.'
    """

    text: str | tuple[str, ...]
    label: str
    file: str = field(default="", compare=False)
    line: int = field(default=0, compare=False)

    @property
    def full_text(self) -> str:
        """The text as one string, with a line for each sentence of a text that is split already."""
        return self.text if isinstance(self.text, str) else "\n".join(self.text)


class DocumentFiles(TextFiles):
    """Labeled documents from files; every iteration reads the files again.

        a.tsv      columns[0] is the label, columns[1] the text, counted from 0; no quoting, no header
        a.csv      columns are names in the first row, or numbers counted from 0 without such a row; quotes as usual
        a.jsonl    an object per line; columns are keys; without a text, a list of "sentences"

    Each file may be compressed, as .gz or .xz. Without `columns`, a .tsv must have exactly these two, and no row may
    have more columns than the first: a tab or comma inside a text would cut it off.

    Args:
        paths: one file or more, read one after the other.
        columns: the columns of label and text: numbers, or names for .csv and .jsonl.
        escaped: whether a line break inside a text of a .tsv is written as the two characters \\n.

    Returns:
        Iterating yields (document, line number), the number counted from 1. A text may be empty; `DocumentBatches`
        leaves such documents out and counts them.

    Raises:
        DataError: a file or line cannot be read; the message names file, line and remedy.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.tsv")
        >>> _ = path.write_text("pos\\tA fine film.\\n")
        >>> [(document.label, document.text, line) for document, line in DocumentFiles([path])]
        [('pos', 'A fine film.', 1)]
    """

    def __init__(
        self, paths: Sequence[str | PathLike[str]], *, columns: Sequence[int | str] = (), escaped: bool = False
    ) -> None:
        super().__init__(paths)
        self.escaped, self.columns = escaped, tuple(columns)
        if self.columns and len(self.columns) != 2:
            raise DataError(f"columns must be two, of the label and of the text, not {len(self.columns)}.")
        for path in self.paths:
            if file_type(path) not in FILE_TYPES:
                raise DataError(f"{path} must be a .tsv, .csv or .jsonl, compressed or not.")
            if file_type(path) == ".tsv":
                self._column_numbers(path)
        if not self.paths:
            raise DataError("Documents come from one file or more, but no file is named.")

    def __iter__(self) -> Iterator[tuple[Document, int]]:
        readers = {".tsv": self._read_tsv, ".csv": self._read_csv, ".jsonl": self._read_jsonl}
        for path in self.paths:
            for document in readers[file_type(path)](path):
                yield document, document.line

    def _read_tsv(self, path: Path) -> Iterator[Document]:
        lines = enumerate(read_lines(path), 1)
        rows = ((line_number, line.split("\t") if line.strip() else []) for line_number, line in lines)
        max_columns = 0 if self.columns else len(DEFAULT_COLUMNS)
        return self._read_rows(path, rows, self._column_numbers(path), max_columns)

    def _column_numbers(self, path: Path) -> tuple[int, int]:
        label, text = self.columns or (0, 1)
        if not (isinstance(label, int) and isinstance(text, int) and min(label, text) >= 0):
            raise DataError(f"{path} has no names for its columns; give their numbers, counted from 0: 0,1.")
        return label, text

    def _read_csv(self, path: Path) -> Iterator[Document]:
        reader = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
        try:
            yield from self._read_rows(path, ((reader.line_num, row) for row in reader))
        except csv.Error as error:
            raise line_error(path, reader.line_num, f"not CSV ({error}); correct the quotes, or use a .jsonl") from None

    def _read_rows(
        self,
        path: Path,
        rows: Iterable[tuple[int, list[str]]],
        columns: tuple[int, int] | None = None,
        max_columns: int = 0,
    ) -> Iterator[Document]:
        for line_number, fields in rows:
            max_columns = max_columns or len(fields)
            if columns is None:
                columns, is_header = self._find_columns(path, fields)
                if is_header:
                    continue
            if fields:
                _check_row(path, line_number, fields, columns, max_columns)
            label, text = (fields[i] for i in columns) if fields else ("", "")
            yield self._make_document(path, line_number, label, text)

    def _find_columns(self, path: Path, row: list[str]) -> tuple[tuple[int, int], bool]:
        """Return the columns of label and text, and whether the first row holds column names."""
        label, text = self.columns or DEFAULT_COLUMNS
        if isinstance(label, int) and isinstance(text, int):
            return (label, text), False
        names = [name.strip() for name in row]
        if missing := [name for name in (label, text) if name not in names]:
            problem = f"no column {missing[0]!r} in the first row, only {', '.join(map(repr, names[:8]))}"
            raise line_error(path, 1, f"{problem}; name the columns of label and text, or give their numbers")
        return (names.index(str(label)), names.index(str(text))), True

    def _read_jsonl(self, path: Path) -> Iterator[Document]:
        label, text = map(str, self.columns or DEFAULT_COLUMNS)
        for line_number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                yield self._make_document(path, line_number, "", "")
                continue
            record = parse_record(path, line_number, line)
            key = SENTENCES_KEY if text not in record and SENTENCES_KEY in record else text
            values = [get_value(record, name, path, line_number) for name in (label, key)]
            yield self._make_document(path, line_number, *values)

    def _make_document(self, path: Path, line_number: int, label: Any, text: Any) -> Document:
        parts = text if isinstance(text, list) else [text]
        if not all(isinstance(part, str) for part in parts):
            actual = next(json_type_name(part) for part in parts if not isinstance(part, str))
            raise line_error(path, line_number, f"the text is {actual}, but must be text or a list of sentences")
        for part in parts:
            check_characters(part, "the text", path, line_number)
        if isinstance(label, bool) or not isinstance(label, str | int):
            raise line_error(
                path, line_number, f"the label is {json_type_name(label)}, but must be text or a whole number"
            )
        if not str(label).strip() and any(part.strip() for part in parts):
            raise line_error(path, line_number, "the text has no label; add one, or remove the line")
        if self.escaped:
            parts = [part.replace("\\n", "\n") for part in parts]
        content = tuple(parts) if isinstance(text, list) else parts[0]
        return Document(content, str(label).strip(), str(path), line_number)


def _check_row(path: Path, line_number: int, fields: Sequence[str], columns: tuple[int, int], max_columns: int) -> None:
    """Refuse a row without one of the columns, or with too many columns, which would cut off a text."""
    actual = pluralize(len(fields), "column")
    if max(columns) >= len(fields):
        problem = f"{actual}, but column {max(columns)} is required (counted from 0)"
        raise line_error(path, line_number, f"{problem}; correct the line or choose other columns")
    if len(fields) > max_columns:
        remedy = "remove the tabs from the text" if file_type(path) == ".tsv" else "put the text in quotes"
        problem = f"{actual}, but there must be {max_columns}"
        raise line_error(path, line_number, f"{problem}; {remedy}, or choose the columns of label and text")
