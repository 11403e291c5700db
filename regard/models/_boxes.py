"""The Gaussian on a line: points within one width of each other answer together.

With c the center of such a box, t = (key - c) / width and s = (query - c) / width,

    exp(-(s - t)^2 / 2) = exp(-s^2 / 2) sum_p s^p / p! [t^p exp(-t^2 / 2)]

so that the sums over its points in brackets serve every query. With |t| <= 1/2 and TERMS terms the error of a kernel
value is below 2e-16, and beyond REACH widths the kernel itself is below 3e-18. Greengard and Strain (1991), "The Fast
Gauss Transform". A query costs some twenty boxes, however many points there are.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

TERMS = 20
REACH = 9.0
FAINT = 1e-7
"""A sum below this part of all weights is not exact enough: there the query is far from every point."""
PART = 8192
"""So many queries at a time."""
FAR = 2.0**40
"""Over more widths than that, the first key is too far away to count boxes from."""


class Boxes:
    """Sums of the Gaussian kernel times value, for many points and one feature.

    sum_i exp(-u_i^2 / 2) v_i          u_i = |q - k_i| / width
    """

    def __init__(self, key: Float[Tensor, "points"], value: Float[Tensor, "points columns"], width: float):
        self.width, self.value = width, value
        order = key.argsort()
        key, value = key[order], value[order]
        number = ((key - key[0]) / width).floor()
        box = number.unique_consecutive(return_inverse=True)[1]
        starts = torch.searchsorted(box, torch.arange(int(box[-1]) + 2))
        self.first, self.last = key[starts[:-1]], key[starts[1:] - 1]
        self.center = self.first + (self.last - self.first) / 2
        self.moments = _moments((key - self.center[box]) / width, value, box, len(self.center))

    def sums(
        self, query: Float[Tensor, "queries 1"], itself: Int[Tensor, "queries"] | None = None
    ) -> tuple[Float[Tensor, "queries columns"], Bool[Tensor, "queries"]]:
        """The sums, and which of them are not exact; `itself` is a point to leave out for each query."""
        total = torch.cat([self._sums(part) for part in query[:, 0].split(PART)])
        if itself is not None:
            total -= self.value[itself]  # the kernel of a point with itself is 1
        return total, total[:, -1] < FAINT * self.value[:, -1].sum()

    def _sums(self, query: Tensor) -> Tensor:
        far = REACH * self.width
        low = torch.searchsorted(self.last, query - far)
        high = torch.searchsorted(self.first, query + far, right=True)
        total = query.new_zeros(len(query), self.value.shape[1])
        while True:
            rows = (low < high).nonzero()[:, 0]
            if not len(rows):
                return total
            box = low[rows]
            s = ((query[rows] - self.center[box]) / self.width)[:, None]
            series = self.moments[-1].index_select(0, box)
            for moment in self.moments[:-1].flip(0):
                series = torch.addcmul(moment.index_select(0, box), series, s)
            total.index_add_(0, rows, series * (-0.5 * s * s).exp())
            low = low + 1


def _moments(t: Tensor, value: Tensor, box: Tensor, boxes: int) -> Float[Tensor, "terms boxes columns"]:
    """sum t^p exp(-t^2 / 2) v / p! over the points of each box, for p = 0, 1, ..."""
    term = (-0.5 * t * t).exp()[:, None] * value
    moments = value.new_zeros(TERMS, boxes, value.shape[1])
    for p in range(TERMS):
        moments[p].index_add_(0, box, term)
        term = term * (t / (p + 1))[:, None]
    return moments
