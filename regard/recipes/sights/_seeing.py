"""What the tasks of images have in common: a loss, a validation, and attention over a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regard.attention import Additive, Attention, Constant
from regard.data.labeled import LabeledBatch
from regard.data.quiz import QuestionBatch
from regard.models.answerer import Answerer
from regard.models.glance import Glance
from regard.recipes._mechanisms import looking, normalizer, score
from regard.recipes._parse import SettingError
from regard.recipes.sights.settings import Seeing
from regard.training import Loss


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
            raise SettingError(f"score={settings.score} needs a query; queries=none goes with score=additive")
        how = Additive(None, grid, dim)
    else:
        how = score(settings.score, dim, grid, dim)
    return looking("global", how, share, dim, dim, 1)
