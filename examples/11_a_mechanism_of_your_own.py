"""11. A mechanism of your own: ten lines, and a test that it keeps the laws.

A score is a module with a `forward(query, key)`; a normalizer is a function of visible scores; a mask is a
rule on positions. Each goes into the same equation, and gets batches, heads and weights on demand from it.
"""

import torch

from regard.attention import Mask, MultiHead, Score, causal, masked_normalizer
from regard.attention.equation import attend
from regard.testing import LawViolation, check_mask, check_normalizer, check_score
from regard.viewing import heatmap


class Manhattan(Score):
    """The nearer a key, counted along the axes, the better: score(q, k) = -sum_i |q_i - k_i| / width."""

    def __init__(self, width: float = 1.0):
        super().__init__()
        self.width = width

    def forward(self, query, key):
        return -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1) / self.width


@masked_normalizer  # keeps the law of hidden keys: weight 0, gradient 0
def squared(scores):
    """Weights that grow with the square of a positive score, and sum to at most 1."""
    power = scores.relu().square()
    return power / (1 + power.sum(-1, keepdim=True))


class EverySecond(Mask):
    """A query sees keys at even distances from it."""

    def rule(self, grid):
        return (grid.key_positions - grid.query_positions) % 2 == 0


check_score(Manhattan)
check_normalizer(squared)
check_mask(EverySecond())
print("all three keep the laws")

x = torch.linspace(0, 3, 12)[:, None]
print(heatmap(attend(x, x, x, EverySecond() & causal(), score=Manhattan(0.5)).weights))
print("four heads of it:", tuple(MultiHead(16, 4, score=Manhattan())(torch.randn(2, 5, 16)).weights.shape))


class Broken(Score):
    """Takes the place of a key for a property of it, and does not say so."""

    def forward(self, query, key):
        return query @ key.mT + torch.arange(key.shape[-2])


try:
    check_score(Broken)
except LawViolation as law:
    print("and this one does not:", law)
