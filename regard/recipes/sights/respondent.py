"""A trained network that answers questions about images: what it says, how surely, and where it looked."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.attention import Attention, Constant
from regard.data._question_words import ANSWERS, read_question
from regard.models.answerer import Answerer
from regard.recipes._images import AT_ONCE, Image, grays, shown
from regard.recipes.sights.settings import Answering
from regard.recipes.sights.sight import Sight, likeliest


@dataclass(frozen=True)
class Answered:
    """The likeliest answer to a question, and the probability of each that is possible, the largest first."""

    answer: str
    probabilities: dict[str, float]

    @property
    def probability(self) -> float:
        return self.probabilities[self.answer]

    def __str__(self) -> str:
        return self.answer

    def to_json(self) -> dict[str, Any]:
        return {"answer": self.answer, "probabilities": self.probabilities}


class Respondent:
    """A model that can be asked. `regard.load(RUN)` gives one."""

    def __init__(self, model: Answerer, settings: Answering):
        self.model, self.settings = model.eval(), settings

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    @property
    def attends(self) -> bool:
        """Whether there are weights to look at."""
        first = self.model.attentions[0]
        return not (isinstance(first, Attention) and isinstance(first.score, Constant))

    def answer(self, image: Image, question: str) -> Answered:
        """What there is to say: of a path, or an array (height, width) or (height, width, 3)."""
        scores = self.scores(grays([image], self.settings.size), *_read(question))
        probabilities = likeliest(scores[0, 0], ANSWERS)
        return Answered(next(iter(probabilities)), probabilities)

    def look(self, image: Image, question: str) -> Sight:
        """The same, with the weights of the grid for each look."""
        said, weights, names = self.answer(image, question), None, [""]
        if self.attends:
            seen = self.weights(grays([image], self.settings.size), *_read(question))[0, 0]
            weights = seen.unflatten(-1, (math.isqrt(seen.shape[-1]), -1))
            names = [f"look {place}" for place in range(1, len(seen) + 1)] if len(seen) > 1 else [said.answer]
        asked = question.strip().rstrip("?").strip()
        return Sight(said.answer, said.probabilities, names, weights, shown(image), asked)

    @torch.no_grad()
    def scores(
        self,
        images: Float[Tensor, "rows 1 size size"],
        questions: Int[Tensor, "rows asked words"],
        lengths: Int[Tensor, "rows asked"],
    ) -> Float[Tensor, "rows asked answers"]:
        """The scores of each answer to questions that were read."""
        parts = (told.split(AT_ONCE) for told in (images, questions, lengths))
        return torch.cat([self.model(*self._there(some)).float().cpu() for some in zip(*parts, strict=True)])

    @torch.no_grad()
    def weights(
        self,
        images: Float[Tensor, "rows 1 size size"],
        questions: Int[Tensor, "rows asked words"],
        lengths: Int[Tensor, "rows asked"],
    ) -> Float[Tensor, "rows asked looks cells"]:
        """Where each look fell."""
        parts = (told.split(AT_ONCE) for told in (images, questions, lengths))
        return torch.cat([self.model.looks(*self._there(some)).cpu() for some in zip(*parts, strict=True)])

    def _there(self, some: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(told.to(self.device) for told in some)


def _read(question: str) -> tuple[Int[Tensor, "1 1 words"], Int[Tensor, "1 1"]]:
    words = read_question(question)
    return torch.tensor([[words]]), torch.tensor([[len(words)]])
