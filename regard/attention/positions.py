"""Where a vector stands, told by adding something to it.

    x'[i] = x[i] + p[offset + i]

Attention itself does not see order: permuted keys give the same context. So the order goes into the vectors.

Position by distance: scores to wrap (Rotary) or to add (Alibi, RelativeBias).

Query i stands at key position i + offset, by default keys - queries, so that a cached decoder needs to say
nothing.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention._common import upcast_half
from regard.attention.masks import Mask, PositionGrid
from regard.attention.scores.base import DotProductFeatures, Score
from regard.errors import ShapeError, UsageError

Offset = int | Int[Tensor, "*leading"]


class Sinusoidal(nn.Module):
    """Adds to each position the hands of many clocks, from fast to slow.

        p[i, 2j] = sin(i / base^(2j / dim)),    p[i, 2j+1] = cos(i / base^(2j / dim))

    There is no longest sequence and nothing to learn. A tensor of offsets gives each leading batch entry its
    own. Vaswani et al. (2017), arXiv 1706.03762, section 3.5.

    >>> Sinusoidal(embed_dim=8)(torch.randn(2, 5, 8), offset=100).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, embed_dim: int, base: float | int = 10000.0) -> None:
        super().__init__()
        if embed_dim < 2 or embed_dim % 2:
            raise UsageError(
                f"Sinusoidal: dim must be even, as every sine has its cosine, but it is {embed_dim}."
            )
        self.embed_dim, self.base = embed_dim, base

    def forward(
        self, x: Float[Tensor, "*batch length {self.embed_dim}"], offset: Offset = 0
    ) -> Float[Tensor, "*batch length {self.embed_dim}"]:
        offset = _broadcast_offset(x, self.embed_dim, offset)
        wide = torch.promote_types(x.dtype, torch.float32)
        return (x + self.encoding(x.shape[-2], offset, dtype=wide, device=x.device)).to(x.dtype)

    def encoding(
        self,
        length: int,
        offset: Offset = 0,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "*leading length {self.embed_dim}"]:
        """The vectors of the positions offset .. offset + length - 1.

        >>> Sinusoidal(embed_dim=8).encoding(5).shape
        torch.Size([5, 8])
        """
        angles = self._angles(_make_positions(length, offset, device))
        pairs = torch.stack((angles.sin(), angles.cos()), -1)
        return pairs.flatten(-2).to(dtype or torch.get_default_dtype())

    def shift_matrix(
        self,
        delta: float | int,
        *,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Float[Tensor, "{self.embed_dim} {self.embed_dim}"]:
        """The linear map that moves every encoding on by delta, whatever the position: each clock turns.

            p[i + delta] = M p[i],    M = diag([[cos, sin], [-sin, cos]] of delta / base^(2j / dim))

        >>> Sinusoidal(embed_dim=8).shift_matrix(3).shape
        torch.Size([8, 8])
        """
        angles = self._angles(torch.tensor(delta, device=device))
        beside = torch.stack((angles.sin(), torch.zeros_like(angles)), -1).flatten()[:-1]
        matrix = angles.cos().repeat_interleave(2).diag() + beside.diag(1) - beside.diag(-1)
        return matrix.to(dtype or torch.get_default_dtype())

    def _angles(self, positions: Tensor) -> Tensor:
        # No buffer: module.half() would round it. And float64, since at position 10^6 the angle in float32 is
        # off by 0.03; Apple's GPUs have no float64.
        exact = torch.float32 if positions.device.type == "mps" else torch.float64
        exponents = torch.arange(0, self.embed_dim, 2, device=positions.device).to(exact) / self.embed_dim
        return positions.to(exact).unsqueeze(-1) * self.base**-exponents

    def extra_repr(self) -> str:
        return f"dim={self.embed_dim}, base={self.base}"


class Learned(nn.Module):
    """Adds to each position a vector of its own, found by training.

        p[i] = row i of a table

    Positions beyond the table are refused. Gehring et al. (2017), arXiv 1705.03122, section 3.1.

    >>> Learned(max_positions=10, embed_dim=8)(torch.randn(2, 5, 8), offset=5).shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, max_positions: int, embed_dim: int) -> None:
        super().__init__()
        self.max_positions, self.embed_dim = max_positions, embed_dim
        self.table = nn.Parameter(torch.empty(max_positions, embed_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.02)

    def forward(
        self, x: Float[Tensor, "*batch length {self.embed_dim}"], offset: Offset = 0
    ) -> Float[Tensor, "*batch length {self.embed_dim}"]:
        offset, length = _broadcast_offset(x, self.embed_dim, offset), x.shape[-2]
        self._check_positions(offset, length)
        if isinstance(offset, int):
            rows = self.table[offset : offset + length]
        else:
            rows = nn.functional.embedding(_make_positions(length, offset, x.device), self.table)
        return (x + rows).to(x.dtype)

    def _check_positions(self, offset: int | Tensor, length: int) -> None:
        if isinstance(offset, Tensor) and (torch.compiler.is_compiling() or not offset.numel()):
            return  # a compiled graph cannot branch on values; there the lookup itself refuses them
        first, last = (offset, offset) if isinstance(offset, int) else (int(offset.min()), int(offset.max()))
        if length and (first < 0 or last + length > self.max_positions):
            raise UsageError(
                f"Learned: positions must be in 0..{self.max_positions - 1}, "
                f"but these are {first}..{last + length - 1}."
            )

    def extra_repr(self) -> str:
        return f"max_positions={self.max_positions}, dim={self.embed_dim}"


def binary_code(length: int, bits: int | None = None) -> Int[Tensor, "length bits"]:
    """The positions as a computer counts them, lowest bit first: like the sines, from fast to slow.

        code[i, j] = floor(i / 2^j) mod 2

    Without `bits`, there are just enough to tell all positions apart; with fewer, the count starts again.

    >>> binary_code(6).shape
    torch.Size([6, 3])
    """
    bits = max(1, (length - 1).bit_length()) if bits is None else bits
    return torch.arange(length).unsqueeze(-1) >> torch.arange(bits) & 1


def _make_positions(length: int, offset: int | Tensor, device: torch.device | str | None) -> Tensor:
    if isinstance(offset, int):
        return torch.arange(length, device=device) + offset
    offset = offset.to(device or offset.device)
    return offset.unsqueeze(-1) + torch.arange(length, device=offset.device)


def _broadcast_offset(x: Tensor, embed_dim: int, offset: Offset) -> int | Tensor:
    """Checks x, and gives offsets of the first batch axes an axis of 1 for each of the others."""
    if x.ndim < 2 or x.shape[-1] != embed_dim:
        raise ShapeError(
            f"x must be (*batch, length, dim) with dim {embed_dim}, but its shape is {tuple(x.shape)}."
        )
    if isinstance(offset, int):
        return offset
    batch = x.shape[:-2]
    if offset.shape != batch[: offset.ndim]:
        raise ShapeError(
            f"offset must be an integer or a tensor that begins like the batch axes {tuple(batch)} of x, "
            f"but its shape is {tuple(offset.shape)}."
        )
    return offset.reshape(offset.shape + (1,) * (len(batch) - offset.ndim)) if offset.ndim else offset


def uses_relative_positions(module: nn.Module) -> bool:
    """Whether a score, or one inside a module, goes by how far a key is from the query."""
    return any(isinstance(inside, Rotary | RelativePositionBias) for inside in module.modules())


class Rotary(Score):
    """Turn queries and keys by an angle that grows with their position, then compare: only distance is felt.

        score(R_i q, R_j k)          R_i turns each pair of features by i / base^(2 pair / d)

    Su et al. (2021), arXiv 2104.09864; features 2j and 2j + 1 make a pair, as in the paper.

    >>> Rotary(ScaledDot())(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    is_positional = True

    def __init__(self, score: Score, base: float = 10000.0, offset: int | None = None):
        super().__init__()
        self.score, self.base, self.offset = score, base, offset
        self.output_kind, self.is_random = score.output_kind, score.is_random

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.score.check_dims(query, key)
        for what, tensor in (("query", query), ("key", key)):
            if tensor.shape[-1] % 2:
                raise ShapeError(
                    f"Rotary turns pairs of features, got {what} {tuple(tensor.shape)} of odd size"
                )

    @property
    def pairwise(self) -> Score:
        return self.score.pairwise

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        first = num_keys - query.shape[-2] if self.offset is None else self.offset
        return self.score.project_query(self._rotate(query, first), num_keys)

    def project_key(self, key: Tensor) -> Tensor:
        return self.score.project_key(self._rotate(key, 0))

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        self.check_dims(query, key)
        return self.pairwise(self.project_query(query, key.shape[-2]), self.project_key(key))

    def restrict(self, grid: PositionGrid) -> Score | None:
        """Only through ``inner``, whose vectors are turned already."""
        return None

    def _rotate(self, vectors: Tensor, first: int) -> Tensor:
        length, dim = vectors.shape[-2:]
        wide = upcast_half(vectors)
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


class RelativePositionBias(Score):
    """A score that looks at positions only, one set for each head; it is added to another score."""

    is_positional = True

    def __init__(self, num_heads: int, offset: int | None):
        super().__init__()
        if num_heads < 1:
            raise UsageError(f"{type(self).__name__}: heads must be at least 1, got {num_heads}")
        self.num_heads, self.offset = num_heads, offset

    def bias_of_distance(self, distance: Tensor) -> Tensor:
        """The bias for distances key - query: (distances,) -> (heads, distances)."""
        raise NotImplementedError(
            f"{type(self).__name__} must say what a distance is worth: write of(distance)"
        )

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        have = max(query.shape[-3] if query.dim() > 2 else 1, key.shape[-3] if key.dim() > 2 else 1)
        if have not in (1, self.num_heads) and self.num_heads > 1:  # one bias serves any number of heads
            raise ShapeError(
                f"{type(self).__name__} was made for {self.num_heads} heads on the axis before the queries, got query "
                f"{tuple(query.shape)} and key {tuple(key.shape)}"
            )

    def bias(self, grid: PositionGrid) -> Tensor:
        """The bias for the positions of a grid: (heads, *inner, queries, keys).

        Positions are consecutive, so the m x n distances are m + n - 1 different ones, each row of them the
        one below it moved by one.
        """
        offset = grid.num_keys - grid.num_queries if self.offset is None else self.offset
        queries, keys = grid.query_positions.shape[-2], grid.key_positions.shape[-1]
        if queries == 0 or keys == 0:
            return self.bias_of_distance(grid.key_positions.new_empty(0)).new_zeros(
                self.num_heads, *[1] * grid.num_inner_axes, queries, keys
            )
        if queries == 1:  # also where keys were gathered for each query on its own, from anywhere
            distances = grid.key_positions - (grid.query_positions + offset)
            return self.bias_of_distance(distances.flatten()).unflatten(-1, distances.shape)
        first = grid.key_positions.flatten()[0] - grid.query_positions.flatten()[0] - offset
        distances = torch.arange(1 - queries, keys, device=grid.key_positions.device) + first
        rows = self.bias_of_distance(distances).unfold(-1, keys, 1).flip(-2)
        return rows.reshape(self.num_heads, *[1] * grid.num_inner_axes, queries, keys)

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        self.check_dims(query, key)
        bias = self.bias(PositionGrid.full(query.shape[-2], key.shape[-2], 0, query.device))
        batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2], bias.shape[:-2])
        return bias.to(upcast_half(query).dtype).expand(*batch, -1, -1)

    def dot_product_features(
        self, query: Tensor, key: Tensor, mask: Mask | None
    ) -> DotProductFeatures | None:
        bias = self.bias(PositionGrid.full(query.shape[-2], key.shape[-2], 0, query.device))
        return DotProductFeatures(None, None, bias=bias)

    def restrict(self, grid: PositionGrid) -> Score | None:
        # Gathered keys are known too, unless each batch entry has places of its own.
        known = grid.is_consecutive or grid.key_positions.dim() <= grid.num_inner_axes + 2
        return PrecomputedScore(self.bias(grid)) if known else None


