"""Models from papers, each in one file to be read beside its paper."""

from importlib import import_module

from regard._imports import require_extra
from regard.models.answerer import Answerer
from regard.models.captioner import ShowAttendTell
from regard.models.glance import Glance
from regard.models.hierarchical import Hierarchical
from regard.models.language import LanguageModel, MaskedLanguageModel
from regard.models.mixed import Mixed
from regard.models.ntm import LongShortTerm, NeuralTuringMachine
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer
from regard.models.whole import Whole

__all__ = [
    "Answerer",
    "Glance",
    "Hierarchical",
    "LanguageModel",
    "LongShortTerm",
    "MaskedLanguageModel",
    "Mixed",
    "NeuralTuringMachine",
    "Recurrent",
    "ShowAttendTell",
    "Transformer",
    "Whole",
]


def __getattr__(name: str) -> object:
    if name in ("KernelRegression", "OutOfReach"):  # scikit-learn is needed only by who asks for these
        require_extra("sklearn", extra="sklearn")
        return getattr(import_module("regard.models.regression"), name)
    raise AttributeError(f"module 'regard.models' has no attribute {name!r}")
