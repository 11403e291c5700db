"""`regard info RUN`: what a run is and how far it is; and what other commands read of a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from regard import tasks
from regard.cli.arguments import AsJson, Run
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.config import format_value
from regard.training.logging import format_duration, format_number
from regard.training.run import RunFolder, median_speed

__all__ = ["describe_best", "describe_data", "get_metrics", "info", "list_file_sizes", "make_file_table"]


def info(run: Run, as_json: AsJson = False) -> None:
    """Print what a run is and how far it is.

    Example: regard info runs/dates
    """
    facts = _read_facts(run)
    if as_json:
        print_json(facts)
    else:
        _print(facts)


def describe_data(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was read of each split, and what of it was left out; nothing for generated data.

    Args:
        data: the counts of each split, as run.json has them

    Returns:
        Rows of a name and a summary.
    """
    return [(f"{name} data", str(counts["summary"])) for name, counts in data.items() if counts.get("read", 1)]


def describe_best(monitor: str, score: float, step: int) -> str:
    """The best value of the monitored metric, and its step.

    Args:
        monitor: name of the metric
        score: its best value
        step: the step of this value
    """
    return f"{monitor} {format_number(score)} at step {step:,}"


def get_metrics(recipe: str) -> tuple[tasks.Metric, ...]:
    """The metrics of the task of a recipe.

    Args:
        recipe: its name

    Returns:
        The metrics in the order of reports.
    """
    return tasks.get_task(tasks.get_recipe(recipe).task).metrics


def list_file_sizes(folder: Path) -> dict[str, int]:
    """The bytes of each file of a folder, except hidden ones.

    Args:
        folder: searched with all of its subfolders
    """
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(folder).as_posix(): path.stat().st_size for path in paths}


def make_file_table(files: Mapping[str, int]) -> Any:
    """A table of files with their sizes.

    Args:
        files: sizes in bytes, by path
    """
    return make_table(((name, f"{size:,} bytes") for name, size in files.items()), numbers=[1])


def _read_facts(folder: Path) -> dict[str, Any]:
    """Everything about a run, as JSON has it; damaged checkpoints are reported."""
    from regard.training import checkpoint

    run = RunFolder.open(folder)
    state = checkpoint.load_latest_state(run.checkpoints, print_status)
    record = tasks.read_record(run)
    config, default = record["config"], tasks.make_config(record["recipe"]).to_dict()
    weights: str | None = None
    with suppress(FileNotFoundError, ValueError):  # none yet, or only damaged ones
        weights = str(run.find_weights().relative_to(run.folder))
    return {
        "run": str(run.folder),
        **{name: record[name] for name in ("recipe", "regard_version")},
        "config": config,
        "changed": {name: value for name, value in config.items() if value != _as_json(default.get(name))},
        "parameters": record["model"]["parameters"],
        "processor": record.get("processor", {}),
        "data": record.get("data", {}),
        "damaged": not state and bool(checkpoint.list_steps(run.checkpoints)),  # all of them
        **{name: state.get(name) for name in ("step", "seconds", "tokens")},
        "tokens_per_second": median_speed(run.metrics),
        "monitor": config["monitor"],
        **{name: state.get(name) for name in ("best", "best_step")},
        "scores": state.get("scores", {}),
        "weights": weights,
        "files": list_file_sizes(run.folder),
    }


def _as_json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _print(facts: dict[str, Any]) -> None:
    changed = "  ".join(f"{name}={format_value(value)}" for name, value in facts["changed"].items())
    rows = [
        ("recipe", facts["recipe"]),
        ("config", changed or "that of the recipe"),
        ("parameters", f"{facts['parameters']:,}"),
        *((name.replace("_", " "), _format_fact(value)) for name, value in facts["processor"].items()),
        *describe_data(facts["data"]),
        *_progress(facts),
        ("weights", facts["weights"] or "none yet"),
        ("regard", facts["regard_version"]),
    ]
    print_blocks(make_table(rows), "", make_file_table(facts["files"]))


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_fact(one)}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int) else format_value(value)


def _progress(facts: dict[str, Any]) -> list[tuple[str, str]]:
    if facts["damaged"]:
        remedy = f"; a new run can take its weights: --init-from {facts['run']}"
        if facts["weights"] is None:
            remedy = ", and there are no other weights; start a new run"
        return [("step", f"unknown: all checkpoints are damaged{remedy}")]
    if facts["step"] is None:
        return [("step", f"none yet; start with: regard resume {facts['run']}")]
    config = facts["config"]
    end = f"{config['epochs']:,} epochs" if config.get("epochs") else f"{config['steps']:,}"
    rows = [("step", f"{facts['step']:,} of {end}")]
    if facts["best"] is not None:
        rows.append(("best", describe_best(facts["monitor"], facts["best"], facts["best_step"])))
    if facts["scores"]:
        rows.append(("last", "  ".join(f"{name} {format_number(value)}" for name, value in facts["scores"].items())))
    rows.append(("time", format_duration(facts["seconds"])))
    if facts["tokens_per_second"]:
        rows.append(("speed", f"{facts['tokens_per_second']:,.0f} tokens/s"))
    return rows
