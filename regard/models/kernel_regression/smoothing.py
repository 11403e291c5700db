"""The equation on a few queries at a time, and for kernels of finite reach only with the keys that may be near.

The sums of kernel regression: by the equation, or along sorted keys where that gives the same faster.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Boxcar, Constant, Epanechnikov, Gaussian, attend, hardmax
from regard.attention.scores import Score
from regard.models.kernel_regression.sums_1d import MAX_WIDTHS, GaussSums, RangeSums

MAX_PAIRS = 2**21
"""So many scores at a time: few enough to stay near the processor, enough to forget what a call costs."""


QUERIES_PER_GROUP = 64
"""So many neighboring queries share the keys that one of them may reach."""


REACH_MARGIN = 1e-9
"""Who is this much beyond the reach stays in: the score decides, and its rounding."""


Queries = Float[Tensor, "queries features"]


Sums = Float[Tensor, "queries columns"]


ExcludedPoint = Int[Tensor, "queries"]


class TrainingPoints(NamedTuple):
    """The points: where they are, and what is summed of each: weight times y, and the weight."""

    key: Float[Tensor, "points features"]
    value: Float[Tensor, "points columns"]

    @classmethod
    def from_targets(
        cls,
        key: Float[Tensor, "points features"],
        y: Float[Tensor, "points outputs"],
        weight: Float[Tensor, "points"],
    ) -> TrainingPoints:
        return cls(key, torch.cat([y * weight[:, None], weight[:, None]], 1))

    @property
    def y(self) -> Float[Tensor, "points outputs"]:
        return self.value[:, :-1] / self.value[:, -1:]

    @property
    def weight(self) -> Float[Tensor, "points"]:
        return self.value[:, -1]


def smooth_in_chunks(
    query: Queries,
    points: TrainingPoints,
    score: Score,
    excluded: ExcludedPoint | None = None,
    normalize: Callable[[Tensor], Tensor] | None = None,
) -> Sums:
    """What `attend` sees, some queries at a time; `itself` is a point to hide from each query."""
    key, value = points
    if not len(query) or not len(key):
        return value.new_zeros(len(query), value.shape[1])
    step = max(1, MAX_PAIRS // len(key))
    found = []
    for start in range(0, len(query), step):
        part = slice(start, start + step)
        mask = None if excluded is None else _exclusion_mask(excluded[part], len(key))
        found.append(attend(query[part], key, value, mask, score=score, normalize=normalize).context)
    return torch.cat(found)


class SortedNeighbors:
    """Keys sorted along the feature that spreads furthest; neighbors are shown those within reach along it."""

    def __init__(self, points: TrainingPoints, width: Tensor, score: Score):
        extent = (points.key.amax(0) - points.key.amin(0)) / width
        self.axis = int(extent.argmax())
        order = points.key[:, self.axis].argsort()
        self.rank = torch.empty_like(order)
        self.rank[order] = torch.arange(len(order))
        self.points, self.score = TrainingPoints(points.key[order], points.value[order]), score
        self.coordinates = self.points.key[:, self.axis].contiguous()
        rounding = 1e-15 * self.coordinates.abs().amax()
        self.reach = width.expand(points.key.shape[1])[self.axis] * (1 + REACH_MARGIN) + rounding

    def sums(
        self, query: Queries, excluded: ExcludedPoint | None = None
    ) -> tuple[Sums, Bool[Tensor, "queries"]]:
        """The sums, and which of them are not exact: none."""
        sums = query.new_zeros(len(query), self.points.value.shape[1])
        for rows in query[:, self.axis].argsort().split(QUERIES_PER_GROUP):
            line = query[rows, self.axis]
            ends = torch.stack([line[0] - self.reach, line[-1] + self.reach])
            low = int(torch.searchsorted(self.coordinates, ends[0]))
            high = int(torch.searchsorted(self.coordinates, ends[1], right=True))
            near = TrainingPoints(self.points.key[low:high], self.points.value[low:high])
            left = None if excluded is None else self.rank[excluded[rows]] - low
            sums[rows] = smooth_in_chunks(query[rows], near, self.score, left)
        return sums, torch.zeros(len(query), dtype=torch.bool)


def _exclusion_mask(excluded: Tensor, num_points: int) -> Bool[Tensor, "queries points"]:
    return excluded[:, None] != torch.arange(num_points)


MAX_DIRECT_POINTS = 512
"""Up to so many points the equation itself is as fast as anything."""


Width = Float[Tensor, ""] | Float[Tensor, "features"]


KERNELS: dict[str, Callable[[Tensor | float], Score]] = {
    "average": lambda width: Constant(),
    "gaussian": Gaussian,
    "boxcar": Boxcar,
    "epanechnikov": Epanechnikov,
}


class KernelSmoother:
    """A kernel and its width laid over known points.

        f(q) = sum_i K(q, x_i) w_i y_i / sum_i K(q, x_i) w_i

    Both sums come from one look at values [w y, w]; what its weights are divided by cancels. Sums are 0 where no point
    is in reach.
    """

    def __init__(self, kernel: str, width: Width, points: TrainingPoints):
        self.points = points
        # As NumPy's number: a plain one would be taken for float32, and rounded.
        given = width if width.numel() > 1 else np.float64(width.item())
        self.score, self.nearest_score = KERNELS[kernel](given), Gaussian(given)
        self.fast_sums = _build_fast_sums(kernel, width, points, self.score)

    def sums(self, query: Queries, excluded: ExcludedPoint | None = None) -> Sums:
        """Numerators and, last, the denominator; `itself` is a point to leave out for each query."""
        if self.fast_sums is None or not len(query):
            return smooth_in_chunks(query, self.points, self.score, excluded)
        sums, unsure = self.fast_sums.sums(query, excluded)
        if bool(unsure.any()):
            left = None if excluded is None else excluded[unsure]
            sums[unsure] = smooth_in_chunks(query[unsure], self.points, self.score, left)
        return sums

    def nearest(self, query: Queries, excluded: ExcludedPoint | None = None) -> Sums:
        """The same sums of the nearest point alone."""
        return smooth_in_chunks(query, self.points, self.nearest_score, excluded, hardmax)

    def leave_one_out(self) -> Sums:
        """The sums at every point, over all points but itself."""
        return self.sums(self.points.key, torch.arange(len(self.points.key)))

    def weights(self, query: Queries) -> Float[Tensor, "queries points"]:
        """What each point counts for each query; rows of 0 where none is in reach."""
        shares = attend(query, *self.points, score=self.score).weights * self.points.weight
        total = shares.sum(-1, keepdim=True)
        return torch.where(total > 0, shares / total, 0.0)

    def nearest_weights(self, query: Queries) -> Float[Tensor, "queries points"]:
        """Weights that look at the nearest point alone."""
        return attend(query, *self.points, score=self.nearest_score, normalize=hardmax).weights


def divide_sums(sums: Sums) -> Float[Tensor, "queries outputs"]:
    """What is predicted: NaN where no point was in reach."""
    return torch.where(sums[:, -1:] > 0, sums[:, :-1] / sums[:, -1:], math.nan)


def _build_fast_sums(
    kernel: str, width: Tensor, points: TrainingPoints, score: Score
) -> RangeSums | GaussSums | SortedNeighbors | None:
    """A way along sorted keys, where there is one and it is worth it."""
    key, value = points
    few = len(key) <= MAX_DIRECT_POINTS
    if kernel == "average" or (few and (kernel == "gaussian" or key.shape[1] > 1)):
        return None
    if key.shape[1] > 1:
        return None if kernel == "gaussian" else SortedNeighbors(points, width, score)
    if kernel == "gaussian":
        near = bool(key.amax() - key.amin() <= MAX_WIDTHS * width)
        return GaussSums(key[:, 0], value, width.item()) if near else None
    return RangeSums(key[:, 0], value, width.item(), curved=kernel == "epanechnikov")
