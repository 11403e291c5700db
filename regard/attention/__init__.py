"""Attention: one equation, and everything that can stand for its letters.

    scores  = score(query, key)          how alike?
    scores  = hide(scores, mask)         who may be looked at?
    weights = normalize(scores)          how is regard shared out?
    context = weights @ value            what is seen?

Every mechanism is a value for one of the letters; `regard list` names them all.
"""

from regard.attention import addressing as addressing
from regard.attention._equation import Attention as Attention
from regard.attention._equation import attend as attend
from regard.attention._result import Attended as Attended
from regard.attention.heads import Cache as Cache
from regard.attention.heads import MultiHead as MultiHead
from regard.attention.local import LocalM as LocalM
from regard.attention.local import LocalP as LocalP
from regard.attention.masks import Grid as Grid
from regard.attention.masks import Mask as Mask
from regard.attention.masks import around as around
from regard.attention.masks import causal as causal
from regard.attention.masks import dense as dense
from regard.attention.masks import documents as documents
from regard.attention.masks import padding as padding
from regard.attention.masks import window as window
from regard.attention.normalizers import Bell as Bell
from regard.attention.normalizers import Dropout as Dropout
from regard.attention.normalizers import Entmax as Entmax
from regard.attention.normalizers import Gumbel as Gumbel
from regard.attention.normalizers import Normalizer as Normalizer
from regard.attention.normalizers import Sample as Sample
from regard.attention.normalizers import SigmoidSum as SigmoidSum
from regard.attention.normalizers import StraightThrough as StraightThrough
from regard.attention.normalizers import Temperature as Temperature
from regard.attention.normalizers import TopK as TopK
from regard.attention.normalizers import entmax15 as entmax15
from regard.attention.normalizers import hardmax as hardmax
from regard.attention.normalizers import kernel_sum as kernel_sum
from regard.attention.normalizers import over_visible as over_visible
from regard.attention.normalizers import sigmoid as sigmoid
from regard.attention.normalizers import softmax as softmax
from regard.attention.normalizers import sparsemax as sparsemax
from regard.attention.positions import Alibi as Alibi
from regard.attention.positions import Learned as Learned
from regard.attention.positions import RelativeBias as RelativeBias
from regard.attention.positions import Rotary as Rotary
from regard.attention.positions import Sinusoidal as Sinusoidal
from regard.attention.scores import Additive as Additive
from regard.attention.scores import Bilinear as Bilinear
from regard.attention.scores import Boxcar as Boxcar
from regard.attention.scores import Concat as Concat
from regard.attention.scores import Constant as Constant
from regard.attention.scores import Cosine as Cosine
from regard.attention.scores import Dot as Dot
from regard.attention.scores import Energy as Energy
from regard.attention.scores import Epanechnikov as Epanechnikov
from regard.attention.scores import Gaussian as Gaussian
from regard.attention.scores import Location as Location
from regard.attention.scores import ScaledDot as ScaledDot
from regard.attention.scores import Score as Score
