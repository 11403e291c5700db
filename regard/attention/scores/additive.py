"""Scores that a small network judges."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention._common import upcast_half
from regard.attention.fast.additive import additive_scores
from regard.attention.scores.base import Score
from regard.attention.scores.dot import check_declared_dims
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
        self.query_proj = None if query_dim is None else nn.Linear(query_dim, hidden_dim, bias=False)
        self.key_proj = nn.Linear(key_dim, hidden_dim, bias=query_dim is None if bias is None else bias)
        self.energy = nn.Parameter(torch.empty(hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (self.query_proj, self.key_proj):
            if layer is not None:
                layer.reset_parameters()
        nn.init.uniform_(self.energy, -(self.hidden_dim**-0.5), self.hidden_dim**-0.5)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_declared_dims(self, query, key, self.query_dim, self.key_dim)

    @property
    def pairwise(self) -> Score:
        return AdditivePairs(self.energy, self.activation)

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        if self.query_proj is None:
            return self.energy.new_zeros(()).expand(*query.shape[:-1], self.hidden_dim)
        return self.query_proj(query)

    def project_key(self, key: Tensor) -> Tensor:
        return self.key_proj(key)

    def forward(
        self, query: Float[Tensor, "*batch queries query_dim"], key: Float[Tensor, "*other keys key_dim"]
    ) -> Float[Tensor, "..."]:
        self.check_dims(query, key)
        if self.query_proj is None:  # every query asks the same
            batch = torch.broadcast_shapes(query.shape[:-2], key.shape[:-2])
            one = self.pairwise(self.project_query(query[..., :1, :], key.shape[-2]), self.key_proj(key))
            return one.expand(*batch, query.shape[-2], key.shape[-2])
        return self.pairwise(self.query_proj(query), self.key_proj(key))

    def reference_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """The formula as it reads, through the queries x keys x hidden tensor that the product form avoids."""
        hidden = (
            self.project_query(query, key.shape[-2])[..., :, None, :] + self.key_proj(key)[..., None, :, :]
        )
        return upcast_half(ACTIVATIONS[self.activation](hidden) @ self.energy)

    def extra_repr(self) -> str:
        return f"activation={self.activation}"


class AdditivePairs(Score):
    """v . tanh(q + k) on vectors that are projected already: what is left of Additive for each pair."""

    def __init__(self, energy: Tensor, activation: str = "tanh"):
        super().__init__()
        self.energy, self.activation = energy, activation

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.energy, self.activation)


class Concat(Score):
    """How well a key answers a query, judged by a network that reads both joined.

        score(q, k) = v . tanh(W [q; k])          depth 1; each further layer is tanh(W_l ...)

    Luong, Pham and Manning (2015), arXiv 1508.04025, 3.1, "concat". At depth 1 it is the same family of
    functions as Additive with another layout of the parameters.

    >>> score = Concat(query_dim=4, key_dim=6, hidden_dim=8, num_layers=2)
    >>> score(torch.randn(2, 3, 4), torch.randn(2, 5, 6)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(self, query_dim: int, key_dim: int, hidden_dim: int, num_layers: int = 1):
        super().__init__()
        if num_layers < 1:
            raise UsageError(f"Concat: depth must be at least 1, got {num_layers}")
        self.query_dim, self.key_dim, self.hidden_dim, self.num_layers = (
            query_dim,
            key_dim,
            hidden_dim,
            num_layers,
        )
        self.in_proj = nn.Linear(query_dim + key_dim, hidden_dim, bias=False)
        self.layers = nn.ModuleList(nn.Linear(hidden_dim, hidden_dim) for _ in range(num_layers - 1))
        self.energy = nn.Parameter(torch.empty(hidden_dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (self.in_proj, *self.layers):
            layer.reset_parameters()
        nn.init.uniform_(self.energy, -(self.hidden_dim**-0.5), self.hidden_dim**-0.5)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_declared_dims(self, query, key, self.query_dim, self.key_dim)

    @property
    def pairwise(self) -> Score:
        return AdditivePairs(self.energy) if self.num_layers == 1 else MLPPairs(self.layers, self.energy)

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return F.linear(query, self.in_proj.weight[:, : self.query_dim])

    def project_key(self, key: Tensor) -> Tensor:
        return F.linear(key, self.in_proj.weight[:, self.query_dim :])

    def forward(
        self, query: Float[Tensor, "*batch queries query_dim"], key: Float[Tensor, "*other keys key_dim"]
    ) -> Float[Tensor, "..."]:
        self.check_dims(query, key)
        return self.pairwise(self.project_query(query, key.shape[-2]), self.project_key(key))

    def extra_repr(self) -> str:
        return f"depth={self.num_layers}"


class MLPPairs(Score):
    """v . tanh(W_n ... tanh(q + k)) on projected vectors; each pair goes through the layers."""

    def __init__(self, layers: nn.ModuleList, energy: Tensor):
        super().__init__()
        self.layers, self.energy = layers, energy

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return upcast_half(hidden @ self.energy)
