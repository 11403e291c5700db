"""The life of a run: from a recipe to a trained model in a folder, and back. What is trained, a task knows."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import torch

from regard._version import __version__
from regard.config import format_conditions, format_value, split_override
from regard.errors import ConfigError, StorageError, UsageError
from regard.files import DISK_FULL_ERRNOS
from regard.recipes._mechanisms import cautions, check_names
from regard.recipes._recipes import recipe
from regard.recipes._task import DOWNLOAD, Recipe, Say
from regard.recipes._unchanged import check_unchanged, fingerprints
from regard.recipes.translation.translator import Translator
from regard.training import Outcome, Run, Settings, checkpoint, distributed, load_weights

FORMAT = 1
WAIT = 60.0  # seconds for the first process to make a run's folder


def settings_of(name: str, words: Iterable[str] = (), **given: Any) -> Any:
    """The settings of a recipe with changes: as typed words, as values, or both."""
    found = recipe(name)
    return found.kind.from_overrides(words, **{**found.defaults, **given})


def train(
    name: str,
    out: str | Path,
    words: Iterable[str] = (),
    *,
    init_from: str | Path | None = None,
    say: Say | None = None,
    **given: Any,
) -> Outcome:
    """Train a recipe into a new folder.

    What is learned from the training data beside the weights, such as tokenizers, is kept in the folder, with
    everything that is needed to go on later, or to use the model.
    """
    found, origin, words = recipe(name), None if init_from is None else Run.open(init_from), tuple(words)
    settings = _settled(found, words, given, origin).resolve_paths()
    found.task.check(found, settings)  # what is wrong with files or settings is said before a folder is made
    run = Run.create(out)
    if distributed.world().first and not run.record.is_file():  # torchrun, restarting, finds it there
        run.write(_record(found, settings, None if origin is None else str(origin.folder.resolve())))
        for option, when in settings.unused(sorted(_chosen(words, given))).items():
            (say or _to_stderr)(f"{option} is for {format_conditions(when)}, and changes nothing here")
    try:
        return _go_on(run, say)
    except Exception:
        _withdraw(run, found)
        raise


def planned(
    name: str, words: Iterable[str] = (), *, init_from: str | Path | None = None, **given: Any
) -> Settings:
    """The settings that `train` would begin with; it refuses what `train` refuses, save that data is missing yet."""
    found, origin = recipe(name), None if init_from is None else Run.open(init_from)
    settings = _settled(found, tuple(words), given, origin)
    fetched = getattr(settings, "data", None) == DOWNLOAD  # looking at settings should not fetch anything
    refusal = "" if fetched else _refusal(found, settings)
    if refusal and refusal != _refusal(found, settings_of(name)):  # it is not just the data that nobody named
        raise ConfigError(refusal)
    check_names(settings)
    return settings


def _refusal(found: Recipe, settings: Settings) -> str:
    try:
        found.task.check(found, settings)
    except UsageError as error:
        return str(error)
    return ""


def _settled(found: Recipe, words: tuple[str, ...], given: dict[str, Any], origin: Run | None) -> Settings:
    settings: Settings = settings_of(found.name, words, **given)
    if origin is None:
        return settings
    return _like(settings, origin, found, _chosen(words, given))


def _chosen(words: tuple[str, ...], given: dict[str, Any]) -> set[str]:
    """The settings that somebody gave, as words or as values."""
    return {*given, *(key for key, _ in map(split_override, words))}


def _like(settings: Settings, origin: Run, found: Recipe, chosen: Iterable[str]) -> Settings:
    """The settings that go with the weights of another run; what somebody chose is refused if it cannot hold."""
    made: Settings = found.task.like(settings, _same_task(origin, found)["settings"])
    for key in sorted(chosen):
        asked, kept = getattr(settings, key), getattr(made, key)
        if asked != kept:
            raise ConfigError(
                f"{key} is that of {origin.folder}: {format_value(kept)}, not {format_value(asked)}; leave {key} out,"
                " or train without --init-from"
            )
    return made


def _same_task(origin: Run, found: Recipe) -> dict[str, Any]:
    record = read(origin)
    if not found.task.follows(recipe(record["recipe"]).task):
        raise ConfigError(
            f"{origin.folder} was trained for {record['recipe']}, and {found.name} needs another kind of model;"
            " --init-from takes a run of the same kind"
        )
    return record


def _withdraw(run: Run, found: Recipe) -> None:
    """A run that never began leaves its folder free, so that who mends what was wrong can use it again."""
    if distributed.world().first and not run.checkpoints.is_dir():
        halves = (
            str(Path(name).with_suffix(".part")) for name in found.task.files
        )  # of what was being written
        made = (run.folder / name for name in (*found.task.files, *halves, ".lock"))
        for path in (run.record, run.log, run.metrics, *made):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else is in it
            run.folder.rmdir()


def resume(folder: str | Path, say: Say | None = None, **changes: Any) -> Outcome:
    """Go on with a run from its newest checkpoint; how long and how often may change, what is trained may not."""
    run = Run.open(folder)
    if changes:
        record = read(run)
        settings = _changed(record, changes)
        if distributed.world().first:
            with run.locked():  # nothing is written before it is sure that the run can go on
                check_unchanged(record.get("files", {}))
                _check_steps(run, settings)
                run.write({**record, "settings": settings.to_dict()})
    return _go_on(run, say)


def _changed(record: dict[str, Any], changes: dict[str, Any]) -> Settings:
    settings = recipe(record["recipe"]).kind.from_dict(record["settings"])
    resumable = [item.name for item in settings.options() if item.resumable]
    for name in changes:
        if not settings.option(name).resumable:
            raise ConfigError(
                f"{name} cannot change in a run that has begun; only these can: {', '.join(resumable)}"
            )
    return settings.replace(**changes)


def _check_steps(run: Run, settings: Settings) -> None:
    """Refuse to end before the newest checkpoint; a run of which all are damaged cannot go on at all."""
    newest = checkpoint.newest(run.checkpoints)
    if newest is not None and settings.steps < newest.step:
        raise ConfigError(
            f"invalid value '{settings.steps}' for steps: {run.folder} has made {newest.step:,} steps already; ask for"
            " more of them, or begin a new run"
        )


def _go_on(run: Run, say: Say | None) -> Outcome:
    """Train a run from wherever it is; under torchrun, all processes come here."""
    record = _first(run)
    found = recipe(record["recipe"])
    distributed.start(distributed.choose_device(found.kind.from_dict(record["settings"]).device))
    record = read(run)
    settings, origin = found.kind.from_dict(record["settings"]), record["init_from"]
    check_unchanged(record.get("files", {}))
    if distributed.world().first and not all((run.folder / name).is_file() for name in found.task.files):
        with _room_on_disk(run):
            found.task.ready(run, found, settings, None if origin is None else Run.open(origin))
    distributed.wait()
    torch.manual_seed(settings.seed)  # the weights to begin with
    experiment = found.task.experiment(run, found, settings)
    # their folder alone tells nothing: it may be there from a first one that was never finished
    if not checkpoint.steps(run.checkpoints):
        if origin is not None:
            other = Run.open(origin)
            found.task.begin_with(experiment.objective, load_weights(other.weights()), str(other.folder))
        if distributed.world().first:
            run.write({**record, **_facts(experiment)})
            for line in (*experiment.lines, *cautions(experiment.objective)):
                (say or _to_stderr)(line)
    outcome = experiment.fit(say)
    distributed.stop()
    return outcome


@contextlib.contextmanager
def _room_on_disk(run: Run) -> Iterator[None]:
    """Say in one sentence that there is none; what else goes wrong may be about reading."""
    try:
        yield
    except OSError as error:
        if error.errno not in DISK_FULL_ERRNOS:
            raise
        reason = (error.strerror or str(error)).lower()
        raise StorageError(
            f"{run.folder} could not be written: {reason}; free some space, and try again", errno=error.errno
        ) from error


def _first(run: Run) -> dict[str, Any]:
    """run.json, as soon as the first process has written it."""
    patience = time.monotonic() + WAIT
    while not distributed.world().first and not run.record.is_file() and time.monotonic() < patience:
        time.sleep(0.1)
    return read(run)


def load(
    folder: str | Path,
    device: str = "cpu",
    weights: str | Path | None = None,
    *,
    engine: str | None = None,
) -> Any:
    """What a run trained, ready for use: with its averaged weights, else its best, else its last.

    A run of a translation gives a `Translator`, computed by PyTorch or by the engine that is named. The folder may
    also be one that `regard export` made.
    """
    from regard.recipes import exporting  # it knows runs, and would import this file

    if exporting.is_exported(folder):
        return exporting.opened(folder, engine, device)
    if engine is not None:
        return exporting.in_engine(load(folder, device, weights), engine)
    run = Run.open(folder)
    record = read(run)
    found = recipe(record["recipe"])
    path = run.weights() if weights is None else Path(weights)
    settings = found.kind.from_dict(record["settings"])
    tensors = load_weights(path)
    layers = getattr(settings, "layers", 1)
    if isinstance(layers, int) and layers > len(tensors):  # building them all would never end
        raise ConfigError(f"{run.record} tells of {layers:,} layers, but {path} has weights for fewer")
    return found.task.load(run, found, settings, tensors, str(path), device)


def load_translator(
    folder: str | Path,
    device: str = "cpu",
    weights: str | Path | None = None,
    *,
    engine: str | None = None,
) -> Translator:
    """The same for a translation; a run of another kind is refused."""
    if not isinstance(found := load(folder, device, weights, engine=engine), Translator):
        raise ConfigError(
            f"{folder} was trained for {recipe_of(folder)} and cannot translate; `regard info` says what it is"
        )
    return found


def recipe_of(folder: str | Path) -> str:
    """The name of the recipe that a run or an exported model was trained with."""
    from regard.recipes import exporting

    record = exporting.record_of(folder) if exporting.is_exported(folder) else read(Run.open(folder))
    return str(record["recipe"])


def read(run: Run) -> dict[str, Any]:
    """run.json, if this version of regard can read it."""
    record = run.read()
    if record.get("format", FORMAT) != FORMAT:
        raise ConfigError(
            f"{run.record} has format {record['format']!r}, but this regard reads {FORMAT}; install a newer regard"
        )
    kinds = {"format": int, "recipe": str, "settings": dict}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        raise ConfigError(f"{run.record} is damaged: it should name a recipe and its settings; copy it again")
    return record


def _record(found: Recipe, settings: Settings, init_from: str | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "regard": __version__,
        "recipe": found.name,
        "settings": settings.to_dict(),
        "init_from": init_from,
        "files": fingerprints(found, settings),
    }


def _facts(experiment: Any) -> dict[str, Any]:
    return {"parameters": sum(p.numel() for p in experiment.objective.parameters()), **experiment.facts}


def _to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
