"""Files that are either there as a whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # the disk, our share of it, or what a file may have


class CannotWrite(OSError):
    """The disk is full, or does not let us write."""

    def __str__(self) -> str:
        return self.strerror or super().__str__()  # the sentence, without "[Errno 28]"


@contextlib.contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn whatever the disk has to say into one sentence."""
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CannotWrite(error.errno, f"{what} could not be written: {reason}") from error


def write_synced(path: Path, content: bytes) -> None:
    """Write a file and wait until it is on the disk."""
    with open(path, "wb", buffering=0) as file:
        rest = memoryview(content)
        while rest:  # one write takes 2 GB at most, and less when the disk is nearly full
            rest = rest[file.write(rest) :]
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on the disk."""
    if os.name == "nt":
        return  # folders cannot be opened there
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Put a file in the place of another: whoever looks finds the old one or the new one."""
    new = path.with_name(f".{path.name}.tmp")
    with writing(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_synced(new, content)
            os.replace(new, path)
            sync_folder(path.parent)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Put JSON in the place of a file, readable by people."""
    write_whole(path, (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode())
