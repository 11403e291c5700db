from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.vocabulary import PAD_ID


def pad_rows(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Rows of numbers as one matrix, filled up with PAD, and their lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    matrix = torch.full((len(rows), max(map(len, rows), default=0)), PAD_ID)
    for i, row in enumerate(rows):
        matrix[i, : len(row)] = torch.tensor(row)
    return matrix, lengths


IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class RaggedArray:
    """Rows of different length, one after the other: row i is numbers[starts[i] : starts[i] + lengths[i]]."""

    values: npt.NDArray[np.int32]
    starts: IntArray
    lengths: IntArray

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> RaggedArray:
        kept = list(rows)
        lengths = np.fromiter(map(len, kept), np.int64, len(kept))
        numbers = np.fromiter(chain.from_iterable(kept), np.int32, int(lengths.sum()))
        return cls(numbers, np.cumsum(lengths) - lengths, lengths)

    def padded(self, indices: IntArray) -> tuple[Tensor, Tensor]:
        """The rows asked for, filled up with PAD, and their lengths: one gather, no loop over rows."""
        lengths = self.lengths[indices]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        places = np.where(inside, self.starts[indices][:, None] + columns, 0)
        filled = np.where(inside, self.values[places], PAD_ID).astype(np.int64)
        return torch.from_numpy(filled), torch.from_numpy(lengths)


def split_by_tokens(order: IntArray, widths: IntArray, max_tokens: int) -> list[IntArray]:
    """Cut the order into batches: rows x widest row is at most `tokens`, but a single row may be wider.

    >>> [part.tolist() for part in split_by_tokens(np.arange(6), np.array([2, 2, 3, 9, 1, 1]), max_tokens=6)]
    [[0, 1], [2], [3], [4, 5]]
    """
    cuts, first, widest = [], 0, 0
    for place, here in enumerate(widths[order].tolist()):
        widest = max(widest, here)
        if place > first and widest * (place - first + 1) > max_tokens:
            cuts.append(place)
            first, widest = place, here
    return np.split(order, cuts) if len(order) else []
