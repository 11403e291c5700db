"""Crash-safe checkpoints, and weights as safetensors files."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor, nn

from regard._version import __version__
from regard.errors import CheckpointCorruptError, RunFormatError, RunNotFoundError, UsageError, WeightsMismatchError
from regard.files import sha256_of_bytes, storage_errors, sync_folder, write_and_sync, write_atomic

__all__ = [
    "Checkpoint",
    "average_weights",
    "from_safetensors",
    "list_steps",
    "load",
    "load_into",
    "load_latest",
    "load_weights",
    "remove_unfinished",
    "save",
    "save_weights",
    "to_safetensors",
]

FORMAT = 2
MODEL_FILE, TRAINING_FILE, STATE_FILE = "model.safetensors", "training.safetensors", "state.json"
TEMP_PREFIX = ".unfinished-"


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


def save(
    folder: Path, model: Mapping[str, Tensor], training: Mapping[str, Tensor], state: Mapping[str, Any], keep: int = 3
) -> Path:
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
    manifest = _manifest(files, dict(state))
    with storage_errors(f"the checkpoint {path}"):
        folder.mkdir(parents=True, exist_ok=True)
        if _has_same_files(path, manifest["files"]):
            write_atomic(path / STATE_FILE, _to_json(manifest))
        else:
            _write_folder(path, files, manifest)
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
        manifest = json.loads((path / STATE_FILE).read_bytes())
        if sha256_of_bytes(_canonical_json(manifest)) != manifest["sha256"]:
            raise CheckpointCorruptError(f"{STATE_FILE} was altered")
        _check_format(path, manifest["format"])
        model, training = (
            from_safetensors(_read_verified(path / name, manifest["files"][name]))
            for name in (MODEL_FILE, TRAINING_FILE)
        )
    except (CheckpointCorruptError, RunFormatError):
        raise
    except FileNotFoundError as error:
        raise CheckpointCorruptError(f"{Path(error.filename).name} is missing") from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CheckpointCorruptError(f"it cannot be read: {reason}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
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


def list_steps(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by step, damaged ones included."""
    paths = (path for path in folder.glob("step-*") if path.name[5:].isdigit())
    return {int(path.name[5:]): path for path in sorted(paths)}


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process did not finish."""
    for path in folder.glob(TEMP_PREFIX + "*"):
        shutil.rmtree(path, ignore_errors=True)


def _check_format(path: Path, number: int) -> None:
    if number < FORMAT:
        raise RunFormatError(f"{path} was written by regard 0.1; train it again, or use regard 0.1")
    if number > FORMAT:
        raise RunFormatError(
            f"{path} has format {number}, but regard {__version__} reads format {FORMAT}; update regard"
        )


def _manifest(files: dict[str, bytes], state: dict[str, Any]) -> dict[str, Any]:
    sizes = {name: {"bytes": len(data), "sha256": sha256_of_bytes(data)} for name, data in files.items()}
    manifest = {"format": FORMAT, "regard_version": __version__, "state": state, "files": sizes}
    manifest = json.loads(json.dumps(manifest))  # as it will be read
    manifest["sha256"] = sha256_of_bytes(_canonical_json(manifest))
    return manifest


def _has_same_files(path: Path, files: dict[str, dict[str, Any]]) -> bool:
    """Whether a checkpoint has these tensors, undamaged."""
    try:
        for name, expected in files.items():
            _read_verified(path / name, expected)
    except (CheckpointCorruptError, OSError):
        return False
    return True


def _write_folder(path: Path, files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    temporary = _make_temp_folder(path.parent)
    try:
        for name, content in {**files, STATE_FILE: _to_json(manifest)}.items():
            write_and_sync(temporary / name, content)
        sync_folder(temporary)
        if path.exists():
            _remove(path)  # it is damaged: the run was not resumed from it
        os.rename(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_folder(path.parent)


def _to_json(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1).encode()


def _read_verified(path: Path, expected: dict[str, Any]) -> bytes:
    content = path.read_bytes()
    if len(content) != expected["bytes"]:
        raise CheckpointCorruptError(f"{path.name} has {len(content):,} bytes instead of {expected['bytes']:,}")
    if sha256_of_bytes(content) != expected["sha256"]:
        raise CheckpointCorruptError(f"{path.name} was altered: its checksum differs")
    return content


def _canonical_json(manifest: dict[str, Any]) -> bytes:
    return json.dumps({k: v for k, v in manifest.items() if k != "sha256"}, sort_keys=True).encode()


def _prune(folder: Path, saved: Path, keep: int) -> None:
    """Keep the last few up to the one just saved. A later one is damaged, or the run would have resumed from it."""
    paths = list(list_steps(folder).values())
    last = paths.index(saved) + 1
    for path in paths[: max(last - keep, 0)] + paths[last:]:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a checkpoint, never leaving a part of it under its name."""
    temporary = _make_temp_folder(path.parent)
    os.rename(path, temporary / path.name)
    shutil.rmtree(temporary, ignore_errors=True)


