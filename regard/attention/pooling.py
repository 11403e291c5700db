from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Attention, padding
from regard.errors import UnsupportedError, UsageError


class AttentionPool(nn.Module):
    """What attention sees of each grid, asked by learned queries or, without `query_dim`, by nobody.

    >>> AttentionPool(Attention(Bilinear(6, 8)), query_dim=6, num_queries=10)(torch.rand(2, 49, 8)).shape
    torch.Size([2, 10, 8])
    """

    def __init__(self, attention: Attention, query_dim: int | None = None, num_queries: int = 1):
        super().__init__()
        if query_dim is None and num_queries != 1:
            raise UsageError(
                f"{num_queries} looks that nobody asks for would all be the same one; give a query_dim"
            )
        self.attention, self.num_queries = attention, num_queries
        self.query = None if query_dim is None else nn.Parameter(torch.randn(num_queries, query_dim))

    def forward(self, features: Float[Tensor, "rows cells dim"]) -> Float[Tensor, "rows queries dim"]:
        return self.attention(self.query, features, features).context

    def attention_weights(
        self, features: Float[Tensor, "rows cells dim"]
    ) -> Float[Tensor, "rows queries cells"]:
        return self.attention(self.query, features, features).weights


class MaxPool(nn.Module):
    """The largest of each number of the grid, wherever it is. It has no weights."""

    num_queries = 1

    def forward(self, features: Float[Tensor, "rows cells dim"]) -> Float[Tensor, "rows 1 dim"]:
        return features.amax(1, keepdim=True)

    def attention_weights(
        self, features: Float[Tensor, "rows cells dim"]
    ) -> Float[Tensor, "rows queries cells"]:
        raise UnsupportedError("a maximum has no weights; take a model that pools by attention or average")


class SequenceAttentionPool(nn.Module):
    """One vector for each row: what attention sees of it, asked by nobody or by a learned query."""

    def __init__(self, attention: Attention, query_dim: int | None = None):
        super().__init__()
        self.attention = attention
        self.query = None if query_dim is None else nn.Parameter(torch.randn(1, query_dim) * query_dim**-0.5)

    def forward(
        self,
        states: Float[Tensor, "rows longest dim"],
        lengths: Int[Tensor, " rows"],
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "rows dim"], Float[Tensor, "rows longest"] | None]:
        look = self.attention(self.query, states, states, padding(lengths))
        return look.context.squeeze(1), look.weights.squeeze(1) if need_weights else None


class SequenceMaxPool(nn.Module):
    """One vector for each row: the largest of each of its numbers. It has no weights."""

    def forward(
        self,
        states: Float[Tensor, "rows longest dim"],
        lengths: Int[Tensor, " rows"],
        need_weights: bool = False,
    ) -> tuple[Float[Tensor, "rows dim"], None]:
        if need_weights:
            raise UnsupportedError(
                "a maximum has no weights; take a model that pools by attention or average"
            )
        inside = torch.arange(states.shape[1], device=states.device) < lengths[:, None]
        return states.masked_fill(~inside[..., None], -torch.inf).amax(1), None
