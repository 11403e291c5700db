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

from regard.errors import UsageError

Sizes = Mapping[str, tuple[int, int]]  # of each size, the least and the greatest


@dataclass(frozen=True)
class Sequences:
    """A batch of sequences: what goes in, what should come out, and at which steps that is asked."""

    inputs: Float[Tensor, "rows steps inputs"]
    targets: Float[Tensor, "rows steps outputs"]
    asked: Bool[Tensor, " steps"]

    def __len__(self) -> int:
        return len(self.inputs)

    @property
    def tokens(self) -> int:
        """How many bits are asked for."""
        return len(self) * int(self.asked.sum()) * self.targets.shape[-1]

    def to(self, device: torch.device | str) -> Sequences:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def part(self, rank: int, world: int) -> Sequences:
        """The share of one of `world` processes: every world-th row."""
        return replace(self, inputs=self.inputs[rank::world], targets=self.targets[rank::world])


@dataclass(frozen=True)
class Algorithm(ABC):
    """Sequences of one kind: `make` draws a batch, of sizes by chance within `sizes` unless they are given."""

    sizes: Sizes
    bits: int = 8
    names: ClassVar[tuple[str, ...]]  # what has a size

    def __post_init__(self) -> None:
        for name in self.names:
            least, greatest = self.sizes[name]
            if not 1 <= least <= greatest:
                raise UsageError(f"{name} from {least} to {greatest} cannot be drawn: 1 <= least <= greatest")

    @property
    @abstractmethod
    def channels(self) -> tuple[int, int]:
        """How many numbers go in and come out at each step."""

    @abstractmethod
    def _make(self, random: Generator, rows: int, **sizes: int) -> Sequences: ...

    def make(self, random: Generator, rows: int, **given: int) -> Sequences:
        """So many sequences of one size."""
        drawn = {name: _between(random, *self.sizes[name]) for name in self.names}
        if unknown := set(given) - set(drawn):
            raise UsageError(
                f"{type(self).__name__.lower()} has no size {sorted(unknown)[0]!r}; its sizes are"
                f" {', '.join(self.names)}"
            )
        if small := [name for name, size in given.items() if size < 1]:
            raise UsageError(f"{small[0]}={given[small[0]]} is too small: it must be at least 1")
        return self._make(random, rows, **(drawn | given))

    def _vectors(self, random: Generator, *shape: int) -> Tensor:
        return torch.randint(2, (*shape, self.bits), generator=random).float()


class Copy(Algorithm):
    """See a sequence of vectors, then a mark; say the sequence again. Section 4.1.

    >>> batch = Copy({"length": (1, 20)}).make(torch.Generator(), rows=2, length=3)
    >>> batch.inputs.shape, batch.targets.shape, batch.asked.tolist()
    (torch.Size([2, 7, 9]), torch.Size([2, 7, 8]), [False, False, False, False, True, True, True])
    """

    names = ("length",)

    @property
    def channels(self) -> tuple[int, int]:
        return self.bits + 1, self.bits

    def _make(self, random: Generator, rows: int, *, length: int) -> Sequences:  # type: ignore[override]
        vectors = self._vectors(random, rows, length)
        inputs, targets, asked = _blank(rows, 2 * length + 1, *self.channels)
        inputs[:, :length, : self.bits] = vectors
        inputs[:, length, -1] = 1
        targets[:, length + 1 :] = vectors
        asked[length + 1 :] = True
        return Sequences(inputs, targets, asked)


class RepeatCopy(Algorithm):
    """See a sequence and a number; say the sequence so often, then an end mark. Section 4.2.

    The number stands where copy has its mark, as (number - mean) / deviation of the training's range; the end
    mark is one more bit of the output.

    >>> batch = RepeatCopy({"length": (1, 10), "repeats": (1, 10)}).make(torch.Generator(), 2, length=3, repeats=2)
    >>> batch.inputs.shape, batch.targets.shape, int(batch.asked.sum())
    (torch.Size([2, 11, 9]), torch.Size([2, 11, 9]), 7)
    """

    names = ("length", "repeats")

    @property
    def channels(self) -> tuple[int, int]:
        return self.bits + 1, self.bits + 1

    def _make(self, random: Generator, rows: int, *, length: int, repeats: int) -> Sequences:  # type: ignore[override]
        vectors = self._vectors(random, rows, length)
        inputs, targets, asked = _blank(rows, length + 1 + length * repeats + 1, *self.channels)
        inputs[:, :length, : self.bits] = vectors
        inputs[:, length, -1] = self.normalized(repeats)
        targets[:, length + 1 : -1, : self.bits] = vectors.repeat(1, repeats, 1)
        targets[:, -1, -1] = 1
        asked[length + 1 :] = True
        return Sequences(inputs, targets, asked)

    def normalized(self, repeats: int) -> float:
        """With mean 0 and variance 1 over the numbers that training draws."""
        least, greatest = self.sizes["repeats"]
        count = greatest - least + 1
        deviation = math.sqrt(max(count * count - 1, 1) / 12) if count > 1 else 1.0
        return (repeats - (least + greatest) / 2) / deviation


