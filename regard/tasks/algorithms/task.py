"""The algorithm task: generated sequences of bits, and the bits that an algorithm makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.data.algorithms import Algorithm, SequenceBatch
from regard.data.sources import GeneratedBatches
from regard.models import LSTMBaseline, NeuralTuringMachine
from regard.tasks.algorithms.config import AlgorithmConfig
from regard.tasks.algorithms.data import ALGORITHMS, NUM_VALID_SEQUENCES, sample_batches
from regard.tasks.algorithms.predictor import AlgorithmPredictor
from regard.tasks.predictor import Metric
from regard.tasks.task import AnyTask, DataSplits, LossFn, Processor, Task
from regard.training import BatchSource, Loss
from regard.training.engine import CompileMode

__all__ = ["AlgorithmProcessor", "AlgorithmTask"]


@dataclass(frozen=True)
class AlgorithmProcessor(Processor):
    """The algorithm that a network learned.

    Args:
        name: of the algorithm
        num_bits: bits of a vector
        sizes: the range of each size in training
    """

    name: str
    num_bits: int
    sizes: Mapping[str, Sequence[int]]

    @cached_property
    def algorithm(self) -> Algorithm:
        """The generator of its sequences."""
        return ALGORITHMS[self.name]({name: (low, high) for name, (low, high) in self.sizes.items()}, self.num_bits)

    def describe(self) -> dict[str, Any]:
        """The name of the algorithm."""
        return {"algorithm": self.name}


class AlgorithmTask(Task[AlgorithmConfig, AlgorithmProcessor, Mapping[str, int], SequenceBatch]):
    """Sequence to sequence of bits, by an algorithm; an example is the size of sequences to generate."""

    name, verb = "algorithm", "run"
    config_class = AlgorithmConfig
    processor_class = AlgorithmProcessor
    predictor_class = AlgorithmPredictor
    metrics = (
        Metric("bits", "cost, bits per sequence", lower_is_better=True, format=".4f"),
        Metric("best", "best possible, bits per sequence", lower_is_better=True, format=".4f"),
        Metric("errors", "wrong bits, %", lower_is_better=True, format=".3f"),
        Metric("exact_match", "sequences without a wrong bit, %", format=".1f"),
        Metric("loss", "loss, nats per bit", lower_is_better=True, format=".4f"),
    )

    def validate(self, config: AlgorithmConfig, data: DataSplits[Mapping[str, int]]) -> None:
        """Refuse sizes that the network cannot have."""
        with torch.device("meta"):
            self.build_model(config, self.build_processor(config, data))

    def build_processor(self, config: AlgorithmConfig, data: DataSplits[Mapping[str, int]]) -> AlgorithmProcessor:
        """The algorithm with its sizes."""
        algorithm: Algorithm = data.train
        return AlgorithmProcessor(algorithm.name, algorithm.num_bits, algorithm.sizes)

    def inherit_processor(
        self, config: AlgorithmConfig, data: DataSplits[Mapping[str, int]], other: AnyTask, folder: Path
    ) -> AlgorithmProcessor:
        """The same: the sizes are those of the new run."""
        return self.build_processor(config, data)

    def build_model(self, config: AlgorithmConfig, processor: AlgorithmProcessor) -> NeuralTuringMachine | LSTMBaseline:
        """The network, for the inputs and outputs of the algorithm."""
        input_dim, output_dim = processor.algorithm.dims
        if config.model == "lstm":
            return LSTMBaseline(input_dim, output_dim, **config.select("hidden_dim", "num_layers"))
        memory = config.select("memory_rows", "memory_width", "num_read_heads", "num_write_heads", "max_shift")
        network = config.select("controller", "hidden_dim", "state_grad_clip")
        return NeuralTuringMachine(input_dim, output_dim, **memory, **network)

    def train_batches(self, config: AlgorithmConfig, processor: AlgorithmProcessor, examples: Algorithm) -> BatchSource:
        """Generated sequences."""
        return GeneratedBatches(examples.sample, lambda batch: batch, config.batch_size, config.seed)

    def eval_batches(
        self, config: AlgorithmConfig, processor: AlgorithmProcessor, examples: Iterable[Mapping[str, int]]
    ) -> list[SequenceBatch]:
        """160 sequences of each size."""
        algorithm = processor.algorithm
        return [batch for sizes in examples for batch in sample_batches(algorithm, sizes, NUM_VALID_SEQUENCES)]

    def loss(self, model: nn.Module, batch: SequenceBatch) -> Loss:
        """The cross entropy of the target bits, summed over a batch."""
        logits, targets = model(batch.inputs)[0][:, batch.target_mask], batch.targets[:, batch.target_mask]
        total = nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="sum")
        return Loss(total, batch.num_tokens)

    def compile_mode(self, config: AlgorithmConfig) -> CompileMode:
        """One step of the memory; a library computes the LSTM."""
        return "step" if config.model == "ntm" else "off"

    def compute_metrics(self, predictor: Any, loss: LossFn, batches: Any, examples: Any) -> dict[str, float]:
        """The cost in bits, the percentage of wrong bits and the loss, for sequences of the largest training size."""
        result = predictor.evaluate_batches(batches)
        return {name: result[name] for name in ("bits", "errors", "loss")}
