"""The life of a run: from a recipe to a trained model in a folder, and back.

train     make_config -> validate -> RunFolder -> processor -> model -> fit
resume    run.json -> changed options -> fingerprints of the files -> fit
load      run.json -> config, processor, model -> predictor
evaluate  load -> splits of the recipe -> Predictor.evaluate
"""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard._version import __version__
from regard.config import format_conditions, format_value, split_override
from regard.errors import ConfigError, DataError, RunFormatError, StorageError, UsageError, WeightsMismatchError
from regard.files import DISK_FULL_ERRNOS, sync_folder
from regard.tasks.datasets import DOWNLOAD
from regard.tasks.mechanisms import check_mechanisms, training_warnings
from regard.tasks.predictor import Predictor, Report
from regard.tasks.registry import Recipe, get_recipe, get_task, make_config
from regard.tasks.task import Task
from regard.training import (
    RunFolder,
    TrainingConfig,
    TrainingResult,
    checkpoint,
    distributed,
    fit,
    load_into,
    load_weights,
)
from regard.training.display import LogFn

__all__ = [
    "AllocationLimit",
    "build_and_load",
    "check_files_unchanged",
    "evaluate",
    "fingerprint_file",
    "load",
    "make_config",
    "read_record",
    "recipe_name",
    "resolve_config",
    "resume",
    "train",
]

FORMAT = 2  # of run.json
RUN_FOLDER_TIMEOUT = 60.0  # seconds for the main process to create the folder of a run
CHUNK_BYTES = 1 << 20  # bytes that are read at once for a fingerprint
MAX_CHUNKS = 64  # of a file: all of most files, and a sample of one that is larger than memory
ALLOCATION_FUNCTIONS = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand)
ALLOCATION_MARGIN = 10_000_000  # elements of buffers that are not saved, such as tables of positions

AnyTask = Task[Any, Any, Any, Any]
ModelT = TypeVar("ModelT", bound=nn.Module)


def train(
    name: str,
    out: str | Path,
    overrides: Iterable[str] = (),
    *,
    init_from: str | Path | None = None,
    log: LogFn | None = None,
    **values: Any,
) -> TrainingResult:
    """Train a recipe into a new folder, which has everything that is needed to resume the run or to use the model.

    Args:
        name: of the recipe
        out: the folder
        overrides: `key=value` texts
        init_from: a run whose weights and tokenizers the new one begins with
        log: receives lines; None: standard error
        values: options as values

    Returns:
        The last step, why training ended, and metrics.
    """
    recipe, overrides = get_recipe(name), tuple(overrides)
    origin = None if init_from is None else RunFolder.open(init_from)
    config = _inherit_and_check(recipe, overrides, values, origin).resolve_paths()
    _validate(recipe, config)  # before a folder is created
    run = RunFolder.create(out)
    is_main = distributed.distributed_context().is_main
    if is_main and not run.record_path.is_file():  # torchrun finds it there after a restart
        run.write_record(_make_record(recipe, config, None if origin is None else str(origin.folder.resolve())))
        for option, when in config.unused(sorted(_given_options(overrides, values))).items():
            (log or _log_to_stderr)(f"{option} is for {format_conditions(when)}, and changes nothing here")
    try:
        return _run_training(run, log)
    except Exception:
        _remove_unstarted_run(run)
        raise


def resolve_config(
    name: str, overrides: Iterable[str] = (), *, init_from: str | Path | None = None, **values: Any
) -> TrainingConfig:
    """The config that `train` would begin with; it refuses what `train` refuses, except for data that is missing."""
    recipe = get_recipe(name)
    origin = None if init_from is None else RunFolder.open(init_from)
    config = _inherit_and_check(recipe, tuple(overrides), values, origin)
    if getattr(config, "data_dir", None) != DOWNLOAD:  # nothing is downloaded to show a config
        error = _validation_error(recipe, config)
        if error and error != _validation_error(recipe, make_config(name)):  # more than missing data
            raise ConfigError(error)
    check_mechanisms(config)
    return config


