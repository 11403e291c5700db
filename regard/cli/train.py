"""`regard train` and `regard resume`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from regard import tasks, training
from regard.cli.arguments import AsJson, Lang, Run, TestFiles, TrainFiles, ValidFiles, check_files
from regard.cli.completion import complete_recipe
from regard.cli.info import describe_best, describe_data
from regard.cli.output import (
    describe_group,
    describe_option,
    make_table,
    print_blocks,
    print_json,
    print_status,
    print_summaries,
)
from regard.config import Option, split_override
from regard.errors import UsageError
from regard.training.logging import format_duration

__all__ = ["resume", "train"]


def train(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE", help="What to train; without it, all are listed.", autocompletion=complete_recipe
        ),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Options of the training; --show lists them.", show_default=False),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the run; default: runs/RECIPE.")] = None,
    train: TrainFiles = None,
    valid: ValidFiles = None,
    test: TestFiles = None,
    init_from: Annotated[
        Path | None, typer.Option("--init-from", help="Start from the weights and tokenizers of this run.")
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Print the options without training.")] = False,
    as_json: AsJson = False,
    lang: Annotated[Lang, typer.Option(help="Language of the lists of recipes and options.")] = "en",
) -> None:
    """Train a recipe into a new folder.

    Example: regard train reverse steps=200 --out runs/first

    Example: regard train translation --train a.en a.de --valid b.en b.de

    Example: regard train documents --train x.tsv --valid y.tsv
    """
    files = {"train_files": train, "valid_files": valid, "test_files": test}
    values: dict[str, Any] = {name: tuple(paths) for name, paths in files.items() if paths}
    if recipe is None or "=" in recipe:
        if recipe is not None or values or show:
            raise UsageError(
                "no recipe: write regard train RECIPE KEY=VALUE ...; `regard train` alone lists the recipes"
            )
        print_summaries("recipes", tasks.RECIPES, as_json, lang)
        return
    check_files(recipe, tasks.make_config(recipe, overrides or (), **values).to_dict())
    if show:
        _print_options(recipe, _resolve_config(recipe, overrides or [], init_from, values), as_json, lang)
        return
    from regard.training.distributed import distributed_context

    folder = out or _next_free_folder(recipe)
    log = _announce(f"training {recipe} in {folder}") if distributed_context().is_main else print_status
    _run(folder, partial(tasks.train, recipe, folder, overrides or (), init_from=init_from, log=log, **values), as_json)


def resume(
    run: Run,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="KEY=VALUE", help="Options that may change: steps, max_minutes, patience, save_every, ..."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Resume a run that was stopped.

    Training continues from the newest checkpoint, to the same weights as without the interruption.

    Example: regard resume runs/dates steps=6000
    """
    recipe = training.RunFolder.open(run).read_record()["recipe"]
    config = tasks.get_recipe(recipe).config_class
    changes = {name: config.option(name).parse(value) for name, value in map(split_override, overrides or ())}
    _run(run, partial(tasks.resume, run, **changes), as_json)


def _announce(title: str) -> Callable[[str], None]:
    """A log that begins with a title, which is not printed before the first line: until then, anything can refuse."""
    waiting = [title]

    def log(line: str) -> None:
        while waiting:
            print_status(waiting.pop())
        print_status(line)

    return log


def _run(folder: Path, fit: Callable[[], training.TrainingResult], as_json: bool) -> None:
    """Train; then print how good the model is and what can be done with it, or exit with 130 after Ctrl-C."""
    from regard.training.distributed import distributed_context

    try:
        result = fit()
    except KeyboardInterrupt:  # while data was read, or a second one: training itself does not print how to resume
        if distributed_context().is_main and training.RunFolder(folder).is_run():
            print_status(f"stopped; resume with: regard resume {folder}")
        raise
    if distributed_context().is_main:  # one process prints
        record = training.RunFolder.open(folder).read_record()
        if as_json:
            print_json(_result_as_dict(folder, result, record))
        elif not result.interrupted:
            _print_result(folder, result, record)
    if result.interrupted:
        raise typer.Exit(130)


