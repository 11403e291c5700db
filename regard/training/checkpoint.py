"""Weights as files: safetensors, which nobody has to trust.

Checkpoints: folders that are either there as a whole or not at all, and know when they were damaged.
"""

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
from regard.errors import (
    CheckpointCorruptError,
    RunFormatError,
    RunNotFoundError,
    UsageError,
    WeightsMismatchError,
)
from regard.files import sha256_of_bytes, storage_errors, sync_folder, write_and_sync, write_atomic


def to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Named tensors as safetensors. A tensor with several names (tied weights) is written once."""
    kept: dict[str, Tensor] = {}
    names: dict[tuple[object, ...], str] = {}
    shared: dict[str, str] = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach()
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if tensor.numel() and place in names:
            shared[name] = names[place]
            continue
        names[place] = name
        kept[name] = tensor.cpu().contiguous()
    if len({tensor.untyped_storage().data_ptr() for tensor in kept.values()}) < len(kept):
        kept = {name: tensor.clone() for name, tensor in kept.items()}  # parts of one storage, or empty ones
    return safetensors.torch.save(kept, {"shared": json.dumps(shared)})


def from_safetensors(content: bytes) -> dict[str, Tensor]:
    """What `as_bytes` was given; names that shared a tensor share one again."""
    kept = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    length = int.from_bytes(content[:8], "little")
    about = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    for name, same in json.loads(about.get("shared", "{}")).items():
        kept[name] = kept[same]
    return kept


def save_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write weights in one go: whoever looks finds the old file or the new one."""
    write_atomic(path, to_safetensors(tensors))


