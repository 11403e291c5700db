"""From the folder of a run to its predictor, and to reports: neither the recipe nor its data is needed to load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from regard.errors import ConfigError, WeightsMismatchError
from regard.tasks.predictor import Predictor, Report
from regard.tasks.registry import check_processor, get_recipe, get_task, is_export, open_record, recipe_name
from regard.training import RunFolder, load_into, load_weights

__all__ = ["AllocationLimit", "evaluate", "load", "load_predictor"]

ALLOCATION_FUNCTIONS = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand)
ALLOCATION_MARGIN = 10_000_000  # elements of buffers that are not saved, such as tables of positions


def load(
    folder: str | Path, device: str = "cpu", weights: str | Path | None = None, *, engine: str | None = None
) -> Any:
    """The predictor of a run: with its averaged weights, else its best, else its last.

    Args:
        folder: of a run, or one that `regard export` wrote
        device: where to compute
        weights: another file of weights
        engine: "torch", or an engine for translations: "ctranslate2", "onnx"

    Example:
        predictor = load("runs/dates")
        predictor.predict(["3. Mai 2021"])[0].text  # "2021-05-03"
    """
    if is_export(folder):
        from regard import export  # it imports this module

        return export.open_export(folder, engine, device)
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
        evaluate("runs/dates", limit=100)["test"].metrics["exact"]
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
