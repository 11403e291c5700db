"""Images with one label each as batches that can be taken up again: scenes of one digit among clutter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.algorithms import chance
from regard.data.scenes import Painted, Scenes


@dataclass(frozen=True)
class LabeledBatch:
    """Images, and which class each belongs to."""

    images: Float[Tensor, "rows channels height width"]
    labels: Int[Tensor, " rows"]

    @classmethod
    def of(cls, painted: Painted) -> LabeledBatch:
        """Scenes of one digit."""
        return cls(painted.images[:, None], painted.labels[:, 0])

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def tokens(self) -> int:
        """How many images there are."""
        return len(self)

    @property
    def given(self) -> tuple[Tensor, ...]:
        """What a model sees."""
        return (self.images,)

    @property
    def wanted(self) -> Int[Tensor, " rows"]:
        """What it should say."""
        return self.labels

    def to(self, device: torch.device | str) -> LabeledBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def part(self, rank: int, world: int) -> LabeledBatch:
        """The share of one of `world` processes: every world-th row."""
        return replace(self, **{name: value[rank::world] for name, value in vars(self).items()})


class Labeling:
    """Scenes of one digit without end; each batch is a function of the seed and its number alone.

    >>> from regard.data.digits import Digits
    >>> scenes = Scenes(Digits(torch.rand(5, 8, 8), torch.arange(5)), count=1)
    >>> batch, position = next(Labeling(scenes, rows=3).batches())
    >>> batch.images.shape, batch.labels.shape, position
    (torch.Size([3, 1, 64, 64]), torch.Size([3]), {'batch': 1})
    """

    def __init__(self, scenes: Scenes, rows: int = 32, *, seed: int = 0):
        self.scenes, self.rows, self.seed = scenes, rows, seed

    def batches(
        self, position: dict[str, Any] | None = None
    ) -> Iterator[tuple[LabeledBatch, dict[str, Any]]]:
        number = 0 if position is None else int(position["batch"])
        while True:
            painted = self.scenes.make(chance(self.seed, number), self.rows)
            number += 1
            yield LabeledBatch.of(painted), {"batch": number}


def first(painted: Painted, count: int) -> Painted:
    """So many scenes of many."""
    return Painted(*(told[:count] for told in vars(painted).values()))
