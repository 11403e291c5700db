"""What run.json says of a new run, and the fingerprints of the files that it is trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from regard._version import __version__
from regard.errors import DataError
from regard.tasks.registry import RECORD_FORMAT, Recipe
from regard.training import TrainingConfig

__all__ = ["check_files_unchanged", "fingerprint_file", "make_record"]

CHUNK_BYTES = 1 << 20  # read at once for a fingerprint
MAX_CHUNKS = 64  # of a file: all of most files, and a sample of one that is larger than memory


def make_record(
    recipe: Recipe, config: TrainingConfig, files: Iterable[Path], init_from: str | None = None
) -> dict[str, Any]:
    """The record of a new run.

    Args:
        recipe: of the run
        config: of the run
        files: what it is trained and validated on; empty for generated data
        init_from: the folder of the run whose weights it begins with
    """
    return {
        "format": RECORD_FORMAT,
        "regard_version": __version__,
        "task": recipe.task,
        "recipe": recipe.name,
        "config": config.to_dict(),
        "init_from": init_from,
        "files": {str(path): fingerprint_file(path) for path in sorted(set(files)) if path.is_file()},
    }


def fingerprint_file(path: Path) -> dict[str, Any]:
    """The size of a file and a checksum of all of it, or of chunks spread evenly from its first byte to its last.

    Args:
        path: the file
    """
    size = path.stat().st_size
    last = max(size - CHUNK_BYTES, 0)
    offsets: Iterable[int] = range(0, size, CHUNK_BYTES)
    if size > CHUNK_BYTES * MAX_CHUNKS:
        offsets = (last * i // (MAX_CHUNKS - 1) for i in range(MAX_CHUNKS))
    digest = sha256()
    with path.open("rb") as file:
        for offset in offsets:
            file.seek(offset)
            digest.update(file.read(CHUNK_BYTES))
    return {"bytes": size, "sha256": digest.hexdigest()}


def check_files_unchanged(fingerprints: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to resume with other data; that a file is missing is reported by its reader.

    Args:
        fingerprints: by file, as in run.json
    """
    for name, before in fingerprints.items():
        if (path := Path(name)).is_file() and fingerprint_file(path) != before:
            raise DataError(
                f"{name} has changed since the run began, so it cannot be resumed as the same training; restore the"
                " file, or begin a new run (--init-from takes these weights)"
            )
