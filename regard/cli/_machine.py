"""`regard evaluate RUN` for a machine with a memory: sequences of the sizes of training, and of greater ones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli._say import note, say, say_json, table

if TYPE_CHECKING:
    from regard.recipes import Machine

BEYOND = {  # what the paper tries beside the sizes of training: its figures 4, 5, 8, 11 and 14
    "copy": ({"length": 30}, {"length": 50}, {"length": 120}),
    "repeat-copy": ({"length": 10, "repeats": 20}, {"length": 20, "repeats": 10}),
    "recall": tuple({"items": items} for items in (8, 10, 12, 15, 20)),
}


def is_machine(run: Path) -> bool:
    """Whether a run is one of those."""
    from regard.recipes import Remembering, recipe
    from regard.training import Run

    return recipe(Run.open(run).read()["recipe"]).kind is Remembering


def evaluate_machine(
    run: Path, sizes: dict[str, int | None], rows: int | None, sequences: int, device: str, as_json: bool
) -> None:
    """Print one row a size: those that are given, or the greatest of training and those of the paper."""
    from regard.recipes import load
    from regard.training import Run
    from regard.training.distributed import choose_device

    machine: Machine = load(run, device=str(choose_device(device)))
    given = {name: size for name, size in sizes.items() if size is not None}
    name = Run.open(run).read()["recipe"]
    series = [machine.greatest | given] if given else [machine.greatest, *BEYOND.get(name, ())]
    found = []
    for one in series:
        note("  ".join(f"{key} {value}" for key, value in one.items()) + f": {sequences:,} sequences")
        found.append(machine.evaluate(sequences=sequences, rows=rows, **one))
    if as_json:
        say_json({"run": str(run), "recipe": name, "results": found})
        return
    _print(found, list(machine.greatest))


def _print(found: list[dict[str, Any]], sizes: list[str]) -> None:
    best = ["best possible"] if "best" in found[0] else []
    names = [
        *sizes,
        "sequences",
        "bits a sequence",
        *best,
        "wrong bits",
        "of",
        "percent",
        "whole sequences right",
    ]
    cells = [
        [
            *(f"{row[size]:,}" for size in sizes),
            f"{row['sequences']:,}",
            f"{row['bits']:.4f}",
            *(f"{row['best']:.4f}" for _ in best),
            f"{row['wrong']:,}",
            f"{row['of']:,}",
            f"{row['errors']:.3f}",
            f"{row['exact']:.1f} %",
        ]
        for row in found
    ]
    say(table(cells, names, numbers=range(len(names))))
