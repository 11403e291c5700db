"""Position by distance: scores to wrap (Rotary) or to add (Alibi, RelativeBias).

Query i stands at key position i + offset, by default keys - queries, so that a cached decoder needs to say
nothing.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.masks import Grid, Mask
from regard.attention.scores.base import Features, Score, precise
from regard.errors import ShapeError, UsageError


def by_distance(part: nn.Module) -> bool:
    """Whether a score, or one inside a module, goes by how far a key is from the query."""
    return any(isinstance(inside, Rotary | _Bias) for inside in part.modules())


class Rotary(Score):
    """Turn queries and keys by an angle that grows with their position, then compare: only distance is felt.

        score(R_i q, R_j k)          R_i turns each pair of features by i / base^(2 pair / d)

    Su et al. (2021), arXiv 2104.09864; features 2j and 2j + 1 make a pair, as in the paper.

    >>> Rotary(ScaledDot())(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    positional = True

    def __init__(self, score: Score, base: float = 10000.0, offset: int | None = None):
        super().__init__()
        self.score, self.base, self.offset = score, base, offset
        self.gives, self.random = score.gives, score.random

    def check(self, query: Tensor, key: Tensor) -> None:
        self.score.check(query, key)
        for what, tensor in (("query", query), ("key", key)):
            if tensor.shape[-1] % 2:
                raise ShapeError(
                    f"Rotary turns pairs of features, got {what} {tuple(tensor.shape)} of odd size"
                )

    @property
    def inner(self) -> Score:
        return self.score.inner

    def project_query(self, query: Tensor, keys: int) -> Tensor:
        first = keys - query.shape[-2] if self.offset is None else self.offset
        return self.score.project_query(self._turned(query, first), keys)

    def project_key(self, key: Tensor) -> Tensor:
        return self.score.project_key(self._turned(key, 0))

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        self.check(query, key)
        return self.inner(self.project_query(query, key.shape[-2]), self.project_key(key))

    def at(self, grid: Grid) -> Score | None:
        """Only through ``inner``, whose vectors are turned already."""
        return None

    def _turned(self, vectors: Tensor, first: int) -> Tensor:
        length, dim = vectors.shape[-2:]
        wide = precise(vectors)
        exact = (
            torch.float32 if wide.device.type == "mps" else torch.float64
        )  # far out, float32 has no fine angles
        places = torch.arange(length, device=wide.device, dtype=exact) + first
        speeds = self.base ** (-torch.arange(0, dim, 2, device=wide.device, dtype=exact) / dim)
        angle = places[:, None] * speeds
        cos, sin = angle.cos().to(wide.dtype), angle.sin().to(wide.dtype)
        even, odd = wide[..., 0::2], wide[..., 1::2]
        turned = torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1)
        return turned.flatten(-2).to(vectors.dtype)

    def extra_repr(self) -> str:
        return f"base={self.base}, offset={self.offset}"


class _Bias(Score):
    """A score that looks at positions only, one set for each head; it is added to another score."""

    positional = True

    def __init__(self, heads: int, offset: int | None):
        super().__init__()
        if heads < 1:
            raise UsageError(f"{type(self).__name__}: heads must be at least 1, got {heads}")
        self.heads, self.offset = heads, offset

    def of(self, distance: Tensor) -> Tensor:
        """The bias for distances key - query: (distances,) -> (heads, distances)."""
        raise NotImplementedError(
            f"{type(self).__name__} must say what a distance is worth: write of(distance)"
        )

    def check(self, query: Tensor, key: Tensor) -> None:
        have = max(query.shape[-3] if query.dim() > 2 else 1, key.shape[-3] if key.dim() > 2 else 1)
        if have not in (1, self.heads) and self.heads > 1:  # one bias serves any number of heads
            raise ShapeError(
                f"{type(self).__name__} was made for {self.heads} heads on the axis before the queries, got query "
                f"{tuple(query.shape)} and key {tuple(key.shape)}"
            )

    def bias(self, grid: Grid) -> Tensor:
        """The bias for the positions of a grid: (heads, *inner, queries, keys).

        Positions are consecutive, so the m x n distances are m + n - 1 different ones, each row of them the
        one below it moved by one.
        """
        offset = grid.keys - grid.queries if self.offset is None else self.offset
        queries, keys = grid.query_at.shape[-2], grid.key_at.shape[-1]
        if queries == 0 or keys == 0:
            return self.of(grid.key_at.new_empty(0)).new_zeros(self.heads, *[1] * grid.inner, queries, keys)
        if queries == 1:  # also where keys were gathered for each query on its own, from anywhere
            distances = grid.key_at - (grid.query_at + offset)
            return self.of(distances.flatten()).unflatten(-1, distances.shape)
        first = grid.key_at.flatten()[0] - grid.query_at.flatten()[0] - offset
        distances = torch.arange(1 - queries, keys, device=grid.key_at.device) + first
        rows = self.of(distances).unfold(-1, keys, 1).flip(-2)
        return rows.reshape(self.heads, *[1] * grid.inner, queries, keys)

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        self.check(query, key)
        bias = self.bias(Grid.full(query.shape[-2], key.shape[-2], 0, query.device))
        batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], bias.shape[:-2])
        return bias.to(precise(query).dtype).expand(*batch, -1, -1)

    def features(self, query: Tensor, key: Tensor, mask: Mask | None) -> Features | None:
        bias = self.bias(Grid.full(query.shape[-2], key.shape[-2], 0, query.device))
        return Features(None, None, bias=bias)

    def at(self, grid: Grid) -> Score | None:
        # Gathered keys are known too, unless each batch entry has places of its own.
        known = grid.consecutive or grid.key_at.dim() <= grid.inner + 2
        return Known(self.bias(grid)) if known else None


