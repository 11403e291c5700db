"""Local attention, and attention as pooling."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.attention import equation
from regard.attention._common import broadcast_batch_shape, check_declared_dims, instantiate, upcast_half
from regard.attention.equation import NormalizerLike, ScoreLike
from regard.attention.masks import Mask, PositionGrid, around, padding
from regard.attention.module import Device, Dtype, ResettableModule
from regard.attention.normalizers.wrappers import Dropout, GaussianWindow, resolve_normalizer
from regard.attention.output import AttentionOutput
from regard.attention.projected import Attention, ProjectedKV, _AttentionModule
from regard.errors import UnsupportedError, UsageError

__all__ = ["AttentionPool", "LocalM", "LocalP", "MaxPool"]

QueryPositions = Int[Tensor, "*p queries"] | int | None


class _LocalAttention(_AttentionModule):
    """What LocalM and LocalP share: a score, a radius, and a mask and a normalizer that depend on the query."""

    repr_settings = ("radius",)

    def __init__(self, score: ScoreLike, radius: int, normalize: NormalizerLike | None):
        super().__init__()
        self.score, self.radius = instantiate(score, "score"), radius
        self.normalize = None if normalize is None else resolve_normalizer(normalize)

    def forward(
        self,
        query: Float[Tensor, "*q queries query_dim"],
        key: Float[Tensor, "*k keys key_dim"],
        value: Float[Tensor, "*v keys value_dim"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
        query_positions: QueryPositions = None,
    ) -> AttentionOutput:
        """Attend to the keys around each query's center.

        Args:
            query: (*batch, queries, query_dim)
            key: (*batch, keys, key_dim)
            value: (*batch, keys, value_dim)
            mask: the visible keys
            query_positions: the position of the first query, or of each query as (*batch, queries); 0 by default
        """
        return self._attend(self.score, (query, key, value), mask, query_positions)

    def attend_projected(
        self, query: Tensor, keys: ProjectedKV, query_positions: QueryPositions = None
    ) -> AttentionOutput:
        """Attend to keys that are projected already; `ProjectedKV` calls it."""
        return self._attend(keys.score, (query, keys.key, keys.value), keys.mask, query_positions)

    def _attend(
        self, score: ScoreLike, tensors: tuple[Tensor, ...], mask: Mask | Tensor | None, positions: QueryPositions
    ) -> AttentionOutput:
        query, key, value = tensors
        equation.check_shapes(query, key, value)
        num_queries, num_keys = query.shape[-2], key.shape[-2]
        num_batch_axes = max(query.dim(), key.dim(), value.dim()) - 2
        if mask is not None:
            mask = equation.resolve_mask(mask, broadcast_batch_shape(query, key, value), num_queries, num_keys)
            num_batch_axes = max(num_batch_axes, mask.num_batch_axes())
        grid = PositionGrid.full(num_queries, num_keys, num_batch_axes, query.device)
        if mask is None:
            num_visible = torch.full((1, 1), grid.num_keys, device=grid.key_positions.device)
        else:
            num_visible = mask.count_visible(grid)
        center = self._centers(query, num_visible, positions, grid)
        nearby = around(center, self.radius)
        visible = nearby if mask is None else mask & nearby
        return self._notified(equation.attend_unwatched(query, key, value, visible, score, self._normalizer_at(center)))

    def _centers(self, query: Tensor, num_visible: Tensor, positions: QueryPositions, grid: PositionGrid) -> Tensor:
        raise NotImplementedError

    def _normalizer_at(self, center: Tensor) -> NormalizerLike | None:
        return self.normalize


class LocalM(_LocalAttention):
    """Attention to the keys around the query's own position, as if both sequences were aligned.

        visible are the keys s with |s - p| <= radius          p = min(t, S - 1)

    t is the position of the query, S the number of keys that are visible to it.

    Args:
        score: from query and key to scores
        radius: the largest distance of a visible key
        normalize: from scores to weights; that of the score by default

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim), value (*batch, keys, value_dim) ->
        AttentionOutput with context (*batch, queries, value_dim)

    Reference: Luong, Pham and Manning (2015), arXiv 1508.04025, 3.2, "local-m".

    Example:
        >>> local = LocalM(ScaledDot(), radius=1)
        >>> local(torch.randn(2, 3, 4), torch.randn(2, 9, 4), torch.randn(2, 9, 6)).context.shape
        torch.Size([2, 3, 6])
    """

    def __init__(self, score: ScoreLike, radius: int, normalize: NormalizerLike | None = None):
        if not radius >= 0:
            raise UsageError(f"LocalM: radius must be at least 0, got {radius}")
        super().__init__(score, radius, normalize)

    def _centers(self, query: Tensor, num_visible: Tensor, positions: QueryPositions, grid: PositionGrid) -> Tensor:
        return torch.minimum(_query_positions(positions, grid), num_visible - 1).clamp(min=0).squeeze(-1)


class LocalP(_LocalAttention):
    """Attention around a position that the query predicts, decreasing with the distance from it.

        p = S sigmoid(v . tanh(W q))
        weights = softmax over |s - p| <= radius, times exp(-(s - p)^2 / (2 sigma^2))
        sigma   = radius / 2

    S is the number of keys that are visible to the query. The weights are not renormalized, and the gradient of p
    passes through the Gaussian window only. W is ``query_proj``, v is ``energy``.

    Args:
        score: from query and key to scores
        query_dim: the size of a query
        hidden_dim: the size of the hidden layer that predicts the center
        radius: the largest distance of a visible key
        normalize: from scores to weights; that of the score by default
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim), value (*batch, keys, value_dim) ->
        AttentionOutput with context (*batch, queries, value_dim)

    Reference: Luong, Pham and Manning (2015), arXiv 1508.04025, eq. 9 and 10, "local-p".

    Example:
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
        *,
        device: Device = None,
        dtype: Dtype = None,
    ):
        if not radius > 0:
            raise UsageError(f"LocalP: radius must be above 0, got {radius}")
        super().__init__(score, radius, equation.default_normalizer(score) if normalize is None else normalize)
        self.query_dim = query_dim
        self.query_proj = nn.Linear(query_dim, hidden_dim, bias=False, device=device, dtype=dtype)
        self.energy = nn.Parameter(torch.empty(hidden_dim, device=device, dtype=dtype))
        self._init_parameters()

    def _init_parameters(self) -> None:
        bound = len(self.energy) ** -0.5
        nn.init.uniform_(self.energy, -bound, bound)

    def predict_center(
        self, query: Float[Tensor, "*q queries query_dim"], num_visible: Int[Tensor, "..."]
    ) -> Float[Tensor, "..."]:
        """The predicted position of each query: p, between 0 and the number of its visible keys.

        Args:
            query: (*batch, queries, query_dim)
            num_visible: the number of visible keys of each query, (*batch, queries, 1)
        """
        check_declared_dims(self, query, query, self.query_dim, None)
        hidden = torch.tanh(self.query_proj(query))
        fraction = torch.sigmoid(upcast_half(hidden @ self.energy)).unsqueeze(-1)
        return (num_visible * fraction).squeeze(-1)

    def _centers(self, query: Tensor, num_visible: Tensor, positions: QueryPositions, grid: PositionGrid) -> Tensor:
        # The center is predicted, so the query's own position is not needed; it is accepted as LocalM needs it.
        batched = query.reshape((1,) * (grid.num_batch_axes + 2 - query.dim()) + query.shape)
        return self.predict_center(batched, num_visible)

    def _normalizer_at(self, center: Tensor) -> NormalizerLike | None:
        """The normalizer inside a Gaussian window, and inside its dropout; the wrapped modules keep their modes."""
        assert self.normalize is not None
        dropout = self.normalize if isinstance(self.normalize, Dropout) else None
        window = GaussianWindow(self.normalize if dropout is None else dropout.normalize, center, self.radius / 2)
        window.training = self.training
        if dropout is None:
            return window
        outer = Dropout(window, dropout.p)
        outer.training = dropout.training
        return outer


