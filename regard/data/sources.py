"""Sources of batches for training: endless, and resumable after any batch."""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from torch import Generator, Tensor

from regard.errors import DataError

__all__ = [
    "ChunkPlan", "DataPosition", "EpochBatches", "GeneratedBatches", "InMemoryBatches", "ResumableBatches",
    "data_fingerprint", "seeded_generator",
]  # fmt: skip

DataPosition = dict[str, Any]  # plain values, for JSON
SampleT = TypeVar("SampleT")
ExampleT = TypeVar("ExampleT")
BatchT = TypeVar("BatchT")
ChunkPlan = tuple[Sequence[Any], Callable[[Any], BatchT]]  # the rows of each batch, and what makes one of them


def seeded_generator(*seeds: int) -> Generator:
    """Return a random number generator that is a function of some integers.

    Args:
        seeds: the integers, such as a seed and the number of a batch.

    Returns:
        A generator on the CPU.

    Reference:
        Steele, Lea and Flood (2014), "Fast Splittable Pseudorandom Number Generators" (SplitMix64).

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
        value = values[name]
        if isinstance(value, Tensor):
            value = value.numpy()
        content = (
            np.ascontiguousarray(value).tobytes()
            if isinstance(value, np.ndarray)
            else json.dumps(value, sort_keys=True, ensure_ascii=True).encode()
        )
        checksum = zlib.crc32(content, zlib.crc32(f"{name} {len(content)} ".encode(), checksum))
    return f"{checksum:08x}"


class ResumableBatches(ABC, Generic[BatchT]):
    """Base of sources of batches that can be resumed after every batch.

    An epoch has one or more chunks; the batches of a chunk are planned before the first one is made, as a function of
    (seed, epoch, chunk). Subclasses set `name` and `fingerprint`, and define `_plan_chunks`.

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

    @abstractmethod
    def _plan_chunks(self, epoch: int, first_chunk: int) -> Iterator[ChunkPlan[BatchT]]:
        """Yield, for each chunk from `first_chunk` on, the rows of each batch and the function that makes a batch."""

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[BatchT, DataPosition]]:
        """Iterate over batches without end.

        Args:
            position: a position of an earlier iteration; `None` starts at the beginning.

        Returns:
            An iterator over (batch, position after it); from a position, it yields exactly the following batches.

        Raises:
            DataError: the position was saved for other data or options, or no example can be used.
        """
        beginning: DataPosition = {"epoch": 0, "batch": 0, "data": self.fingerprint}
        start = beginning if position is None else position
        if start.get("data") != self.fingerprint:
            raise self._changed_data_error()
        epoch, first_chunk, num_done = start["epoch"], start.get("chunk", 0), start["batch"]
        while True:
            for index, (plan, make_batch) in enumerate(self._plan_chunks(epoch, first_chunk), first_chunk):
                if num_done > len(plan):
                    raise self._changed_data_error()
                for number in range(num_done, len(plan)):
                    yield make_batch(plan[number]), self._position_after(epoch, index, number + 1, len(plan))
                num_done = 0
            epoch, first_chunk = epoch + 1, 0

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


class EpochBatches(ResumableBatches[BatchT]):
    """Base of sources that plan the batches of a whole epoch.

    Subclasses set `name` and `fingerprint`, and define `_plan_batches` and `make_batch`.

    Example:
        >>> issubclass(InMemoryBatches, EpochBatches)
        True
    """

    @abstractmethod
    def _plan_batches(self, epoch: int) -> Sequence[Any]:
        """Return the row indices of each batch of an epoch, a function of the seed and the epoch."""

    @abstractmethod
    def make_batch(self, indices: Any) -> BatchT:
        """Collate some rows.

        Args:
            indices: the rows.

        Returns:
            The batch.
        """

    def _plan_chunks(self, epoch: int, first_chunk: int) -> Iterator[ChunkPlan[BatchT]]:
        yield self._plan_batches(epoch), self.make_batch


@dataclass(frozen=True)
class GeneratedBatches(Generic[SampleT, BatchT]):
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

    sample: Callable[[Generator, int], SampleT]
    collate: Callable[[SampleT], BatchT]
    batch_size: int = 32
    seed: int = 0

    def batches(self, position: DataPosition | None = None) -> Iterator[tuple[BatchT, DataPosition]]:
        """Iterate over batches without end.

        Args:
            position: a position of an earlier iteration; `None` starts at the beginning.

        Returns:
            An iterator over (batch, position after it); from a position, it yields exactly the following batches.
        """
        number = 0 if position is None else int(position["batch"])
        while True:
            samples = self.sample(seeded_generator(self.seed, number), self.batch_size)
            number += 1
            yield self.collate(samples), {"batch": number}


class InMemoryBatches(EpochBatches[BatchT], Generic[ExampleT, BatchT]):
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

    def __init__(
        self,
        examples: Sequence[ExampleT],
        collate: Callable[[Sequence[ExampleT]], BatchT],
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        if not len(examples):
            raise DataError("There are no examples to make batches of.")
        self.examples, self.collate, self.batch_size, self.seed = examples, collate, batch_size, seed
        self.name = "the examples"
        self.fingerprint = data_fingerprint({"examples": len(examples), "batch_size": batch_size, "seed": seed})

    def __len__(self) -> int:
        return len(self.examples)

    def make_batch(self, indices: Sequence[int]) -> BatchT:
        """Collate some examples.

        Args:
            indices: their indices.

        Returns:
            The batch.
        """
        return self.collate([self.examples[i] for i in indices])

    def _plan_batches(self, epoch: int) -> list[list[int]]:
        rng = Random(f"{self.seed} {epoch}")
        order = sorted(range(len(self)), key=[rng.random() for _ in range(len(self))].__getitem__)
        return [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
