"""The files that a run learns from: whether they are still what they were when it began.

The life of a run: from a recipe to a trained model in a folder, and back. What is trained, a task knows.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from regard._version import __version__
from regard.config import format_conditions, format_value, split_override
from regard.data.parallel import ParallelFiles
from regard.errors import ConfigError, DataError, RunFormatError, StorageError, UsageError
from regard.files import DISK_FULL_ERRNOS
from regard.tasks.datasets import DOWNLOAD
from regard.tasks.mechanisms import check_mechanisms, training_warnings
from regard.tasks.registry import get_recipe
from regard.tasks.task import LogFn, Recipe
from regard.tasks.translation.predictor import Translator
from regard.training import RunFolder, TrainingConfig, TrainingResult, checkpoint, distributed, load_weights

CHUNK_BYTES = 1 << 20  # bytes read in one go


MAX_CHUNKS = 64  # of a file at most: the whole of most, and little of one that is larger than memory


def fingerprint_file(path: Path) -> dict[str, Any]:
    """The size of a file and a checksum: of all of it, or of parts spread evenly from its first byte to its last."""
    size = path.stat().st_size
    last = max(size - CHUNK_BYTES, 0)
    places = (
        range(0, size, CHUNK_BYTES)
        if size <= CHUNK_BYTES * MAX_CHUNKS
        else (last * i // (MAX_CHUNKS - 1) for i in range(MAX_CHUNKS))
    )
    found = sha256()
    with path.open("rb") as file:
        for place in places:
            file.seek(place)
            found.update(file.read(CHUNK_BYTES))
    return {"bytes": size, "sha256": found.hexdigest()}


def fingerprint_files(recipe: Recipe, config: Any) -> dict[str, dict[str, Any]]:
    """Those of all files to train on and to validate with; nothing for what is made on the fly."""
    paths = {Path(name) for part in ("train", "valid") for name in getattr(config, f"{part}_files", ())}
    if getattr(config, "data_dir", None) is not None:
        material = recipe.data(config)
        parts = (getattr(material, part, None) for part in ("train", "valid"))
        paths |= {path for part in parts if isinstance(part, ParallelFiles) for path in part.paths}
    return {str(path): fingerprint_file(path) for path in sorted(paths) if path.is_file()}


def check_files_unchanged(fingerprints: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to go on with another text; that a file is gone, its reader says."""
    for name, before in fingerprints.items():
        if (path := Path(name)).is_file() and fingerprint_file(path) != before:
            raise DataError(
                f"{name} has changed since the run began, so it could not go on as the same training; bring the file"
                " back as it was, or begin a new run (--init-from takes these weights)"
            )


FORMAT = 2


RUN_FOLDER_TIMEOUT = 60.0  # seconds for the first process to make a run's folder


def make_config(name: str, overrides: Iterable[str] = (), **values: Any) -> Any:
    """The settings of a recipe with changes: as typed words, as values, or both."""
    found = get_recipe(name)
    return found.config_class.from_overrides(overrides, **{**found.defaults, **values})


def train(
    name: str,
    out: str | Path,
    overrides: Iterable[str] = (),
    *,
    init_from: str | Path | None = None,
    log: LogFn | None = None,
    **values: Any,
) -> TrainingResult:
    """Train a recipe into a new folder.

    What is learned from the training data beside the weights, such as tokenizers, is kept in the folder, with
    everything that is needed to go on later, or to use the model.
    """
    found, origin, overrides = (
        get_recipe(name),
        None if init_from is None else RunFolder.open(init_from),
        tuple(overrides),
    )
    settings = _inherit_and_check(found, overrides, values, origin).resolve_paths()
    found.task.validate(
        found, settings
    )  # what is wrong with files or settings is said before a folder is made
    run = RunFolder.create(out)
    if (
        distributed.distributed_context().is_main and not run.record_path.is_file()
    ):  # torchrun, restarting, finds it there
        run.write_record(
            _make_record(found, settings, None if origin is None else str(origin.folder.resolve()))
        )
        for option, when in settings.unused(sorted(_given_options(overrides, values))).items():
            (log or _log_to_stderr)(f"{option} is for {format_conditions(when)}, and changes nothing here")
    try:
        return _run_training(run, log)
    except Exception:
        _remove_unstarted_run(run, found)
        raise


