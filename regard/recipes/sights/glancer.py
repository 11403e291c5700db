"""A trained network that puts images into classes: which one, how surely, and where it looked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Constant
from regard.models.glance import Glance, Look
from regard.recipes._images import AT_ONCE, Image, grays, shown
from regard.recipes.documents.classifier import Classified
from regard.recipes.sights.settings import Glancing
from regard.recipes.sights.sight import Sight, likeliest


class Glancer:
    """A model with its classes. `regard.load(RUN)` gives one."""

    def __init__(self, model: Glance, labels: Sequence[str], settings: Glancing):
        self.model, self.labels, self.settings = model.eval(), tuple(labels), settings

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    @property
    def attends(self) -> bool:
        """Whether there are weights to look at."""
        pool = self.model.pool
        return isinstance(pool, Look) and not isinstance(pool.attention.score, Constant)

    def classify(self, images: Sequence[Image]) -> list[Classified]:
        """The class of each image: a path, or an array (height, width) or (height, width, 3)."""
        if isinstance(images, str | Path):
            raise TypeError("classify takes many images: classify([image])")
        scores = self.scores(grays(images, self.settings.size))
        return [self._classified(row) for row in scores]

    def look(self, image: Image) -> Sight:
        """The class of an image, with the weights of its grid: one look, or one for each class, likeliest first."""
        picture = grays([image], self.settings.size)
        probabilities = likeliest(self.scores(picture)[0], self.labels)
        names, weights = [next(iter(probabilities))], None
        if self.attends:
            seen = self.weights(picture)[0]
            if len(seen) > 1:
                names = list(probabilities)
                seen = seen[[self.labels.index(name) for name in names]]
            weights = seen.unflatten(-1, (math.isqrt(seen.shape[-1]), -1))
        return Sight(next(iter(probabilities)), probabilities, names, weights, shown(image))

    @torch.no_grad()
    def scores(self, images: Float[Tensor, "rows 1 size size"]) -> Float[Tensor, "rows classes"]:
        """The scores of each class."""
        found = [self.model(some.to(self.device)).float().cpu() for some in images.split(AT_ONCE)]
        return torch.cat(found) if len(images) else torch.zeros(0, len(self.labels))

    @torch.no_grad()
    def weights(self, images: Float[Tensor, "rows 1 size size"]) -> Float[Tensor, "rows queries cells"]:
        """Where each query looked."""
        return torch.cat([self.model.looks(some.to(self.device)).cpu() for some in images.split(AT_ONCE)])

    def _classified(self, scores: Float[Tensor, " classes"]) -> Classified:
        probabilities = likeliest(scores, self.labels)
        return Classified(next(iter(probabilities)), probabilities)
