"""Handwritten digits: those that come with scikit-learn, or the files of MNIST."""

from __future__ import annotations

import gzip
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard._imports import require_extra
from regard.data._lines import BROKEN, _explained
from regard.errors import DataError

Part = Literal["train", "valid", "test"]
HELD = {"valid": 150, "test": 300}  # of scikit-learn's 1,797
CHOOSING = 5000  # of MNIST's 60,000 for training, the last ones
FILES = {"train": "train", "valid": "train", "test": "t10k"}


@dataclass(frozen=True)
class Digits:
    """Square images of single digits, white on black, and which digits they are."""

    images: Float[Tensor, "count side side"]
    labels: Int[Tensor, " count"]

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def side(self) -> int:
        return self.images.shape[-1]

    def some(self, which: slice | Int[Tensor, " some"]) -> Digits:
        return Digits(self.images[which], self.labels[which])


@cache
def sklearn_digits(part: Part) -> Digits:
    """Digits of 8 by 8 pixels: Alpaydin and Kaynak (1998), as scikit-learn brings them. No digit is in two parts."""
    found = require_extra("sklearn.datasets", "sklearn").load_digits()
    every = Digits(torch.tensor(found.images / 16, dtype=torch.float32), torch.tensor(found.target).long())
    order = torch.randperm(len(every), generator=torch.Generator().manual_seed(0))
    test, valid = HELD["test"], HELD["test"] + HELD["valid"]
    which = {"test": order[:test], "valid": order[test:valid], "train": order[valid:]}
    return every.some(which[part])


def mnist(folder: str | Path, part: Part) -> Digits:
    """Digits of 28 by 28 pixels: LeCun et al. (1998), from the four original files, packed or not."""
    images, labels = (_idx(Path(folder), FILES[part], kind) for kind in ("images-idx3", "labels-idx1"))
    if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
        raise DataError(f"{folder}: the files of MNIST do not fit together; get all four of them again.")
    every = Digits(torch.from_numpy(images).float() / 255, torch.from_numpy(labels).long())
    if part == "test":
        return every
    border = max(len(every) - CHOOSING, len(every) // 2)
    return every.some(slice(border) if part == "train" else slice(border, None))


def _idx(folder: Path, name: str, kind: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """An array in the format of those files: two zeros, a code for bytes, the number of axes, their sizes, bytes."""
    path = folder / f"{name}-{kind}-ubyte"
    packed = path.with_name(path.name + ".gz")
    path = packed if packed.is_file() else path
    try:
        raw = gzip.decompress(path.read_bytes()) if path is packed else path.read_bytes()
    except BROKEN as error:
        raise _explained(error, path, 0) from None
    axes = raw[3] if len(raw) > 3 else 0
    whole = raw[:3] == b"\0\0\x08" and len(raw) >= 4 + 4 * axes
    sizes = [int(size) for size in np.frombuffer(raw, ">u4", axes, 4)] if whole else []
    if not whole or len(raw) != 4 + 4 * axes + math.prod(sizes):
        raise DataError(f"{path} is not a whole file of MNIST; get it again.")
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * axes).reshape(sizes).copy()
