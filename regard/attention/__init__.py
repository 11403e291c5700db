"""Attention: one equation, and every mechanism as a value for one of its arguments.

    scores  = score(query, key)          # *batch queries keys
    scores  = mask(scores)               # -inf where the key is not visible
    weights = normalize(scores)
    context = weights @ value            # *batch queries value_dim

`attend` is the equation, `Attention` its module form. `regard mechanisms` lists every mechanism.
"""

from regard.attention import addressing, observers
from regard.attention.equation import attend
from regard.attention.layers import AttentionPool, LocalM, LocalP, MaxPool
from regard.attention.masks.base import Mask, PositionGrid, dense
from regard.attention.masks.kinds import around, causal, documents, window
from regard.attention.masks.padding_masks import padding, prefix
from regard.attention.multi_head import KVCache, MultiHead
from regard.attention.normalizers.base import Normalizer, masked_normalizer
from regard.attention.normalizers.basic import SigmoidSum, Temperature, TopK, kernel_sum, sigmoid, softmax
from regard.attention.normalizers.losses import entmax15_loss, entmax_loss, sparsemax_loss
from regard.attention.normalizers.sinks import WithSink
from regard.attention.normalizers.sparse import Entmax, Gumbel, Sample, StraightThrough, entmax15, hardmax, sparsemax
from regard.attention.normalizers.wrappers import Dropout, GaussianWindow
from regard.attention.output import AttentionOutput
from regard.attention.positions import Alibi, Learned, RelativeBias, Rotary, Sinusoidal
from regard.attention.projected import Attention, ProjectedKV
from regard.attention.scores.additive import Additive, Concat
from regard.attention.scores.base import Bias, Score
from regard.attention.scores.distance import Boxcar, Cosine, Epanechnikov, Gaussian
from regard.attention.scores.dot import Bilinear, Constant, Dot, Energy, Location, ScaledDot
from regard.attention.scores.softcap import SoftCap

__all__ = [
    "Additive", "Alibi", "Attention", "AttentionOutput", "AttentionPool", "Bias", "Bilinear", "Boxcar", "Concat",
    "Constant", "Cosine", "Dot", "Dropout", "Energy", "Entmax", "Epanechnikov", "Gaussian", "GaussianWindow", "Gumbel",
    "KVCache", "Learned", "LocalM", "LocalP", "Location", "Mask", "MaxPool", "MultiHead", "Normalizer", "PositionGrid",
    "ProjectedKV", "RelativeBias", "Rotary", "Sample", "ScaledDot", "Score", "SigmoidSum", "Sinusoidal", "SoftCap",
    "StraightThrough", "Temperature", "TopK", "WithSink", "addressing", "around", "attend", "causal", "dense",
    "documents", "entmax15", "entmax15_loss", "entmax_loss", "hardmax", "kernel_sum", "masked_normalizer", "observers",
    "padding", "prefix", "sigmoid", "softmax", "sparsemax", "sparsemax_loss", "window",
]  # fmt: skip
