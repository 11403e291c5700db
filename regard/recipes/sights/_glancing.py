"""The task of putting images into classes: scenes of one digit, and a network that glances at them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, cast

from torch import Tensor

from regard.data.labeled import LabeledBatch, Labeling
from regard.data.scenes import Painted, Scenes
from regard.models._convolutions import Convolutions
from regard.models.glance import Glance, Largest, Look
from regard.recipes._task import Recipe, fitted
from regard.recipes.sights._judged import judged_glances
from regard.recipes.sights._material import Sights
from regard.recipes.sights._seeing import Beholding, RightChoice, attention
from regard.recipes.sights.glancer import Glancer
from regard.recipes.sights.settings import Glancing
from regard.training import Run, Settings, Source

LABELS = tuple(map(str, range(10)))


class Sorting(Beholding[Glancing]):
    """From an image to its class."""

    settings: ClassVar[type[Settings]] = Glancing
    uses = ("classify {run} IMAGE", "show {run} IMAGE --out x.png", "evaluate {run}", "info {run}")
    facts: ClassVar[dict[str, Any]] = {"labels": list(LABELS)}

    def objective(self, settings: Glancing) -> RightChoice:
        return RightChoice(build(settings))

    def scenes(self, sights: Sights, settings: Glancing) -> tuple[Source, LabeledBatch]:
        data = Labeling(cast(Scenes, sights.train()), settings.batch, seed=settings.seed)
        return data, LabeledBatch.of(cast(Painted, sights.valid()))

    def judged(self, made: Glancer, held: Painted) -> dict[str, Any]:
        return judged_glances(made, held)

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Glancing,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Glancer:
        objective = fitted(lambda: self.objective(settings), weights, where)
        return Glancer(cast(Glance, objective.to(device).model), LABELS, settings)


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
