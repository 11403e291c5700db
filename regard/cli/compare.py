"""`regard compare`, `regard average-weights` and `regard reproduce`: several trainings or weights side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from regard import tasks, training
from regard.cli.arguments import AsJson, Lang, Run, TestFiles, TrainFiles, ValidFiles, check_files
from regard.cli.completion import complete_recipe, complete_study
from regard.cli.evaluate import evaluate_splits, load_splits
from regard.cli.info import get_metrics
from regard.cli.output import make_table, print_blocks, print_json, print_status, print_summaries
from regard.config import split_override
from regard.errors import ConfigError, DivergedError, InputTooLongError, RunError, UnknownNameError, UsageError
from regard.files import replace_non_finite, write_json

__all__ = ["average_weights", "compare", "expand_grid", "grid_folder_name", "reproduce"]

COLUMNS = {"tokens/s": ("tokens_per_second", ",.0f"), "parameters": ("parameters", ","), "minutes": ("minutes", ".1f")}
LISTS = ("train_files", "valid_files", "test_files", "columns")  # a comma in their values separates no alternatives


def compare(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="What to train.", autocompletion=complete_recipe)],
    overrides: Annotated[
        list[str], typer.Argument(metavar="KEY=A,B", help="Alternatives, and options that all trainings share.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the runs and of the table.")],
    train: TrainFiles = None,
    valid: ValidFiles = None,
    test: TestFiles = None,
    as_json: AsJson = False,
) -> None:
    """Train alternatives and compare them in a table.

    Every combination of the listed values is trained. The same command resumes what was interrupted.

    Example: regard compare dates score=dot,additive normalize=softmax,sparsemax steps=1000 --out runs/scores

    Example: regard compare translation --train a.en a.de --valid b.en b.de score=dot,additive --out runs/scores
    """

    files = {"train_files": train, "valid_files": valid, "test_files": test}
    paths = [f"{name}={','.join(values)}" for name, values in files.items() if values]
    shared, choices = expand_grid([*paths, *overrides])
    config = tasks.make_config(recipe, shared)
    check_files(recipe, config.to_dict())
    if len(choices) < 2:
        raise UsageError("nothing to compare: list at least two values of an option, such as score=dot,additive")
    for name in choices[0]:
        config.option(name)  # a value may be refused in the table, but a name is wrong in all rows
    result = _train_choices(recipe, shared, choices, out)
    if all("refused" in row for row in result["rows"]):
        raise UsageError(f"nothing can be compared: {result['rows'][0]['refused']}")
    if as_json:
        print_json(result)
        return
    rows = _format_rows(result)
    numbers = range(len(choices[0]), len(rows[0]))
    print_blocks(make_table((list(row.values()) for row in rows), list(rows[0]), numbers))
    for line in _remarks(result):
        typer.echo(line)
    typer.echo(f"\nThe table is in {out / 'table.md'} and {out / 'table.json'}.")


def average_weights(
    run: Run,
    last: Annotated[int, typer.Option(min=1, help="Number of weights, the newest.")] = 5,
    out: Annotated[Path | None, typer.Option(help="The new file; default: the run's weights/average.")] = None,
    evaluate: Annotated[
        bool, typer.Option("--evaluate", help="Also evaluate the model on the validation split, before and after.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Average the newest weights of a run.

    These are the weights of its validations if it was trained with average_last above 0, else of its checkpoints.

    Example: regard average-weights runs/en-de --last 5 --evaluate
    """

    folder = training.RunFolder.open(run)
    paths = _newest_weights(folder, last)
    target = folder.average if out is None else out
    scores: dict[str, Any] = {}
    if evaluate:
        scores["before"] = _validation_scores(folder, folder.find_weights())
    training.save_weights(training.average_weights(paths.values()), target)
    if evaluate:
        scores["after"] = _validation_scores(folder, target)
    steps = list(paths)
    if as_json:
        print_json({"run": str(run), "steps": steps, "weights": str(target), "scores": scores})
        return
    typer.echo(f"averaged the weights of steps {', '.join(f'{step:,}' for step in steps)} into {target}")
    if scores:
        metrics = [one for one in get_metrics(folder.read_record()["recipe"]) if one.name in scores["after"]]
        rows = [(when, *(format(values[one.name], one.format) for one in metrics)) for when, values in scores.items()]
        print_blocks("", make_table(rows, ["", *(one.title for one in metrics)], range(1, len(metrics) + 1)))