def resume(folder: str | Path, log: LogFn | None = None, **changes: Any) -> TrainingResult:
    """Resume a run from its latest checkpoint.

    Args:
        folder: of the run
        log: receives lines; None: standard error
        changes: new values of options marked `resumable`
    """
    run = RunFolder.open(folder)
    if changes:
        record = read_record(run)
        config = _apply_changes(record, changes)
        if distributed.distributed_context().is_main:
            with run.lock():  # nothing is written before it is known that the run can be resumed
                check_files_unchanged(record.get("files", {}))
                _check_steps(run, config)
                run.write_record({**record, "config": config.to_dict()})
    return _run_training(run, log)


def load(
    folder: str | Path, device: str = "cpu", weights: str | Path | None = None, *, engine: str | None = None
) -> Any:
    """The predictor of a run: with its averaged weights, else its best, else its last.

    Args:
        folder: of a run, or one that `regard export` wrote
        device: where to compute
        weights: another file of weights
        engine: "torch", or an engine for translations: "ctranslate2", "onnx"
    """
    from regard import export  # it imports this module

    if export.is_export(folder):
        return export.open_export(folder, engine, device)
    if engine is not None:
        return export.to_engine(load(folder, device, weights), engine)
    run = RunFolder.open(folder)
    record = read_record(run)
    path = run.find_weights() if weights is None else Path(weights)
    return load_predictor(record, run, load_weights(path), str(path), device)


def load_predictor(
    record: Mapping[str, Any], run: RunFolder, weights: Mapping[str, Tensor], path: str, device: str = "cpu"
) -> Any:
    """The predictor of a record of a run, whose processor is in the folder of the run.

    Args:
        record: with `recipe` and `config`
        run: its folder
        weights: state dict of the model
        path: where the weights come from, for error messages
        device: where to compute
    """
    recipe = get_recipe(record["recipe"])
    config = recipe.config_class.from_dict(record["config"])
    num_layers = getattr(config, "num_layers", 1)
    if isinstance(num_layers, int) and num_layers > len(weights):  # building them would take forever
        raise ConfigError(f"{run.record_path} has num_layers={num_layers:,}, but {path} has fewer layers")
    if not isinstance(recipe, Recipe):
        return recipe.task.load(run, recipe, config, weights, path, device)
    task = get_task(recipe.task)
    processor = task.processor_class.load(run.processor)
    model = build_and_load(lambda: task.build_model(config, processor), weights, path)
    return task.predictor_class(model.to(device), processor, config)


def evaluate(
    folder: str | Path, split: str | None = None, options: Any = None, *, device: str = "cpu", limit: int | None = None
) -> dict[str, Report]:
    """Evaluate a run on the splits of its recipe.

    Args:
        folder: of the run
        split: name of one split; None: all tests
        options: `Predictor.evaluate_options`
        device: where to compute
        limit: maximum number of examples of each split

    Returns:
        A report for each split.
    """
    predictor: Predictor[Any, Any, Any] = load(folder, device)
    recipe = get_recipe(recipe_name(folder))
    splits = recipe.load_data(predictor.config).select(split)
    return {
        name: predictor.evaluate(
            examples if limit is None else [one for one, _ in zip(examples, range(limit), strict=False)], options
        )
        for name, examples in splits.items()
    }


def recipe_name(folder: str | Path) -> str:
    """The name of the recipe that a run or an exported model was trained with."""
    from regard import export

    is_export = export.is_export(folder)
    record = export.read_record(folder) if is_export else read_record(RunFolder.open(folder))
    return str(record["recipe"])


def read_record(run: RunFolder) -> dict[str, Any]:
    """run.json, if this version of regard can read it."""
    record = run.read_record()
    if record.get("format") == 1:
        raise RunFormatError(f"{run.folder} was written by regard 0.1; train it again, or use regard 0.1")
    if record.get("format", FORMAT) != FORMAT:
        raise RunFormatError(
            f"{run.record_path} has format {record['format']!r}, but this regard reads {FORMAT}; install a newer regard"
        )
    kinds = {"format": int, "recipe": str, "config": dict}
    if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
        raise RunFormatError(f"{run.record_path} is damaged: it must name a recipe and its config; copy it again")
    return record