class PrecomputedScore(Score):
    """Scores that are known before the query comes: a bias already computed for some positions."""

    def __init__(self, scores: Tensor):
        super().__init__()
        self.scores = scores

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.scores.to(upcast_half(query).dtype)

    def dot_product_features(
        self, query: Tensor, key: Tensor, mask: Mask | None
    ) -> DotProductFeatures | None:
        return DotProductFeatures(None, None, bias=self.scores)

    def restrict(self, grid: PositionGrid) -> Score | None:
        return None  # these are the scores of one cut; another one would need others


class Alibi(RelativePositionBias):
    """The further away a key, the less it counts, each head at its own rate.

        score(i, j) = -slope_h |i - j|          slope_h = 2^(-8 h / heads), h = 1..heads

    Press, Smith and Lewis (2022), arXiv 2108.12409; add it: ``ScaledDot() + Alibi(heads)``. For a number of
    heads that is no power of two the slopes are those of the next lower power, then every other one of the
    next higher.

    >>> (ScaledDot() + Alibi(num_heads=8))(torch.randn(2, 8, 3, 4), torch.randn(2, 8, 5, 4)).shape
    torch.Size([2, 8, 3, 5])
    """

    def __init__(self, num_heads: int, offset: int | None = None):
        super().__init__(num_heads, offset)
        self.slopes: Tensor
        self.register_buffer("slopes", torch.tensor(_compute_slopes(num_heads)), persistent=False)

    def bias_of_distance(self, distance: Tensor) -> Tensor:
        slopes = self.slopes.float().to(distance.device)
        return -slopes[:, None] * distance.abs()

    def extra_repr(self) -> str:
        return f"heads={self.num_heads}"