def resolve_config(
    name: str, overrides: Iterable[str] = (), *, init_from: str | Path | None = None, **values: Any
) -> TrainingConfig:
    """The settings that `train` would begin with; it refuses what `train` refuses, save that data is missing yet."""
    found, origin = get_recipe(name), None if init_from is None else RunFolder.open(init_from)
    settings = _inherit_and_check(found, tuple(overrides), values, origin)
    fetched = getattr(settings, "data_dir", None) == DOWNLOAD  # looking at settings should not fetch anything
    refusal = "" if fetched else _validation_error(found, settings)
    if refusal and refusal != _validation_error(
        found, make_config(name)
    ):  # it is not just the data that nobody named
        raise ConfigError(refusal)
    check_mechanisms(settings)
    return settings


def _validation_error(recipe: Recipe, config: TrainingConfig) -> str:
    try:
        recipe.task.validate(recipe, config)
    except UsageError as error:
        return str(error)
    return ""


def _inherit_and_check(
    recipe: Recipe, overrides: tuple[str, ...], values: dict[str, Any], origin: RunFolder | None
) -> TrainingConfig:
    settings: TrainingConfig = make_config(recipe.name, overrides, **values)
    if origin is None:
        return settings
    return _inherit_config(settings, origin, recipe, _given_options(overrides, values))


def _given_options(overrides: tuple[str, ...], values: dict[str, Any]) -> set[str]:
    """The settings that somebody gave, as words or as values."""
    return {*values, *(key for key, _ in map(split_override, overrides))}


def _inherit_config(
    config: TrainingConfig, origin: RunFolder, recipe: Recipe, chosen: Iterable[str]
) -> TrainingConfig:
    """The settings that go with the weights of another run; what somebody chose is refused if it cannot hold."""
    made: TrainingConfig = recipe.task.like(config, _check_same_task(origin, recipe)["settings"])
    for key in sorted(chosen):
        asked, kept = getattr(config, key), getattr(made, key)
        if asked != kept:
            raise ConfigError(
                f"{key} is that of {origin.folder}: {format_value(kept)}, not {format_value(asked)}; leave {key} out,"
                " or train without --init-from"
            )
    return made


def _check_same_task(origin: RunFolder, recipe: Recipe) -> dict[str, Any]:
    record = read_record(origin)
    if not recipe.task.can_init_from(get_recipe(record["recipe"]).task):
        raise ConfigError(
            f"{origin.folder} was trained for {record['recipe']}, and {recipe.name} needs another kind of model;"
            " --init-from takes a run of the same kind"
        )
    return record


def _remove_unstarted_run(run: RunFolder, recipe: Recipe) -> None:
    """A run that never began leaves its folder free, so that who mends what was wrong can use it again."""
    if distributed.distributed_context().is_main and not run.checkpoints.is_dir():
        halves = (
            str(Path(name).with_suffix(".part")) for name in recipe.task.files
        )  # of what was being written
        made = (run.folder / name for name in (*recipe.task.files, *halves, ".lock"))
        for path in (run.record_path, run.log, run.metrics, *made):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # something else is in it
            run.folder.rmdir()


def resume(folder: str | Path, log: LogFn | None = None, **changes: Any) -> TrainingResult:
    """Go on with a run from its newest checkpoint; how long and how often may change, what is trained may not."""
    run = RunFolder.open(folder)
    if changes:
        record = read_record(run)
        settings = _apply_changes(record, changes)
        if distributed.distributed_context().is_main:
            with run.lock():  # nothing is written before it is sure that the run can go on
                check_files_unchanged(record.get("files", {}))
                _check_steps(run, settings)
                run.write_record({**record, "settings": settings.to_dict()})
    return _run_training(run, log)


def _apply_changes(record: dict[str, Any], changes: dict[str, Any]) -> TrainingConfig:
    settings = get_recipe(record["recipe"]).config_class.from_dict(record["settings"])
    resumable = [item.name for item in settings.options() if item.resumable]
    for name in changes:
        if not settings.option(name).resumable:
            raise ConfigError(
                f"{name} cannot change in a run that has begun; only these can: {', '.join(resumable)}"
            )
    return settings.replace(**changes)


def _check_steps(run: RunFolder, config: TrainingConfig) -> None:
    """Refuse to end before the newest checkpoint; a run of which all are damaged cannot go on at all."""
    newest = checkpoint.load_latest(run.checkpoints)
    if newest is not None and config.steps < newest.step:
        raise ConfigError(
            f"invalid value '{config.steps}' for steps: {run.folder} has made {newest.step:,} steps already; ask for"
            " more of them, or begin a new run"
        )


