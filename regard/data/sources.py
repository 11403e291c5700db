"""Batches: tensors that move to devices and shards, and sources of them that are endless and can be resumed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, count
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from torch import Generator, Tensor
from torch.utils import _pytree as pytree

from regard.errors import DataError

__all__ = [
    "BatchWithLabels", "ChunkPlan", "DataPosition", "GeneratedBatches", "InMemoryBatches", "IntArray",
    "ResumableBatches", "TensorBatch", "TensorRows", "data_fingerprint", "seeded_generator", "shuffle",
    "split_by_tokens",
]  # fmt: skip

IntArray = npt.NDArray[np.int64]
DataPosition = dict[str, Any]  # plain values, for JSON
ExampleT = TypeVar("ExampleT")
BatchT = TypeVar("BatchT")
ChunkPlan = tuple[Sequence[Any], Callable[[Any], BatchT]]  # the rows of each batch, and what makes one of them
if TYPE_CHECKING:
    SelfBatch = TypeVar("SelfBatch", bound="TensorBatch")
    SelfRows = TypeVar("SelfRows", bound="TensorRows")
else:  # the shape checks of the tests would evaluate the bounds before the classes exist
    SelfBatch, SelfRows = TypeVar("SelfBatch"), TypeVar("SelfRows")


@dataclass(frozen=True)
class TensorBatch:
    """Base of all batches: a dataclass whose fields are tensors, or tuples of tensors, with one row per example.

    `padded` names the fields that are padded along their second dimension, with the field of their lengths; shards drop
    the columns that none of their rows needs. `shared` names the fields without rows, which each shard has. The loss is
    averaged over `num_tokens`: by default the tokens of the last padded field except for the first one of each row.

    Example:
        >>> from regard.data.pair_batches import PairBatch
        >>> batch = PairBatch.from_pairs([([7, 8], [9]), ([7], [9])])
        >>> len(batch), batch.num_tokens, batch.shard(rank=1, world_size=2).source.tolist()
        (2, 4, [[7, 3]])
    """

    padded: ClassVar[Mapping[str, str]] = {}
    shared: ClassVar[tuple[str, ...]] = ()

    def __len__(self) -> int:
        first = next(iter(vars(self).values()))
        return len(first[0] if isinstance(first, tuple) else first)

    @property
    def num_tokens(self) -> int:
        """The number of tokens to predict."""
        return int(getattr(self, list(self.padded.values())[-1]).sum()) - len(self)

    def to(self: SelfBatch, device: torch.device | str) -> SelfBatch:
        """Move all tensors to a device.

        Args: device: the device.
        """
        return replace(self, **pytree.tree_map(lambda tensor: tensor.to(device), vars(self)))

    def shard(self: SelfBatch, rank: int, world_size: int) -> SelfBatch:
        """Return the rows of one of several processes: every `world_size`-th, from `rank` on.

        Args:
            rank: the number of the process.
            world_size: the number of processes.

        Returns: A batch, which is empty if there are too few rows.
        """
        columns = {name: value for name, value in vars(self).items() if name not in self.shared}
        rows = pytree.tree_map(lambda tensor: tensor[rank::world_size], columns)
        for name, lengths in self.padded.items():
            longest = int(rows[lengths].max()) if len(rows[lengths]) else 0
            rows[name] = rows[name][:, :longest]
        return replace(self, **rows)


class BatchWithLabels(TensorBatch):
    """Base of batches of labeled examples: the field `labels`, and the arguments of the model.

    Example:
        >>> from regard.data.scenes import ImageBatch
        >>> batch = ImageBatch(torch.zeros(2, 1, 8, 8), torch.tensor([3, 7]))
        >>> [tensor.shape for tensor in batch.model_inputs], batch.num_tokens
        ([torch.Size([2, 1, 8, 8])], 2)
    """

    labels: Tensor

    @property
    def model_inputs(self) -> tuple[Tensor, ...]:
        """The arguments of the model."""
        return tuple(value for name, value in vars(self).items() if name != "labels")

    @property
    def num_tokens(self) -> int:
        """The number of labels to predict."""
        return int(self.labels.numel())


class TensorRows:
    """Base of dataclasses of examples, whose fields have one row for each: tensors, sequences, or other `TensorRows`.

    Fields of other types, such as numbers and None, belong to all rows; an empty sequence is left out for all.

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

    def __getitem__(self: SelfRows, index: int | slice | Tensor) -> SelfRows:
        rows: Any = slice(index, index + 1) if isinstance(index, int) else index
        is_column = (Tensor, TensorRows, Sequence)
        return type(self)(*(value[rows] if isinstance(value, is_column) else value for value in vars(self).values()))

    def __iter__(self: SelfRows) -> Iterator[SelfRows]:
        return (self[row] for row in range(len(self)))

    @classmethod
    def concatenate(cls: type[SelfRows], parts: Sequence[SelfRows]) -> SelfRows:
        """Join examples whose tensors have equal sizes.

        Args: parts: the examples, whose order remains.
        """
        return cls(*map(_concatenate, zip(*(vars(part).values() for part in parts), strict=True)))

    def head(self: SelfRows, count: int) -> SelfRows:
        """Return the first examples.

        Args:
            count: their number.
        """
        return self[:count]


