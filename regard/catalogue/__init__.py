"""The catalogue of all mechanisms, for `regard mechanisms`, the docs and the tests.

A new mechanism is one more `Mechanism` in `scores_normalizers` or `others`; its summary, equation and reference are
read from its docstring. torch is imported only when the object, an example or a picture of a mechanism is requested.
"""

from regard.catalogue.mechanism import KINDS, Argument, Mechanism, find_by_name
from regard.catalogue.others import ADDRESSING, HEADS, MASKS, POSITIONS, SCOPES
from regard.catalogue.scores_normalizers import NORMALIZERS, SCORES
from regard.errors import UnknownNameError

__all__ = ["KINDS", "MECHANISMS", "Argument", "Mechanism", "UnknownNameError", "get_mechanism"]

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
