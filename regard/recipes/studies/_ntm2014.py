"""Graves, Wayne and Danihelka (2014), found again: five tasks, a machine with a memory beside layers of LSTM."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from regard._imports import require_extra
from regard.recipes._runs import load
from regard.recipes._task import Say
from regard.recipes.machines.machine import VALIDATED, Machine
from regard.recipes.trials import Row, markdown, trial
from regard.training import Run

TRIED = 200  # sequences of each size
COLORS = {"ntm": "#0072B2", "lstm": "#D55E00"}


class Part(NamedTuple):
    """One task: the size of the baseline (table 3), what to try, and what the paper found."""

    hidden_dim: int
    tried: tuple[dict[str, int], ...]
    paper: str


PARTS = {
    "copy": Part(
        256,
        tuple({"length": length} for length in (20, 30, 50, 120)),
        "120: one vector twice and a few wrong bits; LSTM fails soon after 20",
    ),
    "repeat-copy": Part(
        512,
        ({"length": 10, "repeats": 10}, {"length": 10, "repeats": 20}, {"length": 20, "repeats": 10}),
        "more repeats and longer sequences continue, but it loses count; LSTM fails at both",
    ),
    "recall": Part(
        256,
        tuple({"items": items} for items in (6, 8, 10, 12, 15, 20)),
        "nearly perfect at 12 items, below 1 bit at 15; LSTM never reaches 0 in training",
    ),
    "ngrams": Part(128, ({"length": 200},), "a little better than LSTM, never quite the best possible"),
    "sort": Part(128, ({"length": 20},), "much better than LSTM"),
}


def ntm2014(out: Path, name: str, given: dict[str, Any], say: Say, parts: Sequence[str]) -> dict[str, Any]:
    """Train both on the tasks, as many sequences each; try them beyond the sizes of training."""
    before = out / "numbers.json"
    rows: list[Row] = json.loads(before.read_text(encoding="utf-8"))["rows"] if before.is_file() else []
    for part in parts:
        rows = [row for row in rows if row["task"] != part]
        for model in COLORS:
            say(f"{part}, {model}:")
            rows += _tried(part, model, out / f"{part}-{model}", given, say)
        _draw(out / f"{part}.png", out, part)
    if "copy" in parts:
        _picture(out)
    rows.sort(key=lambda row: list(PARTS).index(row["task"]))
    columns = {
        "task": "",
        "model": "",
        "tried": "",
        "bits": ".3f",
        "best": ".2f",
        "errors": ".3f",
        "exact": ".1f",
        "rows": ",",
    }
    table = markdown(rows, {**columns, "sequences": ",", "minutes": ".0f", "paper": ""})
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"rows": rows, "table": table}


def _tried(name: str, model: str, folder: Path, given: dict[str, Any], say: Say) -> list[Row]:
    """Train one of both, or take what is there, and try it: a row for each size."""
    part = PARTS[name]
    settings = {"model": model, **({"hidden_dim": part.hidden_dim} if model == "lstm" else {}), **given}
    trained = trial(name, folder, say=say, **settings)
    machine = load(folder)
    return [
        {
            "task": name,
            "model": model,
            "tried": ", ".join(f"{key} {value}" for key, value in sizes.items()),
            **_shown(machine, sizes),
            "sequences": trained["steps"] * machine.settings.batch,
            "minutes": trained["minutes"],
            "paper": part.paper,
        }
        for sizes in part.tried
    ]


def _shown(machine: Machine, sizes: dict[str, int]) -> Row:
    found = machine.evaluate(sequences=TRIED, **sizes)
    return {
        name: found[name]
        for name in ("bits", "best", "errors", "exact", "wrong", "of", "rows")
        if name in found
    }


def _draw(path: Path, out: Path, name: str) -> None:
    figure = _curves(out, name)
    figure.savefig(path, dpi=150)
    require_extra("matplotlib.pyplot", extra="draw").close(figure)


def _curves(out: Path, name: str) -> Any:
    """Learning curves: bits a sequence of the greatest size of training, by sequences seen."""
    plt = require_extra("matplotlib.pyplot", extra="draw")
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    reached: list[float] = []
    for model, color in COLORS.items():
        points = _curve(Run.open(out / f"{name}-{model}"))
        sequences, bits = [x for x, _ in points], [max(y, 1e-3) for _, y in points]
        axes.plot(sequences, bits, ".-", markersize=3, color=color, label=model.upper())
        reached.append(min(bits, default=0.0))
    axes.set(xlabel="sequences", ylabel="bits a sequence", title=name, yscale="log")
    if (best := _best(out / f"{name}-ntm")) is not None:
        axes.axhline(best, color="black", linestyle="--", label="best possible")
        highest = max(best + 30, *(bits + 5 for bits in reached))  # about as in the paper's figure 13
        axes.set(yscale="linear", ylim=(best - 2, highest))
    axes.legend(frameon=False)
    return figure


def _curve(run: Run) -> list[tuple[int, float]]:
    batch = run.read()["settings"]["batch"]
    points = map(json.loads, run.metrics.read_text(encoding="utf-8").splitlines())
    return [(point["step"] * batch, point["valid"]["bits"]) for point in points if "valid" in point]


def _best(folder: Path) -> float | None:
    """What the best possible guess costs on the sequences of the validation; None where no mistake is needed."""
    machine = load(folder)
    return machine.evaluate(sequences=VALIDATED, **machine.greatest).get("best")


def _picture(out: Path) -> None:
    """The memory while a sequence is copied that is longer than any of training: figure 6 of the paper."""
    from regard.viewing import pictures

    tape = load(out / "copy-ntm").tape(length=40)
    pictures.memory(
        writes=tape.writes[:, 0],
        reads=tape.reads[:, 0],
        inputs=tape.inputs,
        outputs=tape.said,
        wanted=tape.wanted,
        added=tape.adds[:, 0],
        returned=tape.read[:, 0],
        title="copy, 40 vectors",
    ).save(out / "memory.png")
