"""The task of answering questions about images: a network that is asked, and how often it is right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from torch import Tensor, nn

from regard.data._question_words import ANSWERS, WORDS
from regard.data.questions import Asked, Asking
from regard.data.quiz import QuestionBatch, Quiz
from regard.models._convolutions import Convolutions
from regard.models.answerer import Answerer, Bag, InOrder
from regard.recipes._task import Recipe, Task, fitted
from regard.recipes.sights._glancing import Sorting
from regard.recipes.sights._judged import judged_answers
from regard.recipes.sights._material import Sights
from regard.recipes.sights._seeing import Beholding, RightChoice, attention
from regard.recipes.sights.respondent import Respondent
from regard.recipes.sights.settings import Answering
from regard.training import Run, Settings, Source, fill

EYES, READER = "model.eyes.", "model.read."


class Questioning(Beholding[Answering]):
    """From an image and a question to an answer."""

    settings: ClassVar[type[Settings]] = Answering
    uses = (
        'answer {run} IMAGE "how many 3s"',
        'show {run} "how many 3s" --out x.png',
        "evaluate {run}",
        "info {run}",
    )

    def objective(self, settings: Answering) -> RightChoice:
        return RightChoice(build(settings))

    def scenes(self, sights: Sights, settings: Answering) -> tuple[Source, QuestionBatch]:
        data = Quiz(cast(Asking, sights.train()), settings.batch, seed=settings.seed)
        return data, QuestionBatch.of(cast(Asked, sights.valid()))

    def judged(self, made: Respondent, held: Asked) -> dict[str, Any]:
        return judged_answers(made, held)

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Answering,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Respondent:
        objective = fitted(lambda: self.objective(settings), weights, where)
        return Respondent(cast(Answerer, objective.to(device).model), settings)

    def follows(self, other: Task[Any]) -> bool:
        return isinstance(other, Questioning | Sorting)

    def begin_with(self, objective: nn.Module, weights: dict[str, Tensor], where: str) -> None:
        """The weights of another run; of one that puts images into classes, those of its eyes."""
        if any(name.startswith(READER) for name in weights):
            super().begin_with(objective, weights, where)
            return
        assert isinstance(objective, RightChoice)
        assert objective.model.eyes is not None
        eyes = {name.removeprefix(EYES): one for name, one in weights.items() if name.startswith(EYES)}
        fill(objective.model.eyes, eyes, where)


def build(settings: Answering) -> Answerer:
    """The network that the settings describe."""
    words, dim = len(WORDS), settings.dim
    return Answerer(
        Bag(words, dim) if settings.reader == "bag" else InOrder(words, settings.embed_dim, dim),
        [attention(settings, settings.pooling) for _ in range(settings.looks)],
        len(ANSWERS),
        eyes=Convolutions(1, settings.grid_dim, settings.width),
        grid_dim=settings.grid_dim,
        dropout=settings.dropout,
    )
