"""One training after the other, side by side in one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from regard.config import format_value
from regard.errors import RunExistsError
from regard.recipes._recipes import recipe
from regard.recipes._runs import load, read, resume, settings_of, train
from regard.training import Run, Settings

Say = Callable[[str], None]
Row = dict[str, Any]


def trial(
    name: str,
    out: str | Path,
    words: Iterable[str] = (),
    *,
    part: str | None = None,
    say: Say | None = None,
    **given: Any,
) -> Row:
    """Train a recipe, or go on with it where it was stopped, and measure it on one of its tests.

    A folder that holds another experiment is refused: its numbers would stand in the wrong row.
    """
    folder = Path(out)
    settings = settings_of(name, words, **given)  # refuses what is wrong before anything else
    if Run(folder).is_run():
        if other := _different(Run.open(folder), name, settings):
            raise RunExistsError(f"{folder} holds a run with another {other}; choose another folder")
        outcome = resume(folder, say)
    else:
        outcome = train(name, folder, words, say=say, **given)
    if outcome.interrupted:
        raise KeyboardInterrupt
    made = load(folder)
    return {
        **recipe(name).task.judge(recipe(name), made, part),
        "parameters": sum(p.numel() for p in made.model.parameters()),
        "tokens_per_second": speed(Run.open(folder)),
        "minutes": outcome.seconds / 60,
        "steps": outcome.step,
    }


def speed(run: Run) -> float:
    """The median of the logged target tokens a second."""
    points = (json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines())
    found = [point["tokens_per_second"] for point in points if "tokens_per_second" in point]
    return median(found) if found else 0.0


def _different(run: Run, name: str, settings: Settings) -> str:
    """What another experiment that a folder holds has in another way; nothing if it is this one."""
    record, found = read(run), recipe(name)
    if record["recipe"] != name:
        return f"recipe ({record['recipe']})"
    differences = settings.resolve_paths().differences(found.kind.from_dict(record["settings"]))
    return ", ".join(
        f"{name} ({format_value(kept)}, not {format_value(wanted)})"
        for name, (wanted, kept) in differences.items()
        if not settings.option(name).neutral
    )


def markdown(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Rows as a table of Markdown; `columns` are keys with how to write them.

    >>> print(markdown([{"score": "dot", "bleu": 31.234}], {"score": "", "bleu": ".1f"}))
    | score | bleu |
    |---|---|
    | dot | 31.2 |
    """

    def cell(row: Mapping[str, Any], key: str, form: str) -> str:
        value = row.get(key)
        return "" if value is None else format(value, form) if not isinstance(value, str) else value

    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join(
        head + [f"| {' | '.join(cell(row, k, f) for k, f in columns.items())} |" for row in rows]
    )
