"""`regard evaluate RUN` and `regard score RUN`: how good a model is, and how probable given answers are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Annotated, Any

import typer

from regard import tasks
from regard.cli import arguments
from regard.cli.info import get_metrics
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.errors import InputTooLongError, UnsupportedError, UsageError

__all__ = ["evaluate", "evaluate_splits", "load_splits", "read_example", "score"]

Columns = Annotated[str | None, typer.Option(help="Columns of a .tsv (0,1) or keys of a .jsonl.")]


def evaluate(
    run: arguments.Run,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="FILE", help="Files such as those of --test in training; default: the recipe's tests."),
    ] = None,
    split: arguments.Split = None,
    columns: Columns = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Number of examples of each split, at most.")] = None,
    too_long: arguments.TooLongOption = "error",
    device: arguments.Device = "auto",
    engine: arguments.Engine = None,
    as_json: arguments.AsJson = False,
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
    predictor = arguments.load_predictor(run, device, engine)
    chosen = predictor.evaluate_options(**options)
    splits = dict(predictor.get_examples(chosen) or {})
    if not splits or files or split is not None:
        splits = {**load_splits(predictor, run, files, split, columns), **splits}
    reports = evaluate_splits(predictor, splits, chosen, limit, too_long, files[0] if files else None)
    recipe = tasks.recipe_name(run)
    if as_json:
        results = {name: report.to_json() for name, report in reports.items()}
        print_json({"run": str(run), "recipe": recipe, "options": chosen.to_dict(), "splits": results})
        return
    metrics = {metric.name: metric for metric in get_metrics(recipe)}
    for name, report in reports.items():
        _print_report(name, report, metrics)


def evaluate_splits(
    predictor: tasks.Predictor[Any, Any, Any],
    splits: Mapping[str, Any],
    options: Any = None,
    limit: int | None = None,
    too_long: arguments.OverlongInput = "error",
    file: Path | None = None,
) -> dict[str, tasks.Report]:
    """The report of each split.

    Args:
        predictor: the model
        splits: examples by name
        options: of `Predictor.evaluate`
        limit: number of examples of each split, at most
        too_long: refuse inputs that are too long, or cut them
        file: where the examples come from, for messages
    """
    reports: dict[str, tasks.Report] = {}
    for name, examples in splits.items():
        print_status(f"evaluating {name}")
        selected = examples if limit is None else list(islice(examples, limit))
        place = arguments.InputLimit(predictor, too_long, f"{file or name}, line" if file else f"{name}, example")
        try:
            with place.located(range(1, 1 << 62)):
                reports[name] = predictor.evaluate(selected, options)
        except InputTooLongError:
            if too_long == "error":
                raise
            reports[name] = predictor.evaluate(_truncate(place, selected), options)
    return reports


def load_splits(
    predictor: tasks.Predictor[Any, Any, Any],
    run: Path,
    files: Sequence[Path] | None = None,
    split: str | None = None,
    columns: str | None = None,
) -> Mapping[str, Iterable[Any]]:
    """Examples to evaluate on: of files, or of splits of the recipe.

    Args:
        predictor: of the run
        run: its folder
        files: files of examples; None: the data of the recipe
        split: name of a split of the recipe; None: all tests
        columns: columns or keys of the files, separated by commas; None: as in the config
    """

    recipe, config = tasks.get_recipe(tasks.recipe_name(run)), predictor.config
    if columns is not None:
        config = config.replace(columns=config.option("columns").parse(columns))
    if not files:
        return dict(recipe.load_data(config).select(split))
    readers = [one for one in tasks.RECIPES.values() if one.reads_files and one.task == recipe.task]
    if not readers:
        raise UnsupportedError(f"{run} cannot be evaluated on files; use --split test or --split valid")
    names = tuple(map(str, files))
    data = readers[0].load_data(config.replace(train_files=names, valid_files=names, test_files=names))
    return {"files": next(iter(data.select("test").values()))}


def read_example(
    predictor: tasks.Predictor[Any, Any, Any], run: Path, index: int, split: str | None, words: Sequence[str] = ()
) -> Any:
    """The input of an example of the recipe.

    Args:
        predictor: of the run
        run: its folder
        index: of the example in the split, from 0
        split: name of the split; None: the first test
        words: replace the last parts of the input, such as the question about an image
    """
    if words and len(words) >= len(predictor.inputs):
        raise UsageError("INPUT cannot be combined with --example")
    name, examples = next(iter(load_splits(predictor, run, split=split).items()))
    example = next(islice(examples, index, None), None)
    if example is None:
        raise UsageError(f"invalid value '{index}' for --example: {name} has fewer examples")
    input = predictor.get_input(example)
    return (*input[: len(input) - len(words)], *words) if words else input


def _truncate(place: arguments.InputLimit, examples: Iterable[Any]) -> list[Any]:
    """The examples with inputs that are not too long, without those of which nothing remains."""
    shortened: list[Any] = []
    for number, example in enumerate(examples, 1):
        input = place.predictor.get_input(example)
        cut = place.truncate(input, number)
        shortened.append(example if cut == input else place.predictor.replace_input(example, cut))
    remaining = [one for one in shortened if one is not None]
    if omitted := len(shortened) - len(remaining):
        print_status(f"{omitted:,} of {len(shortened):,} examples cannot be cut, and are left out")
    return remaining


def score(
    run: arguments.Run,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE", help="Two files side by side, or one .tsv or .jsonl.")
    ] = None,
    text: Annotated[
        tuple[str, str] | None, typer.Option(metavar="SOURCE TARGET", help="One text and its answer.")
    ] = None,
    columns: Columns = None,
    too_long: arguments.TooLongOption = "error",
    device: arguments.Device = "auto",
    as_json: arguments.AsJson = False,
) -> None:
    """Compute how probable given answers are, such as translations.

    For each pair a line: log-probability, the same per token, and perplexity, with tabs between them.

    Example: regard score runs/en-de news.en news.de

    Example: regard score runs/dates --text "3. Mai 2021" 2021-05-03
    """

    if bool(files) == (text is not None):
        raise UsageError("expected files, or --text with a text and its answer")
    predictor = arguments.load_predictor(run, device)
    if not isinstance(predictor, tasks.Scorable):
        raise UnsupportedError(f"{run} was trained for {tasks.recipe_name(run)}, which has no scores of answers")
    if text is not None:
        inputs, targets = [text[0]], [text[1]]
        arguments.check_not_empty(predictor.inputs, inputs)
    else:
        (split,) = load_splits(predictor, run, files, columns=columns).values()
        examples = list(split)
        inputs, targets = [[get(one) for one in examples] for get in (predictor.get_input, predictor.get_target)]
    limit = arguments.InputLimit(predictor, too_long, f"{files[0]}, line" if files else "")
    scores = limit.apply(dict(enumerate(inputs, 1)), lambda inputs: predictor.score(inputs, targets))
    total = _sum_up(scores)
    if as_json:
        print_json({"run": str(run), **total, "scores": [{**_sum_up([one]), **one.to_json()} for one in scores]})
    elif text is not None:
        _print_score(scores[0])
    else:
        for one in scores:
            typer.echo("\t".join(f"{value:.4f}" for value in (one.log_prob, one.mean_log_prob, one.perplexity)))
        print_status(f"{len(scores):,} answers, {total['num_tokens']:,} tokens: perplexity {total['perplexity']:.4g}")


def _print_report(name: str, report: tasks.Report, metrics: Mapping[str, tasks.Metric]) -> None:
    def title(key: str) -> str:
        return metrics[key].title if key in metrics else key.replace("_", " ")

    print_blocks(f"{name}: {report.num_examples:,} example{'s' * (report.num_examples != 1)}")
    rows = [
        (title(key), _format_cell(key, value, metrics), report.signatures.get(key, ""))
        for key, value in report.metrics.items()
    ]
    print_blocks(make_table(rows, numbers=[1]), "")
    for sentence in report.remarks:
        print_blocks(sentence, "")
    for table_title, cells in report.tables.items():
        columns = list(dict.fromkeys(key for row in cells for key in row))
        is_text = [any(isinstance(row.get(key), str) for row in cells) for key in columns]
        if cells:
            table = [[_format_cell(key, row.get(key), metrics) for key in columns] for row in cells]
            numbers = [index for index, text in enumerate(is_text) if not text]
            print_blocks(table_title.replace("_", " "), make_table(table, list(map(title, columns)), numbers), "")


def _format_cell(name: str, value: Any, metrics: Mapping[str, tasks.Metric]) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return format(value, metrics[name].format if name in metrics else ",.2f")
    if isinstance(value, list | tuple):
        return " ".join(_format_cell(name, one, metrics) for one in value)
    return f"{value:,}" if isinstance(value, int) else str(value)


def _sum_up(scores: list[tasks.ScoredTarget]) -> dict[str, Any]:
    """Logarithms are natural; tokens count the end of the sequence."""

    tokens = tuple(chain.from_iterable(one.tokens for one in scores))
    total = tasks.ScoredTarget(sum(one.log_prob for one in scores), tokens, ())
    return {
        "log_prob": total.log_prob,
        "num_tokens": len(total.tokens),
        "log_prob_per_token": total.mean_log_prob,
        "perplexity": total.perplexity,
    }


def _print_score(one: tasks.ScoredTarget) -> None:
    facts = {"log-probability": one.log_prob, "per token": one.mean_log_prob, "perplexity": one.perplexity}
    print_blocks(make_table(((name, f"{value:.4f}") for name, value in facts.items()), numbers=[1]), "")
    tokens = [(token, f"{value:.4f}") for token, value in zip(one.tokens, one.token_log_probs, strict=True)]
    print_blocks(make_table(tokens, ("token", "log-probability"), numbers=[1]))
