"""Scores that a small network judges."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.fast.additive import additive_scores
from regard.attention.scores.base import Score, precise
from regard.attention.scores.dot import given_sizes
from regard.errors import UsageError

ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


class Additive(Score):
    """How well a key answers a query, judged by a small network.

        score(q, k) = v . tanh(W q + U k)

    Bahdanau, Cho and Bengio (2015), arXiv 1409.0473, A.1.2. With ``query_dim=None`` it is v . tanh(U k +
    b), where v is the context vector of Yang et al. (2016), "Hierarchical Attention Networks", eq. 5.

    >>> score = Additive(query_dim=4, key_dim=6, hidden_dim=8)
    >>> score(torch.randn(2, 3, 4), torch.randn(2, 5, 6)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        query_dim: int | None,
        key_dim: int,
        hidden_dim: int,
        *,
        bias: bool | None = None,
        activation: str = "tanh",
    ):
        super().__init__()
        if activation not in ACTIVATIONS:
            raise UsageError(
                f"Additive: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}"
            )
        self.query_dim, self.key_dim, self.hidden_dim, self.activation = (
            query_dim,
            key_dim,
            hidden_dim,
            activation,
        )
        self.W = None if query_dim is None else nn.Linear(query_dim, hidden_dim, bias=False)
        self.U = nn.Linear(key_dim, hidden_dim, bias=query_dim is None if bias is None else bias)
        self.v = nn.Parameter(torch.empty(hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (self.W, self.U):
            if layer is not None:
                layer.reset_parameters()
        nn.init.uniform_(self.v, -(self.hidden_dim**-0.5), self.hidden_dim**-0.5)

    def check(self, query: Tensor, key: Tensor) -> None:
        given_sizes(self, query, key, self.query_dim, self.key_dim)

    @property
    def inner(self) -> Score:
        return Network(self.v, self.activation)

    def project_query(self, query: Tensor, keys: int) -> Tensor:
        if self.W is None:
            return self.v.new_zeros(()).expand(*query.shape[:-1], self.hidden_dim)
        return self.W(query)

    def project_key(self, key: Tensor) -> Tensor:
        return self.U(key)

    def forward(
        self, query: Float[Tensor, "*batch queries query_dim"], key: Float[Tensor, "*other keys key_dim"]
    ) -> Float[Tensor, "..."]:
        self.check(query, key)
        if self.W is None:  # every query asks the same
            batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
            one = self.inner(self.project_query(query[..., :1, :], key.shape[-2]), self.U(key))
            return one.expand(*batch, query.shape[-2], key.shape[-2])
        return self.inner(self.W(query), self.U(key))

    def definition(self, query: Tensor, key: Tensor) -> Tensor:
        """The formula as it reads, through the queries x keys x hidden tensor that the product form avoids."""
        hidden = self.project_query(query, key.shape[-2])[..., :, None, :] + self.U(key)[..., None, :, :]
        return precise(ACTIVATIONS[self.activation](hidden) @ self.v)

    def extra_repr(self) -> str:
        return f"activation={self.activation}"


class Network(Score):
    """v . tanh(q + k) on vectors that are projected already: what is left of Additive for each pair."""

    def __init__(self, v: Tensor, activation: str = "tanh"):
        super().__init__()
        self.v, self.activation = v, activation

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.v, self.activation)


class Concat(Score):
    """How well a key answers a query, judged by a network that reads both joined.

        score(q, k) = v . tanh(W [q; k])          depth 1; each further layer is tanh(W_l ...)

    Luong, Pham and Manning (2015), arXiv 1508.04025, 3.1, "concat". At depth 1 it is the same family of
    functions as Additive with another layout of the parameters.

    >>> score = Concat(query_dim=4, key_dim=6, hidden_dim=8, depth=2)
    >>> score(torch.randn(2, 3, 4), torch.randn(2, 5, 6)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int, depth: int = 1):
        super().__init__()
        if depth < 1:
            raise UsageError(f"Concat: depth must be at least 1, got {depth}")
        self.query_dim, self.key_dim, self.hidden_dim, self.depth = query_dim, key_dim, hidden_dim, depth
        self.W = nn.Linear(query_dim + key_dim, hidden_dim, bias=False)
        self.layers = nn.ModuleList(nn.Linear(hidden_dim, hidden_dim) for _ in range(depth - 1))
        self.v = nn.Parameter(torch.empty(hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (self.W, *self.layers):
            layer.reset_parameters()
        nn.init.uniform_(self.v, -(self.hidden_dim**-0.5), self.hidden_dim**-0.5)

    def check(self, query: Tensor, key: Tensor) -> None:
        given_sizes(self, query, key, self.query_dim, self.key_dim)

    @property
    def inner(self) -> Score:
        return Network(self.v) if self.depth == 1 else Deep(self.layers, self.v)

    def project_query(self, query: Tensor, keys: int) -> Tensor:
        return F.linear(query, self.W.weight[:, : self.query_dim])

    def project_key(self, key: Tensor) -> Tensor:
        return F.linear(key, self.W.weight[:, self.query_dim :])

    def forward(
        self, query: Float[Tensor, "*batch queries query_dim"], key: Float[Tensor, "*other keys key_dim"]
    ) -> Float[Tensor, "..."]:
        self.check(query, key)
        return self.inner(self.project_query(query, key.shape[-2]), self.project_key(key))

    def extra_repr(self) -> str:
        return f"depth={self.depth}"


class Deep(Score):
    """v . tanh(W_n ... tanh(q + k)) on projected vectors; each pair goes through the layers."""

    def __init__(self, layers: nn.ModuleList, v: Tensor):
        super().__init__()
        self.layers, self.v = layers, v

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return precise(hidden @ self.v)