def load_weights(path: Path, prefix: str = "") -> dict[str, Tensor]:
    """Read weights; `within="model"` gives what is below that name, without it."""
    try:
        tensors = from_safetensors(path.read_bytes())
    except FileNotFoundError:
        raise RunNotFoundError(f"there are no weights in {path}: no such file") from None
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointCorruptError(f"{path} is damaged or not a safetensors file: {error}") from None
    if not prefix:
        return tensors
    start = prefix + "."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def load_into(module: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Put weights into a module, or say in one sentence what does not fit."""
    own = module.state_dict()
    wrong = [
        *(f"{name} is missing there" for name in own if name not in tensors),
        *(f"{name} is not in this model" for name in tensors if name not in own),
        *(
            f"{name} is {_format_shape(tensors[name])} there and {_format_shape(own[name])} here"
            for name in own
            if name in tensors and tensors[name].shape != own[name].shape
        ),
    ]
    if wrong:
        more = f", and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise WeightsMismatchError(f"the weights of {origin} do not fit: {'; '.join(wrong[:5])}{more}")
    module.load_state_dict(dict(tensors))


def average_weights(paths: Iterable[Path]) -> dict[str, Tensor]:
    """The mean of the weights in several files, summed in float64.

    Polyak and Juditsky (1992): the average of the last weights is often better than any of them. Whole
    numbers (counters) are taken from the last file.
    """
    files = list(paths)
    if not files:
        raise UsageError("there is nothing to average: no weights were given")
    last = load_weights(files[-1])
    means = {name: tensor.double() for name, tensor in last.items() if tensor.is_floating_point()}
    for path in files[:-1]:
        other = load_weights(path)
        if {n: t.shape for n, t in other.items()} != {n: t.shape for n, t in last.items()}:
            raise WeightsMismatchError(
                f"{path} and {files[-1]} cannot be averaged: their names or shapes differ"
            )
        means = {name: mean + other[name] for name, mean in means.items()}
    same: dict[int, Tensor] = {}  # names that share a tensor go on sharing one
    for name, mean in means.items():
        same.setdefault(id(last[name]), (mean / len(files)).to(last[name].dtype))
    return {name: same.get(id(tensor), tensor) for name, tensor in last.items()}


def _format_shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"


FORMAT = 1


MODEL_FILE, TRAINING_FILE, STATE_FILE = "model.safetensors", "training.safetensors", "state.json"


TEMP_PREFIX = ".unfinished-"


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
    files = {MODEL_FILE: to_safetensors(model), TRAINING_FILE: to_safetensors(training)}
    about = _manifest(files, dict(state))
    with storage_errors(f"the checkpoint {path}"):
        folder.mkdir(parents=True, exist_ok=True)
        if _has_same_files(path, about["files"]):
            write_atomic(path / STATE_FILE, _to_json(about))
        else:
            _write_folder(path, files, about)
    _prune(folder, path, keep)
    return path


def load(path: Path) -> Checkpoint:
    """Read a checkpoint; raise `CheckpointCorruptError` if one byte is not as it was written."""
    try:
        about = json.loads((path / STATE_FILE).read_bytes())
        if sha256_of_bytes(_canonical_json(about)) != about["sha256"]:
            raise CheckpointCorruptError(f"{STATE_FILE} was altered")
        if about["format"] > FORMAT:
            raise RunFormatError(
                f"{path} has format {about['format']}, and this regard ({__version__}) reads up to {FORMAT}: "
                "update regard"
            )
        model, training = (
            from_safetensors(_read_verified(path / n, about["files"][n])) for n in (MODEL_FILE, TRAINING_FILE)
        )
    except (CheckpointCorruptError, RunFormatError):
        raise
    except FileNotFoundError as error:
        raise CheckpointCorruptError(f"{Path(error.filename).name} is missing") from None
    except OSError as error:
        raise CheckpointCorruptError(f"it cannot be read: {(error.strerror or str(error)).lower()}") from None
    except (ValueError, KeyError, TypeError, AttributeError):
        raise CheckpointCorruptError(f"{STATE_FILE} is not what was written") from None
    return Checkpoint(path, model, training, about["state"])


def load_latest(folder: Path, log: Callable[[str], None] = lambda line: None) -> Checkpoint | None:
    """The newest checkpoint that is whole; `say` hears why others were passed over. None if there is none."""
    wrong = []
    for path in sorted(list_steps(folder).values(), reverse=True):
        try:
            return load(path)
        except CheckpointCorruptError as error:
            wrong.append(f"{path.name}: {error}")
            log(f"checkpoint {path.name} is passed over: {error}")
    if wrong:
        raise CheckpointCorruptError(f"no checkpoint in {folder} can be used ({'; '.join(wrong)})")
    return None


def list_steps(folder: Path) -> dict[int, Path]:
    """The checkpoints in a folder by step, whole or not."""
    found = (path for path in folder.glob("step-*") if path.name[5:].isdigit())
    return {int(path.name[5:]): path for path in sorted(found)}


def remove_unfinished(folder: Path) -> None:
    """Remove what a killed process left unfinished."""
    for path in folder.glob(TEMP_PREFIX + "*"):
        shutil.rmtree(path, ignore_errors=True)


def _manifest(files: dict[str, bytes], state: dict[str, Any]) -> dict[str, Any]:
    sizes = {
        name: {"bytes": len(content), "sha256": sha256_of_bytes(content)} for name, content in files.items()
    }
    about = {"format": FORMAT, "regard": __version__, "state": state, "files": sizes}
    about = json.loads(json.dumps(about))  # as it will be read
    about["sha256"] = sha256_of_bytes(_canonical_json(about))
    return about


def _has_same_files(path: Path, files: dict[str, dict[str, Any]]) -> bool:
    """Whether a checkpoint has these very tensors, and undamaged."""
    try:
        for name, expected in files.items():
            _read_verified(path / name, expected)
    except (CheckpointCorruptError, OSError):
        return False
    return True


def _write_folder(path: Path, files: dict[str, bytes], manifest: dict[str, Any]) -> None:
    unfinished = _make_temp_folder(path.parent)
    try:
        for name, content in {**files, STATE_FILE: _to_json(manifest)}.items():
            write_and_sync(unfinished / name, content)
        sync_folder(unfinished)
        if path.exists():
            _remove(path)  # a damaged one: whoever resumed did not start from it
        os.rename(unfinished, path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise
    sync_folder(path.parent)


def _to_json(manifest: dict[str, Any]) -> bytes:
    return json.dumps(manifest, indent=1).encode()


def _read_verified(path: Path, expected: dict[str, Any]) -> bytes:
    content = path.read_bytes()
    if len(content) != expected["bytes"]:
        raise CheckpointCorruptError(
            f"{path.name} has {len(content):,} bytes instead of {expected['bytes']:,}"
        )
    if sha256_of_bytes(content) != expected["sha256"]:
        raise CheckpointCorruptError(f"{path.name} was altered: its checksum is another")
    return content


def _canonical_json(manifest: dict[str, Any]) -> bytes:
    return json.dumps({k: v for k, v in manifest.items() if k != "sha256"}, sort_keys=True).encode()


def _prune(folder: Path, saved: Path, keep: int) -> None:
    """Keep the last few up to the one just saved. A later one is damaged, or we had started from it."""
    paths = list(list_steps(folder).values())
    last = paths.index(saved) + 1
    for path in paths[: max(last - keep, 0)] + paths[last:]:
        _remove(path)


def _remove(path: Path) -> None:
    """Remove a checkpoint, never leaving half of it under its name."""
    aside = _make_temp_folder(path.parent)
    os.rename(path, aside / path.name)
    shutil.rmtree(aside, ignore_errors=True)


def _make_temp_folder(folder: Path) -> Path:
    """A new folder that nobody takes for a checkpoint."""
    path = folder / f"{TEMP_PREFIX}{os.getpid()}-{time.monotonic_ns()}"
    path.mkdir()
    return path