class Recall(Algorithm):
    """See items, then one of them; say the item that followed it. Section 4.3.

    An item is `ITEM` vectors; a mark stands before each, another around the item that is asked about.

    >>> batch = Recall({"items": (2, 6)}, bits=6).make(torch.Generator(), rows=2, items=4)
    >>> batch.inputs.shape, batch.targets.shape, int(batch.asked.sum())
    (torch.Size([2, 24, 8]), torch.Size([2, 24, 6]), 3)
    """

    names = ("items",)
    ITEM = 3

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sizes["items"][0] < 2:
            raise UsageError("recall needs at least 2 items: one to ask for and one that follows it")

    @property
    def channels(self) -> tuple[int, int]:
        return self.bits + 2, self.bits

    def _make(self, random: Generator, rows: int, *, items: int) -> Sequences:  # type: ignore[override]
        if items < 2:
            raise UsageError(f"items={items} is too small: one is asked for, and one follows it")
        vectors = self._vectors(random, rows, items, self.ITEM)
        which = torch.randint(items - 1, (rows,), generator=random)
        each, row = self.ITEM + 1, torch.arange(rows)
        inputs, targets, asked = _blank(rows, (items + 1) * each + 1 + self.ITEM, *self.channels)
        shown = inputs[:, : items * each].unflatten(1, (items, each))
        shown[:, :, 0, self.bits] = 1
        shown[:, :, 1:, : self.bits] = vectors
        query = inputs[:, items * each :]
        query[:, (0, each), self.bits + 1] = 1
        query[:, 1:each, : self.bits] = vectors[row, which]
        targets[:, -self.ITEM :] = vectors[row, which + 1]
        asked[-self.ITEM :] = True
        return Sequences(inputs, targets, asked)


class Ngrams(Algorithm):
    """See bits from a source that is drawn anew for each sequence; foretell each next bit. Section 4.4.

    The source gives 1 with a probability that depends on the last `CONTEXT` bits; these probabilities come from
    Beta(1/2, 1/2). Bits are asked for from the first that has a whole context.

    >>> batch = Ngrams({"length": (200, 200)}, bits=1).make(torch.Generator(), rows=2)
    >>> batch.inputs.shape, batch.targets.shape, int(batch.asked.sum())
    (torch.Size([2, 200, 1]), torch.Size([2, 200, 1]), 195)
    """

    names = ("length",)
    CONTEXT = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if (least := self.sizes["length"][0]) <= self.CONTEXT:
            raise UsageError(
                f"ngrams of {least} bits have none to foretell: {self.CONTEXT} are only context; take"
                f" {self.CONTEXT + 1} or more"
            )

    @property
    def channels(self) -> tuple[int, int]:
        return 1, 1

    def _make(self, random: Generator, rows: int, *, length: int) -> Sequences:  # type: ignore[override]
        if length <= self.CONTEXT:
            raise UsageError(f"length={length} is too small: {self.CONTEXT} bits are only context")
        # Beta(1/2, 1/2) is sin^2 of an angle that is uniform (the arcsine law)
        table = torch.sin(math.pi / 2 * torch.rand(rows, 2**self.CONTEXT, generator=random)) ** 2
        bits = torch.zeros(rows, length, dtype=torch.long)
        bits[:, : self.CONTEXT] = torch.randint(2, (rows, self.CONTEXT), generator=random)
        chance, row = torch.rand(rows, length, generator=random), torch.arange(rows)
        context = _number(bits[:, : self.CONTEXT])
        for step in range(self.CONTEXT, length):
            bits[:, step] = (chance[:, step] < table[row, context]).long()
            context = (2 * context + bits[:, step]) % 2**self.CONTEXT
        inputs, targets, asked = _blank(rows, length, 1, 1)
        inputs[:, 1:, 0] = bits[:, :-1].float()  # a step says the bit that comes, having seen those before
        targets[:, :, 0] = bits.float()
        asked[self.CONTEXT :] = True
        return Sequences(inputs, targets, asked)

    def best(self, bits: Float[Tensor, "rows length"]) -> Float[Tensor, "rows length"]:
        """The probability of a 1 that the best possible guess gives: (ones + 1/2) / (seen + 1) in this context.

        That is Bayes' rule with the source's own prior (Murphy 2012); before a whole context it is 1/2.
        """
        rows, length = bits.shape
        counts = torch.full((rows, 2**self.CONTEXT, 2), 0.5)
        found, row = torch.full((rows, length), 0.5), torch.arange(rows)
        known = bits.long()
        for step in range(self.CONTEXT, length):
            context = _number(known[:, step - self.CONTEXT : step])
            seen = counts[row, context]
            found[:, step] = seen[:, 1] / seen.sum(-1)
            counts[row, context, known[:, step]] += 1
        return found


