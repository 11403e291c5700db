"""Relative positions that are added to a score: Alibi and RelativeBias; `Rotary`, which wraps one, is in rotary.py.

Query i has key position i + offset, by default keys - queries, so that a decoder with a cache needs no offset.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from regard.attention._common import broadcast_shape, is_transformed, upcast_half
from regard.attention.masks import Mask, PositionGrid
from regard.attention.module import Device, Dtype
from regard.attention.scores.base import DotProductFeatures, KeyVectors, QueryVectors, Score, ScoreMatrix
from regard.errors import ShapeError, UsageError

__all__ = ["Alibi", "RelativeBias", "RelativePositionBias"]


class RelativePositionBias(Score):
    """A score of the positions only, one for each head; it is added to another score.

    Args:
        num_heads: the number of heads, the axis before the queries
        offset: the key position of the first query; keys - queries if None

    Shape: query (*batch, heads, queries, dim), key (*batch, heads, keys, dim) -> (*batch, heads, queries, keys)

    Example:
        >>> class NearestFirst(RelativePositionBias):
        ...     def bias_of_distance(self, distance):
        ...         return -distance.abs().float().expand(self.num_heads, *distance.shape)
        >>> NearestFirst(1, offset=None)(torch.randn(2, 4), torch.randn(2, 4))
        tensor([[[-0., -1.],
                 [-1., -0.]]])
    """

    is_positional = is_relative = computes_bias = True

    def __init__(self, num_heads: int, offset: int | None):
        super().__init__()
        if num_heads < 1:
            raise UsageError(f"{type(self).__name__}: num_heads must be at least 1, got {num_heads}")
        self.num_heads, self.offset = num_heads, offset

    def bias_of_distance(self, distance: Tensor) -> Tensor:
        """The bias for distances key - query: (distances,) -> (heads, distances)."""
        raise NotImplementedError(f"{type(self).__name__} must implement bias_of_distance(distance)")

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        heads = max(query.shape[-3] if query.dim() > 2 else 1, key.shape[-3] if key.dim() > 2 else 1)
        if heads not in (1, self.num_heads) and self.num_heads > 1:  # one bias serves any number of heads
            raise ShapeError(
                f"{type(self).__name__} expects {self.num_heads} heads on the axis before the queries, got query "
                f"{tuple(query.shape)} and key {tuple(key.shape)}"
            )

    def bias(self, grid: PositionGrid) -> Tensor:
        """The bias for the positions of a grid: (heads, *inner, queries, keys).

        Positions are consecutive, so there are m + n - 1 different distances, and each row of distances is the next
        row shifted by one.
        """
        offset = grid.num_keys - grid.num_queries if self.offset is None else self.offset
        queries, keys = grid.query_positions.shape[-2], grid.key_positions.shape[-1]
        if queries == 0 or keys == 0:
            return self.bias_of_distance(grid.key_positions.new_empty(0)).new_zeros(
                self.num_heads, *[1] * grid.num_inner_axes, queries, keys
            )
        if queries == 1:  # also where each query has gathered keys, which need not be consecutive
            distances = grid.key_positions - (grid.query_positions + offset)
            return self.bias_of_distance(distances.flatten()).unflatten(-1, distances.shape)
        first = grid.key_positions.flatten()[0] - grid.query_positions.flatten()[0] - offset
        distances = torch.arange(1 - queries, keys, device=grid.key_positions.device) + first
        bias = self.bias_of_distance(distances)
        if is_transformed():  # the size of unfold would be a constant of the graph, and its backward is slow in vmap
            index = torch.arange(keys, device=bias.device) + torch.arange(queries, device=bias.device).flip(0)[:, None]
            rows = bias[..., index]
        else:
            rows = bias.unfold(-1, keys, 1).flip(-2)
        return rows.reshape(self.num_heads, *[1] * grid.num_inner_axes, queries, keys)

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        self.check_dims(query, key)
        bias = self.bias(PositionGrid.full(query.shape[-2], key.shape[-2], 0, query.device))
        batch = broadcast_shape(query.shape[:-2], key.shape[:-2], bias.shape[:-2])
        return bias.to(upcast_half(query).dtype).expand(*batch, -1, -1)

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        return self(query, key[..., :1, :, :])  # only the number of keys matters

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        bias = self.bias(PositionGrid.full(query.shape[-2], key.shape[-2], 0, query.device))
        return DotProductFeatures(None, None, bias=bias)

    def restrict(self, grid: PositionGrid) -> Score | None:
        # Gathered keys are supported too, unless their positions differ between the entries of a batch.
        is_supported = grid.is_consecutive or grid.key_positions.dim() <= grid.num_inner_axes + 2
        return PrecomputedScore(self.bias(grid)) if is_supported else None


class PrecomputedScore(Score):
    """Scores that do not depend on query and key: a bias computed for some positions."""

    def __init__(self, scores: Tensor):
        super().__init__()
        self.scores = scores

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.scores.to(upcast_half(query).dtype)

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        return DotProductFeatures(None, None, bias=self.scores)

    def restrict(self, grid: PositionGrid) -> Score | None:
        return None  # these scores belong to one part of the positions


class Alibi(RelativePositionBias):
    """A linear penalty on the distance of a key, with one slope for each head.

        score(i, j) = -slope_h |i - j|          slope_h = 2^(-8 h / heads), h = 1..heads

    Add it to a score: ``ScaledDot() + Alibi(num_heads)``. For a number of heads that is not a power of two the slopes
    are those of the next lower power, then every other one of the next higher.

    Args:
        num_heads: the number of heads
        offset: the key position of the first query; keys - queries by default
        device: the device of the slopes
        dtype: the dtype of the slopes

    Shape: query (*batch, heads, queries, dim), key (*batch, heads, keys, dim) -> (*batch, heads, queries, keys)

    Reference: Press, Smith and Lewis (2022), arXiv 2108.12409.

    Example:
        >>> (ScaledDot() + Alibi(8))(torch.randn(2, 8, 3, 4), torch.randn(2, 8, 5, 4)).shape
        torch.Size([2, 8, 3, 5])
    """

    repr_settings = ("num_heads",)

    def __init__(self, num_heads: int, offset: int | None = None, *, device: Device = None, dtype: Dtype = None):
        super().__init__(num_heads, offset)
        self.slopes: Tensor
        slopes = torch.tensor(_compute_slopes(num_heads), device=device, dtype=dtype)
        self.register_buffer("slopes", slopes, persistent=False)

    def _init_parameters(self) -> None:
        self.slopes.copy_(torch.tensor(_compute_slopes(self.num_heads)))

    def bias_of_distance(self, distance: Tensor) -> Tensor:
        slopes = self.slopes.float().to(distance.device)
        return -slopes[:, None] * distance.abs()


def _compute_slopes(num_heads: int) -> list[float]:
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes if power == num_heads else slopes + _compute_slopes(2 * power)[0::2][: num_heads - power]


class RelativeBias(RelativePositionBias):
    """A learned bias for each head and each bucket of distances: single near distances, ranges of far ones.

        score(i, j) = table[bucket(j - i), head]

    Add it to a score: ``ScaledDot() + RelativeBias(num_heads)``. Half of the buckets are for keys after the query
    unless ``bidirectional`` is False; of each half, half are single distances and the others grow logarithmically.

    Args:
        num_heads: the number of heads
        num_buckets: the number of buckets
        max_distance: the distance from which on all share the last bucket
        bidirectional: whether keys after the query have buckets of their own
        offset: the key position of the first query; keys - queries by default
        device: the device of the table
        dtype: the dtype of the table

    Shape: query (*batch, heads, queries, dim), key (*batch, heads, keys, dim) -> (*batch, heads, queries, keys)

    Reference: Raffel et al. (2020), arXiv 1910.10683, 2.1 (T5).

    Example:
        >>> (Dot() + RelativeBias(8))(torch.randn(2, 8, 3, 4), torch.randn(2, 8, 5, 4)).shape
        torch.Size([2, 8, 3, 5])
    """

    repr_settings = ("num_heads", "num_buckets", "max_distance")

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        offset: int | None = None,
        *,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__(num_heads, offset)
        directions = 2 if bidirectional else 1
        if num_buckets < 2 * directions or max_distance <= num_buckets // (2 * directions):
            raise UsageError(
                f"RelativeBias: num_buckets must be at least {2 * directions} and max_distance above num_buckets / "
                f"{2 * directions}, got num_buckets={num_buckets}, max_distance={max_distance}"
            )
        self.num_buckets, self.max_distance, self.bidirectional = num_buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.empty(num_buckets, num_heads, device=device, dtype=dtype))
        self._init_parameters()

    def _init_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def bucket(self, distance: Tensor) -> Tensor:
        """The index of the bucket of each distance key - query."""
        side, start = self.num_buckets, torch.zeros_like(distance)
        if self.bidirectional:
            side = self.num_buckets // 2
            start = (distance > 0) * side
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        single = side // 2
        ratio = (distance.clamp(min=1).float() / single).log() / math.log(self.max_distance / single)
        far = (single + ratio * (side - single)).long().clamp(max=side - 1)
        return start + torch.where(distance < single, distance, far)

    def bias_of_distance(self, distance: Tensor) -> Tensor:
        return self.table[self.bucket(distance)].movedim(-1, 0)