def _resolve_config(
    recipe: str, overrides: Sequence[str], init_from: Path | None, values: dict[str, Any]
) -> dict[str, Any]:
    """The config of the training that would start."""
    if not (overrides or init_from or values):
        return tasks.make_config(recipe).to_dict()  # nothing can be wrong, and nothing needs torch
    from regard.tasks.runner import resolve_config

    return resolve_config(recipe, overrides, init_from=init_from, **values).to_dict()


def _next_free_folder(recipe: str) -> Path:
    """runs/RECIPE, or the first of runs/RECIPE-2, runs/RECIPE-3, ... that does not exist."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsageError("several processes train together and need one folder: add --out RUN")
    folder, number = Path("runs", recipe), 1
    while folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        number += 1
        folder = Path("runs", f"{recipe}-{number}")
    return folder


def _print_options(recipe: str, config: dict[str, Any], as_json: bool, lang: Lang) -> None:
    default = tasks.make_config(recipe).to_dict()
    changed = {name: value for name, value in default.items() if config[name] != value}
    entry = tasks.get_recipe(recipe)
    items = entry.config_class.options()
    options = [replace(item, default=entry.defaults.get(item.name, item.default)) for item in items]
    if as_json:
        described = [_option_as_dict(item, default[item.name], lang) for item in options]
        print_json({"recipe": recipe, "config": config, "changed_from": changed, "options": described})
        return

    replaced = entry.config_class.alternatives

    def make_row(item: Option) -> tuple[str, str, str]:
        value = _format_option(item, config[item.name], default[item.name])
        if name := next((name for name, one in replaced.items() if one == item.name and config.get(name)), None):
            value = f"by {name}"
        return item.name, value, describe_option(item, lang, with_allowed=True)

    titles = {"en": ("option", "value", "description"), "zh": ("选项", "值", "说明")}[lang]
    for group in dict.fromkeys(item.group for item in options):
        rows = [make_row(item) for item in options if item.group == group]
        print_blocks(describe_group(group, lang), make_table(rows, titles), "")
    if changed:
        typer.echo({"en": "* differs from the recipe", "zh": "* 与配方不同"}[lang])


def _format_option(item: Option, value: Any, default: Any) -> str:
    """The value of an option: with a star if it differs from the recipe, with (auto) if it follows from others."""
    follows = item.auto and item.default in (None, ()) and value not in (None, ())
    return item.format(value) + (" *" if value != default else " (auto)" if follows else "")


def _option_as_dict(item: Option, default: Any, lang: Lang) -> dict[str, Any]:
    return {
        "name": item.name,
        "group": item.group,
        "default": default,
        "help": item.localized_help(lang),
        **{name: getattr(item, name) for name in ("bounds", "allowed", "when", "resumable")},
    }


def _result_as_dict(folder: Path, result: training.TrainingResult, record: dict[str, Any]) -> dict[str, Any]:
    return {
        "run": str(folder),
        "recipe": record["recipe"],
        "step": result.step,
        "reason": result.stop_reason,
        "interrupted": result.interrupted,
        "monitor": record["config"]["monitor"],
        **{name: getattr(result, name) for name in ("best", "best_step", "scores", "seconds")},
        "parameters": record["model"]["parameters"],
        "data": record.get("data", {}),
    }


def _print_result(folder: Path, result: training.TrainingResult, record: dict[str, Any]) -> None:

    best = "none"
    if result.best is not None:
        best = describe_best(record["config"]["monitor"], result.best, result.best_step)
    rows = [
        ("trained", f"{result.step:,} steps in {format_duration(result.seconds)}: {result.stop_reason}"),
        ("best", best),
        *describe_data(record.get("data", {})),
    ]
    print_blocks(make_table(rows))
    typer.echo(f"\nThe run is in {folder}. Use it:")  # never wrapped: these lines are copied
    for command in _available_commands(tasks.get_recipe(record["recipe"])):
        typer.echo(f"  regard {command} {folder}")


def _available_commands(recipe: Any) -> list[str]:
    """The commands that a run of this recipe has."""
    task = tasks.get_task(recipe.task)
    predictor = task.predictor_class
    verbs = [task.verb] if predictor.inputs else []
    shows = ["show"] if predictor.explain is not tasks.Predictor.explain else []
    return [*verbs, *shows, "evaluate", "info"]
