"""Look at attention: watch a model, keep the weights, measure and draw them."""

from regard.viewing import measures
from regard.viewing.altering import Permuted, Uniform, altered
from regard.viewing.hugging import register as hugging_face
from regard.viewing.records import Record, Seen
from regard.viewing.terminal import heat
from regard.viewing.watching import watch

__all__ = [
    "Permuted",
    "Record",
    "Seen",
    "Uniform",
    "altered",
    "heat",
    "hugging_face",
    "measures",
    "watch",
]