def _compute_slopes(num_heads: int) -> list[float]:
    power = 1 << (num_heads.bit_length() - 1)
    slopes = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return slopes if power == num_heads else slopes + _compute_slopes(2 * power)[0::2][: num_heads - power]


class RelativeBias(RelativePositionBias):
    """A number learned for each head and each range of distances, near ones apart and far ones together.

        score(i, j) = table[bucket(j - i), head]

    Raffel et al. (2020), arXiv 1910.10683, 2.1 (T5); add it: ``ScaledDot() + RelativeBias(heads)``. Half of
    the buckets are for keys after the query unless ``bidirectional`` is False; of each half, half are
    single distances and the rest grow logarithmically up to ``max_distance``.

    >>> (Dot() + RelativeBias(num_heads=8))(torch.randn(2, 8, 3, 4), torch.randn(2, 8, 5, 4)).shape
    torch.Size([2, 8, 3, 5])
    """

    def __init__(
        self,
        num_heads: int,
        num_buckets: int = 32,
        max_distance: int = 128,
        bidirectional: bool = True,
        offset: int | None = None,
    ):
        super().__init__(num_heads, offset)
        if num_buckets < (4 if bidirectional else 2) or max_distance <= num_buckets // (
            4 if bidirectional else 2
        ):
            raise UsageError(
                f"RelativeBias: {num_buckets} buckets up to distance {max_distance} leave no room; take at least 4 "
                "buckets (2 in one direction) and a larger max_distance"
            )
        self.num_buckets, self.max_distance, self.bidirectional = num_buckets, max_distance, bidirectional
        self.table = nn.Parameter(torch.zeros(num_buckets, num_heads))
        nn.init.normal_(self.table, std=0.02)

    def bucket(self, distance: Tensor) -> Tensor:
        """Which of the learned numbers serves a distance key - query."""
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

    def extra_repr(self) -> str:
        return f"heads={self.num_heads}, buckets={self.num_buckets}, max_distance={self.max_distance}"