def reproduce(
    name: Annotated[
        str | None,
        typer.Argument(metavar="STUDY", help="A study; without it, all are listed.", autocompletion=complete_study),
    ] = None,
    overrides: Annotated[
        list[str] | None,
        typer.Argument(metavar="KEY=VALUE", help="Options that all its trainings share, such as num_threads=1."),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Folder of the results; default: runs/STUDY.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only a few steps, to check the setup.")] = False,
    data: Annotated[
        str | None, typer.Option(help="Folder of Multi30k, IMDB, MNIST or Flickr8k; default: generated data.")
    ] = None,
    only: Annotated[
        str | None, typer.Option(help="Only these parts, separated by commas (ntm2014: copy,recall); others stay.")
    ] = None,
    as_json: AsJson = False,
    lang: Annotated[Lang, typer.Option(help="Language of the list.")] = "en",
) -> None:
    """Train the models of a paper and check its claims.

    The same command resumes what was interrupted.

    Example: regard reproduce bahdanau2015

    Example: regard reproduce luong2015 --data multi30k precision=bfloat16 steps=2000

    Example: regard reproduce ntm2014 --only copy,recall
    """
    from regard.studies import STUDIES

    if name is None:
        print_summaries("studies", STUDIES, as_json, lang)
        return
    UnknownNameError.check("study", name, STUDIES)
    folder = out or Path("runs", name)
    parts = [part.strip() for part in only.split(",")] if only else ()
    result = STUDIES[name].run(folder, quick, data, print_status, parts, overrides or ())
    if as_json:
        print_json(result)
        return
    typer.echo(f"{result['table']}\n\nThe results are in {folder}.")


def expand_grid(overrides: Sequence[str]) -> tuple[list[str], list[dict[str, str]]]:
    """The options that all trainings share, and every combination of those with alternatives.

    Args:
        overrides: options as `name=value`, or `name=a,b` for alternatives

    Returns:
        The shared options as they were written, and the values of each combination by the name of the option.

    Example:
        >>> expand_grid(["steps=30", "score=dot,additive"])
        (['steps=30'], [{'score': 'dot'}, {'score': 'additive'}])
    """
    shared: list[str] = []
    choices: dict[str, list[str]] = {}
    for override in overrides:
        name, value = split_override(override)
        values = list(dict.fromkeys(part.strip() for part in value.split(",") if part.strip()))
        if name in LISTS or len(values) < 2:
            shared.append(override)
        else:
            choices[name] = values
    return shared, [dict(zip(choices, values, strict=True)) for values in product(*choices.values())]


def grid_folder_name(choice: dict[str, str]) -> str:
    """The folder of a combination.

    Args:
        choice: the values of the combination, by the name of the option

    Example:
        >>> grid_folder_name({"score": "dot", "normalize": "topk(4)"})
        'score=dot,normalize=topk(4)'
    """
    return re.sub(r"[^\w.=,()+-]", "_", ",".join(f"{name}={value}" for name, value in choice.items()))


def _train_choices(recipe: str, shared: list[str], choices: list[dict[str, str]], out: Path) -> dict[str, Any]:
    """Train one choice after the other; the table is written after each."""
    rows: list[dict[str, Any]] = []
    result = {"recipe": recipe, "shared": shared, "rows": rows}
    for number, choice in enumerate(choices, 1):
        name = grid_folder_name(choice)
        print_status(f"{number} of {len(choices)}: {name}")
        overrides = [*shared, *(f"{key}={value}" for key, value in choice.items())]
        try:
            row = _train_choice(recipe, overrides, out / name)
        except KeyboardInterrupt:
            print_status("stopped; resume with the same command")
            raise
        rows.append({"config": choice, "folder": name, **row})
        _write_table(out, result)
    return result


def _train_choice(recipe: str, overrides: Sequence[str], folder: Path) -> dict[str, Any]:
    """The results of one choice, trained or resumed; or why it cannot be trained."""
    from regard.studies.runner import run_trial

    try:
        config = tasks.make_config(recipe, overrides).resolve_paths()
        row = run_trial(recipe, folder, **{name: getattr(config, name) for name, _ in map(split_override, overrides)})
    except (ConfigError, InputTooLongError, DivergedError) as error:
        return {"refused": str(error)}
    return {name: value for name, value in row.items() if not isinstance(value, list)}  # without tables


def _format_rows(result: dict[str, Any]) -> list[dict[str, str]]:
    """The rows for people, without columns that are empty in all rows."""
    rows = result["rows"]
    columns = {one.title: (one.name, one.format) for one in get_metrics(result["recipe"])} | COLUMNS
    filled = [name for name, (key, _) in columns.items() if any(row.get(key) is not None for row in rows)]
    formats = {name: columns[name] for name in filled or list(columns)[:1]}
    return [{**row["config"], **_format_numbers(row, formats)} for row in rows]


def _format_numbers(row: dict[str, Any], columns: dict[str, tuple[str, str]]) -> dict[str, str]:
    if "refused" in row:
        return dict.fromkeys(columns, "") | {next(iter(columns)): "refused"}
    return {name: "" if row.get(key) is None else format(row[key], form) for name, (key, form) in columns.items()}


def _remarks(result: dict[str, Any]) -> list[str]:
    """Why rows were refused, and whether the others were measured on the split that chose their weights."""
    rows = result["rows"]
    reasons = [f"- {row['folder']}: {row['refused']}" for row in rows if "refused" in row]
    validated = any(row.get("split") == "valid" for row in rows)
    return reasons + ["Measured on the validation split, as there is no other; --test names one."] * validated


def _write_table(out: Path, result: dict[str, Any]) -> None:
    """Write the table as it is so far, for people and for programs."""
    from regard.studies.runner import format_markdown_table

    rows = _format_rows(result)
    title = f"{result['recipe']} {' '.join(result['shared'])}".strip()
    parts = [title, format_markdown_table(rows, dict.fromkeys(rows[0], "")), "\n".join(_remarks(result))]
    out.mkdir(parents=True, exist_ok=True)
    (out / "table.md").write_text("\n\n".join(filter(None, parts)) + "\n", encoding="utf-8")
    write_json(out / "table.json", replace_non_finite(result))


def _newest_weights(run: training.RunFolder, last: int) -> dict[int, Path]:
    """The newest weights by step: those of validations if they were kept, else those in checkpoints."""
    from regard.training import checkpoint

    weights = {int(path.stem[5:]): path for path in sorted(run.recent.glob("step-*.safetensors"))}
    if len(weights) < 2:
        folders = checkpoint.list_steps(run.checkpoints)
        weights = {step: folder / checkpoint.MODEL_FILE for step, folder in folders.items() if step}
    if len(weights) < 2:
        raise RunError(
            f"{run.folder} has fewer than two weights to average; train with average_last=5, or with a smaller"
            " save_every and keep_checkpoints=5"
        )
    if len(weights) < last:
        print_status(f"there are {len(weights)} weights, not {last}")
    return dict(sorted(weights.items())[-last:])


def _validation_scores(run: training.RunFolder, weights: Path) -> dict[str, float]:
    """The metrics of the validation split; inputs that are too long are cut."""

    predictor = tasks.load(run.folder, weights=weights)
    splits = load_splits(predictor, run.folder, split="valid")
    return dict(evaluate_splits(predictor, splits, too_long="truncate")["valid"].metrics)
