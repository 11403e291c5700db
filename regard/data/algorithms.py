"""Five algorithms to learn from examples: copy, repeat copy, associative recall, dynamic n-grams, priority sort.

Sequences are generated; all of a batch have the same size, so that nothing is padded.

Reference: Graves, Wayne and Danihelka (2014), "Neural Turing Machines", arXiv 1410.5401, section 4. Where the paper
does not specify the encoding, each class documents it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Generator, Tensor

from regard.data.sources import TensorBatch
from regard.errors import UsageError

__all__ = ["Algorithm", "AssociativeRecall", "Copy", "DynamicNGrams", "PrioritySort", "RepeatCopy", "SequenceBatch"]


@dataclass(frozen=True)
class SequenceBatch(TensorBatch):
    """Sequences of input vectors with their target bits.

    Args:
        inputs: the input vectors.
        targets: the target bits.
        target_mask: whether a step has a target.

    Shape:
        inputs: (batch, steps, input_dim), targets: (batch, steps, output_dim), target_mask: (steps,).

    Example:
        >>> SequenceBatch(torch.zeros(2, 3, 4), torch.zeros(2, 3, 5), torch.tensor([False, True, True])).num_tokens
        20
    """

    inputs: Float[Tensor, "batch steps input_dim"]
    targets: Float[Tensor, "batch steps output_dim"]
    target_mask: Bool[Tensor, " steps"]
    shared: ClassVar[tuple[str, ...]] = ("target_mask",)

    @property
    def num_tokens(self) -> int:
        """The number of bits to predict."""
        return len(self) * int(self.target_mask.sum()) * self.targets.shape[-1]


@dataclass(frozen=True)
class Algorithm(ABC):
    """Base of the algorithms: generates batches of sequences.

    Args:
        sizes: the range of each size, from which the size of a batch is drawn.
        num_bits: the bits of a vector.

    Example:
        >>> Copy({"length": (1, 20)}, num_bits=4).dims
        (5, 4)
    """

    sizes: Mapping[str, tuple[int, int]]  # the smallest and largest value of each
    num_bits: int = 8
    name: ClassVar[str]
    size_names: ClassVar[tuple[str, ...]]
    num_marks: ClassVar[tuple[int, int]]  # dimensions of inputs and targets in addition to the bits
    min_size: ClassVar[int] = 1  # of each size
    min_size_reason: ClassVar[str] = ""  # the end of a sentence

    def __post_init__(self) -> None:
        for name in self.size_names:
            low, high = self.sizes[name]
            if not self.min_size <= low <= high:
                bounds = f"must be {self.min_size} <= smallest <= largest{self.min_size_reason}"
                raise UsageError(f"invalid range of {name}, from {low} to {high}: {bounds}")

    @property
    def dims(self) -> tuple[int, int]:
        """The dimensions of inputs and targets: (input_dim, output_dim)."""
        return self.num_bits + self.num_marks[0], self.num_bits + self.num_marks[1]

    @abstractmethod
    def _sample(self, generator: Generator, batch_size: int, **sizes: int) -> SequenceBatch: ...

    def sample(self, generator: Generator, batch_size: int, **sizes: int) -> SequenceBatch:
        """Generate sequences of one size.

        Args:
            generator: the source of randomness.
            batch_size: the number of sequences.
            sizes: fixed values of some sizes; the others are drawn from their ranges.

        Returns:
            The batch.
        """
        ranges = ((name, *self.sizes[name]) for name in self.size_names)
        sampled = {name: int(torch.randint(low, high + 1, (), generator=generator)) for name, low, high in ranges}
        if unknown := set(sizes) - set(sampled):
            raise UsageError(f"{self.name} has no size {min(unknown)!r}; its sizes are {', '.join(self.size_names)}")
        if small := [name for name, size in sizes.items() if size < self.min_size]:
            bound = f"must be at least {self.min_size}{self.min_size_reason}"
            raise UsageError(f"invalid value {sizes[small[0]]} for {small[0]}: {bound}")
        return self._sample(generator, batch_size, **(sampled | sizes))

    def _sample_vectors(self, generator: Generator, *shape: int) -> Tensor:
        return torch.randint(2, (*shape, self.num_bits), generator=generator).float()

    def _make_blank(self, batch_size: int, steps: int, num_targets: int) -> SequenceBatch:
        """Return a batch of zeros whose last `num_targets` steps have targets."""
        inputs, targets = (torch.zeros(batch_size, steps, dim) for dim in self.dims)
        return SequenceBatch(inputs, targets, torch.arange(steps) >= steps - num_targets)


class Copy(Algorithm):
    """Copy: the input is a sequence of vectors and a mark, the target the same sequence. Section 4.1.

    Example:
        >>> batch = Copy({"length": (1, 20)}).sample(torch.Generator(), batch_size=2, length=3)
        >>> batch.inputs.shape, batch.targets.shape, batch.target_mask.tolist()
        (torch.Size([2, 7, 9]), torch.Size([2, 7, 8]), [False, False, False, False, True, True, True])
    """

    name = "copy"
    size_names = ("length",)
    num_marks = (1, 0)

    def _sample(self, generator: Generator, batch_size: int, *, length: int) -> SequenceBatch:  # type: ignore[override]
        vectors = self._sample_vectors(generator, batch_size, length)
        batch = self._make_blank(batch_size, 2 * length + 1, num_targets=length)
        batch.inputs[:, :length, : self.num_bits] = vectors
        batch.inputs[:, length, -1] = 1
        batch.targets[:, length + 1 :] = vectors
        return batch


class RepeatCopy(Algorithm):
    """Repeat copy: the input is a sequence and a number, the target its repetitions and an end mark. Section 4.2.

    The number is in the channel of the mark, as (number - mean) / deviation over the range of training; the end mark is
    one more bit of the target.

    Example:
        >>> algorithm = RepeatCopy({"length": (1, 10), "repeats": (1, 10)})
        >>> batch = algorithm.sample(torch.Generator(), 2, length=3, repeats=2)
        >>> batch.inputs.shape, batch.targets.shape, int(batch.target_mask.sum())
        (torch.Size([2, 11, 9]), torch.Size([2, 11, 9]), 7)
    """

    name = "repeat-copy"
    size_names = ("length", "repeats")
    num_marks = (1, 1)

    def _sample(  # type: ignore[override]
        self, generator: Generator, batch_size: int, *, length: int, repeats: int
    ) -> SequenceBatch:
        vectors = self._sample_vectors(generator, batch_size, length)
        num_targets = length * repeats + 1
        batch = self._make_blank(batch_size, length + 1 + num_targets, num_targets)
        batch.inputs[:, :length, : self.num_bits] = vectors
        batch.inputs[:, length, -1] = self.normalize_repeats(repeats)
        batch.targets[:, length + 1 : -1, : self.num_bits] = vectors.repeat(1, repeats, 1)
        batch.targets[:, -1, -1] = 1
        return batch

    def normalize_repeats(self, repeats: int) -> float:
        """Normalize the number of repeats to mean 0 and variance 1 over the range of training.

        Args:
            repeats: the number.

        Returns:
            The value of the input.
        """
        low, high = self.sizes["repeats"]
        count = high - low + 1
        deviation = math.sqrt(max(count * count - 1, 1) / 12) if count > 1 else 1.0
        return (repeats - (low + high) / 2) / deviation


class AssociativeRecall(Algorithm):
    """Associative recall: the input is some items and one of them again, the target the next item. Section 4.3.

    An item is `ITEM_LENGTH` vectors; a mark precedes each, another one surrounds the query.

    Example:
        >>> batch = AssociativeRecall({"items": (2, 6)}, num_bits=6).sample(torch.Generator(), 2, items=4)
        >>> batch.inputs.shape, batch.targets.shape, int(batch.target_mask.sum())
        (torch.Size([2, 24, 8]), torch.Size([2, 24, 6]), 3)
    """

    name = "recall"
    size_names = ("items",)
    num_marks = (2, 0)
    min_size, min_size_reason = 2, "; recall needs at least 2 items, a query and the item after it"
    ITEM_LENGTH = 3

    def _sample(self, generator: Generator, batch_size: int, *, items: int) -> SequenceBatch:  # type: ignore[override]
        vectors = self._sample_vectors(generator, batch_size, items, self.ITEM_LENGTH)
        query_index = torch.randint(items - 1, (batch_size,), generator=generator)
        width, row = self.ITEM_LENGTH + 1, torch.arange(batch_size)
        batch = self._make_blank(batch_size, (items + 1) * width + 1 + self.ITEM_LENGTH, self.ITEM_LENGTH)
        list_inputs = batch.inputs[:, : items * width].unflatten(1, (items, width))
        list_inputs[:, :, 0, self.num_bits] = 1
        list_inputs[:, :, 1:, : self.num_bits] = vectors
        query_inputs = batch.inputs[:, items * width :]
        query_inputs[:, (0, width), self.num_bits + 1] = 1
        query_inputs[:, 1:width, : self.num_bits] = vectors[row, query_index]
        batch.targets[:, -self.ITEM_LENGTH :] = vectors[row, query_index + 1]
        return batch


class DynamicNGrams(Algorithm):
    """Dynamic n-grams: predict each next bit of a random source that is new for every sequence. Section 4.4.

    The probability of a 1 depends on the last `CONTEXT_LENGTH` bits; these probabilities are drawn from Beta(1/2, 1/2).
    Targets begin with the first bit that has a complete context.

    Example:
        >>> batch = DynamicNGrams({"length": (200, 200)}, num_bits=1).sample(torch.Generator(), batch_size=2)
        >>> batch.inputs.shape, batch.targets.shape, int(batch.target_mask.sum())
        (torch.Size([2, 200, 1]), torch.Size([2, 200, 1]), 195)
    """

    name = "ngrams"
    size_names = ("length",)
    CONTEXT_LENGTH = 5
    min_size, min_size_reason = CONTEXT_LENGTH + 1, f"; ngrams of {CONTEXT_LENGTH} bits have none to predict"

    @property
    def dims(self) -> tuple[int, int]:
        """The dimensions of inputs and targets: (input_dim, output_dim)."""
        return 1, 1

    def _sample(self, generator: Generator, batch_size: int, *, length: int) -> SequenceBatch:  # type: ignore[override]
        # Beta(1/2, 1/2) is sin^2 of an angle that is uniform (the arcsine law)
        table = torch.sin(math.pi / 2 * torch.rand(batch_size, 2**self.CONTEXT_LENGTH, generator=generator)) ** 2
        bits = torch.zeros(batch_size, length, dtype=torch.long)
        bits[:, : self.CONTEXT_LENGTH] = torch.randint(2, (batch_size, self.CONTEXT_LENGTH), generator=generator)
        draws, row = torch.rand(batch_size, length, generator=generator), torch.arange(batch_size)
        context = _bits_to_int(bits[:, : self.CONTEXT_LENGTH])
        for step in range(self.CONTEXT_LENGTH, length):
            bits[:, step] = (draws[:, step] < table[row, context]).long()
            context = (2 * context + bits[:, step]) % 2**self.CONTEXT_LENGTH
        batch = self._make_blank(batch_size, length, num_targets=length - self.CONTEXT_LENGTH)
        batch.inputs[:, 1:, 0] = bits[:, :-1].float()  # a step predicts its bit from those before
        batch.targets[:, :, 0] = bits.float()
        return batch

    def optimal_prediction(self, bits: Float[Tensor, "batch steps"]) -> Float[Tensor, "batch steps"]:
        """Return the Bayes-optimal probability of a 1 at each step: (ones + 1/2) / (count + 1) in its context.

        Args:
            bits: the sequences.

        Returns:
            The probabilities; 1/2 before the first complete context.

        Shape:
            (batch, steps).

        Reference:
            Murphy (2012), "Machine Learning: A Probabilistic Perspective".
        """
        batch_size, length = bits.shape
        counts = torch.full((batch_size, 2**self.CONTEXT_LENGTH, 2), 0.5)
        probabilities, row = torch.full((batch_size, length), 0.5), torch.arange(batch_size)
        values = bits.long()
        for step in range(self.CONTEXT_LENGTH, length):
            context = _bits_to_int(values[:, step - self.CONTEXT_LENGTH : step])
            context_counts = counts[row, context]
            probabilities[:, step] = context_counts[:, 1] / context_counts.sum(-1)
            counts[row, context, values[:, step]] += 1
        return probabilities


class PrioritySort(Algorithm):
    """Priority sort: the input is vectors with priorities in [-1, 1], the target the best ones in order. Section 4.5.

    Four in five are targets: 16 of 20, as in the paper.

    Example:
        >>> batch = PrioritySort({"length": (20, 20)}).sample(torch.Generator(), batch_size=2)
        >>> batch.inputs.shape, batch.targets.shape, int(batch.target_mask.sum())
        (torch.Size([2, 37, 10]), torch.Size([2, 37, 8]), 16)
    """

    name = "sort"
    size_names = ("length",)
    num_marks = (2, 0)

    def _sample(self, generator: Generator, batch_size: int, *, length: int) -> SequenceBatch:  # type: ignore[override]
        num_best = max(1, length * 4 // 5)
        vectors = self._sample_vectors(generator, batch_size, length)
        priority = 2 * torch.rand(batch_size, length, generator=generator) - 1
        batch = self._make_blank(batch_size, length + 1 + num_best, num_targets=num_best)
        batch.inputs[:, :length, : self.num_bits] = vectors
        batch.inputs[:, :length, self.num_bits] = priority
        batch.inputs[:, length, self.num_bits + 1] = 1
        order = priority.argsort(1, descending=True)[:, :num_best]
        batch.targets[:, length + 1 :] = vectors.gather(1, order[..., None].expand(-1, -1, self.num_bits))
        return batch


def _bits_to_int(bits: Tensor) -> Tensor:
    """Read bits as a binary number, highest bit first."""
    return (bits * 2 ** torch.arange(bits.shape[-1] - 1, -1, -1)).sum(-1)
