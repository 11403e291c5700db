"""Measure all cases, print the table and write it to a file.

python -m benchmarks                           everything, about ten minutes on two cores
python -m benchmarks --quick                   fewer rounds, without the slowest cases
python -m benchmarks --only Additive window    cases with one of these words in their group or name
python -m benchmarks --busy                    for a shared machine: one thread, processor time
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.case import Figure
from benchmarks.cases import ALL, GROUPS
from benchmarks.measure import far_from_zero, first_use, measure
from benchmarks.report import cells, machine, show, write
from benchmarks.timing import FULL, QUICK, Effort


def figures(words: list[str], quick: bool, effort: Effort) -> Iterator[Figure]:
    def is_selected(text: str) -> bool:
        return not words or any(word.lower() in text.lower() for word in words)

    for case in ALL:
        if is_selected(case.key):
            yield from measure(case, effort, quick)
    if is_selected("Additive | compiling"):
        yield from first_use(quick)
    if is_selected("scores | Gaussian"):
        yield from far_from_zero()


def main() -> None:
    parser = argparse.ArgumentParser("python -m benchmarks", description="Ours and theirs, side by side.")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"groups: {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, without the slowest cases")
    parser.add_argument("--busy", action="store_true", help="one thread, processor time instead of the clock")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), metavar="FOLDER")
    options = parser.parse_args()
    effort = QUICK if options.quick else FULL
    if options.busy:
        os.environ["OMP_NUM_THREADS"] = "1"  # for the processes that are started from here
        torch.set_num_threads(1)
        effort = effort._replace(clock="processor")
    facts = {**machine(), "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])}
    start, results = time.perf_counter(), []
    for figure in figures(options.only, options.quick, effort):
        results.append(figure)
        line = ", ".join(filter(None, [figure.group, *cells(figure)]))
        print(f"{time.perf_counter() - start:5.0f} s  {line}", file=sys.stderr)
    if not results:
        parser.error(f"nothing is called {' or '.join(options.only)}; the groups are {', '.join(GROUPS)}")
    results.sort(key=lambda figure: GROUPS.index(figure.group))  # the last rows belong to earlier groups
    facts["duration"] = f"{time.perf_counter() - start:.0f} s"
    show(results)
    write(options.out, results, facts)
    print(f"written to {options.out / 'attention.md'}")


if __name__ == "__main__":
    main()