def _concatenate(parts: tuple[Any, ...]) -> Any:
    if isinstance(parts[0], Sequence):
        return [*chain.from_iterable(parts)]
    if isinstance(parts[0], TensorRows):
        return parts[0].concatenate(parts)
    return torch.cat(parts) if isinstance(parts[0], Tensor) else parts[0]


def seeded_generator(*seeds: int) -> Generator:
    """Return a random number generator that is a function of some integers.

    Args:
        seeds: the integers, such as a seed and the number of a batch.

    Returns:
        A generator on the CPU.

    Reference: Steele, Lea and Flood (2014), "Fast Splittable Pseudorandom Number Generators" (SplitMix64).

    Example:
        >>> one, same = seeded_generator(0, 1), seeded_generator(0, 1)
        >>> one.initial_seed() == same.initial_seed()
        True
    """
    mixed = 0
    for seed in seeds:  # one step of SplitMix64 each, so that neighboring seeds give unrelated generators
        mixed = (mixed + seed + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return Generator().manual_seed(mixed % 2**63)


def data_fingerprint(values: Mapping[str, Any]) -> str:
    """Compute a checksum of named values, to refuse a saved position that belongs to other data.

    The names are part of the checksum: they are written as strings and stay the same when code is renamed.

    Args:
        values: plain values (JSON), NumPy arrays or tensors by name.

    Returns:
        Eight hexadecimal digits.

    Example:
        >>> data_fingerprint({"seed": 0}) == data_fingerprint({"seed": 0}) != data_fingerprint({"seed": 1})
        True
    """
    checksum = 0
    for name in sorted(values):
        value = values[name].numpy() if isinstance(values[name], Tensor) else values[name]
        content = value.tobytes() if isinstance(value, np.ndarray) else json.dumps(value, sort_keys=True).encode()
        checksum = zlib.crc32(content, zlib.crc32(f"{name} {len(content)} ".encode(), checksum))
    return f"{checksum:08x}"


class ResumableBatches(Generic[BatchT]):
    """Base of sources of batches that can be resumed after every batch.

    An epoch has one or more chunks; the batches of a chunk are planned before the first one is made, as a function of
    (seed, epoch, chunk). Subclasses set `name` and `fingerprint`, and define `_plan_batches` and `make_batch` if they
    plan a whole epoch at once, otherwise `_plan_chunks`.

    Example:
        >>> source = InMemoryBatches(["a", "b"], "".join, batch_size=2)
        >>> _, position = next(source.batches())
        >>> position["epoch"], position["batch"]
        (1, 0)
    """

    name: str
    fingerprint: str  # the checksum of the data and its options, which positions carry
    num_chunks = 1  # of an epoch
    has_chunks: ClassVar[bool] = False  # whether positions name the chunk

    def _plan_chunks(self, epoch: int, first_chunk: int) -> Iterator[ChunkPlan[BatchT]]:
        """Yield, for each chunk from `first_chunk` on, the rows of each batch and the function that makes a batch."""
        yield self._plan_batches(epoch), self.make_batch

    def _plan_batches(self, epoch: int) -> Sequence[Any]:
        """Return the row indices of each batch of an epoch, a function of the seed and the epoch."""
        raise NotImplementedError

    def make_batch(self, indices: Any) -> BatchT:
        """Collate the rows of one batch of the plan."""
        raise NotImplementedError

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[BatchT, DataPosition]]:
        """Iterate over batches without end.

        Args:
            position: a position of an earlier iteration; `None` starts at the beginning.

        Returns: An iterator over (batch, position after it); from a position, it yields exactly the batches after it.

        Raises: DataError: the position was saved for other data or options, or no example can be used.
        """
        if position is None:
            position = {"epoch": 0, "batch": 0, "data": self.fingerprint}
        if position.get("data") != self.fingerprint:
            raise self._changed_data_error()
        epoch, first_chunk, num_done = position["epoch"], position.get("chunk", 0), position["batch"]
        while True:
            for index, (plan, make_batch) in enumerate(self._plan_chunks(epoch, first_chunk), first_chunk):
                if num_done > len(plan):
                    raise self._changed_data_error()
                for number in range(num_done, len(plan)):
                    yield make_batch(plan[number]), self._position_after(epoch, index, number + 1, len(plan))
                num_done = 0
            epoch, first_chunk = epoch + 1, 0

    def batches_per_epoch(self) -> int:
        """Count the batches of the first epoch; where they depend on lengths, other epochs have a few more or less."""
        return sum(len(plan) for plan, _ in self._plan_chunks(0, 0))

    def _position_after(self, epoch: int, index: int, num_done: int, num_planned: int) -> DataPosition:
        if num_done == num_planned:
            index, num_done = index + 1, 0
        if index == self.num_chunks:
            epoch, index = epoch + 1, 0
        chunk = {"chunk": index} if self.has_chunks else {}
        return {"epoch": epoch, **chunk, "batch": num_done, "data": self.fingerprint}

    def _changed_data_error(self) -> DataError:
        reason = "changed since this position was saved; restore the old ones, or start a new run"
        return DataError(f"{self.name} or the options of the data {reason}.")


