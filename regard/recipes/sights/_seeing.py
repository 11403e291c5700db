"""What the tasks of images have in common: how they run, a loss, a validation, and attention over a grid."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import torch
from torch import nn

from regard.attention import Additive, Attention, Constant
from regard.data.labeled import LabeledBatch
from regard.data.quiz import QuestionBatch
from regard.errors import ConfigError
from regard.models.answerer import Answerer
from regard.models.glance import Glance
from regard.recipes._mechanisms import looking, normalizer, score
from regard.recipes._task import Experiment, Recipe, Task
from regard.recipes.sights._material import Sights
from regard.recipes.sights.settings import Seeing
from regard.training import Loss, Run, Source

AT_ONCE = 100  # scenes of the validation that are seen together
Told = TypeVar("Told", bound=Seeing)


class Beholding(Task[Told]):
    """From an image, and perhaps a question, to one of a few answers."""

    facts: ClassVar[dict[str, Any]] = {}

    @abstractmethod
    def objective(self, settings: Told) -> RightChoice:
        """The network that the settings describe, with its loss."""

    @abstractmethod
    def scenes(self, sights: Sights, settings: Told) -> tuple[Source, Any]:
        """What to train on, and a batch of all that was held out."""

    @abstractmethod
    def judged(self, made: Any, held: Any) -> dict[str, Any]:
        """How often it is right about these, and where it looked."""

    def check(self, recipe: Recipe, settings: Told) -> None:
        recipe.material(settings).train()
        self.objective(settings)

    def experiment(self, run: Run, recipe: Recipe, settings: Told) -> Experiment[Told]:
        data, held = self.scenes(recipe.material(settings), settings)
        several = len(held) // AT_ONCE + 1
        parts = [held.part(rank, several) for rank in range(several)]
        objective = self.objective(settings)
        return Experiment(run, settings, objective, data, Validation(objective, parts), self.facts)

    def judge(self, recipe: Recipe, made: Any, part: str | None = None) -> dict[str, Any]:
        parts = recipe.material(made.settings).parts
        chosen = part or next(iter(parts))
        return {**self.judged(made, parts[chosen]()), "part": chosen}


class RightChoice(nn.Module):
    """The cross entropy of what should be said of each image, summed over a batch."""

    def __init__(self, model: Glance | Answerer):
        super().__init__()
        self.model = model

    def forward(self, batch: LabeledBatch | QuestionBatch) -> Loss:
        scores = self.model(*batch.given)
        total = nn.functional.cross_entropy(
            scores.flatten(0, -2).float(), batch.wanted.flatten(), reduction="sum"
        )
        return Loss(total, batch.tokens, {"right": (scores.argmax(-1) == batch.wanted).sum().detach()})


@dataclass(frozen=True)
class Validation:
    """How often it is right about what was held out, in a hundred, and the loss."""

    objective: RightChoice
    held: Sequence[Any]  # batches

    def __call__(self) -> dict[str, float]:
        device = self.objective.model.output.weight.device
        total = right = count = 0.0
        for batch in self.held:
            with torch.no_grad():
                loss = self.objective(batch.to(device))
            total, right = total + float(loss.total), right + float(loss.extra["right"])
            count += loss.count
        return {"accuracy": 100 * right / count, "loss": total / count}


def attention(settings: Seeing, pooling: str, asked: bool = True) -> Attention:
    """A look at the grid as the settings say; the mean of it where they ask for no attention."""
    if pooling == "average":
        return Attention(Constant())
    dim, grid, share = settings.dim, settings.grid_dim, normalizer(settings.normalize)
    if not asked:
        if settings.score != "additive":
            raise ConfigError(f"score={settings.score} needs a query; queries=none goes with score=additive")
        how = Additive(None, grid, dim)
    else:
        how = score(settings.score, dim, grid, dim)
    return looking("global", how, share, dim, dim, 1)
