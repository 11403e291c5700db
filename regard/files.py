"""Files that are complete or absent, JSON and checksums that are verified, and errors of the disk in one sentence."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from os import PathLike
from pathlib import Path, PureWindowsPath
from typing import Any

from regard.errors import RegardError, StorageError, UsageError

__all__ = [
    "DISK_FULL_ERRNOS", "EXPORT_FILE", "MAX_JSON_BYTES", "add_checksum", "check_files", "checksums_of",
    "is_checkpoint", "is_export", "read_file", "read_json", "replace_atomic", "replace_non_finite", "replace_path",
    "sha256_of_file", "storage_errors", "sync_folder", "write_and_sync", "write_atomic", "write_json", "write_output",
]  # fmt: skip

EXPORT_FILE = "export.json"  # the record of an exported model

DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # the disk, a quota, the size of one file
IN_USE_ERRORS = {5, 32}  # of Windows: access denied, sharing violation
REPLACE_SECONDS = 5.0
BLOCK = 1 << 20
MAX_JSON_BYTES = 64 << 20  # of a vocabulary, a record or a file of metrics; values in memory are ten times as large


@contextlib.contextmanager
def storage_errors(what: str) -> Iterator[None]:
    """Raise StorageError with one sentence for every error of the disk inside.

    Args:
        what: what is written, such as a path; the subject of the sentence

    Example:
        >>> with storage_errors("the table"):
        ...     raise OSError(28, "No space left on device")
        Traceback (most recent call last):
        regard.errors.StorageError: the table could not be written: no space left on device
    """
    try:
        yield
    except RegardError:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise StorageError(f"{what} could not be written: {reason}", errno=error.errno) from error


def write_and_sync(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk.

    Args:
        path: the file
        content: its bytes
    """
    with open(path, "wb", buffering=0) as file:
        remaining = memoryview(content)
        while remaining:  # one write takes 2 GB at most, and less when the disk is nearly full
            remaining = remaining[file.write(remaining) :]
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk.

    Args:
        folder: the folder
    """
    if os.name == "nt":
        return  # folders cannot be opened there
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems have it for files only
            raise
    finally:
        os.close(handle)


def replace_path(source: Path, target: Path) -> None:
    """Rename a file or a folder; a file with the new name is replaced.

    Windows refuses that while another program reads one of them, so it is tried for a few seconds there.

    Args:
        source: the old name
        target: the new name, in the same folder

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "new").write_text("b", encoding="utf-8"), (folder / "a").write_text("a", encoding="utf-8")
        >>> replace_path(folder / "new", folder / "a")
        >>> [path.name for path in folder.iterdir()], (folder / "a").read_text(encoding="utf-8")
        (['a'], 'b')
    """
    deadline = time.monotonic() + REPLACE_SECONDS
    while True:
        try:
            return os.replace(source, target)
        except PermissionError as error:
            if getattr(error, "winerror", None) not in IN_USE_ERRORS or time.monotonic() > deadline:
                raise
        time.sleep(0.02)


def write_atomic(path: Path, content: bytes) -> None:
    """Replace a file: a reader finds the old content or the new one, never a part of it.

    Args:
        path: the file
        content: its bytes

    Raises:
        StorageError: the disk is full or not writable
    """
    new = path.with_name(f".{path.name}.tmp")
    with storage_errors(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_and_sync(new, content)
            replace_path(new, path)
            sync_folder(path.parent)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


def replace_atomic(path: Path, temporary: Path, fill: Callable[[Path], object]) -> None:
    """Let `fill` write a temporary file, then give it its name.

    Args:
        path: the final name
        temporary: the name until it is complete; in the same folder
        fill: a function that writes the file with the name it is given
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    fill(temporary)
    replace_path(temporary, path)


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace a file by indented JSON.

    Args:
        path: the file
        content: data that JSON can represent

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_json(folder / "a.json", {"a": 1})
        >>> json.loads((folder / "a.json").read_text())
        {'a': 1}
    """
    write_atomic(path, (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode())


def read_file(path: Path, max_bytes: float = math.inf) -> bytes:
    """Read a regular file; a device or a named pipe could be without end.

    Args:
        path: the file
        max_bytes: the largest size

    Raises:
        ValueError: it is something else, or larger
        OSError: it cannot be read
    """
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("it is not a regular file")
    if status.st_size > max_bytes:
        raise ValueError(f"it has {status.st_size:,} bytes, and at most {max_bytes:,} are read")
    return path.read_bytes()


def read_json(path: Path, *, needs_checksum: bool = False) -> dict[str, Any]:
    """Read a JSON object, and verify the checksum of `add_checksum` if it has one.

    Args:
        path: the file
        needs_checksum: whether an object without a checksum is refused

    Raises:
        ValueError: it is no JSON object, too large or nested too deeply, or differs from what was written
        OSError: it cannot be read

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "a.json")
        >>> write_json(path, add_checksum({"steps": 1}))
        >>> read_json(path)
        {'steps': 1}
        >>> _ = path.write_text(path.read_text().replace(": 1", ": 2"))
        >>> read_json(path)
        Traceback (most recent call last):
        ValueError: its checksum differs; if it was changed on purpose, remove "sha256" from it
    """
    try:
        content = json.loads(read_file(path, MAX_JSON_BYTES))
        if not isinstance(content, dict):
            raise ValueError("it must be a JSON object")
        expected = content.pop("sha256", None)
        if expected != _checksum_of_json(content) and (needs_checksum or expected is not None):
            raise ValueError('its checksum differs; if it was changed on purpose, remove "sha256" from it')
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return content


def add_checksum(content: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON object with a checksum of all its values, which `read_json` verifies.

    Args:
        content: data that JSON can represent
    """
    content = {key: value for key, value in content.items() if key != "sha256"}
    plain = json.loads(json.dumps(content))  # as it will be read
    return {"sha256": _checksum_of_json(plain), **plain}


