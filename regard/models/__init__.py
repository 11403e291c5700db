"""Models from papers, each in one file to be read beside its paper."""

from regard.models.recurrent import Recurrent
from regard.models.transformer import Transformer

__all__ = ["Recurrent", "Transformer"]
