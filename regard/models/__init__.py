"""Models from papers, each in one file to be read beside its paper."""

from regard.models.hierarchical import Hierarchical
from regard.models.ntm import LongShortTerm, NeuralTuringMachine
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer

__all__ = ["Hierarchical", "LongShortTerm", "NeuralTuringMachine", "Recurrent", "Transformer"]
