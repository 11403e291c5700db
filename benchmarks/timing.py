"""Time side by side: ours, theirs, ours, theirs, ... in one process, so that a slow moment hits both."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from benchmarks.case import FORWARD, Side, Spread

Step = Callable[[], object]


class Effort(NamedTuple):
    """How many rounds, and for how many seconds each side runs in one of them at least."""

    rounds: int = 9
    least: float = 0.05


FULL, QUICK = Effort(), Effort(rounds=5, least=0.02)


def step(side: Side, what: str) -> Step:
    """One pass to be timed. The gradient that comes from above is made beforehand."""
    if what == FORWARD:
        return torch.no_grad()(side.call)
    seed = torch.randn_like(side.call())
    return lambda: torch.autograd.grad(side.call(), side.leaves, seed)


def seconds(run: Step, times: int) -> float:
    """The time of one run, over several in a row."""
    start = time.perf_counter()
    for _ in range(times):
        run()
    return (time.perf_counter() - start) / times


def often_enough(run: Step, least: float) -> int:
    """How many runs in a row take ``least`` seconds; by the way they warm up caches, allocators and kernels."""
    run()
    times, took = 1, seconds(run, 1)
    while took * times < least / 2:
        times = max(2 * times, math.ceil(least / 2 / max(took, 1e-7)))
        took = seconds(run, times)
    return max(1, math.ceil(least / took))


def interleaved(runs: Sequence[Step], effort: Effort) -> list[list[float]]:
    """Seconds a run, one list a way to run it, one entry a round."""
    times = [often_enough(run, effort.least) for run in runs]
    gc.collect()
    gc.disable()
    try:
        rounds = [[seconds(run, n) for run, n in zip(runs, times)] for _ in range(effort.rounds)]
    finally:
        gc.enable()
    return [list(column) for column in zip(*rounds)]


def spread(values: Sequence[float]) -> Spread:
    low, _, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(statistics.median(values), low, high)


def exponent(lengths: Sequence[int], costs: Sequence[float]) -> float:
    """p of cost = c length^p, by least squares on the logarithms."""
    logs = [math.log(max(cost, 1e-9)) for cost in costs]
    return statistics.linear_regression([math.log(length) for length in lengths], logs).slope
