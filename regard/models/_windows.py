"""Kernels of finite reach on a line: sorted keys, and sums over stretches of them.

The keys that a query reaches are one stretch of the sorted keys, found by bisection. Its sum is put together from the
sums of 1, 2, 4, ... neighbors that lie within it, made once. Differences of running sums would be shorter to write,
but one wild value would spoil the sums of all stretches behind it; here a sum contains nothing from outside.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

At = Int[Tensor, "queries"]
EDGE = 1e-6
"""Below this mean kernel value all keys stand at the edge of the reach, where 1 - u^2 must not be taken apart."""


class _Level(NamedTuple):
    """Nodes of 2^level neighbors: their center, and the sums of v, t v and t^2 v with t = (key - center) / width."""

    center: Float[Tensor, "nodes"]
    sums: Float[Tensor, "moments nodes columns"]


class Windows:
    """Sums of kernel times value over the keys within reach of each query, in n log n steps altogether.

        boxcar         sum_i v_i                          over u_i <= 1          u_i = |q - k_i| / width
        epanechnikov   sum_i (1 - u_i^2) v_i              over u_i < 1

    With t_i = (k_i - c) / width and s = (q - c) / width, 1 - u_i^2 = 1 - s^2 + 2 s t_i - t_i^2, so three sums about the
    center c of some neighbors serve every query.
    """

    def __init__(
        self,
        key: Float[Tensor, "points"],
        value: Float[Tensor, "points columns"],
        width: float,
        curved: bool,
    ):
        self.width, self.curved = width, curved
        self.key, order = key.sort(stable=True)
        self.rank = torch.empty_like(order)
        self.rank[order] = torch.arange(len(order))
        self.levels = _levels(self.key, value[order], width, curved)

    def sums(
        self, query: Float[Tensor, "queries 1"], itself: At | None = None
    ) -> tuple[Float[Tensor, "queries columns"], Tensor]:
        """The sums, and which of them are too close to 0 to be exact; `itself` is a point that a query leaves out."""
        query = query[:, 0]
        low, high = self._reach(query)
        if itself is None:
            stretches = [(low, high)]
        else:
            at = self.rank[itself]
            stretches = [(low, at), (at + 1, high)]
        total = query.new_zeros(2, len(query), self.levels[0].sums.shape[-1])  # curved, and flat
        for first, last in stretches:
            self._add(total, query, first, last)
        curved, flat = total
        if not self.curved:
            return flat, torch.zeros(len(query), dtype=torch.bool)
        return curved, curved[:, -1] < EDGE * flat[:, -1]

    def _reach(self, query: Tensor) -> tuple[At, At]:
        """The stretch of sorted keys within reach of each query: first, and one behind the last.

        It asks the very question that the score asks of u: a key on the border is in or out by its rounding.
        """

        def within(key: Tensor) -> Tensor:
            u = (query - key).abs() / self.width
            return u < 1 if self.curved else u <= 1

        low = _first(self.key, query, lambda key: (key >= query) | within(key))
        return low, _first(self.key, query, lambda key: (key > query) & ~within(key))

    def _add(self, total: Tensor, query: Tensor, first: At, last: At) -> None:
        """Add the sums of the stretches from `first` to before `last`, node by node from the smallest up."""
        for level in self.levels:
            left, right = ((first & 1) == 1) & (first < last), ((last & 1) == 1) & (first < last)
            self._take(total, query, level, first, left)
            first = first + left.long()
            right &= first < last
            last = last - right.long()
            self._take(total, query, level, last, right)
            first, last = first >> 1, last >> 1
            if not bool((first < last).any()):
                return

    def _take(self, total: Tensor, query: Tensor, level: _Level, node: At, who: Tensor) -> None:
        rows = who.nonzero()[:, 0]
        node = node[rows]
        flat = level.sums[0].index_select(0, node)
        total[1].index_add_(0, rows, flat)
        if self.curved:
            s = ((query[rows] - level.center[node]) / self.width)[:, None]
            tilt, bend = (moment.index_select(0, node) for moment in level.sums[1:])
            total[0].index_add_(0, rows, (1 - s * s) * flat + 2 * s * tilt - bend)


def _first(keys: Tensor, query: Tensor, yes: Callable[[Tensor], Tensor]) -> At:
    """For each query the first key to which the answer is yes; no key after it has another answer."""
    low = torch.zeros(len(query), dtype=torch.long)
    high = torch.full_like(low, len(keys))
    for _ in range(len(keys).bit_length()):
        middle = (low + high) >> 1
        found = yes(keys[middle.clamp(max=len(keys) - 1)]) | (middle >= high)
        high = torch.where(found, torch.minimum(middle, high), high)
        low = torch.where(found, low, middle + 1)
    return low


def _levels(key: Tensor, value: Tensor, width: float, curved: bool) -> list[_Level]:
    """The sums of single keys, of pairs, of fours, ... about the center of each."""
    nothing = torch.zeros_like(value)
    levels = [_Level(key, torch.stack([value, nothing, nothing] if curved else [value]))]
    first = last = key
    while len(first) > 1:
        center, sums = levels[-1]
        if len(first) % 2:  # a node that nobody asks for: what it stands beside counts nothing
            first, last, center = (torch.cat([part, part[-1:]]) for part in (first, last, center))
            sums = torch.cat([sums, torch.zeros_like(sums[:, :1])], 1)
        first, last = first[0::2], last[1::2]
        middle = first + (last - first) / 2
        left, right = (_moved(center[side::2], sums[:, side::2], middle, width) for side in (0, 1))
        levels.append(_Level(middle, left + right))
    return levels


def _moved(center: Tensor, sums: Tensor, to: Tensor, width: float) -> Tensor:
    """The same sums about another center."""
    if len(sums) == 1:
        return sums
    d = ((center - to) / width)[:, None]
    flat, tilt, bend = sums
    return torch.stack([flat, tilt + d * flat, bend + 2 * d * tilt + d * d * flat])
