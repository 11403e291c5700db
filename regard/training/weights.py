"""Weights as files: safetensors, which nobody has to trust."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import safetensors
import safetensors.torch
from torch import Tensor, nn

from regard.errors import CheckpointCorruptError, RunNotFoundError, UsageError, WeightsMismatchError
from regard.files import write_atomic


def as_bytes(tensors: Mapping[str, Tensor]) -> bytes:
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


def from_bytes(content: bytes) -> dict[str, Tensor]:
    """What `as_bytes` was given; names that shared a tensor share one again."""
    kept = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    length = int.from_bytes(content[:8], "little")
    about = json.loads(content[8 : 8 + length]).get("__metadata__") or {}
    for name, same in json.loads(about.get("shared", "{}")).items():
        kept[name] = kept[same]
    return kept


def save_weights(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Write weights in one go: whoever looks finds the old file or the new one."""
    write_atomic(path, as_bytes(tensors))


def load_weights(path: Path, within: str = "") -> dict[str, Tensor]:
    """Read weights; `within="model"` gives what is below that name, without it."""
    try:
        tensors = from_bytes(path.read_bytes())
    except FileNotFoundError:
        raise RunNotFoundError(f"there are no weights in {path}: no such file") from None
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointCorruptError(f"{path} is damaged or not a safetensors file: {error}") from None
    if not within:
        return tensors
    start = within + "."
    return {name[len(start) :]: tensor for name, tensor in tensors.items() if name.startswith(start)}


def fill(module: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    """Put weights into a module, or say in one sentence what does not fit."""
    own = module.state_dict()
    wrong = [
        *(f"{name} is missing there" for name in own if name not in tensors),
        *(f"{name} is not in this model" for name in tensors if name not in own),
        *(
            f"{name} is {_shape(tensors[name])} there and {_shape(own[name])} here"
            for name in own
            if name in tensors and tensors[name].shape != own[name].shape
        ),
    ]
    if wrong:
        more = f", and {len(wrong) - 5} more" if len(wrong) > 5 else ""
        raise WeightsMismatchError(f"the weights of {origin} do not fit: {'; '.join(wrong[:5])}{more}")
    module.load_state_dict(dict(tensors))


def average(paths: Iterable[Path]) -> dict[str, Tensor]:
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


def _shape(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a number"