class Known(Score):
    """Scores that are known before the query comes: a bias already computed for some positions."""

    def __init__(self, scores: Tensor):
        super().__init__()
        self.scores = scores

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.scores.to(precise(query).dtype)

    def features(self, query: Tensor, key: Tensor, mask: Mask | None) -> Features | None:
        return Features(None, None, bias=self.scores)

    def at(self, grid: Grid) -> Score | None:
        return None  # these are the scores of one cut; another one would need others


class Alibi(_Bias):
    """The further away a key, the less it counts, each head at its own rate.

        score(i, j) = -slope_h |i - j|          slope_h = 2^(-8 h / heads), h = 1..heads

    Press, Smith and Lewis (2022), arXiv 2108.12409; add it: ``ScaledDot() + Alibi(heads)``. For a number of
    heads that is no power of two the slopes are those of the next lower power, then every other one of the
    next higher.

    >>> (ScaledDot() + Alibi(heads=8))(torch.randn(2, 8, 3, 4), torch.randn(2, 8, 5, 4)).shape
    torch.Size([2, 8, 3, 5])
    """

    def __init__(self, heads: int, offset: int | None = None):
        super().__init__(heads, offset)
        self.slopes: Tensor
        self.register_buffer("slopes", torch.tensor(_slopes(heads)), persistent=False)

    def of(self, distance: Tensor) -> Tensor:
        slopes = self.slopes.float().to(distance.device)
        return -slopes[:, None] * distance.abs()

    def extra_repr(self) -> str:
        return f"heads={self.heads}"


def _slopes(heads: int) -> list[float]:
    power = 1 << (heads.bit_length() - 1)
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes if power == heads else slopes + _slopes(2 * power)[0::2][: heads - power]


class RelativeBias(_Bias):
    """A number learned for each head and each range of distances, near ones apart and far ones together.

        score(i, j) = table[bucket(j - i), head]

    Raffel et al. (2020), arXiv 1910.10683, 2.1 (T5); add it: ``ScaledDot() + RelativeBias(heads)``. Half of
    the buckets are for keys after the query unless ``bidirectional`` is False; of each half, half are
    single distances and the rest grow logarithmically up to ``max_distance``.

    >>> (Dot() + RelativeBias(heads=8))(torch.randn(2, 8, 3, 4), torch.randn(2, 8, 5, 4)).shape
    torch.Size([2, 8, 3, 5])
    """

    def __init__(
        self,
        heads: int,
        buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        offset: int | None = None,
    ):
        super().__init__(heads, offset)
        if buckets < (4 if bidirectional else 2) or max_distance <= buckets // (4 if bidirectional else 2):
            raise UsageError(
                f"RelativeBias: {buckets} buckets up to distance {max_distance} leave no room; take at least 4 "
                "buckets (2 in one direction) and a larger max_distance"
            )
        self.buckets, self.max_distance, self.bidirectional = buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.zeros(buckets, heads))
        nn.init.normal_(self.table, std=0.02)

    def bucket(self, distance: Tensor) -> Tensor:
        """Which of the learned numbers serves a distance key - query."""
        side, start = self.buckets, torch.zeros_like(distance)
        if self.bidirectional:
            side = self.buckets // 2
            start = (distance > 0) * side
            distance = distance.abs()
        else:
            distance = (-distance).clamp(min=0)
        single = side // 2
        ratio = (distance.clamp(min=1).float() / single).log() / math.log(self.max_distance / single)
        far = (single + ratio * (side - single)).long().clamp(max=side - 1)
        return start + torch.where(distance < single, distance, far)

    def of(self, distance: Tensor) -> Tensor:
        return self.table[self.bucket(distance)].movedim(-1, 0)

    def extra_repr(self) -> str:
        return f"heads={self.heads}, buckets={self.buckets}, max_distance={self.max_distance}"
