"""The algorithm task: generated sequences of bits, and the bits that an algorithm makes of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data.algorithms import (
    Algorithm,
    AssociativeRecall,
    Copy,
    DynamicNGrams,
    PrioritySort,
    RepeatCopy,
    SequenceBatch,
)
from regard.data.sources import GeneratedBatches
from regard.models import LSTMBaseline, NeuralTuringMachine
from regard.tasks.algorithms.config import AlgorithmConfig
from regard.tasks.algorithms.predictor import NUM_VALID_SEQUENCES, AlgorithmPredictor
from regard.tasks.legacy import Experiment, Recipe, Task
from regard.tasks.runner import build_and_load
from regard.training import Loss, RunFolder, TrainingConfig
from regard.training.engine import CompileMode


class BitLoss(nn.Module):
    """The cross entropy of the target bits, summed over a batch."""

    def __init__(self, model: NeuralTuringMachine | LSTMBaseline):
        super().__init__()
        self.model = model

    def forward(self, batch: SequenceBatch) -> Loss:
        outputs = self.model(batch.inputs)[0][:, batch.target_mask]
        total = nn.functional.binary_cross_entropy_with_logits(
            outputs, batch.targets[:, batch.target_mask], reduction="sum"
        )
        return Loss(total, batch.num_tokens)


class AlgorithmTask(Task[AlgorithmConfig]):
    """Sequence to sequence of bits, by an algorithm."""

    config_class: ClassVar[type[TrainingConfig]] = AlgorithmConfig
    uses = ("evaluate {run}", "show {run}", "info {run}")

    def available_commands(self, config: AlgorithmConfig) -> tuple[str, ...]:
        return tuple(use for use in self.uses if config.model == "ntm" or not use.startswith("show"))

    def validate(self, recipe: Recipe, config: AlgorithmConfig) -> None:
        algorithm: Algorithm = recipe.data(config)
        with torch.device("meta"):
            build_model(config, algorithm)

    def experiment(self, run: RunFolder, recipe: Recipe, config: AlgorithmConfig) -> Experiment[AlgorithmConfig]:
        algorithm: Algorithm = recipe.data(config)
        objective = BitLoss(build_model(config, algorithm))
        data = GeneratedBatches(algorithm.sample, lambda batch: batch, config.batch_size, config.seed)
        predictor = AlgorithmPredictor(objective.model, algorithm, config)
        mode: CompileMode = "step" if config.model == "ntm" else "off"
        return Experiment(run, config, objective, data, Validation(predictor), compile_mode=mode)

    def load(
        self,
        run: RunFolder,
        recipe: Recipe,
        config: AlgorithmConfig,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> AlgorithmPredictor:
        algorithm: Algorithm = recipe.data(config)
        model = build_and_load(lambda: build_model(config, algorithm), weights, where)
        return AlgorithmPredictor(model.to(device), algorithm, config)

    def judge(self, recipe: Recipe, made: AlgorithmPredictor, part: str | None = None) -> dict[str, Any]:
        return made.evaluate(num_sequences=200, **made.max_training_sizes)


@dataclass(frozen=True)
class Validation:
    """The cost in bits and the percentage of wrong bits, for sequences of the largest training size."""

    predictor: AlgorithmPredictor

    def __call__(self) -> dict[str, float]:
        report = self.predictor.evaluate(num_sequences=NUM_VALID_SEQUENCES, **self.predictor.max_training_sizes)
        scores = {"bits": report["bits"], "errors": report["errors"]}
        return scores | {"loss": math.log(2) * report["bits"] * report["sequences"] / report["of"]}


def build_model(config: AlgorithmConfig, algorithm: Algorithm) -> NeuralTuringMachine | LSTMBaseline:
    """The network of a config, for the sizes of an algorithm.

    Args:
        config: its sizes
        algorithm: the number of inputs and outputs
    """
    inputs, outputs = algorithm.dims
    if config.model == "lstm":
        return LSTMBaseline(inputs, outputs, hidden_dim=config.hidden_dim, num_layers=config.num_layers)
    return NeuralTuringMachine(
        inputs,
        outputs,
        memory_rows=config.memory_rows,
        memory_width=config.memory_width,
        num_read_heads=config.num_read_heads,
        num_write_heads=config.num_write_heads,
        controller=config.controller,
        hidden_dim=config.hidden_dim,
        max_shift=config.max_shift,
        state_grad_clip=config.state_grad_clip,
    )


def copy(config: AlgorithmConfig) -> Algorithm:
    """Repeat a sequence of vectors."""
    return Copy({"length": (config.min_size, config.max_size)}, config.num_bits)


def repeat_copy(config: AlgorithmConfig) -> Algorithm:
    """Repeat a sequence of vectors a given number of times."""
    sizes = {"length": (config.min_size, config.max_size), "repeats": (1, config.max_repeats)}
    return RepeatCopy(sizes, config.num_bits)


def recall(config: AlgorithmConfig) -> Algorithm:
    """The item after a given item."""
    return AssociativeRecall({"items": (config.min_size, config.max_size)}, config.num_bits)


def ngrams(config: AlgorithmConfig) -> Algorithm:
    """The next bit of a random source."""
    return DynamicNGrams({"length": (config.min_size, config.max_size)}, 1)


def sort(config: AlgorithmConfig) -> Algorithm:
    """Vectors in the order of their priorities."""
    return PrioritySort({"length": (config.min_size, config.max_size)}, config.num_bits)
