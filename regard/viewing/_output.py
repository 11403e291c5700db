"""Writing of figures and pages to files, with one sentence for each error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from os import PathLike
from pathlib import Path

from regard.errors import StorageError, UsageError


def write_output(path: str | PathLike[str], kind: str, formats: Mapping[str, Callable[[], bytes]], hint: str) -> Path:
    """Write a figure or a page to a file.

    Args:
        path: the file
        kind: the subject of error messages, "figure" or "page"
        formats: for each supported suffix, a function that returns the content
        hint: the suffixes that the error message suggests

    Raises:
        UsageError: another suffix
        StorageError: the file cannot be written
    """
    path = Path(path)
    if path.suffix.lower() not in formats:
        raise UsageError(f"invalid file name {path.name!r}: a {kind} is saved as {hint}")
    content = formats[path.suffix.lower()]()
    try:
        path.write_bytes(content)
    except OSError as error:
        reason = error.strerror if path.parent.is_dir() else f"no folder {path.parent}"
        raise StorageError(f"cannot write the {kind} to {path}: {reason}", errno=error.errno) from None
    return path
