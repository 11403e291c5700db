"""Models from papers, each in one file to be read beside its paper."""

from regard.models.ntm import LongShortTerm, NeuralTuringMachine
from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer

__all__ = ["LongShortTerm", "NeuralTuringMachine", "Recurrent", "Transformer"]
