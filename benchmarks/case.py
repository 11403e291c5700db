"""What is measured: two implementations of the same computation, or one at several lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor

FORWARD = "forward"  # without gradients
TRAIN = "forward+backward"  # with the gradients of every leaf
MEMORY = "extra memory"  # of the last pass a case names
OVERHEAD = "overhead"  # ours minus theirs, a call


class Workload(NamedTuple):
    """One implementation, and the tensors whose gradients are computed."""

    call: Callable[[], Tensor]
    leaves: Sequence[Tensor] = ()


class Comparison(NamedTuple):
    """Two implementations of the same computation."""

    ours: Workload
    theirs: Workload


@dataclass(frozen=True)
class Target:
    """What a figure must reach; ``of`` is the ratio ours/theirs, its inverse, or the figure of ours."""

    of: str
    low: float = -math.inf
    high: float = math.inf

    def met(self, ours: float, ratio: float) -> bool:
        value = {"ratio": ratio, "times": 1 / ratio if ratio else math.inf, "ours": ours}[self.of]
        return self.low <= value <= self.high

    def __str__(self) -> str:
        if self.of == "times":
            return f"at least {self.low:g} times less"
        if self.of == "ratio":
            return f"at most {self.high:g} times"
        return f"at most {self.high:g}" if self.low == -math.inf else f"{self.low:g} to {self.high:g}"


def at_most(ratio: float) -> Target:
    return Target("ratio", high=ratio)


def times_less(factor: float) -> Target:
    return Target("times", low=factor)


def within(low: float, high: float) -> Target:
    return Target("ours", low, high)


Targets = Mapping[str, Target]


@dataclass(frozen=True)
class Case:
    """Ours compared with theirs. ``small`` is the same computation with small sizes: it loads libraries and kernels."""

    group: str
    name: str
    against: str
    make: Callable[[], Comparison]
    passes: tuple[str, ...] = (FORWARD, TRAIN)
    targets: Targets = field(default_factory=dict)
    small: Callable[[], Comparison] | None = None
    tolerance: float | None = 1e-4  # how far the two may differ; None where they compute different things
    compiled: bool = True  # False: in a process of its own with REGARD_COMPILE=0
    slow: tuple[str, ...] = ()  # passes left out of a quick run

    @property
    def key(self) -> str:
        return f"{self.group} | {self.name} | {self.against}"


@dataclass(frozen=True)
class Growth:
    """One implementation at several lengths, and the exponent p of cost = c length^p fitted to it."""

    group: str
    name: str
    lengths: Sequence[int]
    make: Callable[[int], Workload]
    passes: tuple[str, ...] = (FORWARD,)
    targets: Targets = field(default_factory=dict)
    slow: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        return f"{self.group} | {self.name}"


class Spread(NamedTuple):
    """The median of the rounds and the quartiles around it."""

    median: float
    low: float
    high: float


@dataclass
class Figure:
    """One line of the table."""

    group: str
    name: str
    against: str
    what: str
    unit: str
    ours: float
    theirs: float | None = None
    ratio: Spread | None = None
    target: Target | None = None
    points: list[tuple[int, float]] = field(default_factory=list)  # (length, figure)

    @property
    def met(self) -> bool | None:
        if self.target is None:
            return None
        return self.target.met(self.ours, self.ratio.median if self.ratio else math.nan)
