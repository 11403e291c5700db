"""Keys that are projected once and asked again and again, as a decoder does."""

from __future__ import annotations

from copy import copy
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention._result import Attended
from regard.attention.masks import Grid, Mask, as_mask
from regard.attention.scores.base import Score, name
from regard.errors import ShapeError, StaleStateError


class Asked(Score):
    """A score whose keys are projected already: only the query's half is left to do."""

    def __init__(self, score: Score, shape: torch.Size):
        super().__init__()
        self.score = score
        self.before = torch.empty(shape, device="meta")  # the keys' shape before they were projected
        self.gives, self.positional, self.random = score.gives, score.positional, score.random

    @property
    def inner(self) -> Score:
        return self.score.inner

    def project_query(self, query: Tensor, keys: int) -> Tensor:
        return self.score.project_query(query, keys)

    def check(self, query: Tensor, key: Tensor) -> None:
        self.score.check(query, self.before)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.inner(self.project_query(query, key.shape[-2]), key)

    def at(self, grid: Grid) -> Score | None:
        return None if self.inner.at(grid) is None else self


def projected(score: Any, key: Tensor) -> tuple[Any, Tensor]:
    """The keys' half of a score done once: what is left of the score, and the projected keys."""
    if not isinstance(score, Score) or score.inner is score:
        return score, key
    try:
        return Asked(score, key.shape), score.project_key(key)
    except RuntimeError as error:
        raise ShapeError(f"{name(score)} cannot take key {tuple(key.shape)}") from error


class Unchanged:
    """Whether the parameters that projected the keys are still what they were then."""

    def __init__(self, *modules: Any):
        parts = [module for module in modules if isinstance(module, nn.Module)]
        held = [] if torch.compiler.is_compiling() else [p for part in parts for p in part.parameters()]
        self.versions = [(p, p._version) for p in held if not p.is_inference()]

    def check(self) -> None:
        if any(p._version != version for p, version in self.versions):
            raise StaleStateError(
                "the keys given to over() were projected by parameters that have changed since (by an optimizer step, "
                "perhaps); call over() again"
            )


class Over:
    """An attention over keys and values that were given once: ``attention.over(key, value, mask)(query)``.

    One step of a decoder then costs one query: the keys' projections are made here.
    """

    def __init__(self, attention: Any, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None):
        self.attention = attention
        self.score, self.key = projected(attention.score, key)
        self.value = value
        self.mask = None if mask is None else as_mask(mask)
        self.unchanged = Unchanged(attention.score)

    def __call__(self, query: Tensor, **more: Any) -> Attended:
        self.unchanged.check()
        return self.attention.ask(self.score, query, self.key, self.value, self.mask, **more)

    def select(self, rows: Int[Tensor, " new"], mask: Mask | Tensor | None = None) -> Over:
        """The same for other rows of the first batch axis, as a beam takes them; the mask is that of the new rows."""
        chosen = copy(self)
        chosen.score, chosen.key = selected(self.score, self.key, rows)
        chosen.value = self.value.index_select(0, rows)
        chosen.mask = None if mask is None else as_mask(mask)
        return chosen


def selected(score: Any, key: Tensor, rows: Tensor) -> tuple[Any, Tensor]:
    """Other rows of what `projected` gave."""
    if isinstance(score, Asked):
        score = Asked(score.score, torch.Size([len(rows), *score.before.shape[1:]]))
    return score, key.index_select(0, rows)
