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

Piece = tuple[dict[str, Any], Tensor]
KIND = "regard records 1"
HALF = ".half"  # the ending of a file until it is whole
MANY = 2**25  # bytes that go to the disk before memory is given back


def write(path: Path, pieces: list[Piece]) -> None:
    """A file by its ending, .json or .safetensors; a folder if there is none."""
    if path.suffix == ".json":
        plain = [about | {"weights": _plain(weights)} for about, weights in pieces]
        replace_atomic(
            path, _half(path), lambda half: half.write_text(json.dumps({"kind": KIND, "records": plain}))
        )
    elif path.suffix == ".safetensors":
        _save(
            path,
            [about for about, _ in pieces],
            {str(place): weights for place, (_, weights) in enumerate(pieces)},
        )
    elif path.suffix:
        raise UsageError(
            f"records are saved as .json, as .safetensors or in a folder without an ending, not as {path.name}"
        )
    else:
        folder = new_folder(path)
        for place, (about, weights) in enumerate(pieces):
            _save(numbered(folder, place), [about], {"0": weights})


def read(path: Path) -> Iterator[Piece]:
    """What `write` wrote, in its order; a file that is not whole is refused."""
    if path.is_dir():
        yield from _folder(path)
    elif not path.exists():
        raise FileNotFoundError(f"there are no records in {path}: no such file or folder")
    elif path.suffix == ".json":
        yield from _json(path)
    else:
        yield from _load(path)


def new_folder(path: Path) -> Path:
    """An empty folder for records: those of another watch are never written over."""
    if path.exists() and not path.is_dir():
        raise FileExistsError(f"{path} is a file: records go to a new folder")
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise FileExistsError(f"{path} is not empty: records go to a new folder")
    return path


def numbered(folder: Path, place: int) -> Path:
    return folder / f"{place:06}.safetensors"


def moved(path: Path, about: dict[str, Any], weights: Tensor) -> Tensor:
    """The weights as a map of the file that they were written to: no memory until they are read."""
    _save(path, [about], {"0": weights})
    return next(_load(path))[1]


def give_back() -> int:
    """Return to the system what the C library keeps of freed tensors; small things between them would hold it."""
    with contextlib.suppress(OSError, AttributeError):  # only GNU's has this
        ctypes.CDLL(None).malloc_trim(0)
    return 0


def _folder(path: Path) -> Iterator[Piece]:
    files = sorted(path.glob("*.safetensors"))
    half = next(iter(sorted(path.glob(f"*{HALF}"))), None)
    if half is not None:
        raise DataError(
            f"{half} was not written to its end; delete it to load the {len(files)} records before it"
        )
    for place, file in enumerate(files):
        if file != numbered(path, place):
            raise DataError(f"{numbered(path, place)} is missing; the next one is {file.name}")
        yield from _load(file)
    if not files:
        raise FileNotFoundError(f"there are no records in {path}")


def _json(path: Path) -> Iterator[Piece]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        records = found["records"] if found["kind"] == KIND else None
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


def _load(path: Path) -> Iterator[Piece]:
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            header = (file.metadata() or {}).get("regard")
            for place, about in enumerate(json.loads(header or "null")):
                yield about, file.get_tensor(str(place))
    except (safetensors.SafetensorError, ValueError, TypeError):
        raise DataError(f"{path} is damaged, only half written, or no file of Seen.save") from None


def _save(path: Path, about: list[dict[str, Any]], weights: dict[str, Tensor]) -> None:
    own = {name: tensor.contiguous() for name, tensor in weights.items()}
    if len({tensor.untyped_storage().data_ptr() for tensor in own.values()}) < len(own):
        own = {name: tensor.clone() for name, tensor in own.items()}  # parts of one storage, or empty ones
    replace_atomic(path, _half(path), lambda half: save_file(own, half, {"regard": json.dumps(about)}))


def _half(path: Path) -> Path:
    return path.with_name(path.name + HALF)


def _plain(weights: Tensor) -> dict[str, Any]:
    kind = str(weights.dtype).removeprefix("torch.")
    return {"type": kind, "shape": list(weights.shape), "values": weights.flatten().tolist()}
