"""Numbers that say what weights look like.

Every measure takes weights (*batch, queries, keys) and the mask they were made with, if there was one; lengths
are given as `padding(lengths)`. It is about shares p = weights / sum of weights, so that weights that do not sum
to 1 (sigmoid, local-p) are measured too. A query that looks at nothing has no measure: NaN, which `nanmean` skips.
Alignments against those of people are measured by `regard.decoding.aer`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.attention import Mask, PositionGrid
from regard.attention.masks import as_mask
from regard.errors import ShapeError, UsageError

MaskLike = Mask | Bool[Tensor, "..."] | None


def entropy(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None, *, normalized: bool = False
) -> Float[Tensor, "*batch queries"]:
    """How widely regard is spread, in nats: 0 for one key, log n for n keys alike.

        H = -sum_j p_j log p_j

    `normalized` divides by the most there can be, the logarithm of the number of visible keys.

    >>> entropy(torch.tensor([[1.0, 0.0], [0.5, 0.5]]), normalized=True)
    tensor([0., 1.])
    """
    shares, visible = _normalize_weights(weights, mask)
    spread = _entropy(shares)
    return spread / visible.sum(-1).clamp(min=2).log() if normalized else spread


def sparsity(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None, *, threshold: float = 0.01
) -> Float[Tensor, "*batch queries"]:
    """The share of visible keys that get next to nothing.

        |{j visible : p_j < threshold}| / |{j visible}|

    >>> sparsity(torch.tensor([[0.9, 0.1, 0.0, 0.0]]))
    tensor([0.5000])
    """
    shares, visible = _normalize_weights(weights, mask)
    idle = ((shares < threshold) & visible).sum(-1) / visible.sum(-1).clamp(min=1)
    return _nan_without_weights(idle, shares)


def keys_for_mass(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None, *, mass: float = 0.9
) -> Float[Tensor, "*batch queries"]:
    """How many keys hold most of the regard: the fewest that together have this share.

        min |J| with sum_{j in J} p_j >= share

    >>> keys_for_mass(torch.tensor([[0.7, 0.25, 0.05], [1.0, 0.0, 0.0]]))
    tensor([2., 1.])
    """
    shares = _normalize_weights(weights, mask)[0]
    held = shares.sort(-1, descending=True).values.cumsum(-1)
    few = (held < mass - 1e-6).sum(-1) + 1  # float32 sums to 1 - 1e-7 at times
    return _nan_without_weights(few.clamp(max=weights.shape[-1]).to(shares.dtype), shares)


def distance(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None, *, offset: int = 0
) -> Float[Tensor, "*batch queries"]:
    """How far away the keys are that a query looks at, in positions.

        sum_j p_j |j - (i + offset)|

    `offset` is the position of the first query, such as keys - 1 for the one query of a decoding step.

    >>> distance(torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.0, 0.5]]))
    tensor([0., 1.])
    """
    shares = _normalize_weights(weights, mask)[0]
    query, key = _position_indices(weights)
    return (shares * (key - query - offset).abs()).sum(-1)


def diagonality(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None
) -> Float[Tensor, "*batch queries"]:
    """How close a query looks to the diagonal from the first query and key to the last: 1 on it, 0 as far as can be.

        1 - sum_j p_j d_ij / max_j d_ij          d_ij = |j / (keys - 1) - i / (queries - 1)|

    Keys are counted up to the last that any query sees, queries up to the last that sees a key, so that padding
    on either side does not bend the diagonal.

    >>> diagonality(torch.eye(3)), diagonality(torch.eye(3).flip(0))[0]
    (tensor([1., 1., 1.]), tensor(0.))
    """
    shares, visible = _normalize_weights(weights, mask)
    last_key, last_query = (
        _last_position(visible.any(-2)),
        _last_position(visible.any(-1) & ~shares.isnan().any(-1)),
    )
    query, key = _position_indices(weights)
    away = (key / last_key - query / last_query).abs()
    # The farthest key lies at one of the two ends.
    along = query / last_query
    return 1 - (shares * away).sum(-1) / torch.maximum(along, 1 - along).squeeze(-1)


def head_similarity(
    weights: Float[Tensor, "*batch heads queries keys"], mask: MaskLike = None
) -> Float[Tensor, "*batch heads heads"]:
    """How alike two heads look: 1 the same, 0 never at the same key.

        1 - mean_i JS(p_i, q_i) / log 2          JS(p, q) = H((p + q) / 2) - (H(p) + H(q)) / 2

    JS is the divergence of Lin (1991), "Divergence measures based on the Shannon entropy".

    >>> head_similarity(torch.stack([torch.eye(2), torch.eye(2), torch.eye(2).flip(0)]))[0]
    tensor([1., 1., 0.])
    """
    shares = _normalize_weights(weights, mask)[0]
    own = _entropy(shares)
    rows = []
    for head in range(shares.shape[-3]):  # head by head: all pairs at once would be a large tensor
        one, its = shares[..., head : head + 1, :, :], own[..., head : head + 1, :]
        apart = _entropy((one + shares) / 2) - (its + own) / 2
        rows.append(1 - (apart / math.log(2)).nanmean(-1))
    return torch.stack(rows, -2).clamp(0, 1)


def rank_keys(
    weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None
) -> Int[Tensor, "*batch queries keys"]:
    """The keys by the regard they get, the most regarded first; of equals, the earlier first; hidden ones last.

    >>> rank_keys(torch.tensor([[0.1, 0.6, 0.3]])).tolist()
    [[1, 2, 0]]
    """
    visible = _visible_keys(weights, mask)
    return weights.masked_fill(~visible, -1.0).sort(dim=-1, descending=True, stable=True).indices


def sort_by_attention(
    inputs: Any, weights: Float[Tensor, "*batch queries keys"], mask: MaskLike = None
) -> Any:
    """The inputs as a query would rank them: what it looks at most comes first.

    Vectors (*batch, keys, dim) become (*batch, queries, keys, dim). Words are ranked for each query of one text.

    >>> sort_by_attention(["the", "black", "cat"], torch.tensor([[0.1, 0.3, 0.6]]))
    [['cat', 'black', 'the']]
    """
    ranks = rank_keys(weights, mask)
    if not isinstance(inputs, Tensor):
        return _rank_tokens(list(inputs), ranks)
    if inputs.shape[-2] != weights.shape[-1]:
        raise ShapeError(
            f"every key is one input, got {weights.shape[-1]} keys, inputs {tuple(inputs.shape)}"
        )
    wide = inputs.unsqueeze(-3).expand(*ranks.shape, inputs.shape[-1])
    return wide.gather(-2, ranks.unsqueeze(-1).expand_as(wide))


def _rank_tokens(tokens: Sequence[Any], ranks: Tensor) -> list[list[Any]]:
    if ranks.dim() != 2 or ranks.shape[-1] != len(tokens):
        raise ShapeError(
            f"{len(tokens)} words are ranked by weights (queries, {len(tokens)}), got {tuple(ranks.shape)}"
        )
    return [[tokens[place] for place in row] for row in ranks.tolist()]


def _visible_keys(weights: Tensor, mask: MaskLike) -> Tensor:
    if weights.dim() < 2:
        raise ShapeError(f"weights must be (*batch, queries, keys), got {tuple(weights.shape)}")
    if mask is None:
        return torch.ones_like(weights, dtype=torch.bool)
    mask, (*batch, queries, keys) = as_mask(mask), weights.shape
    mask.check_shape(tuple(batch), queries, keys)
    return mask.rule(PositionGrid.full(queries, keys, len(batch), weights.device)).expand(weights.shape)


def _normalize_weights(weights: Tensor, mask: MaskLike) -> tuple[Tensor, Tensor]:
    """Weights that sum to 1 over the visible keys, NaN where there is nothing to share; and who is visible."""
    visible = _visible_keys(weights, mask)
    weights = torch.where(visible, weights.float() if weights.dtype.itemsize < 4 else weights, 0.0)
    if bool((weights < 0).any()):
        raise UsageError("measures are of weights, which are never negative; these are: scores, perhaps?")
    return weights / weights.sum(-1, keepdim=True), visible  # 0 / 0 is NaN


def _entropy(shares: Tensor) -> Tensor:
    return (0 - torch.xlogy(shares, shares).sum(-1)).clamp(min=0)  # neither -0 nor, by rounding, less


def _nan_without_weights(measure: Tensor, shares: Tensor) -> Tensor:
    return torch.where(shares.isnan().any(-1), math.nan, measure)


def _position_indices(weights: Tensor) -> tuple[Tensor, Tensor]:
    queries, keys = weights.shape[-2:]
    device = weights.device
    return torch.arange(queries, device=device)[:, None], torch.arange(keys, device=device)


def _last_position(mask: Tensor) -> Tensor:
    """The last place that is there, at least 1; (*batch, 1, 1)."""
    places = torch.arange(mask.shape[-1], device=mask.device)
    last = torch.where(mask, places, 0).amax(-1) if mask.shape[-1] else mask.new_zeros(mask.shape[:-1]).int()
    return last.clamp(min=1)[..., None, None]
