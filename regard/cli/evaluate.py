"""`regard evaluate RUN`: how good a model is, in numbers that can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.arguments import FROM_FILES, AsJson, Device, Engine, Run, load_predictor, read_record, task_name
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import UnsupportedError, UsageError

if TYPE_CHECKING:
    from regard.tasks import Metric, Predictor, Report

__all__ = ["evaluate", "load_splits", "read_example"]


def evaluate(
    run: Run,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files such as those of --test in training; default: the recipe's tests."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Only this split of the recipe: test, valid, ...")] = None,
    columns: Annotated[str | None, typer.Option(help="Columns of a .tsv (0,1) or keys of a .jsonl.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Number of examples of each split, at most.")] = None,
    device: Device = "auto",
    engine: Engine = None,
    as_json: AsJson = False,
    options: Mapping[str, Any] = {},
) -> None:
    """Measure how good a model is.

    The options of the task are those of the run: regard evaluate RUN --help

    Example: regard evaluate runs/dates

    Example: regard evaluate runs/en-de news.en news.de --beam-size 10

    Example: regard evaluate runs/copy --length 120
    """
    if files and split is not None:
        raise UsageError("FILE cannot be combined with --split")
    predictor = load_predictor(run, device, engine)
    chosen = predictor.evaluate_options(**options)
    reports: dict[str, Report] = {}
    for name, examples in load_splits(predictor, run, files, split, columns).items():
        print_status(f"evaluating {name}")
        reports[name] = predictor.evaluate(examples if limit is None else list(islice(examples, limit)), chosen)
    if as_json:
        results = {name: report.to_json() for name, report in reports.items()}
        print_json(
            {"run": str(run), "recipe": read_record(run)["recipe"], "options": chosen.to_dict(), "splits": results}
        )
        return
    metrics = {metric.name: metric for metric in _metrics_of(run)}
    for name, report in reports.items():
        _print_report(name, report, metrics)


def load_splits(
    predictor: Predictor[Any, Any, Any],
    run: Path,
    files: Sequence[Path] | None = None,
    split: str | None = None,
    columns: str | None = None,
) -> Mapping[str, Iterable[Any]]:
    """Examples to evaluate on: of files, or of splits of the recipe."""
    from regard.tasks import RECIPES, get_recipe

    recipe, config = get_recipe(read_record(run)["recipe"]), predictor.config
    if columns is not None:
        config = config.replace(columns=tuple(column.strip() for column in columns.split(",")))
    if not files:
        return dict(recipe.load_data(config).select(split))
    names = tuple(map(str, files))
    readers = [RECIPES[name] for name in FROM_FILES if RECIPES[name].task == recipe.task]
    if not readers:
        raise UnsupportedError(f"{run} cannot be evaluated on files; use --split test or --split valid")
    config = config.replace(train_files=names, valid_files=names, test_files=names)
    return {"files": readers[0].load_data(config).tests["test"]}


def read_example(
    predictor: Predictor[Any, Any, Any], run: Path, index: int, split: str | None, words: Sequence[str] = ()
) -> Any:
    """The input of an example of the recipe.

    Args:
        predictor: of the run
        run: its folder
        index: of the example in the split, from 0
        split: name of the split; None: the first test
        words: replace the last parts of the input, such as the question about an image
    """
    name, examples = next(iter(load_splits(predictor, run, split=split).items()))
    found = next(islice(examples, index, None), None)
    if found is None:
        raise UsageError(f"invalid value '{index}' for --example: {name} has fewer examples")
    if words and len(words) >= len(predictor.inputs):
        raise UsageError("INPUT cannot be combined with --example")
    taken = predictor.get_input(found)
    return (*taken[: len(taken) - len(words)], *words) if words else taken


def _metrics_of(run: Path) -> Sequence[Metric]:
    from regard.tasks import get_task

    return get_task(task_name(run) or "").metrics


def _print_report(name: str, report: Report, metrics: Mapping[str, Metric]) -> None:
    print_blocks(f"{name}: {report.num_examples:,} examples")
    rows = [
        (
            metrics[key].title if key in metrics else key.replace("_", " "),
            format(value, metrics[key].format if key in metrics else ",.4g"),
            report.signatures.get(key, ""),
        )
        for key, value in report.metrics.items()
    ]
    print_blocks(make_table(rows, numbers=[1]), "")
    for title, cells in report.tables.items():
        if cells:
            head = list(dict.fromkeys(key for row in cells for key in row))
            numbers = [
                index for index, key in enumerate(head) if all(not isinstance(row.get(key), str) for row in cells)
            ]
            table = [[_format_cell(row.get(key)) for key in head] for row in cells]
            print_blocks(
                title.replace("_", " "), make_table(table, [key.replace("_", " ") for key in head], numbers), ""
            )


def _format_cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
