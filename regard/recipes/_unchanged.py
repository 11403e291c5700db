"""The files that a run learns from: whether they are still what they were when it began."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from regard.data.readers import Parallel
from regard.errors import DataError
from regard.recipes._task import Recipe

PART = 1 << 20  # bytes read in one go
PARTS = 64  # of a file at most: the whole of most, and little of one that is larger than memory


def fingerprint(path: Path) -> dict[str, Any]:
    """The size of a file and a checksum: of all of it, or of parts spread evenly from its first byte to its last."""
    size = path.stat().st_size
    last = max(size - PART, 0)
    places = range(0, size, PART) if size <= PART * PARTS else (last * i // (PARTS - 1) for i in range(PARTS))
    found = sha256()
    with path.open("rb") as file:
        for place in places:
            file.seek(place)
            found.update(file.read(PART))
    return {"bytes": size, "sha256": found.hexdigest()}


def fingerprints(found: Recipe, settings: Any) -> dict[str, dict[str, Any]]:
    """Those of all files to train on and to validate with; nothing for what is made on the fly."""
    paths = {Path(name) for part in ("train", "valid") for name in getattr(settings, part, ())}
    if getattr(settings, "data", None) is not None:
        material = found.material(settings)
        parts = (getattr(material, part, None) for part in ("train", "valid"))
        paths |= {path for part in parts if isinstance(part, Parallel) for path in part.paths}
    return {str(path): fingerprint(path) for path in sorted(paths) if path.is_file()}


def check_unchanged(kept: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to go on with another text; that a file is gone, its reader says."""
    for name, before in kept.items():
        if (path := Path(name)).is_file() and fingerprint(path) != before:
            raise DataError(
                f"{name} has changed since the run began, so it could not go on as the same training; bring the file"
                " back as it was, or begin a new run (--init-from takes these weights)"
            )
