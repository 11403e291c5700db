"""Alternating measurements (ours, theirs, theirs, ours, ...) in one process, so that other load affects both."""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch

from benchmarks.case import FORWARD, Spread, Workload

Step = Callable[[], object]
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}


class Effort(NamedTuple):
    """The minimum number of rounds, more until the budget is used, and the minimum seconds of a workload per round."""

    rounds: int = 7
    least: float = 0.05
    budget: float = 1.5
    clock: str = "wall"


FULL, QUICK = Effort(), Effort(rounds=3, least=0.02, budget=0.3)
MAX_ROUNDS = 31


def step(side: Workload, what: str) -> Step:
    """One pass to be timed, with the gradient of the output computed before."""
    if what == FORWARD:
        return torch.no_grad()(side.call)
    seed = torch.randn_like(side.call())
    return lambda: torch.autograd.grad(side.call(), side.leaves, seed)


def seconds(run: Step, times: int, clock: str) -> float:
    """The mean time of a run."""
    now = CLOCKS[clock]
    start = now()
    for _ in range(times):
        run()
    return (now() - start) / times


def choose_num_runs(run: Step, effort: Effort) -> int:
    """The number of runs that take long enough; it also warms up caches, allocators and kernels."""
    run()
    times, took = 1, seconds(run, 1, effort.clock)
    while took * times < effort.least / 2:
        times = max(2 * times, math.ceil(effort.least / 2 / max(took, 1e-7)))
        took = seconds(run, times, effort.clock)
    return max(1, math.ceil(effort.least / took))


def interleaved(runs: Sequence[Step], effort: Effort) -> list[list[float]]:
    """Seconds per run: one list for each of the runs, with one entry for each round."""
    plan = [(run, choose_num_runs(run, effort)) for run in runs]
    gc.collect()
    gc.disable()
    try:
        rounds: list[list[float]] = []
        end = time.perf_counter() + effort.budget
        while len(rounds) < effort.rounds or (len(rounds) < MAX_ROUNDS and time.perf_counter() < end):
            took = {}
            for way in range(len(plan)) if len(rounds) % 2 else reversed(range(len(plan))):
                took[way] = seconds(*plan[way], effort.clock)  # alternating, because the second one has warm caches
            rounds.append([took[way] for way in range(len(plan))])
    finally:
        gc.enable()
    return [list(column) for column in zip(*rounds, strict=True)]


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high)


def exponent(lengths: Sequence[int], costs: Sequence[float]) -> float:
    """p of cost = c length^p, by least squares on the logarithms."""
    logs = [math.log(max(cost, 1e-9)) for cost in costs]
    return statistics.linear_regression([math.log(length) for length in lengths], logs).slope
