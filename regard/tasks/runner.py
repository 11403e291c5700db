"""The life of a run: from a recipe to a trained model in a folder, and back.

train     make_config -> validate -> RunFolder -> processor -> model -> fit
resume    run.json -> changed options -> fingerprints of the files -> fit
load      run.json -> config, processor, model -> predictor
evaluate  load -> splits of the recipe -> Predictor.evaluate
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from regard.config import format_conditions, format_value, split_override
from regard.errors import ConfigError, RegardError, RunError, UsageError
from regard.files import checksums_of, replace_path, storage_errors, sync_folder
from regard.tasks.datasets import DOWNLOAD
from regard.tasks.mechanisms import check_mechanisms, training_warnings
from regard.tasks.registry import Recipe, check_processor, get_recipe, get_task, make_config, read_record
from regard.tasks.run_record import check_files_unchanged, make_record
from regard.tasks.task import Processor
from regard.training import (
    Callback,
    RunFolder,
    TrainingConfig,
    TrainingResult,
    checkpoint,
    distributed,
    fit,
    load_weights,
)
from regard.training.engine import resolve_epochs
from regard.training.logging import LogFn
from regard.training.weights import resolve_device

__all__ = ["resolve_config", "resume", "train"]

RUN_FOLDER_TIMEOUT = 60.0  # seconds for the main process to create the folder of a run


def train(
    name: str,
    out: str | Path,
    overrides: Iterable[str] = (),
    *,
    init_from: str | Path | None = None,
    log: LogFn | None = None,
    callbacks: Sequence[Callback] = (),
    **values: Any,
) -> TrainingResult:
    """Train a recipe into a new folder, which has everything that is needed to resume the run or to use the model.

    Args:
        name: of the recipe
        out: the folder
        overrides: `key=value` texts
        init_from: a run whose weights and tokenizers the new one begins with
        log: receives lines; None: standard error
        callbacks: called after steps, after validations and at the end
        values: options as values

    Returns:
        The last step, why training ended, and metrics.

    Example:
        result = train("reverse", "runs/reverse", ["steps=200"], lr=1e-3)
        result.step  # 200
    """
    recipe, overrides = get_recipe(name), tuple(overrides)
    origin = None if init_from is None else RunFolder.open(init_from)
    config = _inherit_and_check(recipe, overrides, values, origin).resolve_paths()
    data = recipe.load_data(config)
    get_task(recipe.task).validate(config, data)  # before a folder is created
    run = RunFolder.create(out)
    is_main = distributed.distributed_context().is_main
    if is_main and not run.record_path.is_file():  # torchrun finds it there after a restart
        run.write_record(make_record(recipe, config, data.files, str(origin.folder.resolve()) if origin else None))
        for option, when in config.unused(sorted(_given_options(overrides, values))).items():
            (log or _log_to_stderr)(f"{option} is for {format_conditions(when)}, and changes nothing here")
    try:
        return _run_training(run, log, callbacks)
    except Exception:
        _remove_unstarted_run(run)
        raise


def resolve_config(
    name: str, overrides: Iterable[str] = (), *, init_from: str | Path | None = None, **values: Any
) -> TrainingConfig:
    """The config that `train` would begin with; it refuses what `train` refuses, except for data that is missing.

    Args:
        name, overrides, init_from, values: as for `train`
    """
    recipe = get_recipe(name)
    origin = None if init_from is None else RunFolder.open(init_from)
    config = _inherit_and_check(recipe, tuple(overrides), values, origin)
    if getattr(config, "data_dir", None) != DOWNLOAD:  # nothing is downloaded to show a config
        error = _validation_error(recipe, config)
        if error and error != _validation_error(recipe, make_config(name)):  # more than missing data
            raise ConfigError(error)
    check_mechanisms(config)
    return config


def resume(
    folder: str | Path, log: LogFn | None = None, *, callbacks: Sequence[Callback] = (), **changes: Any
) -> TrainingResult:
    """Resume a run from its latest checkpoint.

    Args:
        folder: of the run
        log: receives lines; None: standard error
        callbacks: as for `train`
        changes: new values of options marked `resumable`

    Example:
        resume("runs/reverse", steps=400)  # 200 more
    """
    run = RunFolder.open(folder)
    if changes:
        record = read_record(run)
        config = _read_config(record)
        for name in changes:
            if not config.option(name).resumable:
                allowed = ", ".join(item.name for item in config.options() if item.resumable)
                raise ConfigError(
                    f"{name} cannot change in a resumed run, whose result must be that of one training; start a new"
                    f" run (--init-from takes the weights of this one). What may change: {allowed}",
                    option=name,
                )
        config = config.replace(**changes)
        if distributed.distributed_context().is_main:
            with run.lock():  # nothing is written before it is known that the run can be resumed
                check_files_unchanged(record.get("files", {}))
                _check_steps(run, config)
                run.write_record({**record, "config": config.to_dict()})
    return _run_training(run, log, callbacks)


def _validation_error(recipe: Recipe, config: TrainingConfig) -> str:
    try:
        get_task(recipe.task).validate(config, recipe.load_data(config))
    except UsageError as error:
        return str(error)
    return ""


def _inherit_and_check(
    recipe: Recipe, overrides: tuple[str, ...], values: Mapping[str, Any], origin: RunFolder | None
) -> TrainingConfig:
    """The config with the options of the run whose weights it begins with; contradictions are refused."""
    config: TrainingConfig = make_config(recipe.name, overrides, **values)
    if origin is None:
        return config
    record = read_record(origin)
    task = get_task(recipe.task)
    other = get_task(record["task"])
    if not task.can_init_from(other):
        raise ConfigError(
            f"{origin.folder} was trained for {record['recipe']}, and {recipe.name} needs another kind of model;"
            " --init-from takes a run of the same kind"
        )
    inherited: TrainingConfig = task.inherit_config(config, other, record["config"])
    for key in sorted(_given_options(overrides, values)):
        if (new := getattr(config, key)) != (old := getattr(inherited, key)):
            raise ConfigError(
                f"{key} is that of {origin.folder}: {format_value(old)}, not {format_value(new)}; leave {key} out,"
                " or train without --init-from"
            )
    return inherited


def _given_options(overrides: Iterable[str], values: Mapping[str, Any]) -> set[str]:
    """The options that were given, as texts or as values."""
    return {*values, *(key for key, _ in map(split_override, overrides))}


def _remove_unstarted_run(run: RunFolder) -> None:
    """Remove the files of a run that failed before its first checkpoint, so that its folder can be used again."""
    if distributed.distributed_context().is_main and not run.checkpoints.is_dir():
        for folder in (run.processor, _partial(run.processor)):
            shutil.rmtree(folder, ignore_errors=True)
        for path in (run.record_path, run.log, run.metrics, run.folder / ".lock"):
            path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # it has other files
            run.folder.rmdir()


def _check_steps(run: RunFolder, config: TrainingConfig) -> None:
    """Refuse to end before the latest checkpoint; a run whose checkpoints are all damaged cannot be resumed."""
    latest = checkpoint.load_latest(run.checkpoints)
    if latest is not None and config.epochs is None and config.steps < latest.step:
        raise ConfigError(
            f"invalid value '{config.steps}' for steps: {run.folder} has made {latest.step:,} steps already; ask for"
            " more of them, or begin a new run"
        )


def _run_training(run: RunFolder, log: LogFn | None, callbacks: Sequence[Callback]) -> TrainingResult:
    """Train a run from its latest checkpoint, or from the start; under torchrun, all processes call this."""
    log = log or _log_to_stderr
    record = _wait_for_record(run)
    distributed.init_process_group(resolve_device(_read_config(record).device))
    record = read_record(run)
    origin = None if record["init_from"] is None else RunFolder.open(record["init_from"])
    check_files_unchanged(record.get("files", {}))
    result = _fit(run, record, origin, log, callbacks)
    distributed.destroy_process_group()
    return result


def _fit(
    run: RunFolder, record: dict[str, Any], origin: RunFolder | None, log: LogFn, callbacks: Sequence[Callback]
) -> TrainingResult:
    task, config = get_task(record["task"]), _read_config(record)
    data = get_recipe(record["recipe"]).load_data(config)
    is_main = distributed.distributed_context().is_main
    if is_main and not _has_processor(run, record):
        if "processor_files" in record:
            log(f"{run.processor} is missing or damaged; it is made anew from the data")
        if origin is None:
            new: Processor = task.build_processor(config, data)
        else:
            check_processor(origin, read_record(origin))
            new = task.inherit_processor(config, data, get_task(read_record(origin)["task"]), origin.processor)
        with storage_errors(str(run.folder)):
            _save_processor(run, record, new)
    distributed.barrier()
    processor = task.processor_class.load(run.processor)
    batches = task.train_batches(config, processor, data.train)
    config = resolve_epochs(config, batches)
    torch.manual_seed(config.seed)  # of the initial weights
    model, loss = task.build_model(config, processor), task.build_loss(config)
    valid: Any = task.eval_batches(config, processor, data.valid)
    if isinstance(valid, Iterator):  # it is iterated at every validation
        valid = list(valid)
    if not checkpoint.list_steps(run.checkpoints):
        if origin is not None:
            other = get_task(read_record(origin)["task"])
            task.init_model(model, other, load_weights(origin.find_weights()), str(origin.folder))
        if is_main:
            reports = task.describe_data(config, batches, valid)
            parameters = sum(p.numel() for p in model.parameters())
            facts = {"model": {"parameters": parameters}, "processor": processor.describe()}
            facts["processor_files"] = checksums_of(run.processor)
            summaries = {name: {**report.as_dict(), "summary": str(report)} for name, report in reports.items()}
            run.write_record({**record, **facts, **({"data": summaries} if reports else {})})
            lines = [f"{name}: {one}" for name, one in reports.items() if one.as_dict().get("read", 1)]
            for line in lines + training_warnings(model):
                log(line)
    predictor = task.predictor_class(model, processor, config)
    lower_is_better = {metric.name: metric.lower_is_better for metric in task.metrics}.get(config.monitor)
    mode = task.compile_mode(config)

    def validate() -> dict[str, float]:
        return task.compute_metrics(predictor, loss, valid, data.valid)

    options: Any = {"lower_is_better": lower_is_better, "compile_mode": mode, "callbacks": callbacks}
    return fit(model, loss, batches, config, run, validate, log, **options)


def _read_config(record: Mapping[str, Any]) -> TrainingConfig:
    return get_task(record["task"]).config_class.from_dict(record["config"])


def _has_processor(run: RunFolder, record: Mapping[str, Any]) -> bool:
    """Whether the run has its processor; one that is missing or damaged can be made anew."""
    try:
        check_processor(run, record)
        get_task(record["task"]).processor_class.load(run.processor)
    except (RegardError, OSError):
        return False
    return True


def _save_processor(run: RunFolder, record: Mapping[str, Any], processor: Processor) -> None:
    """Write the folder of a processor; it gets its name when it is complete."""
    partial = _partial(run.processor)
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    processor.save(partial)
    if checksums_of(partial) != record.get("processor_files", checksums_of(partial)):
        shutil.rmtree(partial)
        problem = "is damaged, and what the data gives now is not what the run began with"
        raise RunError(f"{run.processor} {problem}; copy this folder from a backup")
    shutil.rmtree(run.processor, ignore_errors=True)
    replace_path(partial, run.processor)
    sync_folder(run.folder)


def _partial(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.part")


def _wait_for_record(run: RunFolder) -> dict[str, Any]:
    """run.json, as soon as the main process has written it."""
    is_main = distributed.distributed_context().is_main
    deadline = time.monotonic() + RUN_FOLDER_TIMEOUT
    while not is_main and not run.record_path.is_file() and time.monotonic() < deadline:
        time.sleep(0.1)
    return read_record(run)


def _log_to_stderr(line: str) -> None:
    sys.stderr.write(line + "\n")
