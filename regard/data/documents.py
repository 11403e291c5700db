"""Labeled documents from .tsv, .csv and .jsonl files."""

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

__all__ = ["Document", "DocumentFiles", "line_error", "parse_record"]

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


class DocumentFiles:
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
        self.paths = [Path(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]
        self.escaped = escaped
        self.columns = tuple(columns)
        if self.columns and len(self.columns) != 2:
            raise DataError(f"columns must be two, of the label and of the text, not {len(self.columns)}.")
        for path in self.paths:
            if file_type(path) not in FILE_TYPES:
                raise DataError(
                    f"{path} must be a {', '.join(FILE_TYPES[:-1])} or {FILE_TYPES[-1]}, compressed or not."
                )
            if file_type(path) == ".tsv":
                self._column_numbers(path)
        if not self.paths:
            raise DataError("Documents come from one file or more, but no file is named.")

    def __str__(self) -> str:
        return " and ".join(map(str, self.paths))

    def __iter__(self) -> Iterator[tuple[Document, int]]:
        readers = {".tsv": self._read_tsv, ".csv": self._read_csv, ".jsonl": self._read_jsonl}
        for path in self.paths:
            yield from readers[file_type(path)](path)

    def _read_tsv(self, path: Path) -> Iterator[tuple[Document, int]]:
        columns, max_columns = self._column_numbers(path), 0 if self.columns else len(DEFAULT_COLUMNS)
        for line_number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                yield _make_blank_document(path, line_number), line_number
                continue
            fields = line.split("\t")
            max_columns = max_columns or len(fields)
            _check_row(path, line_number, fields, columns, max_columns)
            document = self._make_document(path, line_number, fields[columns[0]], fields[columns[1]])
            yield document, line_number

    def _column_numbers(self, path: Path) -> tuple[int, int]:
        label, text = self.columns or (0, 1)
        if not (isinstance(label, int) and isinstance(text, int) and min(label, text) >= 0):
            raise DataError(f"{path} has no names for its columns; give their numbers, counted from 0: 0,1.")
        return label, text

    def _read_csv(self, path: Path) -> Iterator[tuple[Document, int]]:
        rows = csv.reader((f"{line}\n" for line in read_lines(path)), strict=True)
        columns: tuple[int, int] | None = None
        max_columns = 0
        try:
            for row in rows:
                max_columns = max_columns or len(row)
                if columns is None:
                    columns, is_header = self._find_columns(path, row)
                    if is_header:
                        continue
                if not row:
                    yield _make_blank_document(path, rows.line_num), rows.line_num
                    continue
                _check_row(path, rows.line_num, row, columns, max_columns)
                document = self._make_document(path, rows.line_num, row[columns[0]], row[columns[1]])
                yield document, rows.line_num
        except csv.Error as error:
            raise line_error(path, rows.line_num, f"not CSV ({error}); correct the quotes, or use a .jsonl") from None

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

    def _read_jsonl(self, path: Path) -> Iterator[tuple[Document, int]]:
        label, text = map(str, self.columns or DEFAULT_COLUMNS)
        for line_number, line in enumerate(read_lines(path), 1):
            if not line.strip():
                yield _make_blank_document(path, line_number), line_number
                continue
            record = parse_record(path, line_number, line)
            key = SENTENCES_KEY if text not in record and SENTENCES_KEY in record else text
            for name in (label, key):
                if name not in record:
                    available = ", ".join(map(repr, list(record)[:8])) or "nothing"
                    raise line_error(path, line_number, f"no key {name!r}, only {available}; choose existing keys")
            yield self._make_document(path, line_number, record[label], record[key]), line_number

    def _make_document(self, path: Path, line_number: int, label: Any, text: Any) -> Document:
        parts = text if isinstance(text, list) else [text]
        if not all(isinstance(part, str) for part in parts):
            actual = next(json_type_name(part) for part in parts if not isinstance(part, str))
            raise line_error(path, line_number, f"the text is {actual}, but must be text or a list of sentences")
        if any("\0" in part or any("\ud800" <= c <= "\udfff" for c in part) for part in parts):
            raise line_error(
                path, line_number, "the text has a NUL or half a surrogate pair, which is not text; correct it"
            )
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


def parse_record(path: Path, line_number: int, line: str) -> dict[str, Any]:
    """Parse a line of a .jsonl file.

    Args:
        path: the file, for messages.
        line_number: the line number, for messages.
        line: the line.

    Returns:
        The object.

    Raises:
        DataError: the line is not a JSON object.

    Example:
        >>> parse_record(Path("a.jsonl"), 1, '{"label": 1}')
        {'label': 1}
    """
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise line_error(path, line_number, f"not JSON ({error}); each line must be one object") from None
    if not isinstance(record, dict):
        raise line_error(path, line_number, f"{json_type_name(record)}, but each line must be one object")
    return record


def line_error(path: Path, line_number: int, message: str) -> DataError:
    """Return the error for a line of a file.

    Args:
        path: the file.
        line_number: the line number.
        message: what is wrong, and what to do.

    Returns:
        The error to raise.

    Example:
        >>> print(line_error(Path("a.tsv"), 3, "2 columns, but there must be 3"))
        a.tsv, line 3: 2 columns, but there must be 3.
    """
    return DataError(f"{path}, line {line_number}: {message}.")


def _make_blank_document(path: Path, line_number: int) -> Document:
    return Document("", "", str(path), line_number)


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
