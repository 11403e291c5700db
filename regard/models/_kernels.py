"""The sums of kernel regression: by the equation, or along sorted keys where that gives the same faster."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention import Boxcar, Constant, Epanechnikov, Gaussian, attend, hardmax
from regard.attention.scores import Score
from regard.models._boxes import FAR, Boxes
from regard.models._parts import Itself, Known, Queries, Slabs, Sums, by_parts
from regard.models._windows import Windows

FEW = 512
"""Up to so many points the equation itself is as fast as anything."""

Width = Float[Tensor, ""] | Float[Tensor, "features"]
KERNELS: dict[str, Callable[[Tensor | float], Score]] = {
    "average": lambda width: Constant(),
    "gaussian": Gaussian,
    "boxcar": Boxcar,
    "epanechnikov": Epanechnikov,
}


class Smoother:
    """A kernel and its width laid over known points.

        f(q) = sum_i K(q, x_i) w_i y_i / sum_i K(q, x_i) w_i

    Both sums come from one look at values [w y, w]; what its weights are divided by cancels. Sums are 0 where no point
    is in reach.
    """

    def __init__(self, kernel: str, width: Width, known: Known):
        self.known = known
        # As NumPy's number: a plain one would be taken for float32, and rounded.
        given = width if width.numel() > 1 else np.float64(width.item())
        self.score, self.nearness = KERNELS[kernel](given), Gaussian(given)
        self.sorted = _sorted(kernel, width, known, self.score)

    def sums(self, query: Queries, itself: Itself | None = None) -> Sums:
        """Numerators and, last, the denominator; `itself` is a point to leave out for each query."""
        if self.sorted is None or not len(query):
            return by_parts(query, self.known, self.score, itself)
        sums, unsure = self.sorted.sums(query, itself)
        if bool(unsure.any()):
            left = None if itself is None else itself[unsure]
            sums[unsure] = by_parts(query[unsure], self.known, self.score, left)
        return sums

    def nearest(self, query: Queries, itself: Itself | None = None) -> Sums:
        """The same sums of the nearest point alone."""
        return by_parts(query, self.known, self.nearness, itself, hardmax)

    def left_out(self) -> Sums:
        """The sums at every point, over all points but itself."""
        return self.sums(self.known.key, torch.arange(len(self.known.key)))

    def weights(self, query: Queries) -> Float[Tensor, "queries points"]:
        """What each point counts for each query; rows of 0 where none is in reach."""
        shares = attend(query, *self.known, score=self.score).weights * self.known.weight
        total = shares.sum(-1, keepdim=True)
        return torch.where(total > 0, shares / total, 0.0)

    def choices(self, query: Queries) -> Float[Tensor, "queries points"]:
        """Weights that look at the nearest point alone."""
        return attend(query, *self.known, score=self.nearness, normalize=hardmax).weights


def quotient(sums: Sums) -> Float[Tensor, "queries outputs"]:
    """What is predicted: NaN where no point was in reach."""
    return torch.where(sums[:, -1:] > 0, sums[:, :-1] / sums[:, -1:], math.nan)


def _sorted(kernel: str, width: Tensor, known: Known, score: Score) -> Windows | Boxes | Slabs | None:
    """A way along sorted keys, where there is one and it is worth it."""
    key, value = known
    few = len(key) <= FEW
    if kernel == "average" or (few and (kernel == "gaussian" or key.shape[1] > 1)):
        return None
    if key.shape[1] > 1:
        return None if kernel == "gaussian" else Slabs(known, width, score)
    if kernel == "gaussian":
        near = bool(key.amax() - key.amin() <= FAR * width)
        return Boxes(key[:, 0], value, width.item()) if near else None
    return Windows(key[:, 0], value, width.item(), curved=kernel == "epanechnikov")