def _query_positions(query_positions: QueryPositions, grid: PositionGrid) -> Tensor:
    """The positions of the queries, (*batch, queries, 1): 0..m-1, from a first position on, or as given."""
    if isinstance(query_positions, Tensor) and query_positions.dim():
        return grid.align_leading(query_positions.to(grid.key_positions.device)[..., None], 2)
    return grid.query_positions if query_positions is None else grid.query_positions + query_positions


class AttentionPool(ResettableModule):
    """Attention with learned queries, or with none, over the vectors of each row.

    Args:
        attention: the attention; a score that takes no query (`Additive(None, ...)`, `Constant()`) needs no `query_dim`
        query_dim: size of a learned query; None for no query
        num_queries: number of learned queries
        init_std: standard deviation of the initial queries
        device, dtype: of the queries, as in PyTorch; `attention` has its own

    Shape: features (batch, positions, dim), lengths (batch,) -> context (batch, num_queries, dim) and, with
        `need_weights`, weights (batch, num_queries, positions)

    Example:
        >>> pool = AttentionPool(Attention(Bilinear(6, 8)), query_dim=6, num_queries=10)
        >>> context, weights = pool(torch.rand(2, 49, 8), need_weights=True)
        >>> context.shape, weights.shape
        (torch.Size([2, 10, 8]), torch.Size([2, 10, 49]))
    """

    repr_settings = ("num_queries",)

    def __init__(
        self,
        attention: Attention,
        query_dim: int | None = None,
        *,
        num_queries: int = 1,
        init_std: float = 1.0,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        if query_dim is None and num_queries != 1:
            raise UsageError(
                f"AttentionPool: num_queries={num_queries} needs a query_dim; without queries all would be equal"
            )
        self.attention, self.num_queries, self.init_std = attention, num_queries, init_std
        self.query: nn.Parameter | None = None
        if query_dim is not None:
            self.query = nn.Parameter(torch.empty(num_queries, query_dim, device=device, dtype=dtype))
            self._init_parameters()

    def _init_parameters(self) -> None:
        if self.query is not None:
            with torch.no_grad():
                self.query.normal_().mul_(self.init_std)

    def forward(
        self,
        features: Float[Tensor, "batch positions dim"],
        lengths: Int[Tensor, " batch"] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch queries dim"], Float[Tensor, "batch queries positions"] | None]:
        """Contexts of the queries, and their weights if `need_weights`; positions from `lengths` on are hidden."""
        mask = None if lengths is None else padding(lengths)
        output = self.attention(self.query, features, features, mask)
        return output.context, output.weights if need_weights else None


class MaxPool(ResettableModule):
    """The maximum of each element over the vectors of each row. It has no weights.

    Shape: features (batch, positions, dim), lengths (batch,) -> (batch, 1, dim) and None

    Example:
        >>> MaxPool()(torch.rand(2, 49, 8))[0].shape
        torch.Size([2, 1, 8])
    """

    num_queries = 1

    def forward(
        self,
        features: Float[Tensor, "batch positions dim"],
        lengths: Int[Tensor, " batch"] | None = None,
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "batch 1 dim"], None]:
        """The maxima; positions from `lengths` on are hidden."""
        if need_weights:
            raise UnsupportedError("MaxPool: a maximum has no weights; use AttentionPool")
        if lengths is not None:
            is_visible = padding(lengths).materialize(1, features.shape[1]).mT
            features = features.masked_fill(~is_visible, -torch.inf)
        return features.amax(1, keepdim=True), None
