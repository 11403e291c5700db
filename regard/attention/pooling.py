"""Pooling: one vector, or a few, of a sequence or a grid of vectors."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention.masks import padding
from regard.attention.module import Device, Dtype, ResettableModule
from regard.attention.projected import Attention
from regard.errors import UnsupportedError, UsageError

__all__ = ["AttentionPool", "MaxPool"]


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
            is_visible = torch.arange(features.shape[1], device=features.device) < lengths[:, None]
            features = features.masked_fill(~is_visible[..., None], -torch.inf)
        return features.amax(1, keepdim=True), None
