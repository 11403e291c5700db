"""Measure the cases."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator

import torch

from benchmarks.case import MEMORY, OVERHEAD, Case, Figure, Growth, Spread, within
from benchmarks.cases.additive import FIRST_USE
from benchmarks.cases.scores import gaussian_errors
from benchmarks.child import ask, environment, timed
from benchmarks.timing import Effort, exponent, interleaved, spread, step


def agree(case: Case) -> None:
    """Check that both workloads of a case compute the same."""
    if case.tolerance is None:
        return
    with torch.no_grad():
        ours, theirs = (side.call() for side in case.make())
    far = float((ours - theirs).abs().max())
    if not far <= case.tolerance:
        raise AssertionError(f"{case.key}: ours and theirs differ by {far:.2g}")


def measure(case: Case | Growth, effort: Effort, quick: bool) -> Iterator[Figure]:
    passes = [what for what in case.passes if not (quick and what in case.slow)]
    if isinstance(case, Growth):
        return _grow(case, passes, effort)
    return _compare(case, passes, effort) if passes else iter(())


def _compare(case: Case, passes: list[str], effort: Effort) -> Iterator[Figure]:
    agree(case)
    took: list[list[float]] = []
    for what in passes:
        figure = Figure(case.group, case.name, case.against, what, "s", 0.0, target=case.targets.get(what))
        if what == MEMORY:
            figure.unit = "MB"
            ours, theirs = ([ask("memory", case.key, side, **environment(case))] for side in ("ours", "theirs"))
        elif what == OVERHEAD:
            figure.unit = "us"
            ours, theirs = [1e6 * (a - b) for a, b in zip(*took, strict=True)], []
        elif case.compiled:
            ours, theirs = took = timed(case, what, effort)
        else:
            ours, theirs = took = ask("time", case.key, what, *effort, **environment(case))
        figure.ours = spread(ours).median
        if theirs:
            figure.theirs = spread(theirs).median
            figure.ratio = spread([a / b for a, b in zip(ours, theirs, strict=True)])
        yield figure


def _grow(case: Growth, passes: list[str], effort: Effort) -> Iterator[Figure]:
    for what in passes:
        if what == MEMORY:
            costs = [[ask("memory", case.key, length)] for length in case.lengths]
        else:
            costs = interleaved([step(case.make(length), what) for length in case.lengths], effort)
        slopes = spread([exponent(case.lengths, round) for round in zip(*costs, strict=True)])
        points = [(length, spread(cost).median) for length, cost in zip(case.lengths, costs, strict=True)]
        yield Figure(
            case.group,
            case.name,
            "length",
            what,
            "MB" if what == MEMORY else "s",
            slopes.median,
            ratio=slopes,
            target=case.targets.get(what),
            points=points,
        )


def first_use(quick: bool) -> Iterator[Figure]:
    """The cost of compilation, once per process: without a cache, and with torch's cache on disk."""
    with tempfile.TemporaryDirectory() as folder:
        for state in ("nothing cached", "cached on disk")[: 1 if quick else 2]:
            usage = ask("first_use", FIRST_USE.key, TORCHINDUCTOR_CACHE_DIR=folder)
            for unit, value in (("s", usage["seconds"]), ("MB", usage["megabytes"])):
                yield Figure("Additive", f"compiling the kernels, {state}", "", "once a process", unit, value)


def far_from_zero() -> Iterator[Figure]:
    """The error of the Gaussian where |q|^2 - 2 q.k + |k|^2 is inaccurate."""
    for features in (1, 64):
        ours, naive = gaussian_errors(features)
        yield Figure(
            "scores",
            f"Gaussian at 1000 +- 0.5, width 0.1, {features} feature{'s' * (features > 1)}",
            "plain expansion",
            "error to float64",
            "",
            ours,
            naive,
            Spread(*[ours / naive] * 3),
            within(0, 1e-3),
        )
