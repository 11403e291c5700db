"""How is regard shared out? From scores to weights.

A normalizer is any callable from scores (*batch, queries, keys), -inf where hidden, to weights of the same
shape. Those here keep one law: a hidden key gets weight 0, and a query that may look at nothing gets weights
0 and gradients 0. Put `over_visible` on a function of your own, or derive from `Normalizer`, and it keeps the
law too.
"""

from regard.attention.normalizers.base import (
    NormalizeFunction,
    Normalizer,
    input_kind,
    is_random,
    masked_normalizer,
)
from regard.attention.normalizers.basic import (
    Gumbel,
    Sample,
    SigmoidSum,
    Temperature,
    TopK,
    hardmax,
    kernel_sum,
    sigmoid,
    softmax,
)
from regard.attention.normalizers.sparse import Entmax, entmax15, sparsemax
from regard.attention.normalizers.wrappers import Dropout, GaussianWindow, StraightThrough

__all__ = [
    "Dropout",
    "Entmax",
    "GaussianWindow",
    "Gumbel",
    "NormalizeFunction",
    "Normalizer",
    "Sample",
    "SigmoidSum",
    "StraightThrough",
    "Temperature",
    "TopK",
    "entmax15",
    "hardmax",
    "input_kind",
    "is_random",
    "kernel_sum",
    "masked_normalizer",
    "sigmoid",
    "softmax",
    "sparsemax",
]
