"""The coverage penalty: a translation that has looked at only a part of its source is worth less."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding.options import Decoding
from regard.errors import ShapeError, UnsupportedError

LEAST = 1e-6  # the share taken for a source token that was never looked at, whose logarithm would be -inf


class Coverage:
    """How much regard each source token has had so far, for each row of a search.

        penalty = coverage * sum_i log min(max(sum_j weights[j, i], 1e-6), 1)

    Wu et al. (2016), arXiv 1609.08144, equation 14; i goes over the source with its EOS, j over the target. It
    is never above 0.
    """

    def __init__(self, steps: Any, source: Tensor, source_lengths: Tensor, options: Decoding):
        self.strength = options.coverage
        if not self.strength:
            return
        weights = getattr(steps, "weights", None)
        if weights is None:
            raise UnsupportedError(
                f"decode: coverage={self.strength} needs to know where each step looked, but this model has no"
                " attention to tell (its steps have no weights()); take coverage=0."
            )
        self.weights: Callable[[], Tensor] = weights
        self.real = torch.arange(source.shape[1], device=source.device) < source_lengths[:, None]
        self.sum = torch.zeros(source.shape, device=source.device)

    def look(self) -> None:
        """Add where the last step looked."""
        if not self.strength:
            return
        seen = self.weights()
        if seen.shape != self.sum.shape:
            raise ShapeError(
                f"decode: weights() must be (rows, source) = {tuple(self.sum.shape)}, but is {tuple(seen.shape)}."
            )
        self.sum = self.sum + seen

    def penalize(
        self, scores: Float[Tensor, "sentences places"], parents: Int[Tensor, "sentences places"]
    ) -> Float[Tensor, "sentences places"]:
        """Scores of what continues these places of each sentence's beam, with the penalty added."""
        if not self.strength:
            return scores
        lacking = self.sum.clamp(LEAST, 1).log().masked_fill(~self.real, 0).sum(1)
        return scores + self.strength * lacking.view(len(parents), -1).gather(1, parents)

    def select(self, rows: Int[Tensor, " new"]) -> None:
        if self.strength:
            self.sum, self.real = self.sum[rows], self.real[rows]
