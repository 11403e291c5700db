"""11. Custom mechanisms: a score, a normalizer and a mask, and how to check the laws of attention for them.

A score is a module with `forward(query, key)`, a normalizer a function of scores, a mask a rule on positions. The
equation adds batch axes, heads and weights on demand.
"""

import torch

from regard.attention import Mask, MultiHead, Score, causal, masked_normalizer
from regard.attention.equation import attend
from regard.testing import LawViolation, check_mask, check_normalizer, check_score
from regard.viewing import heatmap


class Manhattan(Score):
    """Negative Manhattan distance: score(q, k) = -sum_i |q_i - k_i| / width."""

    def __init__(self, width: float = 1.0):
        super().__init__()
        self.width = width

    def forward(self, query, key):
        return -(query[..., :, None, :] - key[..., None, :, :]).abs().sum(-1) / self.width


@masked_normalizer  # hidden keys get weight 0 and gradient 0
def squared(scores):
    """Weights proportional to the square of a positive score, with a sum below 1."""
    power = scores.relu().square()
    return power / (1 + power.sum(-1, keepdim=True))


class EverySecond(Mask):
    """Keys at even distances from the query are visible."""

    def rule(self, grid):
        return (grid.key_positions - grid.query_positions) % 2 == 0


check_score(Manhattan)
check_normalizer(squared)
check_mask(EverySecond())
print("all three satisfy the laws")

x = torch.linspace(0, 3, 12)[:, None]
print(heatmap(attend(x, x, x, EverySecond() & causal(), score=Manhattan(0.5)).weights))
print("with four heads:", tuple(MultiHead(16, 4, score=Manhattan())(torch.randn(2, 5, 16)).weights.shape))


class Broken(Score):
    """Depends on the positions of keys without declaring `is_positional = True`."""

    def forward(self, query, key):
        return query @ key.mT + torch.arange(key.shape[-2])


try:
    check_score(Broken)
except LawViolation as violation:
    print("Broken violates one:", violation)
