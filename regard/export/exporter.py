"""From a run to a folder that others can use, and from there to a predictor."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.errors import (
    CheckpointCorruptError,
    ConfigError,
    ExportError,
    RunFormatError,
    UnknownNameError,
    UnsupportedError,
)
from regard.export import ctranslate2 as _ctranslate2
from regard.export import folder as _folder
from regard.export import onnx as _onnx
from regard.export.folder import card_facts, model_card
from regard.tasks.loading import load_predictor
from regard.tasks.registry import get_recipe, get_task
from regard.tasks.run_record import read_record as read_run_record
from regard.tasks.translation.config import TranslationConfig
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.predictor import Translator
from regard.tasks.translation.processor import TranslationProcessor
from regard.training import RunFolder, load_weights, save_weights

__all__ = ["ENGINES", "TARGETS", "ExportSource", "export", "open_export", "to_engine"]

TARGETS = ("ctranslate2", "onnx", "safetensors")
ENGINES = ("torch", "ctranslate2", "onnx")
WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True)
class ExportSource:
    """What is exported: a run, or an exported folder with its weights.

    Args:
        run: the folder with the processor
        record: its record, with `task` and `config`
        weights: state dict of the model
        weights_path: where the weights come from
        facts: for the model card
    """

    run: RunFolder
    record: Mapping[str, Any]
    weights: Mapping[str, Tensor]
    weights_path: str
    facts: Mapping[str, Any]

    def load(self, device: str = "cpu") -> Any:
        """Its predictor."""
        return load_predictor(self.record, self.run, self.weights, self.weights_path, device)


def export(
    folder: str | Path, to: str, out: str | Path, quantize: str | None = None, weights: str | Path | None = None
) -> Path:
    """Write the model of a run into a new folder, which does not need the run.

    Args:
        folder: of the run, or of an export as safetensors
        to: "ctranslate2", "onnx" or "safetensors"
        out: the new folder
        quantize: "int8": eight bits for the weights of matrix products
        weights: another file of weights

    Returns:
        The new folder.
    """
    _check_target(to, quantize)
    source = _open_source(Path(folder), weights)
    predictor, recipe = source.load(), get_recipe(source.record["recipe"])
    if to != "safetensors" and not isinstance(predictor, Translator):
        raise ExportError(
            f"{folder} was trained for {recipe.name}, and {to} takes translators only; export it with --to safetensors"
        )
    defaults = {item.name: item.default for item in recipe.config_class.options() if item.path}
    config = source.record["config"]
    record = {
        "to": to,
        "quantize": quantize,
        "task": recipe.task,
        "recipe": recipe.name,
        "config": {**config, **{name: value for name, value in defaults.items() if name in config}},
        **source.facts,
    }
    with _folder.new_export_folder(Path(out), record) as partial:
        if to == "safetensors":
            save_weights(source.weights, partial / WEIGHTS_FILE)
        else:
            _model_writer(to)(predictor, partial, quantize)
        shutil.copytree(source.run.processor, partial / source.run.processor.name)
        card = model_card(recipe.name, record, Path(out).resolve().name)
        (partial / _folder.CARD_FILE).write_text(card, encoding="utf-8")
    return Path(out)


def open_export(folder: str | Path, engine: str | None = None, device: str = "cpu") -> Any:
    """The predictor of an exported folder.

    Args:
        folder: what `export` wrote
        engine: another engine, for an export as safetensors only
        device: where to compute
    """
    folder = Path(folder)
    record = _folder.read_record(folder)
    target = record["to"]
    own_engine = "torch" if target == "safetensors" else target
    if engine not in (None, own_engine) and target != "safetensors":
        raise UnsupportedError(
            f"{folder} was exported for {target} and runs with that engine only; export its run for {engine},"
            " or --to safetensors for any"
        )
    if target == "safetensors":
        predictor = _open_source(folder, None).load(device if engine in (None, "torch") else "cpu")
        return predictor if engine in (None, "torch") else to_engine(predictor, str(engine))
    get_task(record["task"])  # raises UnknownNameError for a task of a newer version
    config = TranslationConfig.from_dict(record["config"])
    processor = TranslationProcessor.load(RunFolder(folder).processor)
    return Translator(_make_engine(target, folder, processor, config.max_length), processor, config)


def to_engine(translator: Any, engine: str) -> Translator:
    """The same translator with another engine; it is exported into a temporary folder."""
    if engine not in ENGINES:
        raise UnknownNameError.among("engine", engine, ENGINES)
    if not isinstance(translator, Translator):
        raise UnsupportedError(f"{engine} runs translators only; leave the engine out for this one")
    if engine == "torch":
        return translator
    with tempfile.TemporaryDirectory() as folder:
        _model_writer(engine)(translator, Path(folder), None)
        model = _make_engine(engine, Path(folder), translator.processor, translator.max_length)
    return translator.with_model(model)


def _check_target(to: str, quantize: str | None) -> None:
    if to not in TARGETS:
        raise UnknownNameError.among("export format", to, TARGETS)
    if quantize not in (None, "int8"):
        raise ConfigError(f"invalid value {quantize!r} for quantize: expected int8, or leave it out")
    if quantize and to == "safetensors":
        raise ConfigError("safetensors keep the weights as they were trained; quantize for ctranslate2 or onnx")


def _open_source(folder: Path, weights: str | Path | None) -> ExportSource:
    if _folder.is_export(folder):
        record = _folder.read_record(folder)
        if record["to"] != "safetensors":
            raise ExportError(f"{folder} was exported for {record['to']} already; export the run itself")
        run, path = RunFolder(folder), folder / WEIGHTS_FILE
        facts = {name: record.get(name) for name in _folder.CARD_FACTS}
    else:
        run = RunFolder.open(folder)
        record = read_run_record(run)
        path = run.find_weights() if weights is None else Path(weights)
        facts = card_facts(record, _latest_state(run))
    return ExportSource(run, record, load_weights(path), str(path), facts)


def _latest_state(run: RunFolder) -> dict[str, Any]:
    from regard.training import checkpoint

    try:
        latest = checkpoint.load_latest(run.checkpoints)
    except CheckpointCorruptError:
        return {}
    return {} if latest is None else latest.state


def _model_writer(engine: str) -> Any:
    return {"ctranslate2": _ctranslate2.write_model, "onnx": _onnx.write_model}[engine]


def _make_engine(engine: str, folder: Path, processor: TranslationProcessor, max_length: int) -> InferenceEngine:
    if engine == "onnx":
        return _onnx.OnnxEngine(folder, max_length)
    if engine == "ctranslate2":
        return _ctranslate2.CTranslate2Engine(folder, processor.source, processor.target, max_length)
    raise RunFormatError(
        f"{folder} was exported for {engine!r}, which this version of regard does not have; install a newer one"
    )
