"""Files of attention records: JSON for small ones, safetensors for large ones. Nothing is pickled."""

from __future__ import annotations

import contextlib
import ctypes
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import safetensors
import torch
from safetensors.torch import save_file
from torch import Tensor

from regard.errors import DataError, UsageError
from regard.files import replace_atomic

__all__ = ["create_folder", "memory_map", "read_records", "record_path", "trim_heap", "write_records"]

RecordData = tuple[dict[str, Any], Tensor]  # metadata, weights
FILE_KIND = "regard records 2"
TEMP_SUFFIX = ".half"  # of a file that is not complete
TRIM_INTERVAL = 2**25  # bytes written until the heap is trimmed
NOT_RECORDS = "is not a file of AttentionRecords.save, or it is damaged"


def write_records(path: Path, records: list[RecordData]) -> None:
    """Write records to a .json file, a .safetensors file or, without a suffix, a folder with a file per record.

    Args:
        path: the file or folder
        records: metadata and weights of each record

    Raises:
        UsageError: another suffix
        FileExistsError: a folder that is not empty
    """
    if path.suffix == ".json":
        data = [metadata | {"weights": _tensor_to_json(weights)} for metadata, weights in records]
        text = json.dumps({"kind": FILE_KIND, "records": data})
        replace_atomic(path, _temp_path(path), lambda temp: temp.write_text(text, encoding="utf-8"))
    elif path.suffix == ".safetensors":
        _write_safetensors(path, records)
    elif path.suffix:
        raise UsageError(
            f"invalid file name {path.name!r}: records are saved as .json, .safetensors, or a folder without suffix"
        )
    else:
        folder = create_folder(path)
        for i, record in enumerate(records):
            _write_safetensors(record_path(folder, i), [record])


def read_records(path: Path) -> Iterator[RecordData]:
    """Read what `write_records` wrote, in the same order.

    Args:
        path: the file or folder

    Raises:
        FileNotFoundError: no such file or folder, or an empty folder
        DataError: another or a truncated file, or a missing one in a folder
    """
    if path.is_dir():
        yield from _read_folder(path)
    elif not path.exists():
        raise FileNotFoundError(f"no records in {path}: no such file or folder")
    elif path.suffix == ".json":
        yield from _read_json(path)
    else:
        yield from _read_safetensors(path)


def create_folder(path: Path) -> Path:
    """Create an empty folder; an existing folder must be empty.

    Args:
        path: the folder

    Raises:
        FileExistsError: there is a file of this name, or the folder is not empty
    """
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file: records need a new folder")
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty: records need a new folder")
    return path


def record_path(folder: Path, index: int) -> Path:
    """Return the path of a record in a folder of records.

    Args:
        folder: the folder
        index: the number of the record
    """
    return folder / f"{index:06}.safetensors"


def memory_map(path: Path, metadata: dict[str, Any], weights: Tensor) -> Tensor:
    """Write weights to a file and return a tensor that maps it, which takes no memory until it is read.

    Args:
        path: the file to write
        metadata: what is saved with the weights
        weights: the weights

    Shape:
        - weights: any; returns: the same

    Returns:
        The same weights, mapped from the file.
    """
    _write_safetensors(path, [(metadata, weights)])
    return next(_read_safetensors(path))[1]


def trim_heap() -> int:
    """Return the memory of freed tensors from the C library to the system, where it can; always 0."""
    # malloc_trim exists in glibc only, and Windows has no library without a name.
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    return 0


def _read_folder(path: Path) -> Iterator[RecordData]:
    files = sorted(path.glob("*.safetensors"))
    incomplete = next(iter(sorted(path.glob(f"*{TEMP_SUFFIX}"))), None)
    if incomplete is not None:
        raise DataError(f"{incomplete} is incomplete; delete it to load the {len(files)} records before it")
    for i, file in enumerate(files):
        if file != record_path(path, i):
            raise DataError(f"{record_path(path, i)} is missing; the next file is {file.name}")
        yield from _read_safetensors(file)
    if not files:
        raise FileNotFoundError(f"no records in {path}")


def _read_json(path: Path) -> Iterator[RecordData]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        records = data["records"] if data["kind"] == FILE_KIND else None
    except (ValueError, KeyError, TypeError):
        records = None
    if records is None:
        raise DataError(f"{path} {NOT_RECORDS}")
    for metadata in records:
        weights = metadata["weights"]
        dtype = getattr(torch, weights.get("type", "float32"))
        yield metadata, torch.tensor(weights["values"], dtype=dtype).view(weights["shape"])


def _read_safetensors(path: Path) -> Iterator[RecordData]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get("regard")
            for i, metadata in enumerate(json.loads(header or "null")):
                yield metadata, file.get_tensor(str(i))
    except (safetensors.SafetensorError, ValueError, TypeError):
        raise DataError(f"{path} {NOT_RECORDS}") from None


def _write_safetensors(path: Path, records: list[RecordData]) -> None:
    tensors = {str(i): weights.contiguous() for i, (_, weights) in enumerate(records)}
    if len({tensor.untyped_storage().data_ptr() for tensor in tensors.values()}) < len(tensors):
        tensors = {name: tensor.clone() for name, tensor in tensors.items()}  # shared or empty storages
    header = {"regard": json.dumps([metadata for metadata, _ in records])}
    replace_atomic(path, _temp_path(path), lambda temp: save_file(tensors, temp, header))


def _temp_path(path: Path) -> Path:
    return path.with_name(path.name + TEMP_SUFFIX)


def _tensor_to_json(weights: Tensor) -> dict[str, Any]:
    dtype = str(weights.dtype).removeprefix("torch.")
    return {"type": dtype, "shape": list(weights.shape), "values": weights.flatten().tolist()}
