"""Keys that are projected once and asked again and again, as a decoder does."""

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


class KeyProjectedScore(Score):
    """A score whose keys are projected already: only the query's half is left to do."""

    def __init__(self, score: Score, key_shape: torch.Size):
        super().__init__()
        self.score = score
        self.key_shape = torch.empty(key_shape, device="meta")  # the keys' shape before they were projected
        self.output_kind, self.is_positional, self.is_random = (
            score.output_kind,
            score.is_positional,
            score.is_random,
        )

    @property
    def pairwise(self) -> Score:
        return self.score.pairwise

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return self.score.project_query(query, num_keys)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.score.check_dims(query, self.key_shape)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.pairwise(self.project_query(query, key.shape[-2]), key)

    def restrict(self, grid: PositionGrid) -> Score | None:
        return None if self.pairwise.restrict(grid) is None else self


def project_keys(score: Any, key: Tensor) -> tuple[Any, Tensor]:
    """The keys' half of a score done once: what is left of the score, and the projected keys."""
    if not isinstance(score, Score) or score.pairwise is score:
        return score, key
    try:
        return KeyProjectedScore(score, key.shape), score.project_key(key)
    except RuntimeError as error:
        raise ShapeError(f"{part_name(score)} cannot take key {tuple(key.shape)}") from error


class VersionGuard:
    """Whether the parameters that projected the keys are still what they were then."""

    def __init__(self, *modules: Any):
        parts = [module for module in modules if isinstance(module, nn.Module)]
        held = [] if torch.compiler.is_compiling() else [p for part in parts for p in part.parameters()]
        self.versions = [(p, p._version) for p in held if not p.is_inference()]

    def assert_unchanged(self) -> None:
        if any(p._version != version for p, version in self.versions):
            raise StaleStateError(
                "the keys given to over() were projected by parameters that have changed since (by an optimizer step, "
                "perhaps); call over() again"
            )


class ProjectedKV:
    """An attention over keys and values that were given once: ``attention.over(key, value, mask)(query)``.

    One step of a decoder then costs one query: the keys' projections are made here.
    """

    def __init__(self, attention: Any, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None):
        self.attention = attention
        self.score, self.key = project_keys(attention.score, key)
        self.value = value
        self.mask = None if mask is None else as_mask(mask)
        self.guard = VersionGuard(attention.score)

    def __call__(self, query: Tensor, **more: Any) -> AttentionOutput:
        self.guard.assert_unchanged()
        return self.attention.attend_with(self.score, query, self.key, self.value, self.mask, **more)

    def reorder(self, rows: Int[Tensor, " new"], mask: Mask | Tensor | None = None) -> ProjectedKV:
        """The same for other rows of the first batch axis, as a beam takes them; the mask is that of the new rows."""
        chosen = copy(self)
        chosen.score, chosen.key = reorder_projected(self.score, self.key, rows)
        chosen.value = self.value.index_select(0, rows)
        chosen.mask = None if mask is None else as_mask(mask)
        return chosen


def reorder_projected(score: Any, key: Tensor, rows: Tensor) -> tuple[Any, Tensor]:
    """Other rows of what `projected` gave."""
    if isinstance(score, KeyProjectedScore):
        score = KeyProjectedScore(score.score, torch.Size([len(rows), *score.key_shape.shape[1:]]))
    return score, key.index_select(0, rows)
