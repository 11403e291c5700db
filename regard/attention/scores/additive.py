"""Scores from a small neural network: Additive (Bahdanau) and Concat (Luong)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention._common import broadcast_batch_shape, check_declared_dims, upcast_half
from regard.attention.fast.additive import ACTIVATIONS, additive_scores
from regard.attention.module import Device, Dtype, FactoryKwargs
from regard.attention.scores.base import KeyVectors, QueryVectors, Score, ScoreMatrix
from regard.errors import UsageError

__all__ = ["Additive", "Concat"]


class _NetworkScore(Score):
    """What Additive and Concat share: declared sizes, and projections before the score of each pair."""

    def __init__(self, query_dim: int | None, key_dim: int, hidden_dim: int, factory: FactoryKwargs):
        super().__init__()
        self.query_dim, self.key_dim, self.hidden_dim = query_dim, key_dim, hidden_dim
        self.energy = nn.Parameter(torch.empty(hidden_dim, **factory))

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_declared_dims(self, query, key, self.query_dim, self.key_dim)

    def _init_parameters(self) -> None:
        for layer in self.modules():
            if isinstance(layer, nn.Linear):  # drawn a second time, after its constructor
                layer.reset_parameters()
        nn.init.uniform_(self.energy, -(self.hidden_dim**-0.5), self.hidden_dim**-0.5)


class Additive(_NetworkScore):
    """The additive (Bahdanau) score.

        score(q, k) = v . tanh(W q + U k)

    W is ``query_proj``, U is ``key_proj``, v is ``energy``. Without a query it is v . tanh(U k + b), where v is the
    context vector of hierarchical attention.

    Args:
        query_dim: the size of a query, or None to pool without a query
        key_dim: the size of a key
        hidden_dim: the size of the hidden layer
        bias: whether U has a bias; only without a query by default
        activation: "tanh", "relu" or "sigmoid"
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Reference: Bahdanau, Cho and Bengio (2015), arXiv 1409.0473, A.1.2; without a query: Yang et al. (2016),
        "Hierarchical Attention Networks", eq. 5.

    Example:
        >>> score = Additive(query_dim=4, key_dim=6, hidden_dim=8)
        >>> score(torch.randn(2, 3, 4), torch.randn(2, 5, 6)).shape
        torch.Size([2, 3, 5])
    """

    repr_settings = ("activation",)

    def __init__(
        self,
        query_dim: int | None,
        key_dim: int,
        hidden_dim: int,
        *,
        bias: bool | None = None,
        activation: str = "tanh",
        device: Device = None,
        dtype: Dtype = None,
    ):
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        super().__init__(query_dim, key_dim, hidden_dim, factory)
        if activation not in ACTIVATIONS:
            raise UsageError(f"Additive: activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
        self.activation = activation
        bias = query_dim is None if bias is None else bias
        self.query_proj = None if query_dim is None else nn.Linear(query_dim, hidden_dim, bias=False, **factory)
        self.key_proj = nn.Linear(key_dim, hidden_dim, bias=bias, **factory)
        self._init_parameters()

    @property
    def pairwise(self) -> Score:
        return AdditivePairs(self.energy, self.activation)

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        if self.query_proj is None:
            return self.energy.new_zeros(()).expand(*query.shape[:-1], self.hidden_dim)
        return self.query_proj(query)

    def project_key(self, key: Tensor) -> Tensor:
        return self.key_proj(key)

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        self.check_dims(query, key)
        if self.query_proj is None:  # the score is the same for every query
            batch = broadcast_batch_shape(query, key)
            scores = self.pairwise(self.project_query(query[..., :1, :], key.shape[-2]), self.key_proj(key))
            return scores.expand(*batch, query.shape[-2], key.shape[-2])
        return self.pairwise(self.query_proj(query), self.key_proj(key))

    def reference_scores(self, query: Tensor, key: Tensor) -> Tensor:
        """The formula by definition, with the queries x keys x hidden tensor that the fast path avoids."""
        hidden = self.project_query(query, key.shape[-2])[..., :, None, :] + self.key_proj(key)[..., None, :, :]
        return upcast_half(ACTIVATIONS[self.activation](hidden) @ self.energy)


class AdditivePairs(Score):
    """v . tanh(q + k) of projected vectors: the part of Additive that is computed for each pair."""

    is_pointwise = True

    def __init__(self, energy: Tensor, activation: str = "tanh"):
        super().__init__()
        self.energy, self.activation = energy, activation

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return additive_scores(query, key, self.energy, self.activation)


class Concat(_NetworkScore):
    """The score of a multi-layer perceptron on the concatenated query and key ("concat").

        score(q, k) = v . tanh(W [q; k])          one layer; each further layer is tanh(W_l ...)

    W is ``in_proj``, v is ``energy``. With one layer these are the functions of Additive, with another layout of the
    parameters.

    Args:
        query_dim: the size of a query
        key_dim: the size of a key
        hidden_dim: the size of the hidden layers
        num_layers: the number of hidden layers
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Reference: Luong, Pham and Manning (2015), arXiv 1508.04025, 3.1, "concat".

    Example:
        >>> score = Concat(query_dim=4, key_dim=6, hidden_dim=8, num_layers=2)
        >>> score(torch.randn(2, 3, 4), torch.randn(2, 5, 6)).shape
        torch.Size([2, 3, 5])
    """

    repr_settings = ("num_layers",)

    query_dim: int

    def __init__(
        self,
        query_dim: int,
        key_dim: int,
        hidden_dim: int,
        num_layers: int = 1,
        *,
        device: Device = None,
        dtype: Dtype = None,
    ):
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        super().__init__(query_dim, key_dim, hidden_dim, factory)
        if num_layers < 1:
            raise UsageError(f"Concat: num_layers must be at least 1, got {num_layers}")
        self.num_layers = num_layers
        self.in_proj = nn.Linear(query_dim + key_dim, hidden_dim, bias=False, **factory)
        self.layers = nn.ModuleList(nn.Linear(hidden_dim, hidden_dim, **factory) for _ in range(num_layers - 1))
        self._init_parameters()

    @property
    def pairwise(self) -> Score:
        return AdditivePairs(self.energy) if self.num_layers == 1 else MLPPairs(self.layers, self.energy)

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return F.linear(query, self.in_proj.weight[:, : self.query_dim])

    def project_key(self, key: Tensor) -> Tensor:
        return F.linear(key, self.in_proj.weight[:, self.query_dim :])


class MLPPairs(Score):
    """v . tanh(W_n ... tanh(q + k)) of projected vectors; each pair passes through the layers."""

    is_pointwise = True

    def __init__(self, layers: nn.ModuleList, energy: Tensor):
        super().__init__()
        self.layers, self.energy = layers, energy

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        hidden = torch.tanh(query[..., :, None, :] + key[..., None, :, :])
        for layer in self.layers:
            hidden = torch.tanh(layer(hidden))
        return upcast_half(hidden @ self.energy)
