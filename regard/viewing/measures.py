"""Measures of attention weights: entropy, sparsity, distance, diagonality, similarity of heads.

Every measure takes weights (*batch, queries, keys), and optionally the mask that they were computed with; lengths are
given as `padding(lengths)`. Weights are normalized to p = weights / sum of weights first, so weights that do not sum to
1 (sigmoid, local-p) are supported. A query without any weight gives NaN, which `torch.nanmean` ignores.
The agreement with human alignments is measured by `regard.decoding.alignment_error_rate`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Mask, PositionGrid
from regard.attention.masks import as_mask
from regard.errors import ShapeError, UsageError

__all__ = [
    "MaskLike", "diagonality", "distance", "entropy", "head_similarity", "keys_for_mass", "rank_keys",
    "sort_by_attention", "sparsity",
]  # fmt: skip

MaskLike = Mask | Bool[Tensor, "..."] | None


def entropy(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None, *, normalized: bool = False
) -> Float[Tensor, "*batch queries"]:
    """Entropy of the weights in nats: 0 for one key, log n for n equal keys.

        H = -sum_j p_j log p_j

    Args:
        weights: attention weights
        mask: the visible keys; None: all
        normalized: divide by the maximum, the logarithm of the number of visible keys

    Shape:
        weights (*batch, queries, keys) -> (*batch, queries)

    Returns:
        The entropy of each query; NaN if it has no weights.

    Example:
        >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), normalized=True)
        tensor([0., 1.])
    """
    p, visible = _normalize_weights(weights, mask)
    nats = _entropy(p)
    return nats / visible.sum(-1).clamp(min=2).log() if normalized else nats


def sparsity(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None, *, threshold: float = 0.01
) -> Float[Tensor, "*batch queries"]:
    """Fraction of the visible keys with a weight below a threshold.

        |{j visible : p_j < threshold}| / |{j visible}|

    Args:
        weights: attention weights
        mask: the visible keys; None: all
        threshold: the limit of a normalized weight

    Shape:
        weights (*batch, queries, keys) -> (*batch, queries)

    Returns:
        The fraction for each query; NaN if it has no weights.

    Example:
        >>> sparsity(torch.tensor([[0.9, 0.1, 0.0, 0.0]]))
        tensor([0.5000])
    """
    p, visible = _normalize_weights(weights, mask)
    fraction = ((p < threshold) & visible).sum(-1) / visible.sum(-1).clamp(min=1)
    return _nan_without_weights(fraction, p)


def keys_for_mass(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None, *, mass: float = 0.9
) -> Float[Tensor, "*batch queries"]:
    """Smallest number of keys that together have a given part of the weight.

        min |J| with sum_{j in J} p_j >= mass

    Args:
        weights: attention weights
        mask: the visible keys; None: all
        mass: the part of the weight, from 0 to 1

    Shape:
        weights (*batch, queries, keys) -> (*batch, queries)

    Returns:
        The number of keys for each query; NaN if it has no weights.

    Example:
        >>> keys_for_mass(torch.tensor([[0.7, 0.25, 0.05], [1.0, 0.0, 0.0]]))
        tensor([2., 1.])
    """
    p = _normalize_weights(weights, mask)[0]
    cumulative = p.sort(-1, descending=True).values.cumsum(-1)
    count = (cumulative < mass - 1e-6).sum(-1) + 1  # float32 sums may be 1 - 1e-7
    return _nan_without_weights(count.clamp(max=weights.shape[-1]).to(p.dtype), p)


def distance(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None, *, offset: int = 0
) -> Float[Tensor, "*batch queries"]:
    """Mean distance between a query and its keys, in positions.

        sum_j p_j |j - (i + offset)|

    Args:
        weights: attention weights
        mask: the visible keys; None: all
        offset: position of the first query, such as keys - 1 for the one query of a decoding step

    Shape:
        weights (*batch, queries, keys) -> (*batch, queries)

    Returns:
        The mean distance of each query; NaN if it has no weights.

    Example:
        >>> distance(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]]))
        tensor([0., 1.])
    """
    p = _normalize_weights(weights, mask)[0]
    query, key = _position_indices(weights)
    return (p * (key - query - offset).abs()).sum(-1)


def diagonality(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None
) -> Float[Tensor, "*batch queries"]:
    """1 if all weight is on the diagonal from the first query and key to the last, 0 if as far from it as possible.

        1 - sum_j p_j d_ij / max_j d_ij          d_ij = |j / (keys - 1) - i / (queries - 1)|

    Keys count up to the last visible one, queries up to the last one with a visible key, so that padding on either
    side does not change the diagonal.

    Args:
        weights: attention weights
        mask: the visible keys; None: all

    Shape:
        weights (*batch, queries, keys) -> (*batch, queries)

    Returns:
        A number from 0 to 1 for each query; NaN if it has no weights.

    Example:
        >>> diagonality(torch.eye(3)), diagonality(torch.eye(3).flip(0))[0]
        (tensor([1., 1., 1.]), tensor(0.))
    """
    p, visible = _normalize_weights(weights, mask)
    last_key, last_query = (_last_position(visible.any(-2)), _last_position(visible.any(-1) & ~p.isnan().any(-1)))
    query, key = _position_indices(weights)
    distances = (key / last_key - query / last_query).abs()
    # The farthest key is at one of the two ends.
    relative = query / last_query
    return 1 - (p * distances).sum(-1) / torch.maximum(relative, 1 - relative).squeeze(-1)


def head_similarity(
    weights: Float[Tensor, "*batch heads queries keys"], mask: MaskLike = None
) -> Float[Tensor, "*batch heads heads"]:
    """Similarity of every pair of heads: 1 for equal weights, 0 for heads without a common key.

        1 - mean_i JS(p_i, q_i) / log 2          JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2

    JS is the divergence of Lin (1991), "Divergence measures based on the Shannon entropy".

    Args:
        weights: attention weights
        mask: the visible keys; None: all

    Shape:
        weights (*batch, heads, queries, keys) -> (*batch, heads, heads)

    Returns:
        A number from 0 to 1 for each pair of heads.

    Example:
        >>> head_similarity(torch.stack([torch.eye(2), torch.eye(2), torch.eye(2).flip(0)]))[0]
        tensor([1., 1., 0.])
    """
    p = _normalize_weights(weights, mask)[0]
    entropies = _entropy(p)
    rows = []
    for head in range(p.shape[-3]):  # head by head: all pairs at once would be a large tensor
        q, q_entropy = p[..., head : head + 1, :, :], entropies[..., head : head + 1, :]
        divergence = _entropy((q + p) / 2) - (q_entropy + entropies) / 2
        rows.append(1 - (divergence / math.log(2)).nanmean(-1))
    return torch.stack(rows, -2).clamp(0, 1)


def rank_keys(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None
) -> Int[Tensor, "*batch queries keys"]:
    """Indices of the keys in the order of decreasing weights; ties by position, masked keys last.

    Args:
        weights: attention weights
        mask: the visible keys; None: all

    Shape:
        weights (*batch, queries, keys) -> (*batch, queries, keys)

    Returns:
        The indices of the keys for each query.

    Example:
        >>> rank_keys(torch.tensor([[0.1, 0.6, 0.3]])).tolist()
        [[1, 2, 0]]
    """
    visible = _visible_keys(weights, mask)
    return weights.masked_fill(~visible, -1.0).sort(dim=-1, descending=True, stable=True).indices


def sort_by_attention(inputs: Any, weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None) -> Any:
    """Sort the inputs for each query by decreasing weights.

    Args:
        inputs: vectors, or the tokens of one text
        weights: attention weights
        mask: the visible keys; None: all

    Shape:
        vectors (*batch, keys, dim) -> (*batch, queries, keys, dim)

    Returns:
        A tensor, or a list of tokens per query.

    Example:
        >>> sort_by_attention(["the", "black", "cat"], torch.tensor([[0.1, 0.3, 0.6]]))
        [['cat', 'black', 'the']]
    """
    ranks = rank_keys(weights, mask)
    if not isinstance(inputs, Tensor):
        tokens = list(inputs)
        if ranks.dim() != 2 or ranks.shape[-1] != len(tokens):
            raise ShapeError(
                f"{len(tokens)} tokens are sorted by weights (queries, {len(tokens)}), got {tuple(ranks.shape)}"
            )
        return [[tokens[i] for i in row] for row in ranks.tolist()]
    if inputs.shape[-2] != weights.shape[-1]:
        raise ShapeError(f"got {weights.shape[-1]} keys, but inputs of shape {tuple(inputs.shape)}")
    expanded = inputs.unsqueeze(-3).expand(*ranks.shape, inputs.shape[-1])
    return expanded.gather(-2, ranks.unsqueeze(-1).expand_as(expanded))


def _visible_keys(weights: Tensor, mask: MaskLike) -> Tensor:
    if weights.dim() < 2:
        raise ShapeError(f"weights must be (*batch, queries, keys), got {tuple(weights.shape)}")
    if mask is None:
        return torch.ones_like(weights, dtype=torch.bool)
    mask, (*batch, queries, keys) = as_mask(mask), weights.shape
    mask.check_shape(tuple(batch), queries, keys)
    return mask.rule(PositionGrid.full(queries, keys, len(batch), weights.device)).expand(weights.shape)


def _normalize_weights(weights: Tensor, mask: MaskLike) -> tuple[Tensor, Tensor]:
    """Weights that sum to 1 over the visible keys, NaN for queries without weight; and the visible keys."""
    visible = _visible_keys(weights, mask)
    weights = torch.where(visible, weights.float() if weights.dtype.itemsize < 4 else weights, 0.0)
    if bool((weights < 0).any()):
        raise UsageError("weights must not be negative; pass weights, not scores")
    return weights / weights.sum(-1, keepdim=True), visible  # 0 / 0 is NaN


def _entropy(p: Tensor) -> Tensor:
    return (0 - torch.xlogy(p, p).sum(-1)).clamp(min=0)  # no -0, and no rounding below 0


def _nan_without_weights(measure: Tensor, p: Tensor) -> Tensor:
    return torch.where(p.isnan().any(-1), math.nan, measure)


def _position_indices(weights: Tensor) -> tuple[Tensor, Tensor]:
    query, key = (torch.arange(size, device=weights.device) for size in weights.shape[-2:])
    return query[:, None], key


def _last_position(mask: Tensor) -> Tensor:
    """Index of the last True, at least 1; (*batch, 1, 1)."""
    positions = torch.where(mask, torch.arange(mask.shape[-1], device=mask.device), 0)
    return torch.nn.functional.pad(positions, (0, 1), value=1).amax(-1)[..., None, None]
