"""The list of all mechanisms."""

from __future__ import annotations

from regard.catalogue.mechanism import Mechanism, find_by_name
from regard.catalogue.others import ADDRESSING, HEADS, MASKS, POSITIONS, SCOPES
from regard.catalogue.scores_normalizers import NORMALIZERS, SCORES

__all__ = ["MECHANISMS", "get_mechanism"]

MECHANISMS: tuple[Mechanism, ...] = (*SCORES, *NORMALIZERS, *MASKS, *SCOPES, *HEADS, *POSITIONS, *ADDRESSING)


def get_mechanism(name: str) -> Mechanism:
    """The mechanism with this name or alias.

    Args:
        name: the name; case, hyphens, underscores and spaces are ignored

    >>> get_mechanism("bahdanau").name
    'Additive'
    >>> get_mechanism("Scaled-dot").name
    'ScaledDot'
    >>> get_mechanism("addditive")
    Traceback (most recent call last):
    regard.errors.UnknownNameError: no mechanism 'addditive'; did you mean ...?
    """
    return find_by_name(MECHANISMS, name)
