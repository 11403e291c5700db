"""The equation on a few queries at a time, and for kernels of finite reach only with the keys that may be near."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import attend
from regard.attention.scores import Score

PAIRS = 2**21
"""So many scores at a time: few enough to stay near the processor, enough to forget what a call costs."""
TOGETHER = 64
"""So many neighboring queries share the keys that one of them may reach."""
MARGIN = 1e-9
"""Who is this much beyond the reach stays in: the score decides, and its rounding."""

Queries = Float[Tensor, "queries features"]
Sums = Float[Tensor, "queries columns"]
Itself = Int[Tensor, "queries"]


class Known(NamedTuple):
    """The points: where they are, and what is summed of each: weight times y, and the weight."""

    key: Float[Tensor, "points features"]
    value: Float[Tensor, "points columns"]

    @classmethod
    def of(
        cls,
        key: Float[Tensor, "points features"],
        y: Float[Tensor, "points outputs"],
        weight: Float[Tensor, "points"],
    ) -> Known:
        return cls(key, torch.cat([y * weight[:, None], weight[:, None]], 1))

    @property
    def y(self) -> Float[Tensor, "points outputs"]:
        return self.value[:, :-1] / self.value[:, -1:]

    @property
    def weight(self) -> Float[Tensor, "points"]:
        return self.value[:, -1]


def by_parts(
    query: Queries,
    known: Known,
    score: Score,
    itself: Itself | None = None,
    normalize: Callable[[Tensor], Tensor] | None = None,
) -> Sums:
    """What `attend` sees, some queries at a time; `itself` is a point to hide from each query."""
    key, value = known
    if not len(query) or not len(key):
        return value.new_zeros(len(query), value.shape[1])
    step = max(1, PAIRS // len(key))
    found = []
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        mask = None if itself is None else _others(itself[part], len(key))
        found.append(attend(query[part], key, value, mask, score=score, normalize=normalize).context)
    return torch.cat(found)


class Slabs:
    """Keys sorted along the feature that spreads furthest; neighbors are shown those within reach along it."""

    def __init__(self, known: Known, width: Tensor, score: Score):
        extent = (known.key.amax(0) - known.key.amin(0)) / width
        self.axis = int(extent.argmax())
        order = known.key[:, self.axis].argsort()
        self.rank = torch.empty_like(order)
        self.rank[order] = torch.arange(len(order))
        self.known, self.score = Known(known.key[order], known.value[order]), score
        self.line = self.known.key[:, self.axis].contiguous()
        rounding = 1e-15 * self.line.abs().amax()
        self.reach = width.expand(known.key.shape[1])[self.axis] * (1 + MARGIN) + rounding

    def sums(self, query: Queries, itself: Itself | None = None) -> tuple[Sums, Bool[Tensor, "queries"]]:
        """The sums, and which of them are not exact: none."""
        sums = query.new_zeros(len(query), self.known.value.shape[1])
        for rows in query[:, self.axis].argsort().split(TOGETHER):
            line = query[rows, self.axis]
            ends = torch.stack([line[0] - self.reach, line[-1] + self.reach])
            low = int(torch.searchsorted(self.line, ends[0]))
            high = int(torch.searchsorted(self.line, ends[1], right=True))
            near = Known(self.known.key[low:high], self.known.value[low:high])
            left = None if itself is None else self.rank[itself[rows]] - low
            sums[rows] = by_parts(query[rows], near, self.score, left)
        return sums, torch.zeros(len(query), dtype=torch.bool)


def _others(itself: Tensor, points: int) -> Bool[Tensor, "queries points"]:
    return itself[:, None] != torch.arange(points)
