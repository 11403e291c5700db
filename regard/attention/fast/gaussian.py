"""The Gaussian score as a dot product, for the fused kernel.

    -1/2 |q - k|^2 = q . k - 1/2 |k|^2 - 1/2 |q|^2

The last term is the same for every key, so softmax does not see it; with 1 appended to q and -1/2 |k|^2 to
k the rest is a dot product. Differences of large squares lose their digits, therefore q and k are first
moved by the mean of the visible keys (the score does not change), and data that still spread too far are
computed in float64.
"""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention.masks import Grid, Mask

SPREAD = {torch.float32: 1e3, torch.float64: 1e9}
"""Up to which squared norm the error, about eps times that norm, stays below 1e-4 and 1e-7."""


def gaussian_features(
    query: Tensor, key: Tensor, width: float | Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor] | None:
    """Query and key features whose dot product is the score up to a constant a query; None if inexact."""
    if torch.compiler.is_compiling() or key.shape[-2] == 0:
        return None  # the choice depends on the data; under a compiler the definition is fused anyway
    middle = _middle(query, key, mask)
    query, key = (query - middle) / width, (key - middle) / width
    try:
        spread = max(_largest(query), _largest(key))
    except RuntimeError:  # torch.func does not let its tensors be looked at
        return None
    if spread > SPREAD[query.dtype]:
        if query.dtype == torch.float64 or query.device.type == "mps" or not spread <= SPREAD[torch.float64]:
            return None
        query, key = query.double(), key.double()
    ones = query.new_ones(()).expand(*query.shape[:-1], 1)
    half = -0.5 * key.square().sum(-1, keepdim=True)
    return torch.cat([query, ones], -1), torch.cat([key, half], -1)


@torch.no_grad()
def _middle(query: Tensor, key: Tensor, mask: Mask | None) -> Tensor:
    """The mean of the visible keys; of all keys where every query sees others."""
    if mask is None or not mask.every_query_alike:
        return key.mean(-2, keepdim=True)
    batch = max(query.dim() - 2, key.dim() - 2, mask.axes())
    seen = mask.rule(Grid.full(1, key.shape[-2], batch, key.device)).to(key.dtype)
    seen = seen.expand(*seen.shape[:-1], key.shape[-2])
    return (seen @ key) / seen.sum(-1, keepdim=True).clamp(min=1)


def _largest(vectors: Tensor) -> float:
    return float(vectors.detach().square().sum(-1).max()) if vectors.numel() else 0.0
