"""Normalizers: from scores to weights.

A normalizer is any function from scores (*batch, queries, keys), -inf for hidden keys, to weights of the same shape.
Those of this package give a hidden key weight 0, and a query without visible keys weights 0 and gradients 0. So does a
function decorated with `masked_normalizer` and a subclass of `Normalizer`.
"""

from regard.attention.normalizers.base import NormalizeFunction, Normalizer, input_kind, is_random, masked_normalizer
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
