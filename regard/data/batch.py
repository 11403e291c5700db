"""What a model is given: a batch of sentences as numbers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from jaxtyping import Int
from torch import Tensor

PAD, UNK, BOS, EOS = 0, 1, 2, 3


@dataclass(frozen=True)
class Pair:
    """A sentence and its translation; where it is known, which of their words belong together.

    A link (i, j) joins word i of the source and word j of the target, counted from 0; for text cut into
    characters, characters take the place of words. `links` are sure, `possible` ones are no mistake.
    """

    source: str
    target: str
    links: tuple[tuple[int, int], ...] | None = None
    possible: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True)
class Batch:
    """Pairs of sentences of similar length, filled up with PAD.

    Every source ends with EOS; every target begins with BOS and ends with EOS; lengths count these.
    """

    source: Int[Tensor, "rows source"]
    source_lengths: Int[Tensor, " rows"]
    target: Int[Tensor, "rows target"]
    target_lengths: Int[Tensor, " rows"]

    @classmethod
    def of(cls, pairs: list[tuple[list[int], list[int]]]) -> Batch:
        """A batch of encoded pairs, without special tokens.

        >>> Batch.of([([7, 8], [9]), ([7], [9, 9])]).target.tolist()
        [[2, 9, 3, 0], [2, 9, 9, 3]]
        """
        sources = [[*source, EOS] for source, _ in pairs]
        targets = [[BOS, *target, EOS] for _, target in pairs]
        return cls(*filled(sources), *filled(targets))

    def __len__(self) -> int:
        return self.source.shape[0]

    @property
    def tokens(self) -> int:
        """How many target tokens there are to predict."""
        return int(self.target_lengths.sum()) - len(self)

    def to(self, device: torch.device | str) -> Batch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def part(self, rank: int, world: int) -> Batch:
        """The share of one of `world` processes: every world-th row, without the columns it does not need."""
        rows = {name: value[rank::world] for name, value in vars(self).items()}
        source, target = (
            int(rows[n].max()) if len(rows[n]) else 0 for n in ("source_lengths", "target_lengths")
        )
        rows["source"], rows["target"] = rows["source"][:, :source], rows["target"][:, :target]
        return Batch(**rows)


def filled(rows: list[list[int]]) -> tuple[Tensor, Tensor]:
    """Rows of numbers as one matrix, filled up with PAD, and their lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    matrix = torch.full((len(rows), max(map(len, rows), default=0)), PAD)
    for i, row in enumerate(rows):
        matrix[i, : len(row)] = torch.tensor(row)
    return matrix, lengths
