"""Weights on the disk: JSON for people, safetensors for size, nothing that runs when it is read."""

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

RecordData = tuple[dict[str, Any], Tensor]


FILE_KIND = "regard records 1"


TEMP_SUFFIX = ".half"  # the ending of a file until it is whole


TRIM_INTERVAL = 2**25  # bytes that go to the disk before memory is given back


def write_records(path: Path, records: list[RecordData]) -> None:
    """A file by its ending, .json or .safetensors; a folder if there is none."""
    if path.suffix == ".json":
        plain = [about | {"weights": _tensor_to_json(weights)} for about, weights in records]
        replace_atomic(
            path, _half(path), lambda half: half.write_text(json.dumps({"kind": FILE_KIND, "records": plain}))
        )
    elif path.suffix == ".safetensors":
        _write_safetensors(
            path,
            [about for about, _ in records],
            {str(place): weights for place, (_, weights) in enumerate(records)},
        )
    elif path.suffix:
        raise UsageError(
            f"records are saved as .json, as .safetensors or in a folder without an ending, not as {path.name}"
        )
    else:
        folder = create_folder(path)
        for place, (about, weights) in enumerate(records):
            _write_safetensors(record_path(folder, place), [about], {"0": weights})


def read_records(path: Path) -> Iterator[RecordData]:
    """What `write` wrote, in its order; a file that is not whole is refused."""
    if path.is_dir():
        yield from _read_folder(path)
    elif not path.exists():
        raise FileNotFoundError(f"there are no records in {path}: no such file or folder")
    elif path.suffix == ".json":
        yield from _read_json(path)
    else:
        yield from _read_safetensors(path)


def create_folder(path: Path) -> Path:
    """An empty folder for records: those of another watch are never written over."""
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file: records go to a new folder")
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty: records go to a new folder")
    return path


def record_path(folder: Path, index: int) -> Path:
    return folder / f"{index:06}.safetensors"


def memory_map(path: Path, metadata: dict[str, Any], weights: Tensor) -> Tensor:
    """The weights as a map of the file that they were written to: no memory until they are read."""
    _write_safetensors(path, [metadata], {"0": weights})
    return next(_read_safetensors(path))[1]


def trim_heap() -> int:
    """Return to the system what the C library keeps of freed tensors; small things between them would hold it."""
    with contextlib.suppress(OSError, AttributeError):  # only GNU's has this
        ctypes.CDLL(None).malloc_trim(0)
    return 0


def _read_folder(path: Path) -> Iterator[RecordData]:
    files = sorted(path.glob("*.safetensors"))
    half = next(iter(sorted(path.glob(f"*{TEMP_SUFFIX}"))), None)
    if half is not None:
        raise DataError(
            f"{half} was not written to its end; delete it to load the {len(files)} records before it"
        )
    for place, file in enumerate(files):
        if file != record_path(path, place):
            raise DataError(f"{record_path(path, place)} is missing; the next one is {file.name}")
        yield from _read_safetensors(file)
    if not files:
        raise FileNotFoundError(f"there are no records in {path}")


def _read_json(path: Path) -> Iterator[RecordData]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        records = found["records"] if found["kind"] == FILE_KIND else None
    except (ValueError, KeyError, TypeError):
        records = None
    if records is None:
        raise DataError(f"{path} is damaged, or was not written by Seen.save")
    for about in records:
        held = about["weights"]
        yield (
            about,
            torch.tensor(held["values"], dtype=getattr(torch, held.get("type", "float32"))).view(
                held["shape"]
            ),
        )


def _read_safetensors(path: Path) -> Iterator[RecordData]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get("regard")
            for place, about in enumerate(json.loads(header or "null")):
                yield about, file.get_tensor(str(place))
    except (safetensors.SafetensorError, ValueError, TypeError):
        raise DataError(f"{path} is damaged, only half written, or no file of Seen.save") from None


def _write_safetensors(path: Path, metadata: list[dict[str, Any]], weights: dict[str, Tensor]) -> None:
    own = {name: tensor.contiguous() for name, tensor in weights.items()}
    if len({tensor.untyped_storage().data_ptr() for tensor in own.values()}) < len(own):
        own = {name: tensor.clone() for name, tensor in own.items()}  # parts of one storage, or empty ones
    replace_atomic(path, _half(path), lambda half: save_file(own, half, {"regard": json.dumps(metadata)}))


def _half(path: Path) -> Path:
    return path.with_name(path.name + TEMP_SUFFIX)


def _tensor_to_json(weights: Tensor) -> dict[str, Any]:
    kind = str(weights.dtype).removeprefix("torch.")
    return {"type": kind, "shape": list(weights.shape), "values": weights.flatten().tolist()}
