"""One training after the other, side by side in one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from regard.config import format_value, split_override
from regard.errors import ConfigError, RunExistsError, UnknownNameError, UsageError, suggest
from regard.tasks.loading import load
from regard.tasks.registry import Recipe, get_recipe, make_config
from regard.tasks.run_record import read_record
from regard.tasks.runner import resume, train
from regard.training import RunFolder, TrainingConfig

LogFn = Callable[[str], None]


Row = dict[str, Any]


def run_trial(
    name: str,
    out: str | Path,
    overrides: Iterable[str] = (),
    *,
    split: str | None = None,
    log: LogFn | None = None,
    **values: Any,
) -> Row:
    """Train a recipe, or resume an interrupted training, and evaluate it on one of its test splits.

    A folder that holds another experiment is refused: its numbers would stand in the wrong row.
    """
    folder = Path(out)
    settings = make_config(name, overrides, **values)  # refuses what is wrong before anything else
    if RunFolder(folder).is_run():
        if other := _describe_difference(RunFolder.open(folder), name, settings):
            raise RunExistsError(f"{folder} holds a run with another {other}; choose another folder")
        outcome = resume(folder, log)
    else:
        outcome = train(name, folder, overrides, log=log, **values)
    if outcome.interrupted:
        raise KeyboardInterrupt
    predictor, recipe = load(folder), get_recipe(name)
    return {
        **_evaluate(predictor, recipe, split),
        "parameters": sum(p.numel() for p in predictor.model.parameters()),
        "tokens_per_second": median_throughput(RunFolder.open(folder)),
        "minutes": outcome.seconds / 60,
        "steps": outcome.step,
    }


def _evaluate(predictor: Any, recipe: Recipe, split: str | None) -> Row:
    """The metrics and tables of one split, by default the first test."""
    name, examples = next(iter(recipe.load_data(predictor.config).select(split).items()))
    report = predictor.evaluate(examples)
    return {**report.metrics, **report.tables, "split": name}


def median_throughput(run: RunFolder) -> float:
    """The median of the logged target tokens a second."""
    points = (json.loads(line) for line in run.metrics.read_text(encoding="utf-8").splitlines())
    found = [point["tokens_per_second"] for point in points if "tokens_per_second" in point]
    return median(found) if found else 0.0


def _describe_difference(run: RunFolder, name: str, config: TrainingConfig) -> str:
    """What another experiment that a folder holds has in another way; nothing if it is this one."""
    record, found = read_record(run), get_recipe(name)
    if record["recipe"] != name:
        return f"recipe ({record['recipe']})"
    differences = config.resolve_paths().differences(found.config_class.from_dict(record["config"]))
    return ", ".join(
        f"{name} ({format_value(kept)}, not {format_value(wanted)})"
        for name, (wanted, kept) in differences.items()
        if not config.option(name).neutral
    )


def format_markdown_table(rows: Sequence[Mapping[str, Any]], columns: Mapping[str, str]) -> str:
    """Rows as a table of Markdown; `columns` are keys with how to write them.

    >>> print(format_markdown_table([{"score": "dot", "bleu": 31.234}], {"score": "", "bleu": ".1f"}))
    | score | bleu |
    |---|---|
    | dot | 31.2 |
    """

    def cell(row: Mapping[str, Any], key: str, form: str) -> str:
        value = row.get(key)
        return "" if value is None else format(value, form) if not isinstance(value, str) else value

    head = [f"| {' | '.join(columns)} |", f"|{'---|' * len(columns)}"]
    return "\n".join(head + [f"| {' | '.join(cell(row, k, f) for k, f in columns.items())} |" for row in rows])


@dataclass(frozen=True)
class Study:
    """A named series of trainings that ends in a table, numbers and perhaps a picture."""

    summary: str
    summary_zh: str
    run_fn: Callable[..., dict[str, Any]]  # of (out, name, given, say), and of the parts where it has some
    parts: tuple[str, ...] = ()
    takes_data: bool = True
    trains_models: bool = True
    has_quick_form: bool = False  # it has a short form of its own, quick=True

    def run(
        self,
        out: str | Path,
        quick: bool = False,
        data: str | None = None,
        log: LogFn | None = None,
        only: Sequence[str] = (),
        overrides: Sequence[str] = (),
    ) -> dict[str, Any]:
        """Train, measure and write table.md, numbers.json and pictures into `out`; go on where it was stopped.

        Without `data` the text is made on the fly: strings to be written backwards. With the folder of Multi30k
        it is captions, English to French for Bahdanau's claims, to German for Luong's. `quick` trains for
        some steps only, to see that everything works. A study with parts can be done part by part, `only` some at
        a time; what numbers.json holds of the others stays in the table. `words` are settings of the engine for all
        trainings, such as "precision=bfloat16" and "steps=1000".
        """
        if unknown := [part for part in only if part not in self.parts]:
            known = f"its parts are {', '.join(self.parts)}" if self.parts else "it has none"
            raise UnknownNameError(f"this study has no part {unknown[0]!r}; {known}")
        if data is not None and not self.takes_data:
            raise UsageError("this study makes all its data on the fly; leave --data out")
        if overrides and not self.trains_models:
            raise UsageError(f"this study trains nothing; leave {overrides[0]} out")
        given: dict[str, Any] = {"steps": 30, "validate_every": 30, "save_every": 30} if quick else {}
        given |= _parse_shared_options(overrides)
        out = Path(out)
        out.mkdir(parents=True, exist_ok=True)
        name = "reverse" if data is None else "multi30k"
        if data is not None:
            given["data_dir"] = data
        parts = (only or self.parts,) if self.parts else ()
        form = {"quick": quick} if self.has_quick_form else {}
        found = self.run_fn(out, name, given, log or _no_log, *parts, **form)
        if overrides:
            found["settings"] = list(overrides)
            found["table"] += f"\n\nSettings given, the last time: {' '.join(overrides)}."
            (out / "table.md").write_text(found["table"] + "\n", encoding="utf-8")
        (out / "numbers.json").write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        return found


def _parse_shared_options(overrides: Sequence[str]) -> dict[str, Any]:
    """What the words say, of those settings that every training has."""
    names, shared = (
        [name for name, _ in map(split_override, overrides)],
        [item.name for item in TrainingConfig.options()],
    )
    if "data_dir" in names:
        raise ConfigError("a study is given its data by --data FOLDER, not by data=")
    if others := [name for name in names if name not in shared]:
        raise ConfigError(f"{others[0]} is no option of every training{suggest(others[0], shared)}")
    settled = TrainingConfig.from_overrides(overrides)
    return {name: getattr(settled, name) for name in names}


def _no_log(line: str) -> None:
    """Say nothing."""
