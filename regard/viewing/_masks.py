"""Masks as cells, and their rules as a person writes them."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from regard.attention import Mask
from regard.errors import ShapeError, UsageError


def shown_cells(who: str, mask: Mask | Tensor, queries: int | None, keys: int | None) -> Any:
    """The mask as an array (entries of the batch, queries, keys) of bool."""
    if isinstance(mask, Mask):
        if queries is None:
            raise UsageError(
                f"{who}: a rule has no size; say how many queries, and keys if they are not as many."
            )
        seen = mask.materialize(queries, queries if keys is None else keys)
    else:
        if mask.dim() < 2:
            raise ShapeError(f"{who} draws a mask of shape (queries, keys), not {tuple(mask.shape)}.")
        seen = mask.bool()
    if not seen.numel():
        raise ShapeError(f"{who}: there is nothing to draw in a mask of shape {tuple(seen.shape)}.")
    return seen.reshape(-1, *seen.shape[-2:]).cpu().numpy()


def rule_of(mask: Mask | Tensor) -> str:
    """The rule of a named mask as it is written; nothing for a tensor.

    >>> from regard.attention import causal, window
    >>> rule_of(causal() & ~window(1, 0))
    'causal() & ~window(left=1, right=0)'
    """
    if not isinstance(mask, Mask):
        return ""
    rule = re.sub(r"(, )?offset=None", "", repr(mask))
    joined = rule.startswith("(") and rule.endswith(")")
    return rule[1:-1] if joined else rule
