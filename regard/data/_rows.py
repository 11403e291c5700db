"""Many sentences in one array, and batches of them: planned by length, filled by tokens."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from random import Random

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.batch import BOS, EOS, PAD, Batch

Numbers = npt.NDArray[np.int64]
Encoded = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True)
class Rows:
    """Rows of different length, one after the other: row i is numbers[starts[i] : starts[i] + lengths[i]]."""

    numbers: npt.NDArray[np.int32]
    starts: Numbers
    lengths: Numbers

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Rows:
        kept = list(rows)
        lengths = np.fromiter(map(len, kept), np.int64, len(kept))
        numbers = np.fromiter(chain.from_iterable(kept), np.int32, int(lengths.sum()))
        return cls(numbers, np.cumsum(lengths) - lengths, lengths)

    def matrix(self, which: Numbers) -> tuple[Tensor, Tensor]:
        """The rows asked for, filled up with PAD, and their lengths: one gather, no loop over rows."""
        lengths = self.lengths[which]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        places = np.where(inside, self.starts[which][:, None] + columns, 0)
        filled = np.where(inside, self.numbers[places], PAD).astype(np.int64)
        return torch.from_numpy(filled), torch.from_numpy(lengths)


@dataclass(frozen=True)
class Chunk:
    """Encoded pairs, special tokens in place, from which batches are taken."""

    source: Rows
    target: Rows

    @classmethod
    def of(cls, pairs: Sequence[Encoded]) -> Chunk:
        sources = Rows.of((*source, EOS) for source, _ in pairs)
        return cls(sources, Rows.of((BOS, *target, EOS) for _, target in pairs))

    def __len__(self) -> int:
        return len(self.source.lengths)

    @property
    def width(self) -> Numbers:
        """What a pair takes in a batch: the longer of its source and of what is to be predicted."""
        return np.maximum(self.source.lengths, self.target.lengths - 1)

    def batch(self, which: Numbers) -> Batch:
        return Batch(*self.source.matrix(which), *self.target.matrix(which))

    def plan(self, tokens: int, noise: float, random: Random) -> list[Numbers]:
        """The rows of each batch: pairs of near lengths together, in an order that `random` decides.

        Sorted by the longer side first, by how much the other is shorter second: on Multi30k this leaves half
        the padding of sorting by the longer side alone. Only Random.random is used, whose numbers
        Python promises not to change.
        """
        chance = np.array([(random.random(), random.random()) for _ in range(len(self))]).reshape(-1, 2)
        longer = np.floor(self.width + noise * chance[:, 0])
        order = np.lexsort((self.target.lengths - self.source.lengths + 2 * chance[:, 1], longer))
        plan = filled(order, self.width, tokens)
        shuffled = sorted(range(len(plan)), key=[random.random() for _ in plan].__getitem__)
        return [plan[i] for i in shuffled]

    def padding(self, plan: Iterable[Numbers]) -> float:
        """The share of PAD among all numbers of the batches."""
        real = padded = 0
        for which in plan:
            for lengths in (self.source.lengths[which], self.target.lengths[which]):
                real += int(lengths.sum())
                padded += int(lengths.max()) * len(lengths)
        return 1 - real / padded if padded else 0.0


def filled(order: Numbers, width: Numbers, tokens: int) -> list[Numbers]:
    """Cut the order into batches: rows x widest row is at most `tokens`, but a single row may be wider.

    >>> [part.tolist() for part in filled(np.arange(6), np.array([2, 2, 3, 9, 1, 1]), tokens=6)]
    [[0, 1], [2], [3], [4, 5]]
    """
    cuts, first, widest = [], 0, 0
    for place, here in enumerate(width[order].tolist()):
        widest = max(widest, here)
        if place > first and widest * (place - first + 1) > tokens:
            cuts.append(place)
            first, widest = place, here
    return np.split(order, cuts) if len(order) else []
