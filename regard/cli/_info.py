"""`regard info RUN`: what a run is, and how it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from regard.cli._run import Standing, reports, standing
from regard.cli._say import AsJson, note, say, say_json, table
from regard.config import format_value


def info(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run.")],
    as_json: AsJson = False,
) -> None:
    """Say what a run is and how it stands.

    Example: regard info runs/dates
    """
    found = standing(run)
    for line in found.notes:
        note(line)
    about = _as_dict(found)
    if as_json:
        say_json(about)
    else:
        _print(about)


def _as_dict(found: Standing) -> dict[str, Any]:
    state, record = found.state, found.record
    return {
        "run": str(found.run.folder),
        "recipe": record["recipe"],
        "regard": record["regard"],
        "settings": found.settings,
        "changed": found.changed(),
        "parameters": record["parameters"],
        "words": dict(zip(("source", "target"), record.get("words", ()), strict=False)),
        "data": record.get("data", {}),
        "damaged": _damaged(found),
        "step": state.get("step"),
        "seconds": state.get("seconds"),
        "tokens": state.get("tokens"),
        "tokens_per_second": found.speed,
        "watch": found.settings["watch"],
        "best": state.get("best"),
        "best_step": state.get("best_step"),
        "scores": state.get("scores", {}),
        "weights": _weights(found),
        "files": _files(found.run.folder),
    }


def _weights(found: Standing) -> str | None:
    try:
        return str(found.run.find_weights().relative_to(found.run.folder))
    except (FileNotFoundError, ValueError):
        return None  # nothing yet, or nothing whole


def _damaged(found: Standing) -> bool:
    """Are there checkpoints, and none that is whole?"""
    from regard.training import checkpoint

    return not found.state and bool(checkpoint.list_steps(found.run.checkpoints))


def _files(folder: Path) -> dict[str, int]:
    """The bytes of each file, except hidden ones."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    names = {path.relative_to(folder): path for path in paths}
    return {
        str(name): path.stat().st_size for name, path in names.items() if not str(name.name).startswith(".")
    }


def _print(about: dict[str, Any]) -> None:
    changed = "  ".join(f"{name}={format_value(value)}" for name, value in about["changed"].items())
    rows = [
        ("recipe", about["recipe"]),
        ("settings", changed or "those of the recipe"),
        ("parameters", f"{about['parameters']:,}"),
        *_vocabulary(about["words"]),
        *((f"{name} text", counts) for name, counts in reports(about["data"])),
        *_progress(about),
        ("weights", about["weights"] or "none yet"),
        ("regard", about["regard"]),
    ]
    say(table(rows), "")
    say(table(((name, f"{size:,} bytes") for name, size in about["files"].items()), numbers=[1]))


def _vocabulary(words: dict[str, int]) -> list[tuple[str, str]]:
    return [("vocabulary", ", ".join(f"{count:,} {side}" for side, count in words.items()))] if words else []


def _way_out(about: dict[str, Any]) -> str:
    """What can be done with a run that cannot go on."""
    if about["weights"] is None:
        return "unknown: all checkpoints are damaged, and there are no other weights; begin a new run"
    return f"unknown: all checkpoints are damaged; a new run can take its weights: --init-from {about['run']}"


def _progress(about: dict[str, Any]) -> list[tuple[str, str]]:
    from regard.training.display import format_duration, format_number

    if about["damaged"]:
        return [("step", _way_out(about))]
    if about["step"] is None:
        return [("step", f"none yet; begin with: regard resume {about['run']}")]
    rows = [("step", f"{about['step']:,} of {about['settings']['steps']:,}")]
    if about["best"] is not None:
        rows.append(
            ("best", f"{about['watch']} {format_number(about['best'])} at step {about['best_step']:,}")
        )
    if about["scores"]:
        rows.append(
            ("last", "  ".join(f"{name} {format_number(value)}" for name, value in about["scores"].items()))
        )
    rows.append(("time", format_duration(about["seconds"])))
    if about["tokens_per_second"]:
        rows.append(("speed", f"{about['tokens_per_second']:,.0f} tokens/s"))
    return rows
