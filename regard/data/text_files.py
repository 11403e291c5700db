"""Lines of plain or compressed text files, with errors that name file and line."""

from __future__ import annotations

import gzip
import json
import lzma
import zlib
from collections.abc import Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from regard.errors import DataError, closest

__all__ = [
    "DECOMPRESSION_ERRORS", "OPENERS", "READ_ERRORS", "Paths", "TextFiles", "check_characters", "check_readable",
    "count_lines", "describe_read_error", "file_type", "get_text", "get_value", "json_type_name", "line_error",
    "parse_json", "parse_record", "read_lines", "select_columns",
]  # fmt: skip

Paths = Sequence[str | PathLike[str]]
BOM = b"\xef\xbb\xbf"
BLOCK_SIZE = 1 << 20
MAX_LINE_BYTES = 128 << 20  # a small compressed file may have a line that is larger than memory
OPENERS: dict[str, Any] = {".gz": gzip.open, ".xz": lzma.open}  # of compressed files, by suffix
DECOMPRESSION_ERRORS = (EOFError, gzip.BadGzipFile, lzma.LZMAError, zlib.error)
READ_ERRORS = (OSError, *DECOMPRESSION_ERRORS)
JSON_TYPES = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}


class TextFiles:
    """Base of the readers of text files.

    Args:
        paths: one file or more.

    Raises:
        DataError: there is none.

    Example:
        >>> str(TextFiles(["a.en", "a.de"]))
        'a.en and a.de'
    """

    def __init__(self, paths: str | PathLike[str] | Paths) -> None:
        self.paths = [Path(path) for path in ([paths] if isinstance(paths, str | PathLike) else paths)]
        if not self.paths:
            raise DataError("Text comes from one file or more, but no file is named.")

    def __str__(self) -> str:
        return " and ".join(map(str, self.paths))


def file_type(path: Path) -> str:
    """Return the suffix that names the format, without a compression suffix.

    Args:
        path: path of a file; it need not exist.

    Returns:
        The suffix in lower case, such as `.tsv` for `a.tsv` and for `a.tsv.gz`.

    Example:
        >>> file_type(Path("a.tsv.gz"))
        '.tsv'
    """
    return (path.with_suffix("") if path.suffix.lower() in OPENERS else path).suffix.lower()


def read_lines(path: Path) -> Iterator[str]:
    """Read a UTF-8 text file line by line, without line ends; only LF and CR LF end a line.

    Other characters that Unicode classifies as line ends (U+2028, U+0085, form feed) stay part of the line: splitting
    there would shift all following pairs of parallel text.

    Args:
        path: a text file, plain or compressed (`.gz`, `.xz`).

    Returns:
        An iterator over the lines.

    Raises:
        DataError: the file is missing, empty, damaged or not UTF-8; the message names file and line.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.txt")
        >>> _ = path.write_text("one\\ntwo\\n")
        >>> list(read_lines(path))
        ['one', 'two']
    """
    line_number = 0
    try:
        with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            for line_number, raw in enumerate(iter(lambda: file.readline(MAX_LINE_BYTES), b""), 1):
                if len(raw) == MAX_LINE_BYTES:
                    problem = f"it is longer than {MAX_LINE_BYTES:,} bytes; break it into several lines"
                    raise line_error(path, line_number, problem)
                yield _decode_line(raw.removeprefix(BOM) if line_number == 1 else raw, path, line_number)
    except READ_ERRORS as error:
        raise describe_read_error(error, path, line_number) from None
    if line_number == 0:
        raise DataError(f"{path} is empty: there is nothing to read in it.")


def check_readable(path: Path) -> None:
    """Raise the `DataError` of `read_lines` for a missing or unreadable file, without reading it.

    Args:
        path: path of a file.

    Raises:
        DataError: the file cannot be opened.

    Example:
        >>> check_readable(Path(__file__))
    """
    try:
        open(path, "rb").close()
    except OSError as error:
        raise describe_read_error(error, path, 0) from None


def count_lines(path: Path) -> int:
    """Count the lines of a file without decoding them; a last line without a line end counts.

    Args:
        path: a text file, plain or compressed.

    Returns:
        The number of lines.

    Raises:
        DataError: the file cannot be opened or decompressed.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.txt")
        >>> _ = path.write_text("one\\ntwo")
        >>> count_lines(path)
        2
    """
    num_ends, last = 0, b"\n"
    try:
        with OPENERS.get(path.suffix.lower(), open)(path, "rb") as file:
            while block := file.read(BLOCK_SIZE):
                num_ends += block.count(b"\n")
                last = block[-1:]
    except READ_ERRORS as error:
        raise describe_read_error(error, path, num_ends) from None
    return num_ends + (last != b"\n")


def describe_read_error(error: Exception, path: Path, line_number: int) -> DataError:
    """Turn an error of the operating system or of a decompressor into a `DataError` with a remedy.

    Args:
        error: one of `READ_ERRORS`.
        path: the file that was read.
        line_number: the last line that was read, 0 if none.

    Returns:
        The error to raise.

    Example:
        >>> print(describe_read_error(PermissionError(), Path("a.txt"), 0))
        a.txt cannot be read: permission denied; check its permissions.
    """
    if isinstance(error, FileNotFoundError):
        return DataError(f"There is no file {path}{_suggest_names(path)}")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder; name a file in it.")
    if isinstance(error, PermissionError):
        return DataError(f"{path} cannot be read: permission denied; check its permissions.")
    after = f" after line {line_number}" if line_number else ""
    if isinstance(error, EOFError):
        return DataError(f"{path} breaks off{after}; the copy is incomplete: get it again.")
    if path.suffix.lower() in OPENERS:
        return DataError(f"{path} cannot be decompressed{after} ({error}); get it again, or correct its name.")
    return DataError(f"{path} cannot be read{after}: {error}.")


