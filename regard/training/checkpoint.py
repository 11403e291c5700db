"""Crash-safe checkpoints."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from torch import Tensor

from regard._version import __version__
from regard.errors import CheckpointCorruptError, RunFormatError
from regard.files import (
    add_checksum,
    read_json,
    replace_path,
    storage_errors,
    sync_folder,
    write_and_sync,
    write_atomic,
)
from regard.training.weights import from_safetensors, to_safetensors

__all__ = ["Checkpoint", "list_steps", "load", "load_latest", "load_latest_state", "remove_unfinished", "save"]

StateDict = Mapping[str, Tensor]
FORMAT = 2
MODEL_FILE, TRAINING_FILE, STATE_FILE = "model.safetensors", "training.safetensors", "state.json"
TEMP_PREFIX = ".unfinished-"
_COUNTER = count()


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint.

    Args:
        path: its folder
        model: weights of the model
        training: tensors of the optimizer (`optimizer/...`) and of the loss function (`loss/...`)
        state: everything else, as JSON
    """

    path: Path
    model: dict[str, Tensor]
    training: dict[str, Tensor]
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """The step at which it was written."""
        return int(self.state["step"])


def save(folder: Path, model: StateDict, training: StateDict, state: Mapping[str, Any], keep: int = 3) -> Path:
    """Write the checkpoint of state["step"], then remove old ones.

    Everything is written to a folder with a temporary name and synced to the disk, then the folder is renamed: a crash
    leaves the earlier checkpoints unchanged. If there is a checkpoint of this step with the same tensors, only its
    state is replaced, for example after a validation.

    Args:
        folder: the folder of all checkpoints
        model, training, state: see `Checkpoint`
        keep: number of checkpoints that remain

    Returns:
        The folder of the new checkpoint.
    """
    path = folder / f"step-{state['step']:08d}"
    files = {MODEL_FILE: to_safetensors(model), TRAINING_FILE: to_safetensors(training)}
    sizes = {name: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for name, data in files.items()}
    manifest = add_checksum({"format": FORMAT, "regard_version": __version__, "state": dict(state), "files": sizes})
    state_content = json.dumps(manifest, indent=1).encode()
    with storage_errors(f"the checkpoint {path}"):
        folder.mkdir(parents=True, exist_ok=True)
        if _has_same_files(path, sizes):
            write_atomic(path / STATE_FILE, state_content)
        else:
            _write_folder(path, {**files, STATE_FILE: state_content})
    _prune(folder, path, keep)
    return path


def load(path: Path) -> Checkpoint:
    """Read a checkpoint and verify its checksums.

    Args:
        path: its folder

    Raises:
        CheckpointCorruptError: a file is missing or differs from what was written
        RunFormatError: it was written by another version
    """
    try:
        manifest = read_json(path / STATE_FILE, needs_checksum=True)
        if (number := manifest["format"]) < FORMAT:
            raise RunFormatError(f"{path} was written by regard 0.1; train it again, or use regard 0.1")
        if number > FORMAT:
            supported = f"regard {__version__} reads format {FORMAT}"
            raise RunFormatError(f"{path} has format {number}, but {supported}; update regard")
        files = {name: _read_verified(path / name, manifest["files"][name]) for name in (MODEL_FILE, TRAINING_FILE)}
        model, training = map(from_safetensors, files.values())
    except (CheckpointCorruptError, RunFormatError):
        raise
    except FileNotFoundError as error:
        raise CheckpointCorruptError(f"{Path(error.filename).name} is missing") from None
    except OSError as error:
        raise CheckpointCorruptError(f"it cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError, SafetensorError):
        raise CheckpointCorruptError(f"{STATE_FILE} is not what was written") from None
    return Checkpoint(path, model, training, manifest["state"])


def load_latest(folder: Path, log: Callable[[str], None] = lambda line: None) -> Checkpoint | None:
    """Load the latest checkpoint that is not damaged.

    Args:
        folder: the folder of all checkpoints
        log: receives a line for each damaged one

    Returns:
        The checkpoint, or None if there is none. If all are damaged, CheckpointCorruptError is raised.
    """
    problems = []
    for path in sorted(list_steps(folder).values(), reverse=True):
        try:
            return load(path)
        except CheckpointCorruptError as error:
            problems.append(f"{path.name}: {error}")
            log(f"checkpoint {path.name} is skipped: {error}")
    if problems:
        raise CheckpointCorruptError(f"no checkpoint in {folder} can be used ({'; '.join(problems)})")
    return None


def load_latest_state(folder: Path, log: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
    """The state of the latest checkpoint that is not damaged; empty if there is none.

    Args:
        folder: the folder of all checkpoints
        log: receives a line for each damaged one, and one more if all are damaged
    """
    try:
        latest = load_latest(folder, log)
    except CheckpointCorruptError as error:
        log(str(error))
        return {}
    return latest.state if latest else {}


def list_steps(folder: Path) -> dict[int, Path]:
    """List the checkpoints, or the weight files, in a folder by step, damaged ones included.

    Args:
        folder: the folder of checkpoints
    """
    numbers = {path: path.name[5:].removesuffix(".safetensors") for path in sorted(folder.glob("step-*"))}
    return {int(number): path for path, number in numbers.items() if number.isdigit()}


def remove_unfinished(folder: Path) -> None:
    """Remove checkpoints that a killed process did not finish.

    Args:
        folder: the folder of checkpoints
    """
    for path in folder.glob(TEMP_PREFIX + "*"):
        shutil.rmtree(path, ignore_errors=True)


def _has_same_files(path: Path, files: dict[str, dict[str, Any]]) -> bool:
    """Whether a checkpoint has these tensors, undamaged."""
    try:
        for name, expected in files.items():
            _read_verified(path / name, expected)
    except (CheckpointCorruptError, OSError):
        return False
    return True


def _write_folder(path: Path, files: dict[str, bytes]) -> None:
    temporary = _make_temp_folder(path.parent)
    try:
        for name, content in files.items():
            write_and_sync(temporary / name, content)
        sync_folder(temporary)
        if path.exists():
            _remove(path)  # it is damaged: the run was not resumed from it
        replace_path(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)


def _read_verified(path: Path, expected: dict[str, Any]) -> bytes:
    content = path.read_bytes()
    if len(content) != expected["bytes"]:
        raise CheckpointCorruptError(f"{path.name} has {len(content):,} bytes instead of {expected['bytes']:,}")
    if hashlib.sha256(content).hexdigest() != expected["sha256"]:
        raise CheckpointCorruptError(f"{path.name} was altered: its checksum differs")
    return content


def _prune(folder: Path, saved: Path, keep: int) -> None:
    """Keep the last few up to the one just saved. A later one is damaged, or the run would have resumed from it."""
    paths = list(list_steps(folder).values())
    last = paths.index(saved) + 1
    for path in paths[: max(last - keep, 0)] + paths[last:]:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a checkpoint, never leaving a part of it under its name."""
    temporary = _make_temp_folder(path.parent)
    replace_path(path, temporary / path.name)
    shutil.rmtree(temporary, ignore_errors=True)


def _make_temp_folder(folder: Path) -> Path:
    # The counter, because the clock of Windows ticks every 16 milliseconds only.
    (path := folder / f"{TEMP_PREFIX}{os.getpid()}-{time.monotonic_ns()}-{next(_COUNTER)}").mkdir()
    return path
