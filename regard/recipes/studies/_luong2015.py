"""Luong, Pham and Manning (2015), found again: the order of the gains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.recipes.studies._shared import QUALITY, SHARED
from regard.recipes.trials import Row, Say, markdown, trial


def luong2015(out: Path, name: str, given: dict[str, Any], say: Say) -> dict[str, Any]:
    """The order of the gains: nothing, global attention, input feeding, local-p; and four scores."""
    shared = {**SHARED[name], "order": "luong", **({"pair": "en-de"} if name == "multi30k" else {}), **given}
    feeding = {"input_feeding": True}
    near = {**feeding, "score": "general", **({"radius": 10} if name == "multi30k" else {})}  # the paper's D
    trials: dict[str, dict[str, Any]] = {
        "none": {"scope": "none"},
        "global (location)": {"score": "location"},
        "global (dot)": {"score": "dot"},
        "global (location) + feeding": {"score": "location", **feeding},
        "global (dot) + feeding": {"score": "dot", **feeding},
        "global (general) + feeding": {"score": "general", **feeding},
        "global (concat) + feeding": {"score": "concat", **feeding},
        "local-m (general) + feeding": {"scope": "local-m", **near},
        "local-p (general) + feeding": {"scope": "local-p", **near},
    }
    rows: list[Row] = []
    for number, (label, choice) in enumerate(trials.items()):
        say(f"{label}:")
        row = trial(name, out / f"{number}", say=say, **{**shared, **choice})
        rows.append({"model": label, **row})
    columns = {
        "model": "",
        QUALITY[name]: ".1f",
        "aer": ".3f",
        "parameters": ",",
        "tokens_per_second": ",.0f",
        "minutes": ".1f",
    }
    if not any("aer" in row for row in rows):
        del columns["aer"]
    table = markdown(rows, columns)
    (out / "table.md").write_text(table + "\n", encoding="utf-8")
    return {"recipe": name, "rows": rows, "table": table}
