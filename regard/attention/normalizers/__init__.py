"""How is regard shared out? From scores to weights.

A normalizer is any callable from scores (*batch, queries, keys), -inf where hidden, to weights of the same
shape. Those here keep one law: a hidden key gets weight 0, and a query that may look at nothing gets weights
0 and gradients 0. Put `over_visible` on a function of your own, or derive from `Normalizer`, and it keeps the
law too.
"""

from regard.attention.normalizers.base import Normalize, Normalizer, is_random, over_visible, takes
from regard.attention.normalizers.hard import Gumbel, Sample, hardmax
from regard.attention.normalizers.soft import SigmoidSum, Temperature, TopK, kernel_sum, sigmoid, softmax
from regard.attention.normalizers.sparse import Entmax, entmax15, sparsemax
from regard.attention.normalizers.wrappers import Bell, Dropout, StraightThrough

__all__ = [
    "Bell",
    "Dropout",
    "Entmax",
    "Gumbel",
    "Normalize",
    "Normalizer",
    "Sample",
    "SigmoidSum",
    "StraightThrough",
    "Temperature",
    "TopK",
    "entmax15",
    "hardmax",
    "is_random",
    "kernel_sum",
    "over_visible",
    "sigmoid",
    "softmax",
    "sparsemax",
    "takes",
]
