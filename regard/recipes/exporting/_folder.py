"""The folder of an exported model: what is in it, written as a whole and checked before it is used."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard._version import __version__
from regard.errors import ExportCorruptError, RunExistsError, RunFormatError, RunNotFoundError
from regard.files import sha256_of_file, storage_errors, sync_folder, write_json

FORMAT = 1
RECORD, CARD = "export.json", "README.md"  # the card is for people, who may write on in it


def is_exported(folder: str | Path) -> bool:
    return (Path(folder) / RECORD).is_file()


@contextlib.contextmanager
def made(folder: Path, record: dict[str, Any]) -> Iterator[Path]:
    """A new folder to write into; with its record it gets its name at the end, and not at all if that fails."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise RunExistsError(f"{folder} is there already; choose an empty or a new folder")
    with storage_errors(str(folder)):
        folder = folder.resolve()
        folder.parent.mkdir(parents=True, exist_ok=True)
        part = folder.parent / f".{folder.name}-{os.getpid()}.part"
        part.mkdir()
        try:
            yield part
            files = {path.name: sha256_of_file(path) for path in sorted(part.iterdir()) if path.name != CARD}
            write_json(part / RECORD, {"format": FORMAT, "regard": __version__, **record, "files": files})
            if folder.exists():
                folder.rmdir()  # it is empty
            os.replace(part, folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(part, ignore_errors=True)


def record_of(folder: str | Path) -> dict[str, Any]:
    """The record of an exported model, after every file was found as it was written."""
    folder = Path(folder)
    path = folder / RECORD
    try:
        record = json.loads(path.read_bytes())
        if record["format"] != FORMAT:
            raise RunFormatError(
                f"{path} has format {record['format']!r}, but this regard reads {FORMAT}; install a newer regard"
            )
        files = {str(name): str(value) for name, value in record["files"].items()}
        if not all(isinstance(record[key], str) for key in ("to", "recipe")):
            raise TypeError("to and recipe should be text")
        dict(record["settings"])
    except FileNotFoundError:
        raise RunNotFoundError(f"there is no exported model in {folder}: {RECORD} is missing") from None
    except RunFormatError:
        raise
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ExportCorruptError(
            f"{path} is damaged ({type(error).__name__}); export the model again"
        ) from None
    for name, value in files.items():
        _check(folder, name, value)
    return dict(record)


def _check(folder: Path, name: str, expected: str) -> None:
    if Path(name).name != name:  # no record may point out of its folder
        raise ExportCorruptError(
            f"{folder / RECORD} names a file outside of its folder; export the model again"
        )
    try:
        found = sha256_of_file(folder / name)
    except OSError:
        raise ExportCorruptError(
            f"{folder / name} is missing; copy the whole folder, or export again"
        ) from None
    if found != expected:
        raise ExportCorruptError(
            f"{folder / name} has changed since it was exported; copy it or export it again"
        )
