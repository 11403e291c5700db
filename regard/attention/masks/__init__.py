"""Masks: which keys are visible to each query, as values that combine with ``&``, ``|``, ``~``. True = visible."""

from regard.attention.masks.base import Mask, PositionGrid, as_mask, dense
from regard.attention.masks.kinds import around, causal, documents, window
from regard.attention.masks.padding_masks import padding, prefix

__all__ = ["Mask", "PositionGrid", "around", "as_mask", "causal", "dense", "documents", "padding", "prefix", "window"]
