"""The list itself, room by room."""

from __future__ import annotations

from regard.catalogue.mechanism import Mechanism, find_by_name
from regard.catalogue.others import ADDRESSING, HEADS, MASKS, POSITIONS, SCOPES
from regard.catalogue.scores_normalizers import NORMALIZERS, SCORES

MECHANISMS: tuple[Mechanism, ...] = (*SCORES, *NORMALIZERS, *MASKS, *SCOPES, *HEADS, *POSITIONS, *ADDRESSING)


def get_mechanism(name: str) -> Mechanism:
    """The entry of that name or alias; case, hyphens, underscores and spaces do not matter.

    >>> get_mechanism("bahdanau").name
    'Additive'
    >>> get_mechanism("Scaled-dot").name
    'ScaledDot'
    >>> get_mechanism("addditive")
    Traceback (most recent call last):
    regard.catalogue.mechanism.UnknownNameError: There is no mechanism called 'addditive'; ...
    """
    return find_by_name(MECHANISMS, name)