def _run_training(run: RunFolder, log: LogFn | None) -> TrainingResult:
    """Train a run from wherever it is; under torchrun, all processes come here."""
    record = _wait_for_record(run)
    found = get_recipe(record["recipe"])
    distributed.init_process_group(
        distributed.resolve_device(found.config_class.from_dict(record["settings"]).device)
    )
    record = read_record(run)
    settings, origin = found.config_class.from_dict(record["settings"]), record["init_from"]
    check_files_unchanged(record.get("files", {}))
    if distributed.distributed_context().is_main and not all(
        (run.folder / name).is_file() for name in found.task.files
    ):
        with _storage_errors(run):
            found.task.ready(run, found, settings, None if origin is None else RunFolder.open(origin))
    distributed.barrier()
    torch.manual_seed(settings.seed)  # the weights to begin with
    experiment = found.task.experiment(run, found, settings)
    # their folder alone tells nothing: it may be there from a first one that was never finished
    if not checkpoint.list_steps(run.checkpoints):
        if origin is not None:
            other = RunFolder.open(origin)
            found.task.init_model(
                experiment.objective.model, load_weights(other.find_weights()), str(other.folder)
            )
        if distributed.distributed_context().is_main:
            run.write_record({**record, **_model_facts(experiment)})
            for line in (*experiment.lines, *training_warnings(experiment.objective)):
                (log or _log_to_stderr)(line)
    outcome = experiment.fit(log)
    distributed.destroy_process_group()
    return outcome


@contextlib.contextmanager
def _storage_errors(run: RunFolder) -> Iterator[None]:
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


def _wait_for_record(run: RunFolder) -> dict[str, Any]:
    """run.json, as soon as the first process has written it."""
    patience = time.monotonic() + RUN_FOLDER_TIMEOUT
    while (
        not distributed.distributed_context().is_main
        and not run.record_path.is_file()
        and time.monotonic() < patience
    ):
        time.sleep(0.1)
    return read_record(run)


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
    from regard import export as exporting  # it knows runs, and would import this file

    if exporting.is_export(folder):
        return exporting.open_export(folder, engine, device)
    if engine is not None:
        return exporting.to_engine(load(folder, device, weights), engine)
    run = RunFolder.open(folder)
    record = read_record(run)
    found = get_recipe(record["recipe"])
    path = run.find_weights() if weights is None else Path(weights)
    settings = found.config_class.from_dict(record["settings"])
    tensors = load_weights(path)
    layers = getattr(settings, "num_layers", 1)
    if isinstance(layers, int) and layers > len(tensors):  # building them all would never end
        raise ConfigError(f"{run.record_path} tells of {layers:,} layers, but {path} has weights for fewer")
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
            f"{folder} was trained for {recipe_name(folder)} and cannot translate; `regard info` says what it is"
        )
    return found


def recipe_name(folder: str | Path) -> str:
    """The name of the recipe that a run or an exported model was trained with."""
    from regard import export as exporting

    record = (
        exporting.read_record(folder) if exporting.is_export(folder) else read_record(RunFolder.open(folder))
    )
    return str(record["recipe"])


def read_record(run: RunFolder) -> dict[str, Any]:
    """run.json, if this version of regard can read it."""
    record = run.read_record()
    if record.get("format", FORMAT) == 1:
        raise RunFormatError(f"{run.folder} was written by regard 0.1; train it again, or use regard 0.1")
    if record.get("format", FORMAT) != FORMAT:
        raise RunFormatError(
            f"{run.record_path} has format {record['format']!r}, but this regard reads {FORMAT}; install a newer regard"
        )
    kinds = {"format": int, "recipe": str, "settings": dict}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        raise ConfigError(
            f"{run.record_path} is damaged: it should name a recipe and its settings; copy it again"
        )
    return record


def _make_record(recipe: Recipe, config: TrainingConfig, init_from: str | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "regard": __version__,
        "recipe": recipe.name,
        "settings": config.to_dict(),
        "init_from": init_from,
        "files": fingerprint_files(recipe, config),
    }


def _model_facts(experiment: Any) -> dict[str, Any]:
    return {"parameters": sum(p.numel() for p in experiment.objective.parameters()), **experiment.facts}


def _log_to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
