"""The base class of scores, and their algebra: ``a + b``, ``2 * a``, ``a + tensor``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import _common
from regard.attention._common import part_name
from regard.attention.masks import Mask, PositionGrid
from regard.attention.module import ResettableModule
from regard.errors import DtypeError, ShapeError, UsageError

__all__ = ["Bias", "DotProductFeatures", "FunctionScore", "ScaledScore", "Score", "SumScore"]

QueryVectors = Float[Tensor, "*batch queries query_dim"]
KeyVectors = Float[Tensor, "*other keys key_dim"]
ScoreMatrix = Float[Tensor, "..."]  # (*batch, queries, keys), batch axes broadcast


class DotProductFeatures(NamedTuple):
    """A score as a dot product, up to a constant for each query, which softmax cancels.

        score(q, k) = scale * query . key + bias

    Args:
        query: (*batch, queries, features), or None if the score is the bias alone
        key: (*batch, keys, features), or None if the score is the bias alone
        scale: the factor of the dot product
        bias: broadcastable to (*batch, queries, keys)
        full_precision: whether the features keep their precision under autocast

    Example:
        >>> ScaledDot().dot_product_features(torch.randn(2, 4), torch.randn(3, 4), None).scale
        0.5
    """

    query: Tensor | None
    key: Tensor | None
    scale: float = 1.0
    bias: Tensor | None = None
    full_precision: bool = False


class Score(ResettableModule):
    """The score of a query and a key: how well the key matches the query.

        score(query, key): (*batch, queries, dim), (*batch, keys, dim) -> (*batch, queries, keys)

    A new score implements ``forward`` only, or ``pairwise`` with ``project_query`` and ``project_key``. All other
    members tell the fast paths what is possible, and have safe defaults. Scores can be added, subtracted and scaled.

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Example:
        >>> class SquaredDistance(Score):
        ...     def forward(self, query, key):
        ...         return -torch.cdist(query, key).square()
        >>> attend(torch.randn(3, 4), torch.randn(5, 4), torch.randn(5, 6), score=SquaredDistance()).context.shape
        torch.Size([3, 6])
    """

    output_kind = "logits"
    """``"logits"``, for softmax and similar normalizers, or ``"kernel"`` (kernel values), for kernel_sum."""
    is_positional = False
    """Whether the score depends on the position of a key, so that it changes when keys are permuted."""
    is_relative = False
    """Whether the score depends on the distance of a key from the query, so that they must be of one sequence."""
    is_random = False
    """Whether the score draws random numbers, so that it must be computed once and stored."""
    computes_bias = False
    """Whether `dot_product_features` computes a bias for every query and key, which may be too large."""
    is_pointwise = False
    """Whether the score of a pair is a function of its two vectors alone, whatever their head and position."""

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        """The scores of all pairs, by default ``pairwise`` of the projected vectors."""
        pairwise = self.pairwise
        if pairwise is self:
            raise NotImplementedError(f"{type(self).__name__} must implement forward(query, key)")
        self.check_dims(query, key)
        return pairwise(self.project_query(query, key.shape[-2]), self.project_key(key))

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        """The scores where ``num_groups`` heads of queries share one head of keys, without a copy of the keys.

        A score that is not pointwise, such as that of a user, gets one head of keys for each head of queries.
        """
        pairwise = self.pairwise
        if pairwise is not self:
            self.check_dims(query, key)
            query = self.project_query(query, key.shape[-2])
            return pairwise.forward_grouped(query, self.project_key(key), num_groups)
        if not self.is_pointwise:
            return self(query, key.repeat_interleave(num_groups, -3))
        return _common.unfold_heads(self(_common.fold_heads(query, num_groups), key), num_groups)

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        """Raise if the sizes of query and key do not fit this score."""

    @property
    def pairwise(self) -> Score:
        """The score that remains after queries and keys have been projected separately.

        score(q, k) = pairwise(project_query(q), project_key(k))
        """
        return self

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        """The projected queries; ``num_keys`` is the number of keys of the call."""
        return query

    def project_key(self, key: Tensor) -> Tensor:
        """The projected keys."""
        return key

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        """The score as a dot product, for fused kernels; None if it is not one."""
        pairwise = self.pairwise
        if pairwise is self or type(pairwise).dot_product_features is Score.dot_product_features:
            return None  # before anything is projected
        return pairwise.dot_product_features(self.project_query(query, key.shape[-2]), self.project_key(key), mask)

    def restrict(self, grid: PositionGrid) -> Score | None:
        """The same score for a part of the positions; None if that is impossible."""
        return None if self.is_positional else self

    def __add__(self, other: object) -> Score:
        other = Bias(other) if isinstance(other, Tensor) else other
        return SumScore(self, other) if isinstance(other, Score) else NotImplemented

    def __radd__(self, other: object) -> Score:  # so that sum([a, b]) works, which starts at 0
        if isinstance(other, Tensor):
            return self + other
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __truediv__(self, divisor: object) -> Score:
        return ScaledScore(self, 1 / divisor) if isinstance(divisor, (int, float, Tensor)) else NotImplemented

    def __mul__(self, factor: object) -> Score:
        return ScaledScore(self, factor) if isinstance(factor, (int, float, Tensor)) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Score:
        return ScaledScore(self, -1.0)

    def __sub__(self, other: object) -> Score:
        other = Bias(other) if isinstance(other, Tensor) else other
        return SumScore(self, -other) if isinstance(other, Score) else NotImplemented


class SumScore(Score):
    """The sum of two scores.

        score(q, k) = a(q, k) + b(q, k)

    Args:
        left: a score
        right: a score with the same kind of output

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Example:
        >>> (Dot() + 2 * Dot())(torch.ones(2, 3), torch.ones(4, 3))[0, 0]
        tensor(9.)
    """

    def __init__(self, left: Score, right: Score):
        super().__init__()
        if left.output_kind != right.output_kind:
            raise UsageError(
                f"{part_name(left)} returns {left.output_kind} and {part_name(right)} returns {right.output_kind}; "
                "logits and kernel values cannot be added"
            )
        self.left, self.right = left, right
        self.output_kind = left.output_kind
        self.is_positional = left.is_positional or right.is_positional
        self.is_random = left.is_random or right.is_random
        self.computes_bias = left.computes_bias or right.computes_bias

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.left.check_dims(query, key)
        self.right.check_dims(query, key)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.left(query, key) + self.right(query, key)

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        left, right = (part.forward_grouped(query, key, num_groups) for part in (self.left, self.right))
        return left + right

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        left = self.left.dot_product_features(query, key, mask)
        right = None if left is None else self.right.dot_product_features(query, key, mask)
        return None if left is None or right is None else _concat_features(left, right)

    def restrict(self, grid: PositionGrid) -> Score | None:
        left, right = self.left.restrict(grid), self.right.restrict(grid)
        return None if left is None or right is None else SumScore(left, right)

    def extra_repr(self) -> str:
        return "left + right"


class ScaledScore(Score):
    """A score times a factor.

        score(q, k) = factor * a(q, k)

    Args:
        score: a score
        factor: a number, or a tensor that broadcasts to the scores; a Parameter is trained

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Example:
        >>> (0.5 * Dot())(torch.ones(2, 4), torch.ones(3, 4))[0, 0]
        tensor(2.)
    """

    def __init__(self, score: Score, factor: float | Tensor):
        super().__init__()
        self.score, self.factor = score, factor
        self.output_kind, self.is_random = score.output_kind, score.is_random
        self.is_positional = score.is_positional or not self._is_per_query
        self.computes_bias = score.computes_bias
        if score.output_kind == "kernel" and not isinstance(factor, Tensor) and not factor >= 0:
            raise UsageError(f"kernel values are at least 0, so {part_name(score)} cannot be scaled by {factor}")

    @property
    def _is_per_query(self) -> bool:
        factor = self.factor
        return not isinstance(factor, Tensor) or factor.dim() == 0 or factor.shape[-1] == 1

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        self.score.check_dims(query, key)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self._scale(self.score(query, key))

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        return self._scale(self.score.forward_grouped(query, key, num_groups))

    def _scale(self, scores: Tensor) -> Tensor:
        factor = self.factor.to(scores) if isinstance(self.factor, Tensor) else self.factor
        hidden = scores == -math.inf  # hidden by the score itself; -inf times a factor would be +inf or NaN
        return (scores.masked_fill(hidden, 0.0) * factor).masked_fill(hidden, -math.inf)

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        features = self.score.dot_product_features(query, key, mask) if self._is_per_query else None
        if features is None:
            return None
        factor = self.factor.to(query.device) if isinstance(self.factor, Tensor) else self.factor
        bias = None if features.bias is None else self._scale(features.bias)
        if features.query is None:
            return features._replace(bias=bias)
        if not isinstance(factor, Tensor):
            return features._replace(scale=features.scale * factor, bias=bias)
        query = _common.upcast_half(features.query)
        return features._replace(query=query * factor.to(query), bias=bias)

    def restrict(self, grid: PositionGrid) -> Score | None:
        score = self.score.restrict(grid)
        is_scalar = not isinstance(self.factor, Tensor) or self.factor.dim() == 0
        return ScaledScore(score, self.factor) if is_scalar and score is not None else None

    def extra_repr(self) -> str:
        return "factor=tensor" if isinstance(self.factor, Tensor) else f"factor={self.factor}"


class Bias(Score):
    """Scores that do not depend on query and key: a tensor that is added to another score.

        score(q_i, k_j) = bias[..., i, j]

    ``ScaledDot() + bias`` for a tensor is ``ScaledDot() + Bias(bias)``, which PyTorch writes as a float ``attn_mask``.
    Entries of -inf hide a key.

    Args:
        bias: a floating point tensor that broadcasts to (*batch, queries, keys) from the right; an nn.Parameter is
            trained

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Example:
        >>> score = ScaledDot() + Bias(torch.tensor([0.0, -2.0, -torch.inf]))
        >>> attend(torch.zeros(1, 4), torch.zeros(3, 4), torch.randn(3, 4), score=score).weights
        tensor([[0.8808, 0.1192, 0.0000]])
    """

    is_positional = True

    def __init__(self, bias: Tensor):
        super().__init__()
        if not isinstance(bias, Tensor) or not bias.is_floating_point() or bias.is_nested:
            actual = bias.dtype if isinstance(bias, Tensor) else type(bias).__name__
            raise DtypeError(
                f"Bias: a bias is a floating point tensor, which is added to the scores, got {actual}; a bool tensor "
                "of visible keys is a mask"
            )
        self.bias = bias

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        num_axes = max(query.dim(), key.dim())
        # Heads of queries may share a head of keys, so that the batch axes of both need not broadcast.
        padded = [(1,) * (num_axes - tensor.dim()) + tuple(tensor.shape) for tensor in (query, key)]
        leading = [max(first, second) for first, second in zip(*padded, strict=True)][:-2]
        expected = (*leading, query.shape[-2], key.shape[-2])
        shape = (1,) * (num_axes - self.bias.dim()) + tuple(self.bias.shape)
        if len(shape) > num_axes or any(a != b and a != 1 for a, b in zip(shape, expected, strict=True)):
            raise ShapeError(
                f"Bias: the bias {tuple(self.bias.shape)} does not broadcast to (*batch, queries, keys) = {expected}; "
                "axes are matched from the right"
            )

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        self.check_dims(query, key)
        return self._expand(_common.broadcast_batch_shape(query, key), query, key)

    def forward_grouped(self, query: Tensor, key: Tensor, num_groups: int) -> Tensor:
        return self._expand(tuple(query.shape[:-2]), query, key)

    def _expand(self, batch: tuple[int, ...], query: Tensor, key: Tensor) -> Tensor:
        return _common.upcast_half(self.bias.to(query.device)).expand(*batch, query.shape[-2], key.shape[-2])

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        return DotProductFeatures(None, None, bias=self._matrix().to(query.device))

    def restrict(self, grid: PositionGrid) -> Score | None:
        return Bias(grid.take_pairs(self._matrix()))

    def _matrix(self) -> Tensor:
        return self.bias.reshape((1,) * (2 - self.bias.dim()) + self.bias.shape)

    def extra_repr(self) -> str:
        return str(tuple(self.bias.shape))


class FunctionScore(Score):
    """A plain function as a score; without further information there is no fast path.

    Args:
        function: from query and key to scores

    Shape: query (*batch, queries, query_dim), key (*batch, keys, key_dim) -> (*batch, queries, keys)

    Example:
        >>> FunctionScore(lambda query, key: query @ key.mT)(torch.ones(2, 3), torch.ones(4, 3)).shape
        torch.Size([2, 4])
    """

    is_positional = True

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.function = function
        self.output_kind = getattr(function, "output_kind", "logits")
        self.is_random = getattr(function, "is_random", False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        scores = self.function(query, key)
        expected = (*_common.broadcast_batch_shape(query, key), query.shape[-2], key.shape[-2])
        _common.check_result(f"score={part_name(self.function)}", scores, expected)
        return scores

    def extra_repr(self) -> str:
        return part_name(self.function)


def _concat_features(left: DotProductFeatures, right: DotProductFeatures) -> DotProductFeatures:
    """The sum of two dot products as one dot product of the concatenated features."""
    biases = [part.bias for part in (left, right) if part.bias is not None]
    bias = None if not biases else biases[0] if len(biases) == 1 else biases[0] + biases[1]
    if left.query is None or right.query is None:
        return (right if left.query is None else left)._replace(bias=bias)
    batch = _common.broadcast_shape(left.query.shape[:-1], right.query.shape[:-1])
    query = [part.query.expand(*batch, -1) * part.scale for part in (left, right)]  # type: ignore[union-attr]
    batch = _common.broadcast_shape(left.key.shape[:-1], right.key.shape[:-1])  # type: ignore[union-attr]
    key = [part.key.expand(*batch, -1) for part in (left, right)]  # type: ignore[union-attr]
    return DotProductFeatures(
        torch.cat(query, -1), torch.cat(key, -1), 1.0, bias, left.full_precision or right.full_precision
    )
