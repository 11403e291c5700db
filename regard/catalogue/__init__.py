"""All the library offers, in one list: it feeds `regard list`, `regard explain`, the docs and the tests.

A new mechanism is one more line in `_entries.py`; the sentence, the equation and the paper are read from its
docstring. Nothing here imports torch until an entry is asked for the object it describes.
"""

from regard.catalogue._entries import ENTRIES
from regard.catalogue._entry import KINDS, Entry, search
from regard.errors import UnknownNameError

__all__ = ["ENTRIES", "KINDS", "Entry", "UnknownNameError", "find"]


def find(name: str) -> Entry:
    """The entry of that name or alias; case, hyphens, underscores and spaces do not matter.

    >>> find("bahdanau").name
    'Additive'
    >>> find("Scaled-dot").name
    'ScaledDot'
    >>> find("addditive")
    Traceback (most recent call last):
    regard.catalogue._entry.UnknownNameError: There is no mechanism called 'addditive'; ...
    """
    return search(ENTRIES, name)
