"""Five small algorithms to be learned from examples: copy, repeat copy, recall, n-grams, sort.

Graves, Wayne and Danihelka (2014), "Neural Turing Machines", arXiv 1410.5401, section 4. Sequences are made on
the fly; in a batch all have the same size, so that nothing is filled up. Where the paper is silent on how
something is written into channels, the class says how it is here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from regard.data.sources import seeded_generator
from regard.errors import UsageError

SizeRanges = Mapping[str, tuple[int, int]]  # of each size, the least and the greatest


@dataclass(frozen=True)
class SequenceBatch:
    """A batch of sequences: what goes in, what should come out, and at which steps that is asked."""

    inputs: Float[Tensor, "rows steps inputs"]
    targets: Float[Tensor, "rows steps outputs"]
    target_mask: Bool[Tensor, " steps"]

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def num_tokens(self) -> int:
        """How many bits are asked for."""
        return len(self) * int(self.target_mask.sum()) * self.targets.shape[-1]

    def to(self, device: torch.device | str) -> SequenceBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def shard(self, rank: int, world_size: int) -> SequenceBatch:
        """The share of one of `world` processes: every world-th row."""
        return replace(self, inputs=self.inputs[rank::world_size], targets=self.targets[rank::world_size])


@dataclass(frozen=True)
class Algorithm(ABC):
    """Sequences of one kind: `make` draws a batch, of sizes by chance within `sizes` unless they are given."""

    sizes: SizeRanges
    num_bits: int = 8
    size_names: ClassVar[tuple[str, ...]]  # what has a size

    def __post_init__(self) -> None:
        for name in self.size_names:
            least, greatest = self.sizes[name]
            if not 1 <= least <= greatest:
                raise UsageError(f"{name} from {least} to {greatest} cannot be drawn: 1 <= least <= greatest")

    @property
    @abstractmethod
    def dims(self) -> tuple[int, int]:
        """How many numbers go in and come out at each step."""

    @abstractmethod
    def _sample(self, generator: Generator, batch_size: int, **sizes: int) -> SequenceBatch: ...

    def sample(self, generator: Generator, batch_size: int, **given: int) -> SequenceBatch:
        """So many sequences of one size."""
        drawn = {name: _uniform_int(generator, *self.sizes[name]) for name in self.size_names}
        if unknown := set(given) - set(drawn):
            raise UsageError(
                f"{type(self).__name__.lower()} has no size {sorted(unknown)[0]!r}; its sizes are"
                f" {', '.join(self.size_names)}"
            )
        if small := [name for name, size in given.items() if size < 1]:
            raise UsageError(f"{small[0]}={given[small[0]]} is too small: it must be at least 1")
        return self._sample(generator, batch_size, **(drawn | given))

    def _sample_vectors(self, generator: Generator, *shape: int) -> Tensor:
        return torch.randint(2, (*shape, self.num_bits), generator=generator).float()


class Copy(Algorithm):
    """See a sequence of vectors, then a mark; say the sequence again. Section 4.1.

    >>> batch = Copy({"length": (1, 20)}).sample(torch.Generator(), batch_size=2, length=3)
    >>> batch.inputs.shape, batch.targets.shape, batch.target_mask.tolist()
    (torch.Size([2, 7, 9]), torch.Size([2, 7, 8]), [False, False, False, False, True, True, True])
    """

    size_names = ("length",)

    @property
    def dims(self) -> tuple[int, int]:
        return self.num_bits + 1, self.num_bits

    def _sample(self, generator: Generator, batch_size: int, *, length: int) -> SequenceBatch:  # type: ignore[override]
        vectors = self._sample_vectors(generator, batch_size, length)
        inputs, targets, asked = _make_blank(batch_size, 2 * length + 1, *self.dims)
        inputs[:, :length, : self.num_bits] = vectors
        inputs[:, length, -1] = 1
        targets[:, length + 1 :] = vectors
        asked[length + 1 :] = True
        return SequenceBatch(inputs, targets, asked)


class RepeatCopy(Algorithm):
    """See a sequence and a number; say the sequence so often, then an end mark. Section 4.2.

    The number stands where copy has its mark, as (number - mean) / deviation of the training's range; the end
    mark is one more bit of the output.

    >>> batch = RepeatCopy({"length": (1, 10), "repeats": (1, 10)}).sample(torch.Generator(), 2, length=3, repeats=2)
    >>> batch.inputs.shape, batch.targets.shape, int(batch.target_mask.sum())
    (torch.Size([2, 11, 9]), torch.Size([2, 11, 9]), 7)
    """

    size_names = ("length", "repeats")

    @property
    def dims(self) -> tuple[int, int]:
        return self.num_bits + 1, self.num_bits + 1

    def _sample(self, generator: Generator, batch_size: int, *, length: int, repeats: int) -> SequenceBatch:  # type: ignore[override]
        vectors = self._sample_vectors(generator, batch_size, length)
        inputs, targets, asked = _make_blank(batch_size, length + 1 + length * repeats + 1, *self.dims)
        inputs[:, :length, : self.num_bits] = vectors
        inputs[:, length, -1] = self.normalize_repeats(repeats)
        targets[:, length + 1 : -1, : self.num_bits] = vectors.repeat(1, repeats, 1)
        targets[:, -1, -1] = 1
        asked[length + 1 :] = True
        return SequenceBatch(inputs, targets, asked)

    def normalize_repeats(self, repeats: int) -> float:
        """With mean 0 and variance 1 over the numbers that training draws."""
        least, greatest = self.sizes["repeats"]
        count = greatest - least + 1
        deviation = math.sqrt(max(count * count - 1, 1) / 12) if count > 1 else 1.0
        return (repeats - (least + greatest) / 2) / deviation


class AssociativeRecall(Algorithm):
    """See items, then one of them; say the item that followed it. Section 4.3.

    An item is `ITEM` vectors; a mark stands before each, another around the item that is asked about.

    >>> batch = AssociativeRecall({"items": (2, 6)}, num_bits=6).sample(torch.Generator(), batch_size=2, items=4)
    >>> batch.inputs.shape, batch.targets.shape, int(batch.target_mask.sum())
    (torch.Size([2, 24, 8]), torch.Size([2, 24, 6]), 3)
    """

    size_names = ("items",)
    ITEM_LENGTH = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sizes["items"][0] < 2:
            raise UsageError("recall needs at least 2 items: one to ask for and one that follows it")

    @property
    def dims(self) -> tuple[int, int]:
        return self.num_bits + 2, self.num_bits

    def _sample(self, generator: Generator, batch_size: int, *, items: int) -> SequenceBatch:  # type: ignore[override]
        if items < 2:
            raise UsageError(f"items={items} is too small: one is asked for, and one follows it")
        vectors = self._sample_vectors(generator, batch_size, items, self.ITEM_LENGTH)
        which = torch.randint(items - 1, (batch_size,), generator=generator)
        each, row = self.ITEM_LENGTH + 1, torch.arange(batch_size)
        inputs, targets, asked = _make_blank(
            batch_size, (items + 1) * each + 1 + self.ITEM_LENGTH, *self.dims
        )
        shown = inputs[:, : items * each].unflatten(1, (items, each))
        shown[:, :, 0, self.num_bits] = 1
        shown[:, :, 1:, : self.num_bits] = vectors
        query = inputs[:, items * each :]
        query[:, (0, each), self.num_bits + 1] = 1
        query[:, 1:each, : self.num_bits] = vectors[row, which]
        targets[:, -self.ITEM_LENGTH :] = vectors[row, which + 1]
        asked[-self.ITEM_LENGTH :] = True
        return SequenceBatch(inputs, targets, asked)


class DynamicNGrams(Algorithm):
    """See bits from a source that is drawn anew for each sequence; foretell each next bit. Section 4.4.

    The source gives 1 with a probability that depends on the last `CONTEXT` bits; these probabilities come from
    Beta(1/2, 1/2). Bits are asked for from the first that has a whole context.

    >>> batch = DynamicNGrams({"length": (200, 200)}, num_bits=1).sample(torch.Generator(), batch_size=2)
    >>> batch.inputs.shape, batch.targets.shape, int(batch.target_mask.sum())
    (torch.Size([2, 200, 1]), torch.Size([2, 200, 1]), 195)
    """

    size_names = ("length",)
    CONTEXT_LENGTH = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if (least := self.sizes["length"][0]) <= self.CONTEXT_LENGTH:
            raise UsageError(
                f"ngrams of {least} bits have none to foretell: {self.CONTEXT_LENGTH} are only context; take"
                f" {self.CONTEXT_LENGTH + 1} or more"
            )

    @property
    def dims(self) -> tuple[int, int]:
        return 1, 1

    def _sample(self, generator: Generator, batch_size: int, *, length: int) -> SequenceBatch:  # type: ignore[override]
        if length <= self.CONTEXT_LENGTH:
            raise UsageError(f"length={length} is too small: {self.CONTEXT_LENGTH} bits are only context")
        # Beta(1/2, 1/2) is sin^2 of an angle that is uniform (the arcsine law)
        table = (
            torch.sin(math.pi / 2 * torch.rand(batch_size, 2**self.CONTEXT_LENGTH, generator=generator)) ** 2
        )
        bits = torch.zeros(batch_size, length, dtype=torch.long)
        bits[:, : self.CONTEXT_LENGTH] = torch.randint(
            2, (batch_size, self.CONTEXT_LENGTH), generator=generator
        )
        chance, row = torch.rand(batch_size, length, generator=generator), torch.arange(batch_size)
        context = _bits_to_int(bits[:, : self.CONTEXT_LENGTH])
        for step in range(self.CONTEXT_LENGTH, length):
            bits[:, step] = (chance[:, step] < table[row, context]).long()
            context = (2 * context + bits[:, step]) % 2**self.CONTEXT_LENGTH
        inputs, targets, asked = _make_blank(batch_size, length, 1, 1)
        inputs[:, 1:, 0] = bits[:, :-1].float()  # a step says the bit that comes, having seen those before
        targets[:, :, 0] = bits.float()
        asked[self.CONTEXT_LENGTH :] = True
        return SequenceBatch(inputs, targets, asked)

    def optimal_prediction(self, bits: Float[Tensor, "rows length"]) -> Float[Tensor, "rows length"]:
        """The probability of a 1 that the best possible guess gives: (ones + 1/2) / (seen + 1) in this context.

        That is Bayes' rule with the source's own prior (Murphy 2012); before a whole context it is 1/2.
        """
        rows, length = bits.shape
        counts = torch.full((rows, 2**self.CONTEXT_LENGTH, 2), 0.5)
        found, row = torch.full((rows, length), 0.5), torch.arange(rows)
        known = bits.long()
        for step in range(self.CONTEXT_LENGTH, length):
            context = _bits_to_int(known[:, step - self.CONTEXT_LENGTH : step])
            seen = counts[row, context]
            found[:, step] = seen[:, 1] / seen.sum(-1)
            counts[row, context, known[:, step]] += 1
        return found


class PrioritySort(Algorithm):
    """See vectors, each with a priority in [-1, 1]; say the best of them, the highest first. Section 4.5.

    Four in five are asked for: 16 of 20, as in the paper.

    >>> batch = PrioritySort({"length": (20, 20)}).sample(torch.Generator(), batch_size=2)
    >>> batch.inputs.shape, batch.targets.shape, int(batch.target_mask.sum())
    (torch.Size([2, 37, 10]), torch.Size([2, 37, 8]), 16)
    """

    size_names = ("length",)

    @property
    def dims(self) -> tuple[int, int]:
        return self.num_bits + 2, self.num_bits

    def _sample(self, generator: Generator, batch_size: int, *, length: int) -> SequenceBatch:  # type: ignore[override]
        best = max(1, length * 4 // 5)
        vectors = self._sample_vectors(generator, batch_size, length)
        priority = 2 * torch.rand(batch_size, length, generator=generator) - 1
        inputs, targets, asked = _make_blank(batch_size, length + 1 + best, *self.dims)
        inputs[:, :length, : self.num_bits] = vectors
        inputs[:, :length, self.num_bits] = priority
        inputs[:, length, self.num_bits + 1] = 1
        order = priority.argsort(1, descending=True)[:, :best]
        targets[:, length + 1 :] = vectors.gather(1, order[..., None].expand(-1, -1, self.num_bits))
        asked[length + 1 :] = True
        return SequenceBatch(inputs, targets, asked)


@dataclass(frozen=True)
class GeneratedSequenceBatches:
    """Batches of an algorithm without end; each is a function of the seed and its number alone."""

    algorithm: Algorithm
    batch_size: int
    seed: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[SequenceBatch, dict[str, Any]]]:
        number = 0 if position is None else int(position["batch"])
        while True:
            batch = self.algorithm.sample(seeded_generator(self.seed, number), self.batch_size, **self.sizes)
            number += 1
            yield batch, {"batch": number}


def _uniform_int(generator: Generator, low: int, high: int) -> int:
    return int(torch.randint(low, high + 1, (), generator=generator))


def _make_blank(
    batch_size: int, steps: int, input_dim: int, output_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.zeros(batch_size, steps, input_dim),
        torch.zeros(batch_size, steps, output_dim),
        torch.zeros(steps, dtype=torch.bool),
    )


def _bits_to_int(bits: Tensor) -> Tensor:
    """Bits read as a binary number, the first the highest."""
    return (bits * 2 ** torch.arange(bits.shape[-1] - 1, -1, -1)).sum(-1)