def _checksum_of_json(content: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def checksums_of(folder: Path) -> dict[str, str]:
    """The SHA-256 checksum of every file in a folder and its subfolders, by relative path.

    Args:
        folder: the folder
    """
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): sha256_of_file(path) for path in paths}


def check_files(folder: Path, checksums: Mapping[str, str], error_class: type[RegardError], remedy: str) -> None:
    """Compare files with their checksums.

    Args:
        folder: contains the files
        checksums: as `checksums_of` returns them
        error_class: of the error for a file that is missing or differs
        remedy: the end of its sentence
    """
    for name, expected in checksums.items():
        path = folder / name
        parts = PureWindowsPath(name)  # it knows the separators, drives and roots of all systems
        if not name or parts.anchor or ".." in parts.parts:
            raise error_class(f"the record of {folder} names a file outside of its folder; {remedy}")
        if not path.is_file():
            raise error_class(f"{path} is missing; {remedy}")
        if sha256_of_file(path) != expected:
            raise error_class(f"{path} has changed since it was written; {remedy}")


def replace_non_finite(value: Any) -> Any:
    """The same value for JSON, which has neither NaN nor infinity: null stands for them.

    Args:
        value: plain values, also nested

    Example:
        >>> replace_non_finite({"loss": float("nan"), "steps": (1, 2)})
        {'loss': None, 'steps': [1, 2]}
    """
    if isinstance(value, Mapping):
        return {key: replace_non_finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [replace_non_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def sha256_of_file(path: Path, open_file: Callable[..., Any] = open) -> str:
    """The SHA-256 checksum of a file.

    Args:
        path: the file
        open_file: how to open it, such as `gzip.open` for the checksum of what is compressed in it
    """
    digest = hashlib.sha256()
    with open_file(path, "rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()


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


def is_export(folder: str | Path) -> bool:
    """Whether a folder is an exported model.

    Args:
        folder: the folder

    Example:
        is_export("en-de-onnx")  # True
    """
    return (Path(folder) / EXPORT_FILE).is_file()


def is_checkpoint(folder: str | Path) -> bool:
    """Whether a folder is a checkpoint of Hugging Face: it has a config.json, and is neither a run nor an export.

    Args:
        folder: the folder

    Example:
        is_checkpoint("opus-mt-en-de")  # True
    """
    folder = Path(folder)
    return (folder / "config.json").is_file() and not (is_export(folder) or (folder / "run.json").is_file())
