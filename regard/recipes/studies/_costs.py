"""What layers over a sequence cost, counted and measured: table 1 of Vaswani et al. (2017), arXiv 1706.03762."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn

from regard.errors import TrainingError
from regard.models.encoders import Convolution, LocalAttention, Recurrence, SelfAttention
from regard.recipes._task import Say
from regard.recipes.studies._costs_counted import depth, operations, path, quadratic, slope
from regard.recipes.studies._costs_picture import draw
from regard.recipes.trials import Row, markdown

DIM, RADIUS, KERNEL = 96, 16, 3
SHORT = (16, 32, 64, 128)  # lengths at which graphs are walked through
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384, 32768)
PATIENCE, ROOM = 8192, 4096  # the longest where time grows as length^2, and where memory does
QUICK = (64, 128, 256, 512)
FITTED = 3  # the longest lengths make an exponent: at short ones, what does not grow weighs too much
CLOSE = 0.2
SMALL = 32  # megabytes
MEASURES = ("operations", "steps", "path", "time", "memory")
Points = dict[str, dict[int, float]]


class Reading(nn.Module):
    """Self-attention whose weights somebody reads: then they have to be there, all at once."""

    def __init__(self) -> None:
        super().__init__()
        self.look = SelfAttention(DIM).look

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        seen = self.look(x)
        return seen.context + 0 * seen.weights.mean()


class Kind(NamedTuple):
    """A layer, its costs in words and as exponents of the length, and a formula for its operations."""

    make: Callable[[], nn.Module]
    costs: dict[str, str]
    grows: tuple[int, int, int, int, int]  # in the order of MEASURES
    formula: Callable[[int], float]


def _words(operations: str, steps: str, path: str, memory: str = "n d") -> dict[str, str]:
    return {"operations": operations, "steps": steps, "path": path, "memory": memory}


KINDS = {
    "self-attention": Kind(
        lambda: SelfAttention(DIM),
        _words("n^2 d + n d^2", "1", "1"),
        (2, 0, 0, 2, 1),
        lambda n: 8 * n * DIM**2 + 4 * n**2 * DIM,
    ),
    "its weights read": Kind(
        Reading,
        _words("n^2 d + n d^2", "1", "1", "n^2 + n d"),
        (2, 0, 0, 2, 2),
        lambda n: 8 * n * DIM**2 + 6 * n**2 * DIM,
    ),
    "local attention": Kind(
        lambda: LocalAttention(DIM, radius=RADIUS),
        _words("r n d + n d^2", "1", "n / r"),
        (1, 0, 1, 1, 1),
        lambda n: 8 * n * DIM**2 + 4 * (2 * RADIUS + 1) * n * DIM,
    ),
    "recurrence": Kind(
        lambda: Recurrence(DIM),
        _words("n d^2", "n", "n"),
        (1, 1, 1, 1, 1),
        lambda n: 8 * n * DIM**2,
    ),
    "convolution": Kind(
        lambda: Convolution(DIM, KERNEL),
        _words("k n d^2", "1", "n / k"),
        (1, 0, 1, 1, 1),
        lambda n: 2 * (KERNEL + 1) * n * DIM**2,
    ),
}


def costs(out: Path, name: str, given: dict[str, Any], say: Say, *, quick: bool = False) -> dict[str, Any]:
    """Count and measure every kind; write the table and the picture. Nothing is trained: it takes minutes."""
    lengths = QUICK if quick else LENGTHS
    found: dict[str, Points] = {}
    rows: list[Row] = []
    for kind in KINDS:
        *_, time, memory = KINDS[kind].grows
        most = ROOM if memory == 2 else PATIENCE if time == 2 else max(lengths)
        here = [length for length in lengths if length <= most]
        say(f"{kind}: {', '.join(f'{length:,}' for length in here)} positions")
        found[kind] = {**counted(kind, here), **measured(kind, here)}
        rows.append(row(kind, found[kind]))
    table = written(rows)
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    draw(
        out / "costs.png",
        found,
        {kind: dict(zip(MEASURES, KINDS[kind].grows, strict=True)) for kind in KINDS},
    )
    return {"dim": DIM, "radius": RADIUS, "kernel": KERNEL, "rows": rows, "points": found, "table": table}


def counted(kind: str, lengths: list[int]) -> Points:
    """What needs no clock."""
    layer = KINDS[kind].make()
    return {
        "operations": {length: operations(layer, length, DIM) for length in lengths},
        "steps": {length: depth(layer, length, DIM) for length in SHORT},
        "path": {length: path(layer, length, DIM) for length in SHORT},
    }


def measured(kind: str, lengths: list[int]) -> Points:
    """Processor seconds and megabytes of a step of training at each length, in a process of their own."""
    command = [sys.executable, "-m", "regard.recipes.studies._costs_child", kind, *map(str, lengths)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise TrainingError(f"measuring {kind} failed: {done.stderr.strip() or 'it was ended from outside'}")
    told = json.loads(done.stdout)
    return {
        name: {int(length): value for length, value in told[key].items()}
        for name, key in (("time", "seconds"), ("memory", "megabytes"))
    }


def row(kind: str, points: Points) -> Row:
    """One line of the table: the exponents that theory gives and those found, and the costs at the longest."""
    theory = dict(zip(MEASURES, KINDS[kind].grows, strict=True))
    found = {name: slope(points[name], FITTED) for name in MEASURES}
    longest = max(points["time"])
    return {
        "layer": kind,
        "parameters": sum(p.numel() for p in KINDS[kind].make().parameters()),
        "theory": theory,
        "found": found,
        "length": longest,
        "operations": points["operations"][longest],
        "formula": KINDS[kind].formula(longest),
        "seconds": points["time"][longest],
        "megabytes": points["memory"][longest],
        "quadratic": quadratic(points["time"]),
        "apart": {
            name: reason(name, found, theory, points)
            for name in MEASURES
            if abs(found[name] - theory[name]) > CLOSE
        },
    }


def reason(name: str, found: Mapping[str, float], theory: Mapping[str, int], points: Points) -> str:
    """Why an exponent is not that of theory, as far as the numbers tell."""
    longest = max(points[name])
    if name == "memory" and points[name][longest] < SMALL:
        return f"{points[name][longest]:.0f} MB are little more than what the allocator takes at once"
    if name == "operations" or (name == "time" and abs(found["operations"] - theory[name]) > CLOSE):
        return f"at {longest:,} positions the smaller terms still count: {found['operations']:.2f} for the operations"
    if found[name] > theory[name]:
        return "large tensors are asked of the system anew at each step, or other programs were in the way"
    return "what does not grow with the length still weighs at these lengths"


def written(rows: list[Row]) -> str:
    """The tables: costs in words, exponents, and what one step of training takes at the longest length."""
    words = [{"layer": one["layer"], **KINDS[one["layer"]].costs} for one in rows]
    shown = [
        {"layer": one["layer"]}
        | {name: f"{one['theory'][name]} / {abs(round(one['found'][name], 2)):.2f}" for name in MEASURES}
        for one in rows
    ]
    columns = {"layer": "", "parameters": ",", "length": ",", "operations": ".3e", "formula": ".3e"}
    parts = [
        "In words, for n positions, d features, kernel k, radius r:\n\n"
        + markdown(words, dict.fromkeys(("layer", "operations", "steps", "path", "memory"), "")),
        "Exponents of n, theory / found:\n\n" + markdown(shown, dict.fromkeys(("layer", *MEASURES), "")),
        "At the longest length:\n\n" + markdown(rows, {**columns, "seconds": ".3f", "megabytes": ".0f"}),
    ]
    apart = [f"- {one['layer']}, {name}: {why}." for one in rows for name, why in one["apart"].items()]
    if apart:
        parts.append(f"More than {CLOSE} from theory:\n\n" + "\n".join(apart))
    share = 100 * rows[0]["quadratic"]
    parts.append(f"Of self-attention's time at the longest length, a n^2 + b n gives {share:.0f} % to n^2.")
    return "\n\n".join(parts)
