"""Kernel regression compared with NumPy's dense formula and statsmodels, and its error on real data.

    python -m benchmarks.regression --data FOLDER            two idle cores, wall clock
    python -m benchmarks.regression --data FOLDER --busy     one thread, processor time

20,000 points between 0 and 5, width 0.1. Ours includes fit and predict. The dense formula works in place, in one
matrix. Some thousand queries are timed alternately in one process; 20,000 queries are one run per side, each in its own
process, which also gives the memory. The data are in the folder `regression-1d`; without it only the synthetic curve is
fitted.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from benchmarks.child import ROOT, forget, peak
from benchmarks.report import machine
from benchmarks.timing import CLOCKS, Effort, interleaved, spread
from regard.models.kernel_regression import KernelRegression

Array = np.ndarray[Any, np.dtype[np.float64]]
POINTS, WIDTH = 20_000, 0.1
HEAD = ("what", "against", "ours", "theirs", "ratio", "quartiles", "target", "")
FILES = {  # columns; the error at the best width, that width, and the error of the mean: from the data's README
    "mcycle": ("times", "accel", "24.41 (0.94)", 48.5),
    "faithful": ("eruptions", "waiting", "5.68 (0.26)", 13.6),
    "GAGurine": ("Age", "GAG", "4.72 (0.18)", 9.0),
}


class NoisyCurve(NamedTuple):
    """A noisy curve: points and queries."""

    x: Array
    y: Array
    query: Array

    @classmethod
    def sample(cls, points: int, queries: int, features: int = 1) -> NoisyCurve:
        random = np.random.default_rng(0)
        x, query = (random.uniform(0, 5, (count, features)) for count in (points, queries))
        return cls(x, curve(x[:, 0]) + 0.5 * random.standard_normal(points), query)


def curve(x: Array) -> Array:
    return 2 * np.sin(x) + x**0.8


def dense(problem: NoisyCurve, kernel: str) -> Array:
    """The formula in NumPy, in place to save memory."""
    squares = np.subtract(problem.query[:, None, 0], problem.x[:, 0])
    squares /= WIDTH
    squares *= squares
    for feature in range(1, problem.x.shape[1]):
        squares += ((problem.query[:, None, feature] - problem.x[:, feature]) / WIDTH) ** 2
    if kernel == "gaussian":
        squares *= -0.5
        np.exp(squares, out=squares)
    elif kernel == "boxcar":
        np.less_equal(squares, 1, out=squares)
    else:
        np.maximum(np.subtract(1, squares, out=squares), 0, out=squares)
    with np.errstate(invalid="ignore"):
        return (squares @ problem.y) / squares.sum(1)


def ours(problem: NoisyCurve, kernel: str) -> Array:
    return KernelRegression(kernel, WIDTH).fit(problem.x, problem.y).predict(problem.query)


def statsmodels(problem: NoisyCurve, kernel: str) -> Array:
    from statsmodels.nonparametric.kernel_regression import KernelReg

    features = problem.x.shape[1]
    model = KernelReg(problem.y, problem.x, "c" * features, reg_type="lc", bw=[WIDTH] * features)
    return model.fit(problem.query)[0]


SIDES: dict[str, Callable[[NoisyCurve, str], Array]] = {"ours": ours, "NumPy": dense, "statsmodels": statsmodels}


def loop(problem: NoisyCurve, kernel: str) -> Array:
    """One pair at a time."""
    kernels: dict[str, Callable[[float], float]] = {
        "gaussian": lambda u: math.exp(-u * u / 2),
        "boxcar": lambda u: float(u <= 1),
        "epanechnikov": lambda u: max(0.0, 1 - u * u),
    }
    predictions = []
    for q in problem.query.tolist():
        weights = [kernels[kernel](math.dist(q, x) / WIDTH) for x in problem.x.tolist()]
        total = math.fsum(weights)
        numerator = math.fsum(s * y for s, y in zip(weights, problem.y.tolist(), strict=True))
        predictions.append(numerator / total if total else math.nan)
    return np.array(predictions)


def exactness() -> Iterator[list[str]]:
    for features in (1, 2):
        problem = NoisyCurve.sample(POINTS, 25, features)
        for kernel in ("gaussian", "boxcar", "epanechnikov"):
            error = float(np.nanmax(np.abs(ours(problem, kernel) - loop(problem, kernel))))
            verdict = "met" if error <= 1e-6 else "MISSED"
            yield [_name(kernel, features, 25), "a plain loop", f"error {error:.1e}", "", "", "", "1e-06", verdict]


def speeds(effort: Effort) -> Iterator[list[str]]:
    for kernel, features, other, queries, target in (
        ("gaussian", 1, "NumPy", 5_000, 1.0),
        ("gaussian", 2, "NumPy", 1_000, 1.0),
        ("epanechnikov", 2, "NumPy", 1_000, 1.0),
        ("gaussian", 1, "statsmodels", 1_000, 10.0),
        ("gaussian", 2, "statsmodels", 1_000, 10.0),
        ("boxcar", 1, "NumPy", 5_000, 10.0),
        ("epanechnikov", 1, "NumPy", 5_000, 10.0),
    ):
        problem = NoisyCurve.sample(POINTS, queries, features)
        runs = [partial(side, problem, kernel) for side in (ours, SIDES[other])]
        ours_times, theirs = interleaved(runs, effort)
        ratio = spread([b / a for a, b in zip(ours_times, theirs, strict=True)])
        yield [
            _name(kernel, features, queries),
            other,
            f"{1e3 * spread(ours_times).median:.0f} ms",
            f"{1e3 * spread(theirs).median:.0f} ms",
            f"{ratio.median:.1f}",
            f"{ratio.low:.1f} to {ratio.high:.1f}",
            f"{target:g}",
            "met" if ratio.median >= target else "MISSED",
        ]


def full_problem(clock: str) -> Iterator[list[str]]:
    """20,000 x 20,000, each side once in its own process."""
    for kernel, speedup in (("gaussian", 1.0), ("boxcar", 10.0), ("epanechnikov", 10.0)):
        ours_times, theirs = (_run_alone(side, kernel, clock) for side in ("ours", "NumPy"))
        for quantity, unit, target in (("seconds", "s", speedup), ("memory", "MB", 10.0)):
            a, b = ours_times[quantity], theirs[quantity]
            name = f"{_name(kernel, 1, POINTS)}, {quantity}"
            verdict = "met" if b / a >= target else "MISSED"
            yield [name, "NumPy", f"{a:.3g} {unit}", f"{b:.4g} {unit}", f"{b / a:.1f}", "once", f"{target:g}", verdict]


def _run_alone(side: str, kernel: str, clock: str) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.regression", "--child", side, kernel, clock]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(process.stdout.splitlines()[-1])


def child(side: str, kernel: str, clock: str) -> None:
    """Seconds and MB (without the inputs) of one side, after a small run that loads its modules."""
    if clock == "processor":
        torch.set_num_threads(1)
    SIDES[side](NoisyCurve.sample(1000, 100), kernel)
    problem = NoisyCurve.sample(POINTS, POINTS)
    forget()
    before, start = peak(), CLOCKS[clock]()
    SIDES[side](problem, kernel)
    print(json.dumps({"seconds": CLOCKS[clock]() - start, "memory": max(peak() - before, 0.1)}))


def errors(data: Path | None) -> Iterator[list[str]]:
    """Leave-one-out errors with learned widths, compared with those in the README of the data."""
    random = np.random.default_rng(0)
    x = np.sort(random.uniform(0, 5, 50))
    yield from _errors("2 sin x + x^0.8 and noise, 50 points", x, curve(x) + 0.5 * random.standard_normal(50), "", None)
    for name, (column_x, column_y, best, mean) in FILES.items() if data else ():
        assert data is not None
        with open(data / "regression-1d" / f"{name}.csv", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
        x, y = (np.array([float(row[column]) for row in rows]) for column in (column_x, column_y))
        yield from _errors(f"{name}, {len(rows)} points", x, y, best, mean)


def _errors(name: str, x: Array, y: Array, best: str, mean: float | None) -> Iterator[list[str]]:
    for kernel in ("average", "gaussian", "boxcar", "epanechnikov"):
        start = time.process_time()
        model = KernelRegression(kernel, "learned", out_of_reach="nearest").fit(x[:, None], y)
        seconds = time.process_time() - start
        error = float(np.sqrt(np.mean(model.leave_one_out() ** 2)))
        published = {"average": "" if mean is None else f"{mean:g}", "gaussian": best}.get(kernel, "")
        width = "" if kernel == "average" else f"{model.width_[0]:.3g}"
        yield [name, kernel, width, f"{error:.2f}", published, f"{seconds:.2f} s"]


def _name(kernel: str, features: int, queries: int) -> str:
    return f"{kernel}, {features} feature{'s' * (features > 1)}, {POINTS:,} points x {queries:,}"


def _table(head: tuple[str, ...], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--busy", action="store_true", help="one thread, processor time instead of the wall clock")
    parser.add_argument("--data", type=Path, help="the folder that contains regression-1d")
    parser.add_argument("--out", type=Path, help="a Markdown file, such as benchmarks/results/regression.md")
    parser.add_argument("--small", action="store_true", help="without 20,000 x 20,000, where NumPy takes 3 GB")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")  # statsmodels warns too; NaN is expected at the edges
    if options.child:
        return child(*options.child)
    if options.busy:
        torch.set_num_threads(1)
    clock = "processor" if options.busy else "wall"
    facts = machine() | {name: version(name) for name in ("numpy", "scikit-learn", "statsmodels")}
    facts["measured"] = "1 thread, processor time" if options.busy else "all threads, wall clock"
    effort = Effort(rounds=3, least=0.0, budget=0.0 if options.busy else 10.0, clock=clock)
    rows = [*exactness(), *speeds(effort), *([] if options.small else full_problem(clock))]
    text = ["# Kernel regression", "", (__doc__ or "").split("\n\n", 2)[2].strip(), ""]
    text += [*(f"- {name}: {value}" for name, value in facts.items()), "", *_table(HEAD, rows), ""]
    head = ("data", "kernel", "learned width", "leave-one-out error", "README (width)", "seconds of learning")
    text += ["Errors are root mean squares; the prediction of a point that no other reaches is the nearest point.", ""]
    text += _table(head, list(errors(options.data)))
    print("\n".join(text))
    if options.out:
        options.out.write_text("\n".join(text) + "\n", encoding="utf-8")
    return None


if __name__ == "__main__":
    main()
