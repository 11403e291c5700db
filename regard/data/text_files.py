"""The lines of a text file, plain or compressed, or one sentence about what is wrong with it.

What JSON calls its values.
"""

from __future__ import annotations

import gzip
import lzma
import zlib
from collections.abc import Iterator
from difflib import get_close_matches
from io import BufferedIOBase
from pathlib import Path

from regard.errors import DataError

BOM = b"\xef\xbb\xbf"


BLOCK_SIZE = 1 << 20


COMPRESSED_SUFFIXES = (".gz", ".xz")


READ_ERRORS = (EOFError, OSError, lzma.LZMAError, zlib.error)


def file_type(path: Path) -> str:
    """The suffix that tells the format: `.tsv` for a.tsv and for a.tsv.gz."""
    return (path.with_suffix("") if path.suffix.lower() in COMPRESSED_SUFFIXES else path).suffix.lower()


def read_lines(path: Path) -> Iterator[str]:
    """Line after line as text, without line ends; only LF and CR LF end a line.

    Other characters that Unicode calls line ends (U+2028, U+0085, form feed) belong to the sentence they stand
    in: splitting there would shift all pairs that follow.
    """
    number = 0
    try:
        with _open(path) as file:
            for number, raw in enumerate(file, 1):
                yield _decode_line(raw.removeprefix(BOM) if number == 1 else raw, path, number)
    except READ_ERRORS as error:
        raise describe_read_error(error, path, number) from None
    if number == 0:
        raise DataError(f"{path} is empty: there is nothing to read in it.")


def check_readable(path: Path) -> None:
    """Say what `lines` would say of a file that is not there or cannot be opened, before anything is read."""
    try:
        open(path, "rb").close()
    except OSError as error:
        raise describe_read_error(error, path, 0) from None


def count_lines(path: Path) -> int:
    """How many lines there are, without looking into them; a last one without a line end counts."""
    ends, last = 0, b"\n"
    try:
        with _open(path) as file:
            while block := file.read(BLOCK_SIZE):
                ends += block.count(b"\n")
                last = block[-1:]
    except READ_ERRORS as error:
        raise describe_read_error(error, path, ends) from None
    return ends + (last != b"\n")


def _open(path: Path) -> BufferedIOBase:
    if path.suffix.lower() == ".gz":
        return gzip.open(path, "rb")
    return lzma.open(path, "rb") if path.suffix.lower() == ".xz" else open(path, "rb")


def _decode_line(raw: bytes, path: Path, line_number: int) -> str:
    ended, raw = raw.endswith(b"\n"), raw.removesuffix(b"\n").removesuffix(b"\r")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        place = f"{path}, line {line_number}, byte {error.start + 1} of the line"
        wrong = f"{raw[error.start]:#04x} is not UTF-8"
        raise DataError(f"{place}: {wrong}; convert the file first, for instance with iconv.") from None
    if "\0" in text:
        sentence = "a NUL character; a UTF-16 or binary file, perhaps? Convert it to UTF-8 text first."
        raise DataError(f"{path}, line {line_number}: {sentence}")
    if line_number == 1 and not ended and "\r" in text:  # all of the file, and no LF in it
        raise DataError(
            f"{path}: its lines end with CR only; convert them to LF first, for instance with tr."
        )
    return text


def describe_read_error(error: Exception, path: Path, line_number: int) -> DataError:
    if isinstance(error, FileNotFoundError):
        return DataError(f"There is no file {path}{_suggest_names(path)}")
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder; name a file in it.")
    if isinstance(error, PermissionError):
        return DataError(f"{path} may not be read; look at its permissions.")
    after = f" after line {line_number}" if line_number else ""
    if isinstance(error, EOFError):
        return DataError(f"{path} breaks off{after}; it was not copied whole: get it again.")
    if path.suffix.lower() in COMPRESSED_SUFFIXES:
        return DataError(f"{path} cannot be unpacked{after} ({error}); get it again, or mend its name.")
    return DataError(f"{path} cannot be read{after}: {error}.")


def _suggest_names(path: Path) -> str:
    if not path.parent.is_dir():
        return f": there is no folder {path.parent}."
    names = sorted(other.name for other in path.parent.iterdir())
    near = get_close_matches(path.name, names, n=3, cutoff=0.5) or names[:3]
    return f"; the folder has {', '.join(near)}." if near else "; its folder is empty."


JSON_TYPE_NAMES = {
    bool: "true or false",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}


def json_type_name(value: object) -> str:
    """A value of JSON in words, for a sentence about one that is out of place.

    >>> json_type_name(7), json_type_name(None), json_type_name(["a"])
    ('a number', 'null', 'a list')
    """
    return JSON_TYPE_NAMES.get(type(value), "null")
