"""The catalogue of all mechanisms, for `regard mechanisms`, the docs and the tests.

A new mechanism is one more `Mechanism` in `scores_normalizers` or `others`; its summary, equation and reference are
read from its docstring. torch is imported only when the object, an example or a picture of a mechanism is requested.
"""

from regard.catalogue.mechanism import KINDS, Mechanism
from regard.catalogue.registry import MECHANISMS, get_mechanism
from regard.errors import UnknownNameError

__all__ = ["KINDS", "MECHANISMS", "Mechanism", "UnknownNameError", "get_mechanism"]