class Sort(Algorithm):
    """See vectors, each with a priority in [-1, 1]; say the best of them, the highest first. Section 4.5.

    Four in five are asked for: 16 of 20, as in the paper.

    >>> batch = Sort({"length": (20, 20)}).make(torch.Generator(), rows=2)
    >>> batch.inputs.shape, batch.targets.shape, int(batch.asked.sum())
    (torch.Size([2, 37, 10]), torch.Size([2, 37, 8]), 16)
    """

    names = ("length",)

    @property
    def channels(self) -> tuple[int, int]:
        return self.bits + 2, self.bits

    def _make(self, random: Generator, rows: int, *, length: int) -> Sequences:  # type: ignore[override]
        best = max(1, length * 4 // 5)
        vectors = self._vectors(random, rows, length)
        priority = 2 * torch.rand(rows, length, generator=random) - 1
        inputs, targets, asked = _blank(rows, length + 1 + best, *self.channels)
        inputs[:, :length, : self.bits] = vectors
        inputs[:, :length, self.bits] = priority
        inputs[:, length, self.bits + 1] = 1
        order = priority.argsort(1, descending=True)[:, :best]
        targets[:, length + 1 :] = vectors.gather(1, order[..., None].expand(-1, -1, self.bits))
        asked[length + 1 :] = True
        return Sequences(inputs, targets, asked)


@dataclass(frozen=True)
class Endless:
    """Batches of an algorithm without end; each is a function of the seed and its number alone."""

    algorithm: Algorithm
    rows: int
    seed: int = 0
    given: Mapping[str, int] = field(default_factory=dict)

    def batches(self, position: dict[str, Any] | None) -> Iterator[tuple[Sequences, dict[str, Any]]]:
        number = 0 if position is None else int(position["batch"])
        while True:
            batch = self.algorithm.make(chance(self.seed, number), self.rows, **self.given)
            number += 1
            yield batch, {"batch": number}


def chance(*seeds: int) -> Generator:
    """A source of random numbers that depends on these numbers only.

    >>> int(torch.randint(100, (), generator=chance(0, 1))) == int(torch.randint(100, (), generator=chance(0, 1)))
    True
    """
    mixed = 0
    for seed in seeds:  # a step of SplitMix64 (Steele et al. 2014) for each, so that neighbors are strangers
        mixed = (mixed + seed + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return Generator().manual_seed(mixed % 2**63)


def _between(random: Generator, least: int, greatest: int) -> int:
    return int(torch.randint(least, greatest + 1, (), generator=random))


def _blank(rows: int, steps: int, inputs: int, outputs: int) -> tuple[Tensor, Tensor, Tensor]:
    return (
        torch.zeros(rows, steps, inputs),
        torch.zeros(rows, steps, outputs),
        torch.zeros(steps, dtype=torch.bool),
    )


def _number(bits: Tensor) -> Tensor:
    """Bits read as a binary number, the first the highest."""
    return (bits * 2 ** torch.arange(bits.shape[-1] - 1, -1, -1)).sum(-1)
