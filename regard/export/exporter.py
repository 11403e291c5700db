"""Export of a run into a folder of its own, and the predictor of such a folder."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Any

from torch import Tensor

from regard import errors
from regard.export import ctranslate2, onnx, transformers_layout
from regard.export.folder import CARD_FACTS, CARD_FILE, model_card, new_export_folder, read_record
from regard.export.tokenizer_export import write_tokenizers
from regard.tasks import registry
from regard.tasks.loading import load, load_predictor
from regard.tasks.translation.config import TranslationConfig
from regard.tasks.translation.inference import InferenceEngine
from regard.tasks.translation.predictor import Translator
from regard.tasks.translation.task import TranslationProcessor
from regard.training import RunFolder, checkpoint, load_weights, save_weights

__all__ = ["ENGINES", "TARGETS", "export", "open_export", "to_engine"]

TARGETS = ("ctranslate2", "onnx", "safetensors", "transformers")
ENGINES = ("torch", "ctranslate2", "onnx")
WEIGHTS_FILE = "model.safetensors"
MODEL_WRITERS = {"ctranslate2": ctranslate2.write_model, "onnx": onnx.write_model}


def export(
    folder: str | Path, to: str, out: str | Path, quantize: str | None = None, weights: str | Path | None = None
) -> Path:
    """Write the model of a run into a new folder, which does not need the run.

    Args:
        folder: of the run, of an export to safetensors, or of a Marian checkpoint of Hugging Face
        to: "ctranslate2", "onnx", "safetensors" or "transformers"
        out: the new folder
        quantize: "int8" for the weights of matrix products in eight bits
        weights: another file of weights

    Returns:
        The new folder.

    Example:
        export("runs/en-de", "onnx", "en-de-int8", quantize="int8")
    """
    errors.UnknownNameError.check("export format", to, TARGETS)
    if quantize not in (None, "int8"):
        raise errors.ConfigError(f"invalid value {quantize!r} for quantize: expected int8, or leave it out")
    if quantize and to not in MODEL_WRITERS:
        raise errors.ConfigError(
            f"exports to {to} keep the weights as they were trained; quantize for ctranslate2 or onnx"
        )
    if registry.is_checkpoint(folder):
        return _export_checkpoint(Path(folder), to, Path(out), quantize, weights)
    source, run, state_dict, path = _open_source(Path(folder), weights)
    predictor, recipe = load_predictor(source, run, state_dict, path), registry.get_recipe(source["recipe"])
    if to in MODEL_WRITERS and not isinstance(predictor, Translator):
        raise errors.ExportError(
            f"{folder} was trained for {recipe.name}, and {to} takes translators only; export it with --to safetensors"
        )
    config, state = source["config"], checkpoint.load_latest_state(run.checkpoints)
    facts = {name: source.get(name, state.get(name)) for name in CARD_FACTS}  # for the model card
    paths = {item.name: item.default for item in recipe.config_class.options() if item.path and item.name in config}
    config = {**config, **paths}  # without the files of this machine
    record = {"to": to, "quantize": quantize, "task": recipe.task, "recipe": recipe.name, "config": config, **facts}
    with new_export_folder(Path(out), record) as partial:
        if to == "safetensors":
            save_weights(state_dict, partial / WEIGHTS_FILE)
        elif to == "transformers":
            transformers_layout.write_model(predictor, partial)
        else:
            MODEL_WRITERS[to](predictor, partial, quantize)
        if to != "transformers":  # regard needs none, so it is left out where none gives the same tokens
            with contextlib.suppress(errors.ExportError, errors.UnsupportedError):
                write_tokenizers(predictor, partial)
        shutil.copytree(run.processor, partial / run.processor.name)
        (partial / CARD_FILE).write_text(model_card(record, Path(out).resolve().name), encoding="utf-8")
    return Path(out)


def _export_checkpoint(folder: Path, to: str, out: Path, quantize: str | None, weights: str | Path | None) -> Path:
    """As `export`, for a checkpoint of Hugging Face."""
    if to not in MODEL_WRITERS:
        raise errors.ExportError(f"{folder} is a checkpoint of Hugging Face already: copy the folder")
    predictor, source = load(folder, weights=weights), registry.open_record(folder)
    facts = dict.fromkeys(CARD_FACTS) | {"processor": predictor.processor.describe()}
    record = {"to": to, "quantize": quantize, **{name: source[name] for name in ("task", "recipe", "config")}, **facts}
    with new_export_folder(out, record) as partial:
        MODEL_WRITERS[to](predictor, partial, quantize)
        processor = RunFolder(partial).processor
        processor.mkdir()
        predictor.processor.save(processor)
        (partial / CARD_FILE).write_text(model_card(record, out.resolve().name), encoding="utf-8")
    return out


def open_export(folder: str | Path, engine: str | None = None, device: str = "cpu") -> Any:
    """The predictor of an exported folder.

    Args:
        folder: written by `export`
        engine: another engine, for an export to safetensors or transformers only
        device: where to compute

    Example:
        translator = open_export("en-de-int8")
        translator.predict(["A dog runs."])[0].text  # "Ein Hund läuft."
    """
    folder = Path(folder)
    record = read_record(folder)
    target = record["to"]
    if target == "safetensors":
        predictor = load_predictor(*_open_source(folder), device if engine in (None, "torch") else "cpu")
        return predictor if engine in (None, "torch") else to_engine(predictor, str(engine))
    if target == "transformers":
        predictor = transformers_layout.open_model(folder, record, device if engine in (None, "torch") else "cpu")
        return predictor if engine in (None, "torch") else to_engine(predictor, str(engine))
    if engine not in (None, target):
        raise errors.UnsupportedError(
            f"{folder} was exported for {target} and runs with that engine only; export its run for {engine},"
            " or --to safetensors for any"
        )
    registry.get_task(record["task"])  # raises UnknownNameError for a task of a newer version
    config = TranslationConfig.from_dict(record["config"])
    processor = TranslationProcessor.load(RunFolder(folder).processor)
    return Translator(_make_engine(target, folder, processor, config.max_length), processor, config)


def to_engine(translator: Any, engine: str) -> Translator:
    """The same translator with another engine; it is exported into a temporary folder.

    Args:
        translator: a translator in PyTorch
        engine: "torch", "ctranslate2" or "onnx"

    Example:
        translator = to_engine(regard.load("runs/en-de"), "onnx")
        translator.engine  # "onnx"
    """
    errors.UnknownNameError.check("engine", engine, ENGINES)
    if not isinstance(translator, Translator):
        raise errors.UnsupportedError(f"{engine} runs translators only; leave the engine out for this one")
    if engine == "torch":
        return translator
    with tempfile.TemporaryDirectory() as folder:
        MODEL_WRITERS[engine](translator, Path(folder), None)
        model = _make_engine(engine, Path(folder), translator.processor, translator.max_length)
    return translator.with_model(model)


def _open_source(
    folder: Path, weights: str | Path | None = None
) -> tuple[dict[str, Any], RunFolder, dict[str, Tensor], str]:
    """The arguments of `load_predictor`, of a run or of an export to safetensors."""
    if registry.is_export(folder):
        record = read_record(folder)
        if record["to"] != "safetensors":
            raise errors.ExportError(f"{folder} was exported for {record['to']} already; export the run itself")
        run, path = RunFolder(folder), folder / WEIGHTS_FILE
    else:
        run = RunFolder.open(folder)
        record = registry.read_record(run)
        path = run.find_weights() if weights is None else Path(weights)
    return record, run, load_weights(path), str(path)


def _make_engine(engine: str, folder: Path, processor: TranslationProcessor, max_length: int) -> InferenceEngine:
    if engine == "onnx":
        return onnx.OnnxEngine(folder, max_length)
    if engine == "ctranslate2":
        return ctranslate2.CTranslate2Engine(folder, processor.source, processor.target, max_length)
    raise errors.RunFormatError(
        f"{folder} was exported for {engine!r}, which this version of regard does not have; install a newer one"
    )
