"""Questions about scenes as batches that can be taken up again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.data.algorithms import chance
from regard.data.questions import Asked, Asking


@dataclass(frozen=True)
class QuestionBatch:
    """Images, questions about each and their answers."""

    images: Float[Tensor, "rows channels height width"]
    questions: Int[Tensor, "rows asked words"]
    lengths: Int[Tensor, "rows asked"]
    answers: Int[Tensor, "rows asked"]

    @classmethod
    def of(cls, asked: Asked) -> QuestionBatch:
        return cls(asked.painted.images[:, None], asked.questions, asked.lengths, asked.answers)

    def __len__(self) -> int:
        return len(self.images)

    @property
    def tokens(self) -> int:
        """How many questions there are."""
        return self.answers.numel()

    @property
    def given(self) -> tuple[Tensor, ...]:
        """What a model sees and reads."""
        return self.images, self.questions, self.lengths

    @property
    def wanted(self) -> Int[Tensor, "rows asked"]:
        """What it should say."""
        return self.answers

    def to(self, device: torch.device | str) -> QuestionBatch:
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})

    def part(self, rank: int, world: int) -> QuestionBatch:
        """The share of one of `world` processes: every world-th row."""
        return replace(self, **{name: value[rank::world] for name, value in vars(self).items()})


class Quiz:
    """Questions without end; each batch is a function of the seed and its number alone."""

    def __init__(self, asking: Asking, rows: int = 32, *, seed: int = 0):
        self.asking, self.rows, self.seed = asking, rows, seed

    def batches(
        self, position: dict[str, Any] | None = None
    ) -> Iterator[tuple[QuestionBatch, dict[str, Any]]]:
        number = 0 if position is None else int(position["batch"])
        while True:
            asked = self.asking.make(chance(self.seed, number), self.rows)
            number += 1
            yield QuestionBatch.of(asked), {"batch": number}
