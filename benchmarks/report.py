"""The table of results in the terminal, in Markdown and in JSON."""

from __future__ import annotations

import dataclasses
import datetime
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.case import Figure

HEAD = ("what", "pass", "against", "ours", "theirs", "ours/theirs (quartiles)", "times less", "target", "")
SCALES = {"s": ((1, "s"), (1e-3, "ms"), (1e-6, "us"))}


def quantity(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    for scale, name in SCALES.get(unit, ()):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {name}"
    if unit == "us":
        return f"{value:.0f} us"
    if unit == "MB":
        return f"{value:,.0f} MB" if value >= 10 else f"{value:.1f} MB"
    return f"{value:.2g} {unit}".strip()


def cells(figure: Figure) -> list[str]:
    verdict = {None: "", True: "met", False: "MISSED"}[figure.met]
    target, ratio = str(figure.target or ""), figure.ratio
    if figure.points:
        first, last = figure.points[0], figure.points[-1]
        ours, theirs = (f"{quantity(cost, figure.unit)} at {length:,}" for length, cost in (first, last))
        assert ratio is not None
        power = f"length^{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"
        target = f"exponent {target}" if target else ""
        return [figure.name, figure.what, "", ours, theirs, power, "", target, verdict]
    ratio_text = times = ""
    if ratio is not None:
        middle, low, high = (f"{value:.2f}" if value >= 0.1 else f"{value:.2g}" for value in ratio)
        ratio_text = f"{middle} ({low} to {high})" if low != high else middle
        times = f"{1 / ratio.median:.3g}" if ratio.median < 0.95 else ""
    ours, theirs = quantity(figure.ours, figure.unit), quantity(figure.theirs, figure.unit)
    return [figure.name, figure.what, figure.against, ours, theirs, ratio_text, times, target, verdict]


def show(figures: Sequence[Figure]) -> None:
    table = Table(*HEAD, title="regard, side by side")
    group = ""
    for figure in figures:
        if figure.group != group:
            group = figure.group
            table.add_section()
            table.add_row(f"[bold]{group}")
        row = cells(figure)
        row[-1] = f"[red]{row[-1]}" if figure.met is False else f"[green]{row[-1]}"
        table.add_row(*row)
    wide = Console()
    (wide if wide.width >= 150 else Console(width=190)).print(table)


def machine() -> dict[str, str]:
    """The machine and the versions that the results depend on."""
    model = platform.processor() or platform.machine()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    facts = {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "processor": f"{model} ({torch.backends.cpu.get_cpu_capability()})",
        "cores": f"{os.cpu_count()}, torch uses {torch.get_num_threads()} threads",
        "load when it began": "{:.1f} {:.1f} {:.1f} (1, 5, 15 minutes)".format(*os.getloadavg()),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
    }
    for package in ("torch", "x-transformers", "entmax"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "missing"
    return facts


def write(folder: Path, figures: Sequence[Figure], facts: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# Attention, side by side", "", "What is measured, and how: [README](../README.md).", ""]
    lines += [f"- {name}: {value}" for name, value in facts.items()]
    with_targets = [figure for figure in figures if figure.met is not None]
    lines += [f"- targets: {sum(bool(figure.met) for figure in with_targets)} of {len(with_targets)} met", ""]
    lines += [*_table(("", *HEAD), [(figure.group, *cells(figure)) for figure in figures]), ""]
    grown = [figure for figure in figures if figure.points]
    lines += ["## How cost grows", ""] if grown else []
    for figure in grown:
        head = [f"{figure.name}, {figure.what}", *(f"{length:,}" for length, _ in figure.points)]
        row = [f"exponent {figure.ours:.2f}", *(quantity(cost, figure.unit) for _, cost in figure.points)]
        lines += [*_table(head, [row]), ""]
    (folder / "attention.md").write_text("\n".join(lines).rstrip() + "\n")
    entries = [
        {**dataclasses.asdict(figure), "target": str(figure.target or "") or None, "met": figure.met}
        for figure in figures
    ]
    text = json.dumps({"machine": facts, "figures": entries}, indent=1)
    (folder / "attention.json").write_text(text + "\n")


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]
