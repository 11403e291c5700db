from __future__ import annotations

from typing import Any

from torch import Generator

DataPosition = dict[str, Any]


def seeded_generator(*seeds: int) -> Generator:
    """A source of random numbers that depends on these numbers only.

    >>> int(torch.randint(100, (), generator=seeded_generator(0, 1))) == int(torch.randint(100, (), generator=seeded_generator(0, 1)))
    True
    """
    mixed = 0
    for seed in seeds:  # a step of SplitMix64 (Steele et al. 2014) for each, so that neighbors are strangers
        mixed = (mixed + seed + 0x9E3779B97F4A7C15) % 2**64
        mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB % 2**64
        mixed ^= mixed >> 31
    return Generator().manual_seed(mixed % 2**63)