def _make_temp_folder(folder: Path) -> Path:
    (path := folder / f"{TEMP_PREFIX}{os.getpid()}-{time.monotonic_ns()}").mkdir()
    return path


def to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Named tensors as safetensors. A tensor with several names (tied weights) is stored once."""
    stored: dict[str, Tensor] = {}
    names: dict[tuple[object, ...], str] = {}
    shared: dict[str, str] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        key = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and key in names:
            shared[name] = names[key]
            continue
        names[key] = name
        stored[name] = tensor.cpu().contiguous()
    if len({tensor.untyped_storage().data_ptr() for tensor in stored.values()}) < len(stored):
        stored = {name: tensor.clone() for name, tensor in stored.items()}  # views of one storage, or empty ones
    return safetensors.torch.save(stored, {"shared": json.dumps(shared)})


def from_safetensors(content: bytes) -> dict[str, Tensor]:
    """The tensors of `to_safetensors`; names that shared a tensor share one again."""
    tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    length = int.from_bytes(content[:8], "little")
    metadata = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    for name, same in json.loads(metadata.get("shared", "{}")).items():
        tensors[name] = tensors[same]
    return tensors


def save_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write weights to a safetensors file; a reader finds the old file or the new one.

    Args:
        tensors: usually `model.state_dict()`
        path: the file

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "weights.safetensors")
        >>> save_weights(nn.Linear(2, 1).state_dict(), path)
        >>> sorted(load_weights(path))
        ['bias', 'weight']
    """
    write_atomic(path, to_safetensors(tensors))


def load_weights(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """Read a safetensors file.

    Args:
        path: the file
        prefix: return only the tensors below this name, without it

    Returns:
        The tensors by name.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "weights.safetensors")
        >>> save_weights({"encoder.weight": torch.ones(2), "bias": torch.ones(1)}, path)
        >>> load_weights(path, prefix="encoder")
        {'weight': tensor([1., 1.])}
    """
    try:
        tensors = from_safetensors(path.read_bytes())
    except FileNotFoundError:
        raise RunNotFoundError(f"no weights in {path}: no such file") from None
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointCorruptError(f"{path} is damaged or not a safetensors file: {error}") from None
    if not prefix:
        return tensors
    start = prefix + "."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Load weights into a module.

    Args:
        module: its state dict must have the same names and shapes
        tensors: the weights
        origin: where they come from, for the error message

    Raises:
        WeightsMismatchError: names or shapes differ

    Example:
        >>> model = nn.Linear(2, 1)
        >>> load_into(model, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, "a file")
        >>> model.weight.tolist()
        [[1.0, 1.0]]
    """
    expected = module.state_dict()
    problems = [
        *(f"{name} is missing there" for name in expected if name not in tensors),
        *(f"{name} is not in this model" for name in tensors if name not in expected),
        *(
            f"{name} is {_format_shape(tensors[name])} there and {_format_shape(expected[name])} here"
            for name in expected
            if name in tensors and tensors[name].shape != expected[name].shape
        ),
    ]
    if problems:
        more = f", and {len(problems) - 5} more" if len(problems) > 5 else ""
        raise WeightsMismatchError(f"the weights of {origin} do not fit: {'; '.join(problems[:5])}{more}")
    module.load_state_dict(dict(tensors))


def average_weights(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several files, summed in float64.

    Tensors of integers (counters) are taken from the last file.

    Args:
        paths: safetensors files with the same names and shapes

    Returns:
        The averaged tensors by name.

    Reference: Polyak and Juditsky (1992): the average of the last weights is often better than each of them.

    Example:
        >>> import tempfile
        >>> paths = [Path(tempfile.mkdtemp(), "weights.safetensors") for _ in range(2)]
        >>> for value, path in enumerate(paths):
        ...     save_weights({"weight": torch.full((2,), float(value))}, path)
        >>> average_weights(paths)
        {'weight': tensor([0.5000, 0.5000])}
    """
    files = list(paths)
    if not files:
        raise UsageError("average_weights: no files")
    last = load_weights(files[-1])
    means = {name: tensor.double() for name, tensor in last.items() if tensor.is_floating_point()}
    for path in files[:-1]:
        other = load_weights(path)
        if {n: t.shape for n, t in other.items()} != {n: t.shape for n, t in last.items()}:
            raise WeightsMismatchError(f"{path} and {files[-1]} cannot be averaged: their names or shapes differ")
        means = {name: mean + other[name] for name, mean in means.items()}
    shared: dict[int, Tensor] = {}  # names that share a tensor still do afterwards
    for name, mean in means.items():
        shared.setdefault(id(last[name]), (mean / len(files)).to(last[name].dtype))
    return {name: shared.get(id(tensor), tensor) for name, tensor in last.items()}


def _format_shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"
