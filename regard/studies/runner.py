"""Series of trainings whose results stand side by side in a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.config import format_value, load_translations, split_override
from regard.errors import ConfigError, RunExistsError, UnknownNameError, UsageError, suggest
from regard.tasks.loading import load
from regard.tasks.registry import get_recipe, make_config, read_record
from regard.tasks.runner import resume, train
from regard.training import RunFolder, TrainingConfig
from regard.training.logging import LogFn
from regard.training.run import median_speed

__all__ = ["Row", "Study", "format_markdown_table", "run_trial"]

Row = dict[str, Any]
QUICK_OPTIONS = {"steps": 30, "validate_every": 30, "save_every": 30}


def run_trial(
    name: str,
    out: str | Path,
    overrides: Iterable[str] = (),
    *,
    split: str | None = None,
    log: LogFn | None = None,
    **values: Any,
) -> Row:
    """Train a recipe, or resume an interrupted training, and evaluate it on one split of its data.

    A folder with a run of another config is refused, because its numbers would appear in the wrong row.

    Args:
        name: of the recipe
        out: the folder of the run
        overrides: options as `name=value`
        split: by default the first test split
        log: takes each line of progress
        values: options by name

    Returns:
        the metrics and tables of the report, the name of the split, and the size and cost of the training

    Example:
        row = run_trial("dates", "runs/dates", ["steps=200"], split="test")
        row["exact_match"], row["minutes"]
    """
    folder = Path(out)
    config = make_config(name, overrides, **values)  # refuses invalid options first of all
    if RunFolder(folder).is_run():
        if difference := _describe_difference(RunFolder.open(folder), name, config):
            raise RunExistsError(f"{folder} holds a run with another {difference}; choose another folder")
        result = resume(folder, log)
    else:
        result = train(name, folder, overrides, log=log, **values)
    if result.interrupted:
        raise KeyboardInterrupt
    predictor = load(folder)
    split, examples = next(iter(get_recipe(name).load_data(predictor.config).select(split).items()))
    report = predictor.evaluate(examples)
    return {
        **report.metrics,
        **report.tables,
        "split": split,
        "parameters": sum(p.numel() for p in predictor.model.parameters()),
        "tokens_per_second": median_speed(RunFolder(folder).metrics) or 0.0,
        "minutes": result.seconds / 60,
        "steps": result.step,
    }


def _describe_difference(run: RunFolder, name: str, config: TrainingConfig) -> str:
    """The options in which a run differs from this recipe and config; "" if there are none."""
    record, recipe = read_record(run), get_recipe(name)
    if record["recipe"] != name:
        return f"recipe ({record['recipe']})"
    differences = config.resolve_paths().differences(recipe.config_class.from_dict(record["config"]))
    return ", ".join(
        f"{option} ({format_value(of_run)}, not {format_value(value)})"
        for option, (value, of_run) in differences.items()
        if not config.option(option).neutral
    )


def format_markdown_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Rows as a Markdown table.

    Args:
        rows: values by the names of their columns; missing values are left blank
        columns: format of each column's numbers

    Example:
        >>> print(format_markdown_table([{"score": "dot", "bleu": 31.234}], {"score": "", "bleu": ".1f"}))
        | score | bleu |
        |---|---|
        | dot | 31.2 |
    """

    def format_cell(value: Any, spec: str) -> str:
        return "" if value is None else value if isinstance(value, str) else format(value, spec)

    cells = [[format_cell(row.get(name), spec) for name, spec in columns.items()] for row in rows]
    return "\n".join(
        [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}", *(f"| {' | '.join(line)} |" for line in cells)]
    )


@dataclass(frozen=True)
class Study:
    """A named series of trainings that results in a table, numbers and often a figure.

    Args:
        summary: one sentence
        run_fn: takes the folder, the recipe for translation, options by name and a log function; with `parts` also the
            chosen ones, with `has_quick_form` also `quick`
        parts: names of its parts, if it can be run in parts
        takes_data: whether it reads a folder of data
        trains_models: whether options of a training apply
        has_quick_form: whether `run_fn` takes `quick`

    Example:
        >>> study = Study("Nothing.", lambda out, name, values, log: {"table": "| a |"}, takes_data=False)
        >>> study.parts
        ()
    """

    summary: str
    run_fn: Callable[..., dict[str, Any]]
    parts: tuple[str, ...] = ()
    takes_data: bool = True
    trains_models: bool = True
    has_quick_form: bool = False

    @property
    def summary_zh(self) -> str:
        """The same in Chinese, from the file of translations; in English where it has none."""
        return load_translations("zh").get(f"Study.{self.run_fn.__name__}", self.summary)

    def run(
        self,
        out: str | Path,
        quick: bool = False,
        data: str | None = None,
        log: LogFn | None = None,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Train, evaluate and write table.md, numbers.json and figures; an interrupted study is resumed.

        Args:
            out: the folder to write
            quick: train for a few steps only, to see that everything works
            data: a folder of data. Studies of translation generate strings to reverse without it, and read Multi30k
                with it: English-French for Bahdanau's claims, English-German for Luong's
            log: takes each line of progress
            only: the parts to run; numbers.json of an earlier run provides the other rows of the table
            overrides: options of all trainings, such as "precision=bfloat16" and "steps=1000"

        Returns:
            the content of numbers.json
        """
        if unknown := [part for part in only if part not in self.parts]:
            known = f"its parts are {', '.join(self.parts)}" if self.parts else "it has none"
            raise UnknownNameError(f"this study has no part {unknown[0]!r}; {known}")
        if data is not None and not self.takes_data:
            raise UsageError("this study generates all its data; leave --data out")
        if overrides and not self.trains_models:
            raise UsageError(f"this study trains nothing; leave {overrides[0]} out")
        values = {**(QUICK_OPTIONS if quick else {}), **_parse_shared_options(overrides)}
        if data is not None:
            values["data_dir"] = data
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        parts = (only or self.parts,) if self.parts else ()
        form = {"quick": quick} if self.has_quick_form else {}
        recipe = "reverse" if data is None else "multi30k"
        result = self.run_fn(out, recipe, values, log or (lambda line: None), *parts, **form)
        if overrides:
            result["settings"] = list(overrides)
            result["table"] += f"\n\nOptions of the last run: {' '.join(overrides)}."
        (out / "table.md").write_text(result["table"] + "\n", encoding="utf-8")
        (out / "numbers.json").write_text(json.dumps(result, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return result


def _parse_shared_options(overrides: Sequence[str]) -> dict[str, Any]:
    """The values of overrides, which must be options of every training."""
    names, shared = [name for name, _ in map(split_override, overrides)], [i.name for i in TrainingConfig.options()]
    if "data_dir" in names:
        raise ConfigError("a study takes its data by --data FOLDER, not by data_dir=")
    if others := [name for name in names if name not in shared]:
        raise ConfigError(f"{others[0]} is no option of every training{suggest(others[0], shared)}")
    return TrainingConfig.from_overrides(overrides).select(*names)
