"""From a run to a folder that others can use, and from there to a model again."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from regard.data.tokenizer import Tokenizer
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
from regard.tasks.legacy import Recipe
from regard.tasks.registry import get_recipe
from regard.tasks.runner import read_record as read_run
from regard.tasks.translation.config import TranslationConfig
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.predictor import Translator
from regard.tasks.translation.task import TranslationTask
from regard.training import RunFolder, load_weights, save_weights

TARGETS = ("ctranslate2", "onnx", "safetensors")


ENGINES = ("torch", "ctranslate2", "onnx")


WEIGHTS_FILE = "model.safetensors"


@dataclass(frozen=True)
class ExportSource:
    """What is exported: a run, or an exported folder with its weights."""

    run: RunFolder
    recipe: Recipe
    config: dict[str, Any]
    weights: Mapping[str, Tensor]
    weights_path: str
    facts: Mapping[str, Any]

    def load(self, device: str = "cpu") -> Any:
        settings = self.recipe.config_class.from_dict(self.config)
        return self.recipe.task.load(self.run, self.recipe, settings, self.weights, self.weights_path, device)


def export(
    folder: str | Path,
    to: str,
    out: str | Path,
    quantize: str | None = None,
    weights: str | Path | None = None,
) -> Path:
    """Write what a run trained into a new folder, for an engine or as safetensors with a model card.

    `quantize="int8"` keeps the weights of matrix products in eight bits. The folder needs the run no longer.
    """
    _check_target(to, quantize)
    origin = _open_source(Path(folder), weights)
    made = origin.load()
    if to != "safetensors" and not isinstance(made, Translator):
        raise ExportError(
            f"{folder} was trained for {origin.recipe.name}, and {to} takes translators only; export it with"
            " --to safetensors"
        )
    local = {
        item.name: item.default for item in origin.recipe.config_class.options() if item.path
    }  # files of one machine
    settings = {
        **origin.config,
        **{name: value for name, value in local.items() if name in origin.config},
    }
    record = {
        "to": to,
        "quantize": quantize,
        "recipe": origin.recipe.name,
        "settings": settings,
        **origin.facts,
    }
    with _folder.new_export_folder(Path(out), record) as part:
        if to == "safetensors":
            save_weights(origin.weights, part / WEIGHTS_FILE)
        else:
            _model_writer(to)(made, part, quantize)
        for name in origin.recipe.task.files:
            shutil.copyfile(origin.run.folder / name, part / name)
        (part / _folder.CARD_FILE).write_text(
            model_card(origin.recipe.name, record, Path(out).resolve().name), encoding="utf-8"
        )
    return Path(out)


def open_export(folder: str | Path, engine: str | None = None, device: str = "cpu") -> Any:
    """What an exported folder does, ready for use; `engine` may only be another one where the weights are there."""
    folder = Path(folder)
    record = _folder.read_record(folder)
    kept = record["to"]
    own = "torch" if kept == "safetensors" else kept
    if engine not in (None, own) and kept != "safetensors":
        raise UnsupportedError(
            f"{folder} was exported for {kept} and runs with that engine only; export its run for {engine},"
            " or --to safetensors for any"
        )
    if kept == "safetensors":
        made = _open_source(folder, None).load(device if engine in (None, "torch") else "cpu")
        return made if engine in (None, "torch") else to_engine(made, str(engine))
    found = get_recipe(record["recipe"])
    settings = TranslationConfig.from_dict(record["config"])
    source, target = (Tokenizer.load(folder / name) for name in TranslationTask.files)
    made = _make_engine(kept, folder, source, target, settings.max_length)
    return Translator(made, source, target, settings, found)


def to_engine(translator: Any, engine: str) -> Translator:
    """A translator that computes as before, in another engine: exported into a folder that is gone afterwards."""
    if engine not in ENGINES:
        raise UnknownNameError.among("engine", engine, ENGINES)
    if not isinstance(translator, Translator):
        raise UnsupportedError(f"{engine} runs translators only; leave the engine out for this one")
    if engine == "torch":
        return translator
    with tempfile.TemporaryDirectory() as made:
        _model_writer(engine)(translator, Path(made), None)
        found = _make_engine(engine, Path(made), translator.source, translator.target, translator.max_length)
    return translator.with_model(found)


def _check_target(to: str, quantize: str | None) -> None:
    if to not in TARGETS:
        raise UnknownNameError.among("export format", to, TARGETS)
    if quantize not in (None, "int8"):
        raise ConfigError(f"invalid value {quantize!r} for quantize: expected int8, or leave it out")
    if quantize and to == "safetensors":
        raise ConfigError(
            "safetensors keep the weights as they were trained; quantize for ctranslate2 or onnx"
        )


def _open_source(folder: Path, weights: str | Path | None) -> ExportSource:
    if _folder.is_export(folder):
        record = _folder.read_record(folder)
        if record["to"] != "safetensors":
            raise ExportError(f"{folder} was exported for {record['to']} already; export the run itself")
        run, path, known = (
            RunFolder(folder),
            folder / WEIGHTS_FILE,
            {key: record.get(key) for key in card_facts({}, {})},
        )
    else:
        run = RunFolder.open(folder)
        record = read_run(run)
        path, known = (
            run.find_weights() if weights is None else Path(weights),
            card_facts(record, _latest_state(run)),
        )
    found = get_recipe(record["recipe"])
    return ExportSource(run, found, dict(record["config"]), load_weights(path), str(path), known)


def _latest_state(run: RunFolder) -> dict[str, Any]:
    from regard.training import checkpoint

    try:
        newest = checkpoint.load_latest(run.checkpoints)
    except CheckpointCorruptError:
        return {}
    return {} if newest is None else newest.state


def _model_writer(engine: str) -> Any:
    return {"ctranslate2": _ctranslate2.write_model, "onnx": _onnx.write_model}[engine]


def _make_engine(
    engine: str, folder: Path, source: Tokenizer, target: Tokenizer, max_length: int
) -> InferenceEngine:
    if engine == "onnx":
        return _onnx.OnnxEngine(folder, max_length)
    if engine == "ctranslate2":
        return _ctranslate2.CTranslate2Engine(folder, source, target, max_length)
    raise RunFormatError(
        f"{folder} was exported for {engine!r}, which this regard does not know; install a newer one"
    )
