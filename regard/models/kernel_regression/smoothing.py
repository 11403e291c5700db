"""The sums of kernel regression: by attention in chunks, or along sorted keys where that is exact and faster."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Boxcar, Constant, Epanechnikov, Gaussian, Score, attend, hardmax
from regard.models.kernel_regression.sums_1d import MAX_WIDTHS, GaussSums, RangeSums

__all__ = ["KERNELS", "KernelSmoother", "SortedNeighbors", "TrainingPoints", "divide_sums", "smooth_in_chunks"]

MAX_DIRECT_POINTS = 512  # up to this number of points attention is as fast as any sum
MAX_PAIRS = 2**21  # scores of a chunk: they fit into the cache, and the overhead of a call is small
QUERIES_PER_GROUP = 64  # neighboring queries that share the keys within reach of any of them
REACH_MARGIN = 1e-9  # relative; keys at the border are kept, and the score decides

Queries = Float[Tensor, "queries features"]
Sums = Float[Tensor, "queries columns"]
ExcludedPoint = Int[Tensor, "queries"]
Width = Float[Tensor, ""] | Float[Tensor, "features"]

KERNELS: dict[str, Callable[[Tensor | float], Score]] = {
    "average": lambda width: Constant(),
    "gaussian": Gaussian,
    "boxcar": Boxcar,
    "epanechnikov": Epanechnikov,
}


class TrainingPoints(NamedTuple):
    """Keys x, and values: weight times y, and the weight as the last column.

    Args:
        key: x
        value: the columns weight * y and weight

    Example:
        >>> TrainingPoints.from_targets(torch.rand(9, 2), torch.rand(9, 3), torch.ones(9)).value.shape
        torch.Size([9, 4])
    """

    key: Float[Tensor, "points features"]
    value: Float[Tensor, "points columns"]

    @classmethod
    def from_targets(
        cls, key: Float[Tensor, "points features"], y: Float[Tensor, "points outputs"], weight: Float[Tensor, "points"]
    ) -> TrainingPoints:
        """Training points from x, y and sample weights."""
        return cls(key, torch.cat([y * weight[:, None], weight[:, None]], 1))

    @property
    def y(self) -> Float[Tensor, "points outputs"]:
        """The targets."""
        return self.value[:, :-1] / self.value[:, -1:]

    @property
    def weight(self) -> Float[Tensor, "points"]:
        """The sample weights."""
        return self.value[:, -1]


class KernelSmoother:
    """A kernel of a given width over training points.

        f(q) = sum_i K(q, x_i) w_i y_i / sum_i K(q, x_i) w_i

    Both sums are one attention over values [w y, w], whose normalization cancels. They are 0 where no point is within
    reach.

    Args:
        kernel: a name in `KERNELS`
        width: one width, or one per feature
        points: the training points

    Example:
        >>> x, y, weight = torch.rand(9, 1).double(), torch.rand(9, 1).double(), torch.ones(9).double()
        >>> points = TrainingPoints.from_targets(x, y, weight)
        >>> KernelSmoother("gaussian", torch.tensor(0.1), points).sums(torch.rand(3, 1).double()).shape
        torch.Size([3, 2])
    """

    def __init__(self, kernel: str, width: Width, points: TrainingPoints):
        self.points = points
        # A NumPy float64: a Python float would be converted to float32 and rounded.
        score_width = width if width.numel() > 1 else np.float64(width.item())
        self.score, self.nearest_score = KERNELS[kernel](score_width), Gaussian(score_width)
        self.fast_sums = _build_fast_sums(kernel, width, points, self.score)

    def sums(self, query: Queries, excluded: ExcludedPoint | None = None) -> Sums:
        """Numerators and, as the last column, the denominator; `excluded` is a point to leave out per query."""
        if self.fast_sums is None or not len(query):
            return smooth_in_chunks(query, self.points, self.score, excluded)
        sums, is_inexact = self.fast_sums.sums(query, excluded)
        if bool(is_inexact.any()):
            left_out = None if excluded is None else excluded[is_inexact]
            sums[is_inexact] = smooth_in_chunks(query[is_inexact], self.points, self.score, left_out)
        return sums

    def nearest(self, query: Queries, excluded: ExcludedPoint | None = None) -> Sums:
        """The sums over the nearest point only."""
        return smooth_in_chunks(query, self.points, self.nearest_score, excluded, hardmax)

    def leave_one_out(self) -> Sums:
        """The sums at every point over all other points."""
        return self.sums(self.points.key, torch.arange(len(self.points.key)))

    def weights(self, query: Queries) -> Float[Tensor, "queries points"]:
        """The weight of each point for each query; rows of 0 where no point is within reach."""
        weights = attend(query, *self.points, score=self.score).weights * self.points.weight
        total = weights.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / total, 0.0)

    def nearest_weights(self, query: Queries) -> Float[Tensor, "queries points"]:
        """Weight 1 for the nearest point."""
        return attend(query, *self.points, score=self.nearest_score, normalize=hardmax).weights


def divide_sums(sums: Sums) -> Float[Tensor, "queries outputs"]:
    """Predictions from sums: NaN where no point is within reach.

    Args:
        sums: numerators and, as the last column, the denominator

    Returns:
        the predictions

    Example:
        >>> divide_sums(torch.tensor([[3.0, 2.0], [0.0, 0.0]])).tolist()
        [[1.5], [nan]]
    """
    return torch.where(sums[:, -1:] > 0, sums[:, :-1] / sums[:, -1:], math.nan)


def _build_fast_sums(
    kernel: str, width: Tensor, points: TrainingPoints, score: Score
) -> RangeSums | GaussSums | SortedNeighbors | None:
    """Sums along sorted keys, where they exist and are faster than attention."""
    key, value = points
    num_features, has_few_points = key.shape[1], len(key) <= MAX_DIRECT_POINTS
    if kernel == "average" or (has_few_points and (kernel == "gaussian" or num_features > 1)):
        return None
    if num_features > 1:
        return None if kernel == "gaussian" else SortedNeighbors(points, width, score)
    if kernel == "gaussian":
        is_countable = bool(key.amax() - key.amin() <= MAX_WIDTHS * width)
        return GaussSums(key[:, 0], value, width.item()) if is_countable else None
    return RangeSums(key[:, 0], value, width.item(), curved=kernel == "epanechnikov")


def smooth_in_chunks(
    query: Queries,
    points: TrainingPoints,
    score: Score,
    excluded: ExcludedPoint | None = None,
    normalize: Callable[[Tensor], Tensor] | None = None,
) -> Sums:
    """Contexts of `attend`, computed for some queries at a time.

    Args:
        query: where to predict
        points: keys and values
        score: the kernel
        excluded: a point to hide from each query
        normalize: the normalizer, as in `attend`

    Shape: query (queries, features), excluded (queries,) -> (queries, columns)

    Returns:
        the contexts

    Example:
        >>> x, y, weight = torch.rand(9, 1).double(), torch.rand(9, 1).double(), torch.ones(9).double()
        >>> points = TrainingPoints.from_targets(x, y, weight)
        >>> smooth_in_chunks(torch.rand(3, 1).double(), points, Boxcar(0.5)).shape
        torch.Size([3, 2])
    """
    key, value = points
    if not len(query) or not len(key):
        return value.new_zeros(len(query), value.shape[1])
    chunk_size = max(1, MAX_PAIRS // len(key))
    sums = []
    for start in range(0, len(query), chunk_size):
        chunk = slice(start, start + chunk_size)
        mask = None if excluded is None else excluded[chunk, None] != torch.arange(len(key))
        sums.append(attend(query[chunk], key, value, mask, score=score, normalize=normalize).context)
    return torch.cat(sums)


class SortedNeighbors:
    """Attention to the keys within reach, found by sorting along the feature with the largest range.

    Args:
        points: the training points
        width: one width, or one per feature
        score: a kernel of finite reach

    Example:
        >>> x, y, weight = torch.rand(9, 1).double(), torch.rand(9, 1).double(), torch.ones(9).double()
        >>> points = TrainingPoints.from_targets(x, y, weight)
        >>> SortedNeighbors(points, torch.tensor(0.5), Boxcar(0.5)).sums(torch.rand(3, 1).double())[0].shape
        torch.Size([3, 2])
    """

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

    def sums(self, query: Queries, excluded: ExcludedPoint | None = None) -> tuple[Sums, Bool[Tensor, "queries"]]:
        """The sums, and which of them are inexact: none."""
        sums = query.new_zeros(len(query), self.points.value.shape[1])
        for rows in query[:, self.axis].argsort().split(QUERIES_PER_GROUP):
            coordinates = query[rows, self.axis]
            ends = torch.stack([coordinates[0] - self.reach, coordinates[-1] + self.reach])
            low = int(torch.searchsorted(self.coordinates, ends[0]))
            high = int(torch.searchsorted(self.coordinates, ends[1], right=True))
            neighbors = TrainingPoints(self.points.key[low:high], self.points.value[low:high])
            left_out = None if excluded is None else self.rank[excluded[rows]] - low
            sums[rows] = smooth_in_chunks(query[rows], neighbors, self.score, left_out)
        return sums, torch.zeros(len(query), dtype=torch.bool)
