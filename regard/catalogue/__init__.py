"""All the library offers, in one list: it feeds `regard list`, `regard explain`, the docs and the tests.

A new mechanism is one more line in `_entries.py`; the sentence, the equation and the paper are read from its
docstring. Nothing here imports torch until an entry is asked for the object it describes.
"""

from regard.catalogue.mechanism import KINDS, Mechanism
from regard.catalogue.registry import MECHANISMS, get_mechanism
from regard.errors import UnknownNameError

__all__ = ["KINDS", "MECHANISMS", "Mechanism", "UnknownNameError", "get_mechanism"]
