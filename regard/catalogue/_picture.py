"""The small picture of each entry: what it does with queries and keys that walk round half a circle.

Query i and key j are the cosines and sines of their angle and of twice that, so that a score of likeness
looks along the diagonal, and whatever a mechanism does differently can be seen against it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from regard.catalogue._entry import Entry

from regard.catalogue._things import walk

QUERIES, KEYS = 8, 16


@torch.no_grad()
def weights_of(entry: Entry, attention: Any) -> Tensor:
    with torch.random.fork_rng(devices=[]):  # the caller's random numbers stay as they were
        torch.manual_seed(0)
        weights = entry.paint(attention) if entry.paint else _by_kind(entry, attention)
    while weights.dim() > 2:  # batch and heads: the first of each
        weights = weights[0]
    return weights


def _by_kind(entry: Entry, attention: Any) -> Tensor:
    query, key = walk(QUERIES), walk(KEYS)
    part = entry.example()
    if entry.kind == "score":
        return attention.attend(query, key, key, score=part).weights
    if entry.kind == "normalizer":
        return attention.attend(query, key, key, normalize=part).weights
    if entry.kind == "mask":
        return attention.attend(key, key, key, part, score=attention.Constant()).weights
    if entry.kind == "scope":
        return part(query, key, key).weights
    if entry.kind == "heads":
        return part(key, key, key).weights
    raise NotImplementedError(f"the catalogue entry {entry.name} ({entry.kind}) needs a `paint` of its own")
