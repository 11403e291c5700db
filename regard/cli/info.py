"""`regard info RUN`: what a run is and how far it is; and what other commands read of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from regard.cli.arguments import AsJson, Run
from regard.cli.output import make_table, print_blocks, print_json, print_status
from regard.config import format_value

if TYPE_CHECKING:
    from regard.training import RunFolder

__all__ = ["RunStatus", "config_as_json", "describe_data", "info", "num_parameters", "read_status"]


def info(run: Run, as_json: AsJson = False) -> None:
    """Print what a run is and how far it is.

    Example: regard info runs/dates
    """
    status = read_status(run)
    for line in status.notes:
        print_status(line)
    facts = _as_dict(status)
    if as_json:
        print_json(facts)
    else:
        _print(facts)


@dataclass(frozen=True)
class RunStatus:
    """A run's record, the state of its newest checkpoint, and what is wrong with other checkpoints.

    Args:
        record: run.json
        state: state.json of the newest checkpoint; empty if there is none
        notes: one line for each damaged checkpoint
    """

    run: RunFolder
    record: dict[str, Any]
    state: dict[str, Any] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def config(self) -> dict[str, Any]:
        """The config of the training."""
        return dict(self.record["config"])

    @property
    def tokens_per_second(self) -> float | None:
        """The median speed in metrics.jsonl."""
        if not self.run.metrics.is_file():
            return None
        points = map(_parse_point, self.run.metrics.read_text(encoding="utf-8").splitlines())
        speeds = [point["tokens_per_second"] for point in points if "tokens_per_second" in point]
        return median(speeds) if speeds else None

    def changed(self) -> dict[str, Any]:
        """The options whose values are not those of the recipe."""
        usual = config_as_json(self.record["recipe"])
        return {name: value for name, value in self.config.items() if value != usual.get(name)}


def read_status(folder: Path) -> RunStatus:
    """Read a run."""
    from regard.errors import CheckpointCorruptError
    from regard.tasks import read_record
    from regard.training import RunFolder, checkpoint

    run = RunFolder.open(folder)
    notes: list[str] = []
    try:
        found = checkpoint.load_latest(run.checkpoints, notes.append)
    except CheckpointCorruptError as error:
        found = None
        notes.append(str(error))
    return RunStatus(run, read_record(run), {} if found is None else found.state, tuple(notes))


def config_as_json(recipe: str, overrides: tuple[str, ...] = (), **values: Any) -> dict[str, Any]:
    """The config of a recipe as JSON keeps it."""
    from regard.tasks import make_config

    config = make_config(recipe, overrides, **values).to_dict()
    return {key: list(value) if isinstance(value, tuple) else value for key, value in config.items()}


def num_parameters(record: Mapping[str, Any]) -> int:
    """The number of parameters of the model of a run, from its run.json."""
    return int(record["model"]["parameters"])


def describe_data(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What was read of each split, and what of it was left out; nothing for generated data."""
    return [(name, str(counts["summary"])) for name, counts in data.items() if counts.get("read", 1)]


def _as_dict(status: RunStatus) -> dict[str, Any]:
    state, record = status.state, status.record
    return {
        "run": str(status.run.folder),
        "recipe": record["recipe"],
        "regard_version": record["regard_version"],
        "config": status.config,
        "changed": status.changed(),
        "parameters": num_parameters(record),
        "processor": record.get("processor", {}),
        "data": record.get("data", {}),
        "damaged": _is_damaged(status),
        "step": state.get("step"),
        "seconds": state.get("seconds"),
        "tokens": state.get("tokens"),
        "tokens_per_second": status.tokens_per_second,
        "monitor": status.config["monitor"],
        "best": state.get("best"),
        "best_step": state.get("best_step"),
        "scores": state.get("scores", {}),
        "weights": _weights(status),
        "files": _file_sizes(status.run.folder),
    }


def _weights(status: RunStatus) -> str | None:
    try:
        return str(status.run.find_weights().relative_to(status.run.folder))
    except (FileNotFoundError, ValueError):
        return None  # none yet, or only damaged ones


def _is_damaged(status: RunStatus) -> bool:
    """Whether all checkpoints are damaged."""
    from regard.training import checkpoint

    return not status.state and bool(checkpoint.list_steps(status.run.checkpoints))


def _file_sizes(folder: Path) -> dict[str, int]:
    """The bytes of each file, except hidden ones."""
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {str(name): path.stat().st_size for name, path in paths.items() if not name.name.startswith(".")}


def _print(facts: dict[str, Any]) -> None:
    changed = "  ".join(f"{name}={format_value(value)}" for name, value in facts["changed"].items())
    rows = [
        ("recipe", facts["recipe"]),
        ("config", changed or "that of the recipe"),
        ("parameters", f"{facts['parameters']:,}"),
        *_processor_rows(facts["processor"]),
        *((f"{name} data", counts) for name, counts in describe_data(facts["data"])),
        *_progress(facts),
        ("weights", facts["weights"] or "none yet"),
        ("regard", facts["regard_version"]),
    ]
    print_blocks(make_table(rows), "")
    print_blocks(make_table(((name, f"{size:,} bytes") for name, size in facts["files"].items()), numbers=[1]))


def _processor_rows(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What a run says of its processor, such as the sizes of vocabularies."""
    return [(name.replace("_", " "), _format_fact(value)) for name, value in facts.items()]


def _format_fact(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_format_fact(one)}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int) else format_value(value)


def _remedy(facts: dict[str, Any]) -> str:
    """What can be done with a run that cannot be resumed."""
    if facts["weights"] is None:
        return "unknown: all checkpoints are damaged, and there are no other weights; start a new run"
    return f"unknown: all checkpoints are damaged; a new run can take its weights: --init-from {facts['run']}"


def _progress(facts: dict[str, Any]) -> list[tuple[str, str]]:
    from regard.training.display import format_duration, format_number

    if facts["damaged"]:
        return [("step", _remedy(facts))]
    if facts["step"] is None:
        return [("step", f"none yet; start with: regard resume {facts['run']}")]
    rows = [("step", f"{facts['step']:,} of {facts['config']['steps']:,}")]
    if facts["best"] is not None:
        best = f"{facts['monitor']} {format_number(facts['best'])} at step {facts['best_step']:,}"
        rows.append(("best", best))
    if facts["scores"]:
        scores = (f"{name} {format_number(value)}" for name, value in facts["scores"].items())
        rows.append(("last", "  ".join(scores)))
    rows.append(("time", format_duration(facts["seconds"])))
    if facts["tokens_per_second"]:
        rows.append(("speed", f"{facts['tokens_per_second']:,.0f} tokens/s"))
    return rows


def _parse_point(line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}  # the last line of a run that was killed may be incomplete
