"""The sequences of each recipe: an algorithm to train on, and the sizes to validate and to test with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from regard.data.algorithms import (
    Algorithm,
    AssociativeRecall,
    Copy,
    DynamicNGrams,
    PrioritySort,
    RepeatCopy,
    SequenceBatch,
)
from regard.data.sources import seeded_generator
from regard.tasks.algorithms.config import AlgorithmConfig
from regard.tasks.task import DataSplits

__all__ = [
    "ALGORITHMS", "NUM_VALID_SEQUENCES", "copy", "max_training_sizes", "ngrams", "recall", "repeat_copy",
    "sample_batches", "sort",
]  # fmt: skip

ALGORITHMS = {kind.name: kind for kind in (Copy, RepeatCopy, AssociativeRecall, DynamicNGrams, PrioritySort)}
EVAL_BATCH_SIZE = 20  # sequences
NUM_VALID_SEQUENCES = 160
EVAL_SEED = 7_000_001  # of evaluations, far from those of training


def max_training_sizes(algorithm: Algorithm) -> dict[str, int]:
    """The largest sizes of the training sequences.

    Args:
        algorithm: with the ranges of its sizes

    Example:
        >>> max_training_sizes(Copy({"length": (1, 20)}))
        {'length': 20}
    """
    return {name: algorithm.sizes[name][1] for name in algorithm.size_names}


def sample_batches(
    algorithm: Algorithm, sizes: Mapping[str, int], num_sequences: int, seed: int = 0
) -> Iterator[SequenceBatch]:
    """Sequences of one size for an evaluation, the same ones for the same seed.

    Args:
        algorithm: generates them
        sizes: their sizes; those that are missing are drawn from the ranges of training, once for each batch
        num_sequences: number of sequences
        seed: seed of the sequences
    """
    for number, first in enumerate(range(0, num_sequences, EVAL_BATCH_SIZE)):
        count = min(EVAL_BATCH_SIZE, num_sequences - first)
        yield algorithm.sample(seeded_generator(EVAL_SEED + seed, number), count, **sizes)


def _make_splits(algorithm: Algorithm, *longer: Mapping[str, int]) -> DataSplits[Mapping[str, int]]:
    """Examples are sizes; the tests are the largest size of training, then those of the paper."""
    largest = max_training_sizes(algorithm)
    return DataSplits(algorithm, [largest], {"test": [largest, *longer]})


def copy(config: AlgorithmConfig) -> DataSplits[Mapping[str, int]]:
    """Repeat a sequence of vectors; longer tests as in figures 4 and 5 of the paper.

    Args:
        config: the range of lengths and the bits of a vector
    """
    algorithm = Copy({"length": (config.min_size, config.max_size)}, config.num_bits)
    return _make_splits(algorithm, *({"length": length} for length in (30, 50, 120)))


def repeat_copy(config: AlgorithmConfig) -> DataSplits[Mapping[str, int]]:
    """Repeat a sequence of vectors a given number of times; longer tests as in figure 8 of the paper.

    Args:
        config: the ranges of lengths and repeats, and the bits of a vector
    """
    sizes = {"length": (config.min_size, config.max_size), "repeats": (1, config.max_repeats)}
    algorithm = RepeatCopy(sizes, config.num_bits)
    return _make_splits(algorithm, {"length": 10, "repeats": 20}, {"length": 20, "repeats": 10})


def recall(config: AlgorithmConfig) -> DataSplits[Mapping[str, int]]:
    """The item after a given item; longer tests as in figure 11 of the paper.

    Args:
        config: the range of the number of items, and the bits of a vector
    """
    algorithm = AssociativeRecall({"items": (config.min_size, config.max_size)}, config.num_bits)
    return _make_splits(algorithm, *({"items": items} for items in (8, 10, 12, 15, 20)))


def ngrams(config: AlgorithmConfig) -> DataSplits[Mapping[str, int]]:
    """The next bit of a random source.

    Args:
        config: the range of lengths
    """
    return _make_splits(DynamicNGrams({"length": (config.min_size, config.max_size)}, 1))


def sort(config: AlgorithmConfig) -> DataSplits[Mapping[str, int]]:
    """Vectors in the order of their priorities.

    Args:
        config: the range of lengths and the bits of a vector
    """
    return _make_splits(PrioritySort({"length": (config.min_size, config.max_size)}, config.num_bits))
