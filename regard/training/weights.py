"""Weights as safetensors files: read, write, average, load into a module; and the device and memory of a model."""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from regard.errors import (
    CheckpointCorruptError,
    RunNotFoundError,
    UnknownNameError,
    UnsupportedError,
    UsageError,
    WeightsMismatchError,
    suggest,
)  # fmt: skip
from regard.files import read_file, write_atomic
from regard.training.distributed import distributed_context

__all__ = [
    "average_weights", "from_safetensors", "load_into", "load_weights", "resolve_device", "retain_freed_memory",
    "save_weights", "select_prefix", "to_safetensors",
]  # fmt: skip

# Parameters of mallopt, from malloc.h of the GNU C library.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8


def to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Serialize named tensors as safetensors. A tensor with several names (tied weights) is stored once.

    Args:
        tensors: tensors by name

    Example:
        >>> sorted(from_safetensors(to_safetensors({"a": torch.ones(2), "b": torch.zeros(1)})))
        ['a', 'b']
    """
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
    header, data = _split_safetensors(safetensors.torch.save(stored, {"shared": json.dumps(shared)}))
    header["__metadata__"]["sha256"] = _checksum(header, data)
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)  # values are aligned
    return b"".join([len(encoded).to_bytes(8, "little"), encoded, data])


def from_safetensors(content: bytes) -> dict[str, Tensor]:
    """Load the tensors of `to_safetensors`; names that shared a tensor share one again.

    Args:
        content: the bytes of a safetensors file

    Returns:
        The tensors by name, on the CPU.

    Raises:
        CheckpointCorruptError: the checksum in the file differs; files of other programs have none
    """
    tensors = {name: tensor.clone() for name, tensor in safetensors.torch.load(content).items()}
    header, data = _split_safetensors(content)
    metadata = header.get("__metadata__") or {}
    expected = metadata.pop("sha256", None)
    if expected is not None and expected != _checksum(header, data):
        raise CheckpointCorruptError("its checksum differs")
    for name, same in json.loads(metadata.get("shared", "{}")).items():
        tensors[name] = tensors[same]
    return tensors


def _split_safetensors(content: bytes) -> tuple[dict[str, Any], memoryview]:
    """The header of a safetensors file, and the bytes of its values."""
    end = 8 + int.from_bytes(content[:8], "little")
    return json.loads(content[8:end]), memoryview(content)[end:]


def _checksum(header: Mapping[str, Any], data: memoryview) -> str:
    digest = hashlib.sha256(json.dumps(header, sort_keys=True).encode())
    digest.update(data)
    return digest.hexdigest()


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
        tensors = from_safetensors(read_file(path))
    except FileNotFoundError:
        raise RunNotFoundError(f"no weights in {path}: no such file") from None
    except (safetensors.SafetensorError, ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        raise CheckpointCorruptError(f"{path} is damaged or not a safetensors file: {error}") from None
    return select_prefix(tensors, f"{prefix}.") if prefix else tensors


def select_prefix(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without it.

    Args:
        tensors: tensors by name
        prefix: the beginning, with its separator

    Returns:
        The tensors by name.

    Example:
        >>> select_prefix({"loss/weight": torch.ones(1), "optimizer/step": torch.ones(1)}, "loss/")
        {'weight': tensor([1.])}
    """
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


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
    problems = [f"{name} is missing there" for name in expected if name not in tensors]
    problems += [f"{name} is not in this model" for name in tensors if name not in expected]
    shapes = {name: (tensors[name].shape, tensor.shape) for name, tensor in expected.items() if name in tensors}
    different = {name: map(_format_shape, pair) for name, pair in shapes.items() if pair[0] != pair[1]}
    problems += [f"{name} is {other} there and {own} here" for name, (other, own) in different.items()]
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


def resolve_device(name: str) -> torch.device:
    """Return the device of an option.

    Args:
        name: "cpu", "cuda", "cuda:1", "mps", or "auto" for the fastest available one

    Raises:
        UnknownNameError: there is no device of this name
        UnsupportedError: this machine has no such device

    Example:
        >>> resolve_device("cpu")
        device(type='cpu')
    """
    backends: dict[str, Any] = {"cuda": torch.cuda, "mps": torch.backends.mps}
    if name == "auto":
        name = next((device for device, backend in backends.items() if backend.is_available()), "cpu")
        if name == "mps" and distributed_context().world_size > 1:
            name = "cpu"  # gradients cannot be summed on mps
    kind, _, index = name.partition(":")
    if kind not in ("cpu", *backends) or not (index.isdecimal() or kind == name):
        raise UnknownNameError(f"no device {name!r}{suggest(name, ('auto', 'cpu', *backends))}")
    count = 1 if kind != "cuda" else torch.cuda.device_count()
    if kind in backends and (not backends[kind].is_available() or int(index or 0) >= count):
        missing = "Apple GPU" if kind == "mps" else f"CUDA device {index}" if index and count else "CUDA device"
        raise UnsupportedError(f"device={name}: no {missing} found; use device=auto or device=cpu")
    if name == "cuda":
        device = torch.device("cuda", distributed_context().local_rank)
        torch.cuda.set_device(device)
        return device
    return torch.device(name)


def retain_freed_memory() -> bool:
    """Make the C library keep freed memory for later steps.

    A training step frees matrices of megabytes and allocates the same sizes again. The GNU C library returns such
    blocks to the system, which clears every page before it is used again: a third of the time of a small model's
    element-wise work.

    Returns:
        Whether it is done; other C libraries are not changed.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # The largest threshold of the library; larger matrices are still returned at once. And one arena for all threads:
    # otherwise each thread would retain memory of its own, and a server that starts threads would grow.
    options = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: (1 << 31) - 1, ARENA_MAX: 1}
    return all(mallopt(name, value) for name, value in options.items())


def _format_shape(shape: torch.Size) -> str:
    return "x".join(map(str, shape)) or "a number"
