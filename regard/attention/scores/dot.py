"""Scores that are dot products, possibly after a projection of the query; Constant and Location."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.attention._common import broadcast_batch_shape, check_declared_dims, part_name, upcast_half
from regard.attention.masks import Mask
from regard.attention.module import Device, Dtype
from regard.attention.scores.base import DotProductFeatures, KeyVectors, QueryVectors, Score, ScoreMatrix
from regard.errors import ShapeError

__all__ = ["Bilinear", "Constant", "Dot", "Energy", "Location", "ScaledDot"]


def check_equal_dims(score: Score, query: Tensor, key: Tensor) -> None:
    """Raise unless queries and keys have the same size."""
    if query.shape[-1] != key.shape[-1]:
        raise ShapeError(
            f"{part_name(score)} compares vectors of equal size, got query {tuple(query.shape)} and key "
            f"{tuple(key.shape)}; Bilinear, Additive and Concat accept different sizes"
        )


class Constant(Score):
    """The same score for every key: attention is the average of the visible values.

        score(q, k) = 0

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Reference: average pooling, the baseline of Nadaraya (1964) and Watson (1964).

    Example:
        >>> Constant()(torch.randn(2, 3, 4), torch.randn(2, 5, 6)).shape
        torch.Size([2, 3, 5])
    """

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        batch = broadcast_batch_shape(query, key)
        return upcast_half(key.new_zeros(())).expand(*batch, query.shape[-2], key.shape[-2])

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        return self(query, key[..., :1, :, :])  # only the number of keys matters


class Dot(Score):
    """The dot product of query and key.

        score(q, k) = q . k

    Shape: query (*batch, queries, dim), key (*batch, keys, dim) -> (*batch, queries, keys)

    Reference: Luong, Pham and Manning (2015), arXiv 1508.04025, 3.1, "dot".

    Example:
        >>> Dot()(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
    """

    is_pointwise = True

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_equal_dims(self, query, key)

    def scale(self, dim: int) -> float:
        """The factor of the dot product for vectors of size ``dim``."""
        return 1.0

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        self.check_dims(query, key)
        return upcast_half(query) @ upcast_half(key).mT * self.scale(query.shape[-1])

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        return DotProductFeatures(query, key, self.scale(query.shape[-1]))


class ScaledDot(Dot):
    """The dot product divided by the square root of the size, which keeps its variance independent of the size.

        score(q, k) = q . k / sqrt(d)

    Shape: query (*batch, queries, dim), key (*batch, keys, dim) -> (*batch, queries, keys)

    Reference: Vaswani et al. (2017), arXiv 1706.03762, 3.2.1.

    Example:
        >>> ScaledDot()(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
    """

    def scale(self, dim: int) -> float:
        return 1.0 / math.sqrt(max(dim, 1))


class Bilinear(Score):
    """The dot product after a learned linear map ("general").

        score(q, k) = q . W k

    Args:
        query_dim: the size of a query
        key_dim: the size of a key
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Reference: Luong, Pham and Manning (2015), arXiv 1508.04025, 3.1, "general".

    Example:
        >>> Bilinear(query_dim=4, key_dim=6)(torch.randn(2, 3, 4), torch.randn(2, 5, 6)).shape
        torch.Size([2, 3, 5])
    """

    repr_settings = ("query_dim", "key_dim")

    def __init__(self, query_dim: int, key_dim: int, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.query_dim, self.key_dim = query_dim, key_dim
        self.weight = nn.Parameter(torch.empty(query_dim, key_dim, device=device, dtype=dtype))
        self._dot = Dot()
        self._init_parameters()

    def _init_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_declared_dims(self, query, key, self.query_dim, self.key_dim)

    @property
    def pairwise(self) -> Score:
        return self._dot

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return F.linear(query, self.weight.mT)


class Energy(Bilinear):
    """A bilinear energy: low for a query and a key that match, each concatenated with its context by the caller.

        score(q, k) = -E(q, k) = -q . W k          on [q; c_q] and [k; c_k]

    The weights are softmax(-E).

    Args:
        query_dim: the size of a query
        key_dim: the size of a key
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Reference: LeCun et al. (2006), "A Tutorial on Energy-Based Learning".

    Example:
        >>> Energy(query_dim=4, key_dim=6)(torch.randn(2, 3, 4), torch.randn(2, 5, 6)).shape
        torch.Size([2, 3, 5])
    """

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        return -super().project_query(query, num_keys)


class Location(Score):
    """A score for each key position that depends on the query only.

        score(q, k_i) = (W q)_i

    Args:
        query_dim: the size of a query
        max_keys: the number of positions; later keys are hidden
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Reference: Luong, Pham and Manning (2015), arXiv 1508.04025, eq. 8.

    Example:
        >>> Location(query_dim=4, max_keys=6)(torch.randn(2, 3, 4), torch.randn(2, 5, 7)).shape
        torch.Size([2, 3, 5])
    """

    repr_settings = ("query_dim", "max_keys")

    is_positional = True

    def __init__(self, query_dim: int, max_keys: int, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.query_dim, self.max_keys = query_dim, max_keys
        self.weight = nn.Parameter(torch.empty(max_keys, query_dim, device=device, dtype=dtype))
        self._init_parameters()

    def _init_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_declared_dims(self, query, key, self.query_dim, None)

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        self.check_dims(query, key)
        keys = key.shape[-2]
        scores = upcast_half(F.linear(query, self.weight[:keys]))
        if keys > self.max_keys:
            scores = F.pad(scores, (0, keys - self.max_keys), value=-math.inf)
        batch = broadcast_batch_shape(scores, key)
        return scores.expand(*batch, -1, -1)

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        return self(query, key[..., :1, :, :])  # only the number of keys matters
