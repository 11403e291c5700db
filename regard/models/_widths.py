"""How wide a kernel should be: such that each point is predicted best from the others."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from regard.models._kernels import Smoother, quotient
from regard.models._parts import Known

GOLDEN = (math.sqrt(5) - 1) / 2
COMMON, EACH = 1.5, 2.0  # the steps of the first look along a scale, as factors
WIDEST = 10.0  # standard deviations: as good as an average
SWEEPS, GAIN = 4, 1e-3


def learned(kernel: str, known: Known) -> Float[Tensor, "features"]:
    """A width for each feature, by golden section on the leave-one-out error.

    First one factor for all standard deviations, from 1/points to 10: the best of a scale, then golden section around
    it. With several features then one width after the other, in at most four rounds, until that gains nothing.
    """
    spread = known.key.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    if kernel == "average" or len(known.key) < 2:
        return spread

    def error(width: Tensor) -> float:
        return left_out_error(kernel, width, known)

    factor, best = _lowest(lambda f: error(f * spread), 1 / len(known.key), WIDEST, COMMON)
    width = factor * spread
    for _ in range(SWEEPS if len(width) > 1 else 0):
        before = best
        for feature in range(len(width)):
            width, best = _turned(error, width, best, feature)
        if before - best <= GAIN * before:
            break
    return width


def left_out_error(kernel: str, width: Tensor, known: Known) -> float:
    """The mean squared error of predicting each point from the others, each output by its variance.

    A point that no other reaches counts as predicted by the average.
    """
    share = (known.weight / known.weight.sum())[:, None]
    y = known.y
    average = (share * y).sum(0)
    variance = (share * (y - average).square()).sum(0)
    found = quotient(Smoother(kernel, width, known).left_out())
    found = torch.where(found.isnan(), average, found)
    error = (share * (found - y).square()).sum(0)
    return float((error / torch.where(variance > 0, variance, 1.0)).mean())


def _turned(
    error: Callable[[Tensor], float], width: Tensor, best: float, feature: int
) -> tuple[Tensor, float]:
    """The widths with one of them changed, if that is better."""

    def changed(factor: float) -> Tensor:
        other = width.clone()
        other[feature] *= factor
        return other

    factor, found = _lowest(lambda f: error(changed(f)), 1 / 8, 8.0, EACH, close=0.05)
    return (changed(factor), found) if found < best else (width, best)


def _lowest(
    error: Callable[[float], float], low: float, high: float, step: float, close: float = 1e-3
) -> tuple[float, float]:
    """Where between two factors the error is lowest, and how low.

    The best of a scale, then golden section between its neighbors.
    """
    count = math.ceil(math.log(high / low) / math.log(step))
    scale = [math.log(high) - n * math.log(step) for n in range(count + 1)]
    seen = {at: error(math.exp(at)) for at in scale}
    best = min(seen, key=lambda at: seen[at])
    left, right = best - math.log(step), best + math.log(step)
    while right - left > close:
        inner = right - GOLDEN * (right - left), left + GOLDEN * (right - left)
        for at in inner:
            if at not in seen:
                seen[at] = error(math.exp(at))
        left, right = (left, inner[1]) if seen[inner[0]] <= seen[inner[1]] else (inner[0], right)
    best = min(seen, key=lambda at: seen[at])
    return math.exp(best), seen[best]
