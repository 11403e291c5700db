"""Who may be looked at: masks as values with names, joined with ``&``, ``|``, ``~``. True = may be looked at."""

from regard.attention.masks.base import Mask, PositionGrid, as_mask, dense
from regard.attention.masks.kinds import around, causal, documents, padding, window

__all__ = ["Mask", "PositionGrid", "around", "as_mask", "causal", "dense", "documents", "padding", "window"]
