"""The task of putting images into classes: scenes of one digit, and a network that glances at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from torch import Tensor

from regard.data.labeled import LabeledBatch, Labeling
from regard.data.scenes import Painted, Scenes
from regard.models._convolutions import Convolutions
from regard.models.glance import Glance, Largest, Look
from regard.recipes._task import Experiment, Recipe, Task, fitted
from regard.recipes.sights._judged import judged_glances
from regard.recipes.sights._material import Sights
from regard.recipes.sights._seeing import RightChoice, Validation, attention
from regard.recipes.sights.glancer import Glancer
from regard.recipes.sights.settings import Glancing
from regard.training import Run, Settings

LABELS = tuple(map(str, range(10)))
AT_ONCE = 100  # scenes of the validation that are seen together


class Sorting(Task[Glancing]):
    """From an image to its class."""

    settings: ClassVar[type[Settings]] = Glancing
    uses = ("classify {run} IMAGE", "show {run} IMAGE --out x.png", "evaluate {run}", "info {run}")

    def check(self, recipe: Recipe, settings: Glancing) -> None:
        recipe.material(settings).train()
        build(settings)

    def experiment(self, run: Run, recipe: Recipe, settings: Glancing) -> Experiment[Glancing]:
        sights: Sights = recipe.material(settings)
        data = Labeling(cast(Scenes, sights.train()), settings.batch, seed=settings.seed)
        held = LabeledBatch.of(cast(Painted, sights.valid()))
        parts = [held.part(rank, len(held) // AT_ONCE + 1) for rank in range(len(held) // AT_ONCE + 1)]
        objective = RightChoice(build(settings))
        return Experiment(
            run, settings, objective, data, Validation(objective, parts), {"labels": list(LABELS)}
        )

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Glancing,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Glancer:
        objective = fitted(lambda: RightChoice(build(settings)), weights, where)
        return Glancer(cast(Glance, objective.to(device).model), LABELS, settings)

    def judge(self, recipe: Recipe, made: Glancer, part: str | None = None) -> dict[str, Any]:
        parts = recipe.material(made.settings).parts
        chosen = part or next(iter(parts))
        return {**judged_glances(made, parts[chosen]()), "part": chosen}


def build(settings: Glancing) -> Glance:
    """The network that the settings describe."""
    eyes = Convolutions(1, settings.grid_dim, settings.width)
    return Glance(
        len(LABELS), pool(settings), eyes=eyes, grid_dim=settings.grid_dim, dropout=settings.dropout
    )


def pool(settings: Glancing) -> Look | Largest:
    """What makes one vector of many: attention, or one of its twins."""
    if settings.pooling == "max":
        return Largest()
    asked = settings.pooling == "attention" and settings.queries != "none"
    queries = len(LABELS) if settings.queries == "each" else 1
    return Look(attention(settings, settings.pooling, asked), settings.dim if asked else None, queries)
