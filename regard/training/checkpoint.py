"""Checkpoints: folders that are either there as a whole or not at all, and know when they were damaged."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard._version import __version__
from regard.errors import CheckpointCorruptError, RunFormatError
from regard.files import sha256_of_bytes, storage_errors, sync_folder, write_and_sync, write_atomic
from regard.training.weights import as_bytes, from_bytes

FORMAT = 1
MODEL, TRAINING, STATE = "model.safetensors", "training.safetensors", "state.json"
UNFINISHED = ".unfinished-"


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds: weights, the optimizer's tensors, and the rest as JSON."""

    path: Path
    model: dict[str, Tensor]
    training: dict[str, Tensor]
    state: dict[str, Any]

    @property
    def step(self) -> int:
        return int(self.state["step"])


def save(
    folder: Path,
    model: Mapping[str, Tensor],
    training: Mapping[str, Tensor],
    state: Mapping[str, Any],
    keep: int = 3,
) -> Path:
    """Write the checkpoint of state["step"], then remove those that are not kept.

    All is written to a folder with another name and waited for, then the folder is renamed: a crash leaves
    the earlier checkpoints as they were. Where this step has the same tensors already, only what else is known of
    it is put in its place, such as a validation that came after.
    """
    path = folder / f"step-{state['step']:08d}"
    files = {MODEL: as_bytes(model), TRAINING: as_bytes(training)}
    about = _about(files, dict(state))
    with storage_errors(f"the checkpoint {path}"):
        folder.mkdir(parents=True, exist_ok=True)
        if _holds(path, about["files"]):
            write_atomic(path / STATE, _readable(about))
        else:
            _put(path, files, about)
    _prune(folder, path, keep)
    return path


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; raise `CheckpointCorruptError` if one byte is not as it was written."""
    try:
        about = json.loads((path / STATE).read_bytes())
        if sha256_of_bytes(_canonical(about)) != about["sha256"]:
            raise CheckpointCorruptError(f"{STATE} was altered")
        if about["format"] > FORMAT:
            raise RunFormatError(
                f"{path} has format {about['format']}, and this regard ({__version__}) reads up to {FORMAT}: "
                "update regard"
            )
        model, training = (from_bytes(_checked(path / n, about["files"][n])) for n in (MODEL, TRAINING))
    except (CheckpointCorruptError, RunFormatError):
        raise
    except FileNotFoundError as error:
        raise CheckpointCorruptError(f"{Path(error.filename).name} is missing") from None
    except OSError as error:
        raise CheckpointCorruptError(f"it cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointCorruptError(f"{STATE} is not what was written") from None
    return Checkpoint(path, model, training, about["state"])


def newest(folder: Path, say: Callable[[str], None] = lambda line: None) -> Checkpoint | None:
    """The newest checkpoint that is whole; `say` hears why others were passed over. None if there is none."""
    wrong = []
    for path in sorted(steps(folder).values(), reverse=True):
        try:
            return load(path)
        except CheckpointCorruptError as error:
            wrong.append(f"{path.name}: {error}")
            say(f"checkpoint {path.name} is passed over: {error}")
    if wrong:
        raise CheckpointCorruptError(f"no checkpoint in {folder} can be used ({'; '.join(wrong)})")
    return None


def steps(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by step, whole or not."""
    found = (path for path in folder.glob("step-*") if path.name[5:].isdigit())
    return {int(path.name[5:]): path for path in sorted(found)}


def clean(folder: Path) -> None:
    """Remove what a killed process left unfinished."""
    for path in folder.glob(UNFINISHED + "*"):
        shutil.rmtree(path, ignore_errors=True)


def _about(files: dict[str, bytes], state: dict[str, Any]) -> dict[str, Any]:
    sizes = {
        name: {"bytes": len(content), "sha256": sha256_of_bytes(content)} for name, content in files.items()
    }
    about = {"format": FORMAT, "regard": __version__, "state": state, "files": sizes}
    about = json.loads(json.dumps(about))  # as it will be read
    about["sha256"] = sha256_of_bytes(_canonical(about))
    return about


def _holds(path: Path, files: dict[str, dict[str, Any]]) -> bool:
    """Whether a checkpoint has these very tensors, and undamaged."""
    try:
        for name, expected in files.items():
            _checked(path / name, expected)
    except (CheckpointCorruptError, OSError):
        return False
    return True


def _put(path: Path, files: dict[str, bytes], about: dict[str, Any]) -> None:
    unfinished = _unfinished(path.parent)
    try:
        for name, content in {**files, STATE: _readable(about)}.items():
            write_and_sync(unfinished / name, content)
        sync_folder(unfinished)
        if path.exists():
            _remove(path)  # a damaged one: whoever resumed did not start from it
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_folder(path.parent)


def _readable(about: dict[str, Any]) -> bytes:
    return json.dumps(about, indent=1).encode()


def _checked(path: Path, expected: dict[str, Any]) -> bytes:
    content = path.read_bytes()
    if len(content) != expected["bytes"]:
        raise CheckpointCorruptError(
            f"{path.name} has {len(content):,} bytes instead of {expected['bytes']:,}"
        )
    if sha256_of_bytes(content) != expected["sha256"]:
        raise CheckpointCorruptError(f"{path.name} was altered: its checksum is another")
    return content


def _canonical(about: dict[str, Any]) -> bytes:
    return json.dumps({k: v for k, v in about.items() if k != "sha256"}, sort_keys=True).encode()


def _prune(folder: Path, saved: Path, keep: int) -> None:
    """Keep the last few up to the one just saved. A later one is damaged, or we had started from it."""
    paths = list(steps(folder).values())
    last = paths.index(saved) + 1
    for path in paths[: max(last - keep, 0)] + paths[last:]:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a checkpoint, never leaving half of it under its name."""
    aside = _unfinished(path.parent)
    os.rename(path, aside / path.name)
    shutil.rmtree(aside, ignore_errors=True)


def _unfinished(folder: Path) -> Path:
    """A new folder that nobody takes for a checkpoint."""
    path = folder / f"{UNFINISHED}{os.getpid()}-{time.monotonic_ns()}"
    path.mkdir()
    return path
