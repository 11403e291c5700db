"""run.json: the task, recipe and config of a run, and the fingerprints of the files that it was trained on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from regard._version import __version__
from regard.errors import DataError, RunFormatError
from regard.tasks.registry import Recipe
from regard.training import RunFolder, TrainingConfig

__all__ = [
    "EXPORT_FILE",
    "check_files_unchanged",
    "fingerprint_file",
    "is_export",
    "make_record",
    "open_record",
    "read_record",
]

FORMAT = 2  # of run.json
EXPORT_FILE = "export.json"  # the record of an exported model
CHUNK_BYTES = 1 << 20  # bytes that are read at once for a fingerprint
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
        "format": FORMAT,
        "regard_version": __version__,
        "task": recipe.task,
        "recipe": recipe.name,
        "config": config.to_dict(),
        "init_from": init_from,
        "files": {str(path): fingerprint_file(path) for path in sorted(set(files)) if path.is_file()},
    }


def read_record(run: RunFolder) -> dict[str, Any]:
    """run.json, if this version of regard can read it."""
    record = run.read_record()
    if record.get("format") == 1:
        raise RunFormatError(f"{run.folder} was written by regard 0.1; train it again, or use regard 0.1")
    if record.get("format", FORMAT) != FORMAT:
        raise RunFormatError(
            f"{run.record_path} has format {record['format']!r}, but this regard reads {FORMAT}; install a newer regard"
        )
    kinds = {"format": int, "task": str, "recipe": str, "config": dict}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        raise RunFormatError(f"{run.record_path} is damaged: it must have a task, a recipe and a config; copy it again")
    return record


def is_export(folder: str | Path) -> bool:
    """Whether a folder is an exported model."""
    return (Path(folder) / EXPORT_FILE).is_file()


def open_record(folder: str | Path) -> dict[str, Any]:
    """The record of a run, or of an exported model, whose files are compared with their checksums.

    Args:
        folder: of the run or of the exported model
    """
    if is_export(folder):
        from regard import export  # it imports torch, and this package

        return export.read_record(folder)
    return read_record(RunFolder.open(folder))


def fingerprint_file(path: Path) -> dict[str, Any]:
    """The size of a file and a checksum of all of it, or of chunks spread evenly from its first byte to its last."""
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
    """Refuse to resume with other data; that a file is missing is reported by its reader."""
    for name, before in fingerprints.items():
        if (path := Path(name)).is_file() and fingerprint_file(path) != before:
            raise DataError(
                f"{name} has changed since the run began, so it cannot be resumed as the same training; restore the"
                " file, or begin a new run (--init-from takes these weights)"
            )
