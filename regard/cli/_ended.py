"""What to say when a training ends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from regard.cli._run import reports
from regard.cli._say import note, say, say_json, table

if TYPE_CHECKING:
    from regard.training import Outcome


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say how to go on after Ctrl-C where training itself does not: while text is read, or at a second one."""
    from regard.training import Run
    from regard.training.distributed import world

    try:
        yield
    except KeyboardInterrupt:
        if world().first and Run(folder).is_run():
            note(f"stopped; go on with: regard resume {folder}")
        raise


def ended(folder: Path, outcome: Outcome, as_json: bool) -> None:
    """Say where the run is, how good it became, and what can be done with it; exit with 130 after Ctrl-C."""
    from regard.training import Run
    from regard.training.distributed import world

    record = Run.open(folder).read() if world().first else {}
    if not world().first:
        pass  # of several processes one speaks
    elif as_json:
        say_json(_as_dict(folder, outcome, record))
    elif not outcome.interrupted:
        _print(folder, outcome, record)
    if outcome.interrupted:
        raise typer.Exit(130)


def _as_dict(folder: Path, outcome: Outcome, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": str(folder),
        "recipe": record["recipe"],
        "step": outcome.step,
        "reason": outcome.reason,
        "interrupted": outcome.interrupted,
        "watch": record["settings"]["watch"],
        "best": outcome.best,
        "best_step": outcome.best_step,
        "scores": outcome.scores,
        "seconds": outcome.seconds,
        "parameters": record["parameters"],
        "data": record.get("data", {}),
    }


def _print(folder: Path, outcome: Outcome, record: dict[str, Any]) -> None:
    from regard.recipes import recipe
    from regard.training.display import duration, number

    best = "none"
    if outcome.best is not None:
        best = f"{record['settings']['watch']} {number(outcome.best)} at step {outcome.best_step:,}"
    rows = [
        ("trained", f"{outcome.step:,} steps in {duration(outcome.seconds)}: {outcome.reason}"),
        ("best", best),
        *((f"{name} text", counts) for name, counts in reports(record.get("data", {}))),
    ]
    say(table(rows))
    typer.echo(f"\nThe run is in {folder}. Use it:")  # never wrapped: these are to be copied
    found = recipe(record["recipe"])
    for words in found.task.offers(found.kind.from_dict(record["settings"])):
        typer.echo(f"  regard {words.format(run=folder)}")
