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
    from regard.training import TrainingResult


@contextlib.contextmanager
def resumable(folder: Path) -> Iterator[None]:
    """Say how to go on after Ctrl-C where training itself does not: while text is read, or at a second one."""
    from regard.training import RunFolder
    from regard.training.distributed import distributed_context

    try:
        yield
    except KeyboardInterrupt:
        if distributed_context().is_main and RunFolder(folder).is_run():
            note(f"stopped; go on with: regard resume {folder}")
        raise


def ended(folder: Path, outcome: TrainingResult, as_json: bool) -> None:
    """Say where the run is, how good it became, and what can be done with it; exit with 130 after Ctrl-C."""
    from regard.training import RunFolder
    from regard.training.distributed import distributed_context

    record = RunFolder.open(folder).read_record() if distributed_context().is_main else {}
    if not distributed_context().is_main:
        pass  # of several processes one speaks
    elif as_json:
        say_json(_as_dict(folder, outcome, record))
    elif not outcome.interrupted:
        _print(folder, outcome, record)
    if outcome.interrupted:
        raise typer.Exit(130)


def _as_dict(folder: Path, outcome: TrainingResult, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": str(folder),
        "recipe": record["recipe"],
        "step": outcome.step,
        "reason": outcome.stop_reason,
        "interrupted": outcome.interrupted,
        "monitor": record["config"]["monitor"],
        "best": outcome.best,
        "best_step": outcome.best_step,
        "scores": outcome.scores,
        "seconds": outcome.seconds,
        "parameters": record.get("model", record)["parameters"],
        "data": record.get("data", {}),
    }


def _print(folder: Path, outcome: TrainingResult, record: dict[str, Any]) -> None:
    from regard.tasks import TASKS, Recipe, get_recipe
    from regard.training.display import format_duration, format_number

    best = "none"
    if outcome.best is not None:
        best = f"{record['config']['monitor']} {format_number(outcome.best)} at step {outcome.best_step:,}"
    rows = [
        ("trained", f"{outcome.step:,} steps in {format_duration(outcome.seconds)}: {outcome.stop_reason}"),
        ("best", best),
        *((f"{name} text", counts) for name, counts in reports(record.get("data", {}))),
    ]
    say(table(rows))
    typer.echo(f"\nThe run is in {folder}. Use it:")  # never wrapped: these are to be copied
    recipe = get_recipe(record["recipe"])
    if isinstance(recipe, Recipe):
        for verb in (TASKS[recipe.task].verb, "show", "evaluate", "info"):
            typer.echo(f"  regard {verb} {folder}")
        return
    for words in recipe.task.available_commands(recipe.config_class.from_dict(record["config"])):
        typer.echo(f"  regard {words.format(run=folder)}")
