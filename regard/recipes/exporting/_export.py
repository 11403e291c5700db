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
from regard.recipes._recipes import recipe
from regard.recipes._runs import read as read_run
from regard.recipes._task import Recipe
from regard.recipes.exporting import _ctranslate2, _folder, _onnx
from regard.recipes.exporting._card import card, facts
from regard.recipes.translation._task import Translating
from regard.recipes.translation.engine import Engine
from regard.recipes.translation.settings import Translation
from regard.recipes.translation.translator import Translator
from regard.training import Run, load_weights, save_weights

TARGETS = ("ctranslate2", "onnx", "safetensors")
ENGINES = ("torch", "ctranslate2", "onnx")
WEIGHTS = "model.safetensors"


@dataclass(frozen=True)
class Origin:
    """What is exported: a run, or an exported folder with its weights."""

    run: Run
    recipe: Recipe
    settings: dict[str, Any]
    weights: Mapping[str, Tensor]
    where: str
    facts: Mapping[str, Any]

    def load(self, device: str = "cpu") -> Any:
        settings = self.recipe.kind.from_dict(self.settings)
        return self.recipe.task.load(self.run, self.recipe, settings, self.weights, self.where, device)


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
    _known(to, quantize)
    origin = _origin(Path(folder), weights)
    made = origin.load()
    if to != "safetensors" and not isinstance(made, Translator):
        raise ExportError(
            f"{folder} was trained for {origin.recipe.name}, and {to} takes translators only; export it with"
            " --to safetensors"
        )
    local = {
        item.name: item.default for item in origin.recipe.kind.options() if item.path
    }  # files of one machine
    settings = {
        **origin.settings,
        **{name: value for name, value in local.items() if name in origin.settings},
    }
    record = {
        "to": to,
        "quantize": quantize,
        "recipe": origin.recipe.name,
        "settings": settings,
        **origin.facts,
    }
    with _folder.made(Path(out), record) as part:
        if to == "safetensors":
            save_weights(origin.weights, part / WEIGHTS)
        else:
            _writer(to)(made, part, quantize)
        for name in origin.recipe.task.files:
            shutil.copyfile(origin.run.folder / name, part / name)
        (part / _folder.CARD).write_text(
            card(origin.recipe.name, record, Path(out).resolve().name), encoding="utf-8"
        )
    return Path(out)


def opened(folder: str | Path, engine: str | None = None, device: str = "cpu") -> Any:
    """What an exported folder does, ready for use; `engine` may only be another one where the weights are there."""
    folder = Path(folder)
    record = _folder.record_of(folder)
    kept = record["to"]
    own = "torch" if kept == "safetensors" else kept
    if engine not in (None, own) and kept != "safetensors":
        raise UnsupportedError(
            f"{folder} was exported for {kept} and runs with that engine only; export its run for {engine},"
            " or --to safetensors for any"
        )
    if kept == "safetensors":
        made = _origin(folder, None).load(device if engine in (None, "torch") else "cpu")
        return made if engine in (None, "torch") else in_engine(made, str(engine))
    found = recipe(record["recipe"])
    settings = Translation.from_dict(record["settings"])
    source, target = (Tokenizer.load(folder / name) for name in Translating.files)
    made = _engine(kept, folder, source, target, settings.max_length)
    return Translator(made, source, target, settings, found)


def in_engine(translator: Any, engine: str) -> Translator:
    """A translator that computes as before, in another engine: exported into a folder that is gone afterwards."""
    if engine not in ENGINES:
        raise UnknownNameError.among("engine", engine, ENGINES)
    if not isinstance(translator, Translator):
        raise UnsupportedError(f"{engine} runs translators only; leave the engine out for this one")
    if engine == "torch":
        return translator
    with tempfile.TemporaryDirectory() as made:
        _writer(engine)(translator, Path(made), None)
        found = _engine(engine, Path(made), translator.source, translator.target, translator.max_length)
    return translator.with_model(found)


def _known(to: str, quantize: str | None) -> None:
    if to not in TARGETS:
        raise UnknownNameError.among("export format", to, TARGETS)
    if quantize not in (None, "int8"):
        raise ConfigError(f"invalid value {quantize!r} for quantize: expected int8, or leave it out")
    if quantize and to == "safetensors":
        raise ConfigError(
            "safetensors keep the weights as they were trained; quantize for ctranslate2 or onnx"
        )


def _origin(folder: Path, weights: str | Path | None) -> Origin:
    if _folder.is_exported(folder):
        record = _folder.record_of(folder)
        if record["to"] != "safetensors":
            raise ExportError(f"{folder} was exported for {record['to']} already; export the run itself")
        run, path, known = Run(folder), folder / WEIGHTS, {key: record.get(key) for key in facts({}, {})}
    else:
        run = Run.open(folder)
        record = read_run(run)
        path, known = run.weights() if weights is None else Path(weights), facts(record, _state(run))
    found = recipe(record["recipe"])
    return Origin(run, found, dict(record["settings"]), load_weights(path), str(path), known)


def _state(run: Run) -> dict[str, Any]:
    from regard.training import checkpoint

    try:
        newest = checkpoint.newest(run.checkpoints)
    except CheckpointCorruptError:
        return {}
    return {} if newest is None else newest.state


def _writer(engine: str) -> Any:
    return {"ctranslate2": _ctranslate2.write, "onnx": _onnx.write}[engine]


def _engine(engine: str, folder: Path, source: Tokenizer, target: Tokenizer, max_length: int) -> Engine:
    if engine == "onnx":
        return _onnx.Onnx(folder, max_length)
    if engine == "ctranslate2":
        return _ctranslate2.CTranslate2(folder, source, target, max_length)
    raise RunFormatError(
        f"{folder} was exported for {engine!r}, which this regard does not know; install a newer one"
    )