def fingerprint_file(path: Path) -> dict[str, Any]:
    """The size of a file and a checksum of all of it, or of chunks spread evenly from its first byte to its last."""
    size = path.stat().st_size
    last = max(size - CHUNK_BYTES, 0)
    offsets: Iterable[int] = range(0, size, CHUNK_BYTES)
    if size > CHUNK_BYTES * MAX_CHUNKS:
        offsets = (last * i // (MAX_CHUNKS - 1) for i in range(MAX_CHUNKS))
    digest = sha256()
    with path.open("rb") as file:
        for offset in offsets:
            file.seek(offset)
            digest.update(file.read(CHUNK_BYTES))
    return {"bytes": size, "sha256": digest.hexdigest()}


def check_files_unchanged(fingerprints: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse to resume with other data; that a file is missing is reported by its reader."""
    for name, before in fingerprints.items():
        if (path := Path(name)).is_file() and fingerprint_file(path) != before:
            raise DataError(
                f"{name} has changed since the run began, so it cannot be resumed as the same training; restore the"
                " file, or begin a new run (--init-from takes these weights)"
            )


def build_and_load(build: Callable[[], ModelT], weights: Mapping[str, Tensor], path: str) -> ModelT:
    """A model with these weights; a damaged config cannot make it take all memory.

    Args:
        build: builds the model
        weights: its state dict
        path: where the weights come from, for error messages
    """
    with AllocationLimit(sum(tensor.numel() for tensor in weights.values()), path):
        model = build()
    load_into(model, dict(weights), path)
    return model


class AllocationLimit(TorchFunctionMode):
    """A context in which no tensor is created that has far more elements than all weights of a file together."""

    def __init__(self, num_elements: int, path: str):
        super().__init__()
        self.max_elements, self.path = 2 * num_elements + ALLOCATION_MARGIN, path

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ALLOCATION_FUNCTIONS:
            sizes = args[0] if args and isinstance(args[0], list | tuple) else args
            if math.prod(size for size in sizes if isinstance(size, int)) > self.max_elements:
                raise WeightsMismatchError(f"the config of the run needs a larger model than {self.path} has")
        return func(*args, **(kwargs or {}))


def _task_of(recipe: Any) -> Any:
    return get_task(recipe.task) if isinstance(recipe, Recipe) else recipe.task


def _validate(recipe: Any, config: TrainingConfig) -> None:
    if isinstance(recipe, Recipe):
        get_task(recipe.task).validate(config, recipe.load_data(config))
    else:
        recipe.task.validate(recipe, config)


def _validation_error(recipe: Any, config: TrainingConfig) -> str:
    try:
        _validate(recipe, config)
    except UsageError as error:
        return str(error)
    return ""


def _inherit_and_check(
    recipe: Any, overrides: tuple[str, ...], values: Mapping[str, Any], origin: RunFolder | None
) -> TrainingConfig:
    """The config with the options of the run whose weights it begins with; contradictions are refused."""
    config: TrainingConfig = make_config(recipe.name, overrides, **values)
    if origin is None:
        return config
    record = read_record(origin)
    task = _task_of(recipe)
    if not task.can_init_from(_task_of(get_recipe(record["recipe"]))):
        raise ConfigError(
            f"{origin.folder} was trained for {record['recipe']}, and {recipe.name} needs another kind of model;"
            " --init-from takes a run of the same kind"
        )
    inherit = task.inherit_config if isinstance(recipe, Recipe) else task.like
    inherited: TrainingConfig = inherit(config, record["config"])
    for key in sorted(_given_options(overrides, values)):
        given, kept = getattr(config, key), getattr(inherited, key)
        if given != kept:
            raise ConfigError(
                f"{key} is that of {origin.folder}: {format_value(kept)}, not {format_value(given)}; leave {key} out,"
                " or train without --init-from"
            )
    return inherited


def _given_options(overrides: Iterable[str], values: Mapping[str, Any]) -> set[str]:
    """The options that were given, as texts or as values."""
    return {*values, *(key for key, _ in map(split_override, overrides))}


def _make_record(recipe: Any, config: TrainingConfig, init_from: str | None) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "regard_version": __version__,
        **({"task": recipe.task} if isinstance(recipe, Recipe) else {}),
        "recipe": recipe.name,
        "config": config.to_dict(),
        "init_from": init_from,
        "files": _fingerprint_files(recipe, config),
    }


def _fingerprint_files(recipe: Any, config: TrainingConfig) -> dict[str, dict[str, Any]]:
    """The fingerprints of the files to train on and to validate with; none of generated data."""
    if isinstance(recipe, Recipe):
        paths = set(recipe.load_data(config).files)
    else:
        names = (getattr(config, f"{split}_files", ()) for split in ("train", "valid"))
        paths = {Path(name) for files in names for name in files}
    return {str(path): fingerprint_file(path) for path in sorted(paths) if path.is_file()}


def _remove_unstarted_run(run: RunFolder) -> None:
    """Remove the files of a run that failed before its first checkpoint, so that its folder can be used again."""
    if distributed.distributed_context().is_main and not run.checkpoints.is_dir():
        for folder in (run.processor, _partial(run.processor)):
            shutil.rmtree(folder, ignore_errors=True)
        names = {".lock"}
        if run.record_path.is_file():
            with contextlib.suppress(Exception):
                names |= set(getattr(_task_of(get_recipe(run.read_record()["recipe"])), "files", ()))
        partial = {str(Path(name).with_suffix(".part")) for name in names}
        for path in (run.record_path, run.log, run.metrics, *(run.folder / name for name in names | partial)):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it has other files
            run.folder.rmdir()


def _apply_changes(record: Mapping[str, Any], changes: Mapping[str, Any]) -> TrainingConfig:
    config: TrainingConfig = get_recipe(record["recipe"]).config_class.from_dict(record["config"])
    resumable = [item.name for item in config.options() if item.resumable]
    for name in changes:
        if not config.option(name).resumable:
            raise ConfigError(f"{name} cannot change in a run that has begun; only these can: {', '.join(resumable)}")
    return config.replace(**changes)


def _check_steps(run: RunFolder, config: TrainingConfig) -> None:
    """Refuse to end before the latest checkpoint; a run whose checkpoints are all damaged cannot be resumed."""
    latest = checkpoint.load_latest(run.checkpoints)
    if latest is not None and config.steps < latest.step:
        raise ConfigError(
            f"invalid value '{config.steps}' for steps: {run.folder} has made {latest.step:,} steps already; ask for"
            " more of them, or begin a new run"
        )


def _run_training(run: RunFolder, log: LogFn | None) -> TrainingResult:
    """Train a run from its latest checkpoint, or from the start; under torchrun, all processes call this."""
    log = log or _log_to_stderr
    record = _wait_for_record(run)
    recipe = get_recipe(record["recipe"])
    device = recipe.config_class.from_dict(record["config"]).device
    distributed.init_process_group(distributed.resolve_device(device))
    record = read_record(run)
    config = recipe.config_class.from_dict(record["config"])
    origin = None if record["init_from"] is None else RunFolder.open(record["init_from"])
    check_files_unchanged(record.get("files", {}))
    run_fn = _fit_recipe if isinstance(recipe, Recipe) else _fit_old_recipe
    result = run_fn(run, recipe, config, record, origin, log)
    distributed.destroy_process_group()
    return result


def _fit_recipe(
    run: RunFolder, recipe: Recipe, config: TrainingConfig, record: dict[str, Any], origin: RunFolder | None, log: LogFn
) -> TrainingResult:
    task, data = get_task(recipe.task), recipe.load_data(config)
    is_main = distributed.distributed_context().is_main
    if is_main and not run.processor.is_dir():
        with _storage_errors(run):
            _save_processor(run, _make_processor(task, config, data, origin))
    distributed.barrier()
    processor = task.processor_class.load(run.processor)
    torch.manual_seed(config.seed)  # of the initial weights
    model, loss = task.build_model(config, processor), task.build_loss(config)
    batches = task.train_batches(config, processor, data.train)
    valid = task.eval_batches(config, processor, data.valid)
    if isinstance(valid, Iterator):  # it is iterated at every validation
        valid = list(valid)
    if not checkpoint.list_steps(run.checkpoints):
        if origin is not None:
            task.init_model(model, load_weights(origin.find_weights()), str(origin.folder))
        if is_main:
            reports = task.describe_data(config, batches, valid)
            facts = {
                "model": {"parameters": sum(p.numel() for p in model.parameters())},
                "processor": processor.describe(),
            }
            summaries = {name: {**report.as_dict(), "summary": str(report)} for name, report in reports.items()}
            read = {"data": summaries} if reports else {}
            run.write_record({**record, **facts, **read})
            for line in (
                *(f"{name}: {one}" for name, one in reports.items() if one.as_dict().get("read", 1)),
                *training_warnings(model),
            ):
                log(line)
    predictor = task.predictor_class(model, processor, config)
    directions = {metric.name: metric.lower_is_better for metric in task.metrics}
    return fit(
        model,
        loss,
        batches,
        config,
        run,
        lambda: task.compute_metrics(config, predictor, loss, valid, data.valid),
        log,
        lower_is_better=directions.get(config.monitor),
        compile_mode=task.compile_mode(config),
    )


def _make_processor(task: AnyTask, config: TrainingConfig, data: Any, origin: RunFolder | None) -> Any:
    if origin is None:
        return task.build_processor(config, data)
    other = get_task(get_recipe(read_record(origin)["recipe"]).task)
    return task.inherit_processor(config, data, other, origin.processor)


def _save_processor(run: RunFolder, processor: Any) -> None:
    """Write the folder of a processor; it gets its name when it is complete."""
    partial = _partial(run.processor)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    processor.save(partial)
    os.replace(partial, run.processor)
    sync_folder(run.folder)


def _partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.part")


def _fit_old_recipe(
    run: RunFolder, recipe: Any, config: TrainingConfig, record: dict[str, Any], origin: RunFolder | None, log: LogFn
) -> TrainingResult:
    """The same for a task that is not ported to the protocol yet."""
    is_main = distributed.distributed_context().is_main
    if is_main and not all((run.folder / name).is_file() for name in recipe.task.files):
        with _storage_errors(run):
            recipe.task.ready(run, recipe, config, origin)
    distributed.barrier()
    torch.manual_seed(config.seed)
    experiment = recipe.task.experiment(run, recipe, config)
    if not checkpoint.list_steps(run.checkpoints):
        if origin is not None:
            recipe.task.init_model(experiment.objective.model, load_weights(origin.find_weights()), str(origin.folder))
        if is_main:
            parameters = sum(p.numel() for p in experiment.objective.parameters())
            run.write_record({**record, "parameters": parameters, **experiment.facts})
            for line in (*experiment.lines, *training_warnings(experiment.objective)):
                log(line)
    result: TrainingResult = experiment.fit(log)
    return result


@contextlib.contextmanager
def _storage_errors(run: RunFolder) -> Iterator[None]:
    """Report a full or read-only disk in one sentence; other errors may be about reading."""
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
    """run.json, as soon as the main process has written it."""
    is_main = distributed.distributed_context().is_main
    deadline = time.monotonic() + RUN_FOLDER_TIMEOUT
    while not is_main and not run.record_path.is_file() and time.monotonic() < deadline:
        time.sleep(0.1)
    return read_record(run)


def _log_to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
