"""`regard train RECIPE`: from raw text to a model, in one command."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli._ended import ended, resumable
from regard.cli._files import TestFiles, TrainFiles, ValidFiles, check_files
from regard.cli._run import plain_settings
from regard.cli._say import AsJson, Language, note, say, say_json, table
from regard.config import Option, format_value
from regard.errors import UsageError


def train(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="What to train; without it, all are listed.")
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Settings; --show lists them.", show_default=False),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the run; default: runs/RECIPE.")
    ] = None,
    train: TrainFiles = None,
    valid: ValidFiles = None,
    test: TestFiles = None,
    init_from: Annotated[
        Path | None, typer.Option("--init-from", help="Begin with the weights and tokenizers of this run.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the settings; train nothing.")] = False,
    as_json: AsJson = False,
    lang: Annotated[Language, typer.Option(help="The language of the list of recipes.")] = Language.en,
) -> None:
    """Train a recipe into a new folder.

    Example: regard train reverse steps=200 --out runs/first

    Example: regard train translation --train a.en a.de --valid b.en b.de

    Example: regard train documents --train x.tsv --valid y.tsv
    """
    files = {"train_files": train, "valid_files": valid, "test_files": test}
    given = {name: tuple(paths) for name, paths in files.items() if paths}
    if recipe is None or "=" in recipe:
        if recipe is not None or given or show:
            raise UsageError(
                "Name the recipe first: regard train RECIPE ...; `regard train` alone lists the recipes."
            )
        _list(as_json, lang)
        return
    check_files(recipe, plain_settings(recipe, tuple(words or ()), **given))
    if show:
        _show(recipe, _planned(recipe, words or [], init_from, given), as_json)
        return
    folder = out or _free(recipe)
    _begin(recipe, folder, words or [], init_from, given, as_json)


def _begin(
    recipe: str, folder: Path, words: list[str], init_from: Path | None, given: dict[str, Any], as_json: bool
) -> None:
    from regard.tasks import train
    from regard.training.distributed import distributed_context

    if distributed_context().is_main:
        note(f"training {recipe} in {folder}")
    with resumable(folder):
        outcome = train(recipe, folder, words, init_from=init_from, **given)
    ended(folder, outcome, as_json)


def _planned(recipe: str, words: list[str], init_from: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """The settings of the training that would begin, as JSON would keep them."""
    from regard.tasks.runner import resolve_config

    settled = resolve_config(recipe, words, init_from=init_from, **given).to_dict()
    return {key: list(value) if isinstance(value, tuple) else value for key, value in settled.items()}


def _free(recipe: str) -> Path:
    """runs/RECIPE, or the first of runs/RECIPE-2, runs/RECIPE-3, ... that is not taken."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("Several processes train together, so name their folder: --out RUN.")
    folder, number = Path("runs", recipe), 1
    while folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        number += 1
        folder = Path("runs", f"{recipe}-{number}")
    return folder


def _list(as_json: bool, lang: Language) -> None:
    from regard.tasks import RECIPES

    said = {name: one.summary_zh if lang is Language.zh else one.summary for name, one in RECIPES.items()}
    if as_json:
        recipes = [{"name": name, "sentence": sentence} for name, sentence in said.items()]
        say_json({"recipes": recipes})
    else:
        say(table(said.items()))


def _show(recipe: str, settings: dict[str, Any], as_json: bool) -> None:
    from regard.tasks import RECIPES

    usual = plain_settings(recipe)
    changed = {name: value for name, value in usual.items() if settings[name] != value}
    if as_json:
        say_json({"recipe": recipe, "settings": settings, "changed_from": changed})
        return
    options = {item.name: item for item in RECIPES[recipe].config_class.options()}
    rows = [
        (
            name,
            format_value(value),
            f"not {format_value(changed[name])}" if name in changed else "",
            _explanation(options[name]),
        )
        for name, value in settings.items()
    ]
    say(table(rows, ("setting", "value", "changed", "what it is")))


def _explanation(item: Option) -> str:
    """The help of an option, with its allowed values."""
    return f"{item.help} [{', '.join(item.allowed)}]" if item.allowed else item.help
