"""What all batches have in common: moving to devices, sharding, padding, and splitting by tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from regard.data.vocabulary import PAD_ID

__all__ = ["IntArray", "RaggedArray", "TensorBatch", "TensorRows", "split_by_tokens"]

IntArray = npt.NDArray[np.int64]
if TYPE_CHECKING:
    SelfBatch = TypeVar("SelfBatch", bound="TensorBatch")
    SelfRows = TypeVar("SelfRows", bound="TensorRows")
else:  # the shape checks of the tests would evaluate the bounds before the classes exist
    SelfBatch, SelfRows = TypeVar("SelfBatch"), TypeVar("SelfRows")


@dataclass(frozen=True)
class TensorBatch:
    """Base of all batches: a dataclass whose fields are tensors with one row per example.

    Subclasses define `num_tokens`, the number of predictions that the loss is averaged over. `padded` names the fields
    that are padded along their second dimension, with the field of their lengths; shards drop the columns that none of
    their rows needs. `shared` names the fields that have no rows, so that every shard has all of them.

    Example:
        >>> from regard.data.pair_batches import PairBatch
        >>> batch = PairBatch.from_pairs([([7, 8], [9]), ([7], [9])])
        >>> len(batch), batch.num_tokens, batch.shard(rank=1, world_size=2).source.tolist()
        (2, 4, [[7, 3]])
    """

    padded: ClassVar[Mapping[str, str]] = {}
    shared: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    @property
    def num_tokens(self) -> int:
        """The number of predictions."""
        raise NotImplementedError

    def to(self: SelfBatch, device: torch.device | str) -> SelfBatch:
        """Move all tensors to a device.

        Args:
            device: the device.

        Returns:
            The batch on that device.
        """
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def shard(self: SelfBatch, rank: int, world_size: int) -> SelfBatch:
        """Return the rows of one of several processes: every `world_size`-th, from `rank` on.

        Args:
            rank: the number of the process.
            world_size: the number of processes.

        Returns:
            A batch, which is empty if there are too few rows.
        """
        rows = {name: value[rank::world_size] for name, value in vars(self).items() if name not in self.shared}
        for name, lengths in self.padded.items():
            longest = int(rows[lengths].max()) if len(rows[lengths]) else 0
            rows[name] = rows[name][:, :longest]
        return replace(self, **rows)


class TensorRows:
    """Base of dataclasses of examples, whose fields have one row for each: tensors, or other `TensorRows`.

    Example:
        >>> @dataclass(frozen=True)
        ... class Points(TensorRows):
        ...     values: Tensor
        >>> points = Points.concatenate([Points(torch.tensor([1, 2])), Points(torch.tensor([3]))])
        >>> points.head(2).values, [point.values.item() for point in points]
        (tensor([1, 2]), [1, 2, 3])
    """

    def __len__(self) -> int:
        return len(next(iter(vars(self).values())))

    def __getitem__(self: SelfRows, index: int | slice) -> SelfRows:
        rows = slice(index, index + 1) if isinstance(index, int) else index
        return type(self)(*(value[rows] for value in vars(self).values()))

    def __iter__(self: SelfRows) -> Iterator[SelfRows]:
        return (self[row] for row in range(len(self)))

    @classmethod
    def concatenate(cls: type[SelfRows], parts: Sequence[SelfRows]) -> SelfRows:
        """Join examples whose tensors have equal sizes.

        Args:
            parts: the examples.

        Returns:
            All examples, in order.
        """
        columns = zip(*(vars(part).values() for part in parts), strict=True)
        return cls(*(torch.cat(part) if isinstance(part[0], Tensor) else part[0].concatenate(part) for part in columns))

    def head(self: SelfRows, count: int) -> SelfRows:
        """Return the first examples.

        Args:
            count: their number.

        Returns:
            The examples.
        """
        return self[:count]


@dataclass(frozen=True)
class RaggedArray:
    """Rows of different lengths in one array; row i is `values[starts[i] : starts[i] + lengths[i]]`.

    Args:
        values: the numbers of all rows.
        starts: where each row begins.
        lengths: the length of each row.

    Example:
        >>> rows = RaggedArray.from_rows([[7, 8], [9]])
        >>> rows.padded(np.array([1, 0]))[0].tolist()
        [[9, 0], [7, 8]]
    """

    values: npt.NDArray[np.int32]
    starts: IntArray
    lengths: IntArray

    @classmethod
    def from_rows(cls, rows: Iterable[Sequence[int]]) -> RaggedArray:
        """Concatenate rows.

        Args:
            rows: the rows.

        Returns:
            The array.
        """
        rows = list(rows)
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum()))
        return cls(values, np.cumsum(lengths) - lengths, lengths)

    def padded(self, indices: IntArray) -> tuple[Tensor, Tensor]:
        """Gather rows as one matrix, padded with `PAD_ID`, in one indexing operation.

        Args:
            indices: the rows to gather.

        Returns:
            The matrix (rows, longest row) and the lengths of its rows.
        """
        lengths = self.lengths[indices]
        columns = np.arange(lengths.max(initial=0))
        inside = columns < lengths[:, None]
        positions = np.where(inside, self.starts[indices][:, None] + columns, 0)
        matrix = np.where(inside, self.values[positions], PAD_ID).astype(np.int64)
        return torch.from_numpy(matrix), torch.from_numpy(lengths)


def split_by_tokens(order: IntArray, lengths: IntArray, max_tokens: int, *, is_padded: bool = True) -> list[IntArray]:
    """Split rows into batches of at most `max_tokens` tokens; a single longer row is a batch of its own.

    Args:
        order: the rows, in the order of the batches.
        lengths: the length of each row.
        max_tokens: the limit: rows x longest row of padded batches, the sum of the lengths of others.
        is_padded: whether rows are padded to the longest of their batch.

    Returns:
        The rows of each batch.

    Example:
        >>> [rows.tolist() for rows in split_by_tokens(np.arange(6), np.array([2, 2, 3, 9, 1, 1]), max_tokens=6)]
        [[0, 1], [2], [3], [4, 5]]
        >>> lengths = np.array([3, 3, 9, 1, 4])
        >>> [rows.tolist() for rows in split_by_tokens(np.arange(5), lengths, max_tokens=6, is_padded=False)]
        [[0, 1], [2], [3, 4]]
    """
    cuts, first, longest, total = [], 0, 0, 0
    for place, length in enumerate(lengths[order].tolist()):
        longest, total = max(longest, length), total + length
        size = longest * (place - first + 1) if is_padded else total
        if place > first and size > max_tokens:
            cuts.append(place)
            first, longest, total = place, length, length
    return np.split(order, cuts) if len(order) else []
