"""Keys that are projected once and used for many queries, as in a decoder."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.masks import Mask, PositionGrid, as_mask
from regard.attention.output import AttentionOutput
from regard.attention.scores.base import Score, part_name
from regard.errors import ShapeError, StaleStateError

__all__ = ["KeyProjectedScore", "ProjectedKV", "VersionGuard", "project_keys", "reorder_projected"]


class KeyProjectedScore(Score):
    """A score whose keys are projected already, so that only the query's projection is left.

    Args:
        score: the score that projected the keys
        key_shape: the shape of the keys before their projection, for the check of sizes
    """

    def __init__(self, score: Score, key_shape: torch.Size):
        super().__init__()
        self.score, self.key_shape = score, key_shape
        self.output_kind, self.is_positional = score.output_kind, score.is_positional
        self.is_random = score.is_random

    @property
    def pairwise(self) -> Score:
        return self.score.pairwise

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return self.score.project_query(query, num_keys)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.score.check_dims(query, torch.empty(self.key_shape, device="meta"))

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.pairwise(self.project_query(query, key.shape[-2]), key)

    def restrict(self, grid: PositionGrid) -> Score | None:
        return None if self.pairwise.restrict(grid) is None else self


def project_keys(score: Any, key: Tensor) -> tuple[Any, Tensor]:
    """The score without its projection of the keys, and the projected keys."""
    if not isinstance(score, Score) or score.pairwise is score:
        return score, key
    try:
        return KeyProjectedScore(score, key.shape), score.project_key(key)
    except RuntimeError as error:
        raise ShapeError(f"{part_name(score)} does not accept key {tuple(key.shape)}") from error


def reorder_projected(score: Any, key: Tensor, rows: Tensor) -> tuple[Any, Tensor]:
    """The result of `project_keys` for other rows of the first batch axis."""
    if isinstance(score, KeyProjectedScore):
        score = KeyProjectedScore(score.score, torch.Size([len(rows), *score.key_shape[1:]]))
    return score, key.index_select(0, rows)


class VersionGuard:
    """Detects parameters that have changed since they projected the keys.

    Args:
        modules: the modules whose parameters are compared; others are ignored
    """

    def __init__(self, *modules: Any):
        parts = [module for module in modules if isinstance(module, nn.Module)]
        parameters = [] if torch.compiler.is_compiling() else [p for part in parts for p in part.parameters()]
        self.versions = [(p, p._version) for p in parameters if not p.is_inference()]

    def assert_unchanged(self) -> None:
        if any(p._version != version for p, version in self.versions):
            raise StaleStateError(
                "the parameters that projected the keys have changed since precompute() (by an optimizer step, "
                "perhaps); call precompute() again"
            )


class ProjectedKV:
    """An attention with fixed keys and values: ``attention.precompute(key, value, mask)(query)``.

    The keys are projected once, so that a decoding step costs one query.

    Args:
        attention: an Attention, LocalM or LocalP
        key: (*batch, keys, key_dim)
        value: (*batch, keys, value_dim)
        mask: the visible keys

    >>> memory = Attention(Additive(4, 6, 8)).precompute(torch.randn(2, 5, 6), torch.randn(2, 5, 3))
    >>> memory(torch.randn(2, 1, 4)).context.shape
    torch.Size([2, 1, 3])
    """

    def __init__(self, attention: Any, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None):
        self.attention = attention
        self.score, self.key = project_keys(attention.score, key)
        self.value = value
        self.mask = None if mask is None else as_mask(mask)
        self.guard = VersionGuard(attention.score)

    def __call__(self, query: Tensor, **arguments: Any) -> AttentionOutput:
        """Attend with (*batch, queries, query_dim); LocalM and LocalP also take ``query_positions``."""
        self.guard.assert_unchanged()
        return self.attention.attend_with(self.score, query, self.key, self.value, self.mask, **arguments)

    def reorder(self, rows: Int[Tensor, " new"], mask: Mask | Tensor | None = None) -> ProjectedKV:
        """A copy for other rows of the first batch axis, as beam search selects them; ``mask`` is that of the copy."""
        reordered = copy(self)
        reordered.score, reordered.key = reorder_projected(self.score, self.key, rows)
        reordered.value = self.value.index_select(0, rows)
        reordered.mask = None if mask is None else as_mask(mask)
        return reordered
