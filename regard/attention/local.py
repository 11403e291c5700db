"""Local attention: look only near a place that goes with the query."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention._common import broadcast_batch_shape, upcast_half
from regard.attention.equation import (
    NormalizerLike,
    ScoreLike,
    attend_unwatched,
    check_shapes,
    default_normalizer,
)
from regard.attention.masks import Mask, PositionGrid, around, as_mask
from regard.attention.normalizers import Dropout, GaussianWindow
from regard.attention.observers import notify_watchers
from regard.attention.output import AttentionOutput
from regard.attention.projected import ProjectedKV
from regard.attention.scores.dot import check_declared_dims
from regard.errors import UsageError

QueryPositions = Int[Tensor, "*p queries"] | int | None


class LocalM(nn.Module):
    """Look at the keys around the query's own position, as if both sequences ran side by side.

        visible are the keys s with |s - p| <= radius          p = min(t, S - 1)

    t is the position of the query, S the number of keys it may look at. Luong, Pham and Manning (2015),
    arXiv 1508.04025, 3.2, "local-m".

    >>> local = LocalM(ScaledDot(), radius=1)
    >>> local(torch.randn(2, 3, 4), torch.randn(2, 9, 4), torch.randn(2, 9, 6)).context.shape
    torch.Size([2, 3, 6])
    """

    def __init__(self, score: ScoreLike, radius: int, normalize: NormalizerLike | None = None):
        super().__init__()
        if not radius >= 0:
            raise UsageError(f"LocalM: radius must be at least 0, got {radius}")
        self.score, self.radius, self.normalize = score, radius, normalize

    def forward(
        self,
        query: Float[Tensor, "*q queries query_dim"],
        key: Float[Tensor, "*k keys key_dim"],
        value: Float[Tensor, "*v keys value_dim"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
        query_positions: QueryPositions = None,
    ) -> AttentionOutput:
        return self.attend_with(self.score, query, key, value, mask, query_positions)

    def attend_with(
        self,
        score: ScoreLike,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | Tensor | None,
        query_positions: QueryPositions = None,
    ) -> AttentionOutput:
        grid, mask = _make_grid(query, key, value, mask)
        place = _query_positions(query_positions, grid)
        last = _count_visible(mask, grid) - 1
        centre = torch.minimum(place, last).clamp(min=0).squeeze(-1)
        near = around(centre, self.radius)
        seen = near if mask is None else mask & near
        return notify_watchers(self, attend_unwatched(query, key, value, seen, score, self.normalize))

    def precompute(self, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None) -> ProjectedKV:
        """The same attention with keys and values given once, to be asked again and again."""
        return ProjectedKV(self, key, value, mask)

    def extra_repr(self) -> str:
        return f"radius={self.radius}"


class LocalP(nn.Module):
    """Look around a place that the query predicts, less and less with the distance from it.

        p = S sigmoid(v . tanh(W q))
        weights = softmax over |s - p| <= radius, times exp(-(s - p)^2 / (2 sigma^2))
        sigma   = radius / 2

    S is the number of keys the query may look at. The weights are not renormalized, and the gradient of p
    goes through the bell only. Luong, Pham and Manning (2015), arXiv 1508.04025, eq. 9 and 10, "local-p".

    >>> local = LocalP(ScaledDot(), query_dim=4, hidden_dim=8, radius=2)
    >>> local(torch.randn(2, 3, 4), torch.randn(2, 9, 4), torch.randn(2, 9, 6)).context.shape
    torch.Size([2, 3, 6])
    """

    def __init__(
        self,
        score: ScoreLike,
        query_dim: int,
        hidden_dim: int,
        radius: int,
        normalize: NormalizerLike | None = None,
    ):
        super().__init__()
        if not radius > 0:
            raise UsageError(f"LocalP: radius must be above 0, got {radius}")
        self.score, self.radius = score, radius
        self.normalize = default_normalizer(score) if normalize is None else normalize
        self.query_dim = query_dim
        self.query_proj = nn.Linear(query_dim, hidden_dim, bias=False)
        self.energy = nn.Parameter(torch.empty(hidden_dim))
        nn.init.uniform_(self.energy, -(hidden_dim**-0.5), hidden_dim**-0.5)

    def predict_center(
        self, query: Float[Tensor, "*q queries query_dim"], num_visible: Int[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """Where each query wants to look: p, between 0 and the number of keys it may look at."""
        check_declared_dims(self, query, query, self.query_dim, None)
        want = torch.sigmoid(upcast_half(torch.tanh(self.query_proj(query)) @ self.energy)).unsqueeze(-1)
        return (num_visible * want).squeeze(-1)

    def forward(
        self,
        query: Float[Tensor, "*q queries query_dim"],
        key: Float[Tensor, "*k keys key_dim"],
        value: Float[Tensor, "*v keys value_dim"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
        query_positions: QueryPositions = None,
    ) -> AttentionOutput:
        return self.attend_with(self.score, query, key, value, mask, query_positions)

    def attend_with(
        self,
        score: ScoreLike,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Mask | Tensor | None,
        query_positions: QueryPositions = None,
    ) -> AttentionOutput:
        # The place is predicted, so the query's own position is not needed; it is taken for LocalM's sake.
        grid, mask = _make_grid(query, key, value, mask)
        lead = query.reshape((1,) * (grid.num_batch_axes + 2 - query.dim()) + query.shape)
        centre = self.predict_center(lead, _count_visible(mask, grid))
        near = around(centre, self.radius)
        normalize = _with_gaussian_window(self.normalize, centre, self.radius / 2, self.training)
        seen = near if mask is None else mask & near
        return notify_watchers(self, attend_unwatched(query, key, value, seen, score, normalize))

    def precompute(self, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None) -> ProjectedKV:
        """The same attention with keys and values given once, to be asked again and again."""
        return ProjectedKV(self, key, value, mask)

    def extra_repr(self) -> str:
        return f"radius={self.radius}"


def _with_gaussian_window(
    normalize: NormalizerLike, center: Tensor, sigma: float, training: bool
) -> NormalizerLike:
    """The normalizer under a bell of this step; the modes of what is inside are left as they are."""
    inside = normalize.normalize if isinstance(normalize, Dropout) else normalize
    bell = GaussianWindow(inside, center, sigma)
    bell.training = training
    if not isinstance(normalize, Dropout):
        return bell
    drop = Dropout(bell, normalize.p)
    drop.training = normalize.training
    return drop


def _make_grid(
    query: Tensor, key: Tensor, value: Tensor, mask: Mask | Tensor | None
) -> tuple[PositionGrid, Mask | None]:
    check_shapes(query, key, value)
    batch = max(query.dim(), key.dim(), value.dim()) - 2
    if mask is not None:
        mask = as_mask(mask)
        shape = broadcast_batch_shape(query, key, value)
        batch = max(batch, mask.num_batch_axes())
        mask.check_shape((1,) * (batch - len(shape)) + shape, query.shape[-2], key.shape[-2])
    return PositionGrid.full(query.shape[-2], key.shape[-2], batch, query.device), mask


def _count_visible(mask: Mask | None, grid: PositionGrid) -> Tensor:
    """S: how many keys each query may look at, (*batch, queries, 1)."""
    if mask is None:
        return torch.full((1, 1), grid.num_keys, device=grid.key_positions.device)
    return mask.count_visible(grid)


def _query_positions(query_positions: QueryPositions, grid: PositionGrid) -> Tensor:
    """The positions of the queries, (*batch, queries, 1): 0..m-1, or counted from a number, or as given."""
    if isinstance(query_positions, Tensor) and query_positions.dim():
        return grid.align_leading(query_positions.to(grid.key_positions.device)[..., None], 2)
    return grid.query_positions if query_positions is None else grid.query_positions + query_positions
