"""Models from papers, each in one file to be read beside its paper."""

from importlib import import_module

from regard._extras import need
from regard.models.hierarchical import Hierarchical
from regard.models.ntm import LongShortTerm, NeuralTuringMachine
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer

__all__ = ["Hierarchical", "LongShortTerm", "NeuralTuringMachine", "Recurrent", "Transformer"]


def __getattr__(name: str) -> object:
    if name in ("KernelRegression", "OutOfReach"):  # scikit-learn is needed only by who asks for these
        need("sklearn", extra="sklearn")
        return getattr(import_module("regard.models.regression"), name)
    raise AttributeError(f"module 'regard.models' has no attribute {name!r}")
