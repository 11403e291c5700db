"""Scores: from query and key to scores. ``+`` and ``*`` combine them."""

from regard.attention.scores.additive import Additive, Concat
from regard.attention.scores.base import DotProductFeatures, ScaledScore, Score, SumScore
from regard.attention.scores.distance import Boxcar, Cosine, Epanechnikov, Gaussian
from regard.attention.scores.dot import Bilinear, Constant, Dot, Energy, Location, ScaledDot

__all__ = [
    "Additive",
    "Bilinear",
    "Boxcar",
    "Concat",
    "Constant",
    "Cosine",
    "Dot",
    "DotProductFeatures",
    "Energy",
    "Epanechnikov",
    "Gaussian",
    "Location",
    "ScaledDot",
    "ScaledScore",
    "Score",
    "SumScore",
]
