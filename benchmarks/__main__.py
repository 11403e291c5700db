"""Measure, print the table, write it down.

python -m benchmarks                           everything, about ten minutes on two cores
python -m benchmarks --quick                   fewer rounds, without the slowest cases
python -m benchmarks --only Additive window    what has one of these words in its group or name
"""

from __future__ import annotations

import argparse
import shlex
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.case import Figure
from benchmarks.cases import ALL, GROUPS
from benchmarks.measure import far_from_zero, first_use, measure
from benchmarks.report import cells, machine, show, write
from benchmarks.timing import FULL, QUICK


def figures(words: list[str], quick: bool) -> Iterator[Figure]:
    def wanted(text: str) -> bool:
        return not words or any(word.lower() in text.lower() for word in words)

    for case in ALL:
        if wanted(case.key) and not (quick and case.slow):
            yield from measure(case, QUICK if quick else FULL)
    if wanted("Additive compiling"):
        yield from first_use()
    if wanted("scores Gaussian"):
        yield from far_from_zero()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Ours and theirs, side by side."
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help=f"groups: {', '.join(GROUPS)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, without the slowest cases")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results"), metavar="FOLDER")
    options = parser.parse_args()
    facts = {**machine(), "command": shlex.join(["python", "-m", "benchmarks", *sys.argv[1:]])}
    start, found = time.perf_counter(), []
    for figure in figures(options.only, options.quick):
        found.append(figure)
        print(
            f"{time.perf_counter() - start:5.0f} s  {' · '.join(filter(None, cells(figure)))}",
            file=sys.stderr,
        )
    if not found:
        parser.error(
            f"nothing has {' or '.join(options.only)} in its name; the groups are {', '.join(GROUPS)}"
        )
    found.sort(
        key=lambda figure: GROUPS.index(figure.group)
    )  # stable: what was measured last joins its group
    facts["duration"] = f"{time.perf_counter() - start:.0f} s"
    show(found)
    write(options.out, found, facts)
    print(f"written to {options.out / 'attention.md'}")


if __name__ == "__main__":
    main()