def json_type_name(value: object) -> str:
    """Name the JSON type of a value, for error messages.

    Args:
        value: a value returned by `json.loads`.

    Returns:
        The type in words.

    Example:
        >>> json_type_name(7), json_type_name(None), json_type_name(["a"])
        ('a number', 'null', 'a list')
    """
    return JSON_TYPES.get(type(value), "null")


def parse_json(path: Path, line_number: int, line: str) -> Any:
    """Parse a line of a .jsonl file.

    Args:
        path: the file, for messages.
        line_number: the line number, for messages.
        line: the line.

    Returns:
        The value.

    Raises:
        DataError: the line is not JSON.

    Example:
        >>> parse_json(Path("a.jsonl"), 1, "[1]")
        [1]
    """
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise line_error(path, line_number, f"not JSON ({error}); each line must be one object") from None


def parse_record(path: Path, line_number: int, line: str) -> dict[str, Any]:
    """Parse a line of a .jsonl file that must be an object.

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
    record = parse_json(path, line_number, line)
    if not isinstance(record, dict):
        raise line_error(path, line_number, f"{json_type_name(record)}, but each line must be one object")
    return record


def get_value(record: Mapping[str, Any], key: str, path: Path, line_number: int) -> Any:
    """Return a value of an object of a .jsonl file.

    Args:
        record: the object.
        key: the key of the value.
        path: the file, for messages.
        line_number: the line number, for messages.

    Returns:
        The value.

    Raises:
        DataError: the object has no such key.

    Example:
        >>> get_value({"label": 1}, "label", Path("a.jsonl"), 1)
        1
    """
    if key not in record:
        available = ", ".join(map(repr, list(record)[:8])) or "nothing"
        raise line_error(path, line_number, f"no key {key!r}, only {available}; choose existing keys")
    return record[key]


def get_text(record: Mapping[str, Any], key: str, path: Path, line_number: int) -> str:
    """Return a value of an object of a .jsonl file that must be text.

    Args:
        record: the object.
        key: the key of the value.
        path: the file, for messages.
        line_number: the line number, for messages.

    Returns:
        The text.

    Raises:
        DataError: the object has no such key, or the value is not text.

    Example:
        >>> get_text({"source": "a"}, "source", Path("a.jsonl"), 1)
        'a'
    """
    text = get_value(record, key, path, line_number)
    if not isinstance(text, str):
        raise line_error(path, line_number, f"{key!r} is {json_type_name(text)}, but must be text")
    check_characters(text, repr(key), path, line_number)
    return text


def select_columns(fields: Sequence[str], columns: Sequence[int], path: Path, line_number: int) -> list[str]:
    """Return some columns of a line of a table.

    Args:
        fields: all columns of the line.
        columns: the numbers of the columns, counted from 0.
        path: the file, for messages.
        line_number: the line number, for messages.

    Returns:
        The columns.

    Raises:
        DataError: the line has too few columns.

    Example:
        >>> select_columns(["a", "b", "c"], (2, 0), Path("a.tsv"), 1)
        ['c', 'a']
    """
    if max(columns) >= len(fields):
        problem = f"{len(fields)} column{'s' * (len(fields) > 1)}, but column {max(columns)} is required"
        raise line_error(path, line_number, f"{problem} (counted from 0); correct the line or choose other columns")
    return [fields[i] for i in columns]


def check_characters(text: str, name: str, path: Path, line_number: int) -> None:
    """Raise DataError if a text has characters that are not text.

    Args:
        text: the text.
        name: the name of the text, for messages.
        path: the file, for messages.
        line_number: the line number, for messages.

    Example:
        >>> check_characters("a", "the text", Path("a.jsonl"), 1)
    """
    if "\0" in text or any("\ud800" <= c <= "\udfff" for c in text):
        raise line_error(path, line_number, f"{name} has a NUL or half a surrogate pair, which is not text; correct it")


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


def _decode_line(raw: bytes, path: Path, line_number: int) -> str:
    has_end, raw = raw.endswith(b"\n"), raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        location = f"{path}, line {line_number}, byte {error.start + 1} of the line"
        problem = f"{raw[error.start]:#04x} is not UTF-8"
        raise DataError(f"{location}: {problem}; convert the file first, for instance with iconv.") from None
    if "\0" in text:
        message = "a NUL character; a UTF-16 or binary file, perhaps? Convert it to UTF-8 text first."
        raise DataError(f"{path}, line {line_number}: {message}")
    if line_number == 1 and not has_end and "\r" in text:  # the whole file, without a LF
        raise DataError(f"{path}: its lines end with CR only; convert them to LF first, for instance with tr.")
    return text


def _suggest_names(path: Path) -> str:
    if not path.parent.is_dir():
        return f": there is no folder {path.parent}."
    names = sorted(other.name for other in path.parent.iterdir())
    near = closest(path.name, names) or names[:3]
    return f"; the folder has {', '.join(near)}." if near else "; its folder is empty."
