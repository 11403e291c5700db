"""The sums of kernel regression: by attention in chunks, or along sorted keys where that is exact and faster.

Along one feature they are the fast Gauss transform, and range sums of kernels with finite reach.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Score, attend

__all__ = ["GaussSums", "RangeSums", "SortedNeighbors", "TrainingPoints", "build_fast_sums", "smooth_in_chunks"]

MAX_DIRECT_POINTS = 512  # up to this number of points attention is as fast as any sum
MAX_PAIRS = 2**21  # scores of a chunk: they fit into the cache, and the overhead of a call is small
QUERIES_PER_GROUP = 64  # neighboring queries that share the keys within reach of any of them
REACH_MARGIN = 1e-9  # relative; keys at the border are kept, and the score decides
NUM_TERMS = 20
GAUSS_REACH = 9.0  # widths; the kernel is below 3e-18 beyond
MIN_RELATIVE_SUM = 1e-7  # of all weights; smaller sums are inexact: the query is far from every point
QUERIES_PER_CHUNK = 8192
MAX_WIDTHS = 2.0**40  # between the first and the last key, so that boxes can be counted from the first one
MIN_MEAN_KERNEL = 1e-6  # below it all keys are at the edge of the reach, where the expansion of 1 - u^2 cancels

Queries = Float[Tensor, "queries features"]
Points = Float[Tensor, "points"]
Values = Float[Tensor, "points columns"]
Sums = Float[Tensor, "queries columns"]
ExcludedPoint = Int[Tensor, "queries"]


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
    value: Values

    @classmethod
    def from_targets(
        cls, key: Float[Tensor, "points features"], y: Float[Tensor, "points outputs"], weight: Points
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


def build_fast_sums(
    kernel: str, width: Tensor, points: TrainingPoints, score: Score
) -> RangeSums | GaussSums | SortedNeighbors | None:
    """Sums along sorted keys, where they exist and are faster than attention.

    Args:
        kernel: its name
        width: one width, or one per feature
        points: the training points
        score: the kernel of this width

    Shape: width () or (features,)

    Returns:
        an object whose `sums` returns the sums for queries and which of them are inexact, or None

    Example:
        >>> x, y, weight = torch.rand(9, 1).double(), torch.rand(9, 1).double(), torch.ones(9).double()
        >>> points = TrainingPoints.from_targets(x, y, weight)
        >>> type(build_fast_sums("boxcar", torch.tensor(0.5), points, Boxcar(0.5))).__name__
        'RangeSums'
    """
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
        self.rank = order.argsort()
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


class GaussSums:
    """Sums of Gaussian kernel times value along one feature: the fast Gauss transform.

        sum_i exp(-u_i^2 / 2) v_i          u_i = |q - k_i| / width

    Keys within one width form a box. With its center c, t = (key - c) / width and s = (query - c) / width,

        exp(-(s - t)^2 / 2) = exp(-s^2 / 2) sum_p s^p / p! [t^p exp(-t^2 / 2)]

    so the sums of the brackets over the points of a box serve every query. With |t| <= 1/2 and `NUM_TERMS` terms the
    error of a kernel value is below 2e-16. A query needs about twenty boxes, however many points there are.

    Args:
        key: positions of the points
        value: values to sum, the weights as the last column
        width: width of the kernel

    Example:
        >>> GaussSums(torch.tensor([0.0, 1.0]), torch.ones(2, 1), 1.0).sums(torch.tensor([[0.0]]))[0]
        tensor([[1.6065]])

    Reference: Greengard and Strain (1991), "The Fast Gauss Transform".
    """

    def __init__(self, key: Points, value: Values, width: float):
        self.width, self.value = width, value
        order = key.argsort()
        key, value = key[order], value[order]
        number = ((key - key[0]) / width).floor()
        box = number.unique_consecutive(return_inverse=True)[1]
        starts = torch.searchsorted(box, torch.arange(int(box[-1]) + 2))
        self.first_key, self.last_key = key[starts[:-1]], key[starts[1:] - 1]
        self.center = self.first_key + (self.last_key - self.first_key) / 2
        self.moments = _compute_moments((key - self.center[box]) / width, value, box, len(self.center))

    def sums(self, query: Queries, excluded: ExcludedPoint | None = None) -> tuple[Sums, Bool[Tensor, "queries"]]:
        """The sums, and which of them are inexact; `excluded` is a point to leave out per query."""
        total = torch.cat([self._sums(chunk) for chunk in query[:, 0].split(QUERIES_PER_CHUNK)])
        if excluded is not None:
            total -= self.value[excluded]  # the kernel at distance 0 is 1
        return total, total[:, -1] < MIN_RELATIVE_SUM * self.value[:, -1].sum()

    def _sums(self, query: Tensor) -> Tensor:
        reach = GAUSS_REACH * self.width
        low = torch.searchsorted(self.last_key, query - reach)
        high = torch.searchsorted(self.first_key, query + reach, right=True)
        total = query.new_zeros(len(query), self.value.shape[1])
        while True:
            rows = (low < high).nonzero()[:, 0]
            if not len(rows):
                return total
            box = low[rows]
            s = ((query[rows] - self.center[box]) / self.width)[:, None]
            series = self.moments[-1].index_select(0, box)
            for moment in self.moments[:-1].flip(0):
                series = torch.addcmul(moment.index_select(0, box), series, s)
            total.index_add_(0, rows, series * (-0.5 * s * s).exp())
            low = low + 1


def _compute_moments(t: Tensor, value: Tensor, box: Tensor, num_boxes: int) -> Float[Tensor, "terms boxes columns"]:
    """sum t^p exp(-t^2 / 2) v / p! over the points of each box, for p = 0, 1, ..."""
    term = (-0.5 * t * t).exp()[:, None] * value
    moments = value.new_zeros(NUM_TERMS, num_boxes, value.shape[1])
    for p in range(NUM_TERMS):
        moments[p].index_add_(0, box, term)
        term = term * (t / (p + 1))[:, None]
    return moments


class RangeSums:
    """Sums of kernel times value over the keys within reach of each query, in n log n steps in all.

        boxcar         sum_i v_i                          over u_i <= 1          u_i = |q - k_i| / width
        epanechnikov   sum_i (1 - u_i^2) v_i              over u_i < 1

    The keys within reach are a range of the sorted keys, found by bisection. Its sum is composed of precomputed sums of
    1, 2, 4, ... neighbors; differences of cumulative sums would be shorter, but one extreme value would spoil all
    ranges behind it. With t_i = (k_i - c) / width and s = (q - c) / width, 1 - u_i^2 = 1 - s^2 + 2 s t_i - t_i^2, so
    three sums about the center c of some neighbors serve every query.

    Args:
        key: positions of the points
        value: values to sum, the weights as the last column
        width: width of the kernel
        curved: True for Epanechnikov, False for boxcar

    Example:
        >>> RangeSums(torch.arange(9.0), torch.ones(9, 1), 2.0, curved=False).sums(torch.tensor([[4.0]]))[0]
        tensor([[5.]])
    """

    def __init__(self, key: Points, value: Values, width: float, curved: bool):
        self.width, self.curved = width, curved
        self.key, order = key.sort(stable=True)
        self.rank = order.argsort()
        # Of each level, the centers of the nodes (nodes,), and sums of v, t v and t^2 v, (moments, nodes, columns).
        self.levels = _build_levels(self.key, value[order], width, curved)

    def sums(self, query: Queries, excluded: ExcludedPoint | None = None) -> tuple[Sums, Bool[Tensor, "queries"]]:
        """The sums, and which of them are inexact, near 0; `excluded` is a point to leave out per query."""
        query = query[:, 0]
        low, high = self._find_range(query)
        ranges = [(low, high)]
        if excluded is not None:
            index = self.rank[excluded]
            ranges = [(low, index), (index + 1, high)]
        total = query.new_zeros(2, len(query), self.levels[0][1].shape[-1])  # epanechnikov, and boxcar
        for first, last in ranges:
            self._add_range(total, query, first, last)
        curved, flat = total
        if not self.curved:
            return flat, torch.zeros(len(query), dtype=torch.bool)
        return curved, curved[:, -1] < MIN_MEAN_KERNEL * flat[:, -1]

    def _find_range(self, query: Tensor) -> tuple[ExcludedPoint, ExcludedPoint]:
        """The sorted keys within reach of each query: the first index, and one behind the last.

        The condition is computed as the score computes u, so that a key on the border is rounded the same way.
        """

        def is_within(key: Tensor) -> Tensor:
            u = (query - key).abs() / self.width
            return u < 1 if self.curved else u <= 1

        low = _first_index(self.key, query, lambda key: (key >= query) | is_within(key))
        return low, _first_index(self.key, query, lambda key: (key > query) & ~is_within(key))

    def _add_range(self, total: Tensor, query: Tensor, first: ExcludedPoint, last: ExcludedPoint) -> None:
        """Add the sums of the keys from `first` to before `last`, node by node from the smallest up."""
        for center, sums in self.levels:
            left, right = ((first & 1) == 1) & (first < last), ((last & 1) == 1) & (first < last)
            self._add_nodes(total, query, center, sums, first, left)
            first = first + left.long()
            right &= first < last
            last = last - right.long()
            self._add_nodes(total, query, center, sums, last, right)
            first, last = first >> 1, last >> 1
            if not bool((first < last).any()):
                return

    def _add_nodes(
        self, total: Tensor, query: Tensor, center: Tensor, sums: Tensor, node: Tensor, selected: Tensor
    ) -> None:
        rows = selected.nonzero()[:, 0]
        node = node[rows]
        flat = sums[0].index_select(0, node)
        total[1].index_add_(0, rows, flat)
        if self.curved:
            s = ((query[rows] - center[node]) / self.width)[:, None]
            tilt, bend = (moment.index_select(0, node) for moment in sums[1:])
            total[0].index_add_(0, rows, (1 - s * s) * flat + 2 * s * tilt - bend)


def _first_index(keys: Tensor, query: Tensor, predicate: Callable[[Tensor], Tensor]) -> ExcludedPoint:
    """For each query the index of the first key for which a monotone predicate is true."""
    low = torch.zeros(len(query), dtype=torch.long)
    high = torch.full_like(low, len(keys))
    for _ in range(len(keys).bit_length()):
        middle = (low + high) >> 1
        is_true = predicate(keys[middle.clamp(max=len(keys) - 1)]) | (middle >= high)
        high = torch.where(is_true, torch.minimum(middle, high), high)
        low = torch.where(is_true, low, middle + 1)
    return low


def _build_levels(key: Tensor, value: Tensor, width: float, curved: bool) -> list[tuple[Tensor, Tensor]]:
    """Centers and sums of single keys, pairs, fours, ..."""
    zeros = torch.zeros_like(value)
    levels = [(key, torch.stack([value, zeros, zeros] if curved else [value]))]
    first = last = key
    while len(first) > 1:
        center, sums = levels[-1]
        if len(first) % 2:  # pad with an empty node, which no range contains
            first, last, center = (torch.cat([part, part[-1:]]) for part in (first, last, center))
            sums = torch.cat([sums, torch.zeros_like(sums[:, :1])], 1)
        first, last = first[0::2], last[1::2]
        middle = first + (last - first) / 2
        left, right = (_recenter(center[side::2], sums[:, side::2], middle, width) for side in (0, 1))
        levels.append((middle, left + right))
    return levels


def _recenter(center: Tensor, sums: Tensor, new_center: Tensor, width: float) -> Tensor:
    """The same sums about another center."""
    if len(sums) == 1:
        return sums
    d = ((center - new_center) / width)[:, None]
    flat, tilt, bend = sums
    return torch.stack([flat, tilt + d * flat, bend + 2 * d * tilt + d * d * flat])
