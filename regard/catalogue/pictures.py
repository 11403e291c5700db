"""The small picture of each mechanism: its weights for queries and keys on half a circle.

Query i and key j are the cosines and sines of their angle and of twice the angle, so that the weights of a similarity
score are largest along the diagonal, and other mechanisms can be compared with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.catalogue.mechanism import half_circle

if TYPE_CHECKING:
    from regard.catalogue.mechanism import Mechanism

NUM_QUERIES, NUM_KEYS = 8, 16

__all__ = ["picture_weights"]


@torch.no_grad()
def picture_weights(mechanism: Mechanism, attention: Any) -> Tensor:
    """Compute the weights of the picture of a mechanism.

    Args:
        mechanism: an entry of the catalogue
        attention: the module `regard.attention`

    Shape:
        -> (queries, keys)

    Returns:
        The weights.
    """
    with torch.random.fork_rng(devices=[]):  # the caller's random state is preserved
        torch.manual_seed(0)
        factory = mechanism.picture_factory
        weights = factory(attention, torch) if factory else _default_picture(mechanism, attention)
    while weights.dim() > 2:  # batch and heads: the first of each
        weights = weights[0]
    return weights


def _default_picture(mechanism: Mechanism, attention: Any) -> Tensor:
    query, key = half_circle(NUM_QUERIES), half_circle(NUM_KEYS)
    part = mechanism.example()
    if mechanism.kind == "score":
        return attention.attend(query, key, key, score=part).weights
    if mechanism.kind == "normalizer":
        return attention.attend(query, key, key, normalize=part).weights
    if mechanism.kind == "mask":
        return attention.attend(key, key, key, part, score=attention.Constant()).weights
    if mechanism.kind == "scope":
        return part(query, key, key).weights
    if mechanism.kind == "heads":
        return part(key, key, key).weights
    raise NotImplementedError(f"the catalogue entry {mechanism.name} ({mechanism.kind}) needs a picture_factory")
