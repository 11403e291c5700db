"""`regard resume RUN`: go on where a training stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli._ended import ended, resumable
from regard.cli._say import AsJson
from regard.errors import UsageError


def resume(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="How long and how often: steps, minutes, patience, save_every."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Go on with a run that was stopped.

    It continues from the newest checkpoint, to the same weights as if it had never stopped.

    Example: regard resume runs/dates steps=6000
    """
    from regard.tasks import resume as go_on
    from regard.training import RunFolder

    recipe = RunFolder.open(run).read_record()["recipe"]
    with resumable(run):
        outcome = go_on(run, **_changes(recipe, words or []))
    ended(run, outcome, as_json)


def _changes(recipe: str, words: list[str]) -> dict[str, Any]:
    """The settings to change, as values; only those that leave the steps already made as they were."""
    from regard.config import split_override
    from regard.tasks import get_recipe

    kind = get_recipe(recipe).config_class
    resumable = [item.name for item in kind.options() if item.resumable]
    changes = dict(map(split_override, words))
    for name in changes:
        if not kind.option(name).resumable:
            raise UsageError(
                f"{name} cannot change in a resumed run: the result would not be that of one training; begin a new "
                f"run with it (--init-from takes these weights). What may change: {', '.join(resumable)}."
            )
    return {name: kind.option(name).parse(value) for name, value in changes.items()}
