"""The processor of a run, and from its folder to a predictor and reports: loading needs no recipe and no data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, TypeVar, get_type_hints

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.config import Option
from regard.data import Tokenizer
from regard.errors import ConfigError, RunFormatError, UnsupportedError, WeightsMismatchError
from regard.files import read_json, write_json
from regard.tasks.predictor import Predictor, Report
from regard.tasks.registry import (
    check_processor,
    get_recipe,
    get_task,
    is_checkpoint,
    is_export,
    open_record,
    recipe_name,
)
from regard.training import RunFolder, load_into, load_weights
from regard.training.weights import resolve_device

__all__ = ["AllocationLimit", "Processor", "TokenizerProcessor", "evaluate", "load", "load_predictor"]

ProcessorT = TypeVar("ProcessorT", bound="Processor")

ALLOCATION_FUNCTIONS = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand)
ALLOCATION_MARGIN = 10_000_000  # elements of buffers that are not saved, such as tables of positions


@dataclass(frozen=True)
class Processor:
    """From raw inputs to tensors: labels, sizes, tokenizers. Saved in the run, so that loading needs no data.

    Plain fields are saved together as JSON, tokenizers in files of their own.

    Attributes:
        files: the fields that are tokenizers

    Example:
        >>> Processor().describe()
        {}
    """

    files: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def read_values(cls, folder: Path) -> dict[str, Any]:
        """The values in processor.json, of the types of the fields; lists become tuples."""
        path = folder / "processor.json"
        try:
            values = {key: tuple(value) if isinstance(value, list) else value for key, value in read_json(path).items()}
        except FileNotFoundError:
            raise RunFormatError(f"{path} is missing; copy the whole folder of the run") from None
        except ValueError as error:
            raise RunFormatError(f"{path} is damaged: {error}; copy it again") from None
        types = get_type_hints(cls)
        required = {one.name for one in fields(cls) if one.default is MISSING} - {*cls.files}
        if missing := sorted(required - values.keys()):
            raise RunFormatError(f"{path} is damaged: it has no {', '.join(missing)}; copy it again")
        for name, value in values.items():
            try:
                Option(name, types.get(name, type(None)), None, "").check(value)
            except ConfigError as error:
                raise RunFormatError(f"{path} is damaged: {error}; copy it again") from None
        return values

    def save(self, folder: Path) -> None:
        """Write a file for each of `files` into an existing folder, and processor.json if there are other values."""
        for name in self.files:
            getattr(self, name).save(folder / f"{name}.json")
        values = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in self.files}
        if values or not self.files:
            write_json(folder / "processor.json", values)

    @classmethod
    def load(cls: type[ProcessorT], folder: Path) -> ProcessorT:
        """Read what `save` wrote."""
        tokenizers = {name: Tokenizer.load(folder / f"{name}.json") for name in cls.files}
        has_values = len(fields(cls)) > len(tokenizers) or not tokenizers
        return cls(**tokenizers, **(cls.read_values(folder) if has_values else {}))

    def describe(self) -> dict[str, Any]:
        """Facts for run.json, such as the size of a vocabulary."""
        return {}


@dataclass(frozen=True)
class TokenizerProcessor(Processor):
    """A processor with one tokenizer.

    Args:
        tokenizer: the vocabulary
    """

    files = ("tokenizer",)
    tokenizer: Tokenizer

    def describe(self) -> dict[str, Any]:
        """The size of the vocabulary."""
        return {"vocab_size": len(self.tokenizer)}


def load(
    folder: str | Path, device: str = "cpu", weights: str | Path | None = None, *, engine: str | None = None
) -> Any:
    """The predictor of a run: with its averaged weights, else its best, else its last.

    Args:
        folder: of a run, one that `regard export` wrote, or a Marian checkpoint of Hugging Face (OPUS-MT)
        device: where to compute: auto, cpu, cuda, cuda:1, mps
        weights: another file of weights
        engine: "torch", or an engine for translations: "ctranslate2", "onnx"

    Example:
        predictor = load("runs/dates")
        predictor.predict(["3. Mai 2021"])[0].text  # "2021-05-03"
    """
    device = str(resolve_device(str(device)))
    if is_export(folder):
        from regard import export  # it imports this module

        return export.open_export(folder, engine, device)
    if is_checkpoint(folder) and engine in (None, "torch"):
        from regard.tasks import pretrained  # it imports this module

        if weights is not None:
            raise UnsupportedError(f"{folder} is a checkpoint of Hugging Face, which has one file of weights")
        return pretrained.load_checkpoint(folder, device)
    if engine is not None:
        from regard import export

        return export.to_engine(load(folder, device, weights), engine)
    record, run = open_record(folder), RunFolder(folder)
    path = run.find_weights() if weights is None else Path(weights)
    return load_predictor(record, run, load_weights(path), str(path), device)


def load_predictor(
    record: Mapping[str, Any], run: RunFolder, weights: Mapping[str, Tensor], path: str, device: str = "cpu"
) -> Any:
    """The predictor of a record of a run, whose processor is in the folder of the run.

    Args:
        record: with `task` and `config`
        run: its folder
        weights: state dict of the model
        path: where the weights come from, for error messages
        device: where to compute
    """
    task = get_task(record["task"])
    config = task.config_class.from_dict(record["config"])
    num_layers = getattr(config, "num_layers", 1)
    if isinstance(num_layers, int) and num_layers > len(weights):  # building them would take forever
        raise ConfigError(f"{run.record_path} has num_layers={num_layers:,}, but {path} has fewer layers")
    check_processor(run, record)
    processor = task.processor_class.load(run.processor)
    with AllocationLimit(sum(tensor.numel() for tensor in weights.values()), path):
        model = task.build_model(config, processor)
    load_into(model, weights, path)
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

    Example:
        evaluate("runs/dates", limit=100)["test"].metrics["exact_match"]
    """
    predictor: Predictor[Any, Any, Any] = load(folder, device)
    splits = get_recipe(recipe_name(folder)).load_data(predictor.config).select(split)
    return {
        name: predictor.evaluate(examples if limit is None else list(islice(examples, limit)), options)
        for name, examples in splits.items()
    }


class AllocationLimit(TorchFunctionMode):
    """A context in which no tensor is created that has far more elements than all weights of a file together.

    Args:
        num_elements: of all weights
        path: their file, for error messages
    """

    def __init__(self, num_elements: int, path: str):
        super().__init__()
        self.max_elements, self.path = 2 * num_elements + ALLOCATION_MARGIN, path

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in ALLOCATION_FUNCTIONS:
            sizes = args[0] if args and isinstance(args[0], list | tuple) else args
            if math.prod(size for size in sizes if isinstance(size, int)) > self.max_elements:
                raise WeightsMismatchError(f"the config of the run needs a larger model than {self.path} has")
        return func(*args, **(kwargs or {}))
