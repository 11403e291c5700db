"""A limit of scores: large ones approach it smoothly."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from regard.attention._common import instantiate
from regard.attention.masks import PositionGrid
from regard.attention.scores.base import Score
from regard.errors import UsageError

__all__ = ["SoftCap", "soft_cap"]


class SoftCap(Score):
    """Another score, limited to (-cap, cap): unchanged near 0, and large scores approach the limit.

        score(q, k) = cap tanh(a(q, k) / cap)

    Args:
        score: the limited score
        cap: the limit, above 0

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Reference: Gemma Team (2024), "Gemma 2", arXiv 2408.00118, section 2; Bello et al. (2016), arXiv 1611.09940.

    Example:
        >>> SoftCap(Dot(), cap=2.0)(torch.ones(1, 100), torch.ones(1, 100))
        tensor([[2.]])
    """

    repr_settings = ("cap",)

    def __init__(self, score: Score | type[Score], cap: float):
        super().__init__()
        self.score: Score = instantiate(score, "score")
        if isinstance(cap, bool) or not isinstance(cap, (int, float)) or not 0 < cap < math.inf:
            raise UsageError(f"SoftCap: cap must be a positive number, not {cap!r}")
        self.cap = cap
        self.output_kind, self.is_random = self.score.output_kind, self.score.is_random
        self.is_positional, self.is_relative = self.score.is_positional, self.score.is_relative

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.score.check_dims(query, key)

    @property
    def pairwise(self) -> Score:
        pairwise = self.score.pairwise
        return self if pairwise is self.score else SoftCap(pairwise, self.cap)

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return self.score.project_query(query, num_keys)

    def project_key(self, key: Tensor) -> Tensor:
        return self.score.project_key(key)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return soft_cap(self.score(query, key), self.cap)

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        return soft_cap(self.score.forward_grouped(query, key, num_groups), self.cap)

    def restrict(self, grid: PositionGrid) -> Score | None:
        score = self.score.restrict(grid)
        return None if score is None else SoftCap(score, self.cap)


def soft_cap(scores: Tensor, cap: float) -> Tensor:
    """cap tanh(scores / cap); -inf, which hides a key, stays -inf.

    Args:
        scores: the scores
        cap: the limit, above 0

    Shape: scores (*batch, queries, keys) -> the same

    Returns: the limited scores

    Example:
        >>> soft_cap(torch.tensor([0.0, 1e9, -torch.inf]), 50.0).tolist()
        [0.0, 50.0, -inf]
    """
    return (cap * torch.tanh(scores / cap)).masked_fill(scores == -math.inf, -math.inf)