@dataclass(frozen=True)
class GeneratedBatches(Generic[ExampleT, BatchT]):
    """Generated batches without end; batch i is a function of the seed and i alone.

    Args:
        sample: `sample(generator, batch_size)` draws the examples of one batch.
        collate: converts the examples to a batch.
        batch_size: examples per batch.
        seed: seed of all batches.

    Example:
        >>> from regard.data.algorithms import Copy
        >>> source = GeneratedBatches(Copy({"length": (1, 9)}).sample, lambda batch: batch, batch_size=4)
        >>> batch, position = next(source.batches())
        >>> len(batch), position
        (4, {'batch': 1})
    """

    sample: Callable[[Generator, int], ExampleT]
    collate: Callable[[ExampleT], BatchT]
    batch_size: int = 32
    seed: int = 0

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[BatchT, DataPosition]]:
        """Iterate over batches without end, from the beginning or from a position, as `ResumableBatches` does."""
        for number in count(0 if position is None else int(position["batch"])):
            samples = self.sample(seeded_generator(self.seed, number), self.batch_size)
            yield self.collate(samples), {"batch": number + 1}


@dataclass(eq=False, repr=False)
class InMemoryBatches(ResumableBatches[BatchT], Generic[ExampleT, BatchT]):
    """Examples in memory, shuffled in every epoch; an epoch is each example once.

    Args:
        examples: the examples; for positions to be resumable, always in the same order.
        collate: converts a list of examples to a batch.
        batch_size: examples per batch.
        seed: seed of the order.

    Example:
        >>> from itertools import islice
        >>> source = InMemoryBatches(["a", "b", "c"], "".join, batch_size=2)
        >>> [len(batch) for batch, _ in islice(source.batches(), 4)]
        [2, 1, 2, 1]
    """

    examples: Sequence[ExampleT]
    collate: Callable[[Sequence[ExampleT]], BatchT]
    batch_size: int = 32
    seed: int = 0

    def __post_init__(self) -> None:
        if not len(self):
            raise DataError("There are no examples to make batches of.")
        self.name = "the examples"
        self.fingerprint = data_fingerprint({"examples": len(self), "batch_size": self.batch_size, "seed": self.seed})

    def __len__(self) -> int:
        return len(self.examples)

    def make_batch(self, indices: Sequence[int]) -> BatchT:
        """Collate the examples of these indices."""
        return self.collate([self.examples[i] for i in indices])

    def _plan_batches(self, epoch: int) -> list[list[int]]:
        order = shuffle(range(len(self)), Random(f"{self.seed} {epoch}"))
        return [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]


def shuffle(items: Sequence[ExampleT], rng: Random) -> list[ExampleT]:
    """Return items in random order.

    Args:
        items: the items.
        rng: the source of randomness, of which one number is drawn for each item.

    Example:
        >>> shuffle("abc", Random(0))
        ['c', 'b', 'a']
    """
    return [items[i] for i in sorted(range(len(items)), key=[rng.random() for _ in items].__getitem__)]


def split_by_tokens(
    order: IntArray, lengths: IntArray, max_tokens: int, *, is_padded: bool = True, max_rows: int | None = None
) -> list[IntArray]:
    """Split rows into batches of at most `max_tokens` tokens; a single longer row is a batch of its own.

    Args:
        order: the rows, in the order of the batches.
        lengths: the length of each row.
        max_tokens: the limit: rows x longest row of padded batches, the sum of the lengths of others.
        is_padded: whether rows are padded to the longest of their batch.
        max_rows: a limit on the rows of a batch, in place of that on its tokens.

    Returns:
        The rows of each batch.

    Example:
        >>> [rows.tolist() for rows in split_by_tokens(np.arange(6), np.array([2, 2, 3, 9, 1, 1]), max_tokens=6)]
        [[0, 1], [2], [3], [4, 5]]
        >>> lengths = np.array([3, 3, 9, 1, 4])
        >>> [rows.tolist() for rows in split_by_tokens(np.arange(5), lengths, max_tokens=6, is_padded=False)]
        [[0, 1], [2], [3, 4]]
    """
    if max_rows is not None:
        return np.split(order, range(max_rows, len(order), max_rows)) if len(order) else []
    cuts, first, longest, total = [], 0, 0, 0
    for place, length in enumerate(lengths[order].tolist()):
        longest, total = max(longest, length), total + length
        size = longest * (place - first + 1) if is_padded else total
        if place > first and size > max_tokens:
            cuts.append(place)
            first, longest, total = place, length, length
    return np.split(order, cuts) if len(order) else []
