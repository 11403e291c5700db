"""A trained network of an algorithm task: its error on sequences of any length, and a trace of its memory."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.data.algorithms import Algorithm, DynamicNGrams, SequenceBatch
from regard.data.sources import seeded_generator
from regard.errors import ConfigError, UnknownNameError, UnsupportedError
from regard.models import LSTMBaseline, NeuralTuringMachine
from regard.tasks.algorithms.config import AlgorithmConfig
from regard.viewing import pages
from regard.viewing.pages import HtmlPage

__all__ = ["AlgorithmPredictor", "MemoryTrace", "bits_per_sequence", "optimal_cost"]

EVAL_BATCH_SIZE = 20  # sequences in a batch of an evaluation
NUM_VALID_SEQUENCES = 160  # sequences of a validation
HEAD_TYPES = ("read", "write")
TRIAL = 7_000_001  # seed of evaluations, far from those of training


@dataclass(frozen=True)
class MemoryTrace:
    """Everything that a Neural Turing Machine did with one sequence, step by step: the figures of the paper.

    Args:
        inputs, outputs, targets: the sequence; outputs after the sigmoid
        read_weights, write_weights: the weights of each head over the memory rows
        read_vectors, add_vectors: what each read head read and each write head added
        memory: the memory after each step
        optimal_outputs: the targets; for ngrams the optimal prediction
        target_mask: steps at which an output is expected
        num_wrong_bits, num_target_bits: wrong bits among the expected ones
    """

    inputs: Float[Tensor, "steps input_dim"]
    outputs: Float[Tensor, "steps output_dim"]
    targets: Float[Tensor, "steps output_dim"]
    read_weights: Float[Tensor, "steps read_heads rows"]
    write_weights: Float[Tensor, "steps write_heads rows"]
    read_vectors: Float[Tensor, "steps read_heads width"]
    add_vectors: Float[Tensor, "steps write_heads width"]
    memory: Float[Tensor, "steps rows width"]
    optimal_outputs: Float[Tensor, "steps output_dim"]
    target_mask: Bool[Tensor, " steps"]
    num_wrong_bits: int
    num_target_bits: int

    @property
    def masked_outputs(self) -> Float[Tensor, "steps output_dim"]:
        """The expected outputs; 0 at the other steps."""
        return self.outputs.where(self.target_mask[:, None], 0.0)

    def used_rows(self, min_weight: float = 0.05) -> Tensor:
        """The rows with a weight above `min_weight`, in the order of the memory ring after its widest gap.

        Where no head is sharp, the rows with more than half of the largest weight; all rows if none stands out.
        """
        largest = torch.cat((self.read_weights, self.write_weights), 1).amax((0, 1))
        is_used = largest > min(min_weight, float(largest.max()) / 2)
        rows = is_used.nonzero().squeeze(1) if is_used.any() else torch.arange(len(is_used))
        gaps = (rows.roll(-1) - rows) % len(is_used)
        first = len(rows) - int(gaps.flip(0).argmax())  # after the last of the widest gaps
        return rows.roll(-first)

    @property
    def sharpest_heads(self) -> tuple[int, int]:
        """The read head and the write head whose weights are closest to a single row."""
        reader, writer = (int(weights.amax(-1).mean(0).argmax()) for weights in (self.read_weights, self.write_weights))
        return reader, writer

    def select_heads(self, head: int | None) -> tuple[int, int]:
        """The read head and the write head of this number; the sharpest where there is none of that number."""
        counts = self.read_weights.shape[1], self.write_weights.shape[1]
        if head is None:
            return self.sharpest_heads
        if not 0 <= head < max(counts):
            reads, writes = (
                f"{count} {name} head{'s' * (count > 1)}" for count, name in zip(counts, HEAD_TYPES, strict=True)
            )
            raise UnknownNameError(f"no head {head}: this model has {reads} and {writes}, counted from 0")
        reader, writer = (
            head if head < count else sharpest for count, sharpest in zip(counts, self.sharpest_heads, strict=True)
        )
        return reader, writer

    def to_page(self, title: str, language: str | None = None, head: int | None = None) -> HtmlPage:
        """An HTML page that plays the steps, first with `head` or the sharpest heads."""
        data = pages.MemoryPageData(
            inputs=self.inputs,
            outputs=self.outputs,
            read_weights=self.read_weights,
            write_weights=self.write_weights,
            memory=self.memory,
            add_vectors=self.add_vectors,
            read_vectors=self.read_vectors,
            targets=self.optimal_outputs,
            target_mask=self.target_mask,
        )
        return pages.memory_page(data, title=title, heads=self.select_heads(head), language=language)


class AlgorithmPredictor:
    """A trained network with the algorithm that it learned: what `regard.load(RUN)` returns.

    Args:
        model: the network
        algorithm: the generator of its sequences
        config: the config it was trained with
    """

    def __init__(self, model: NeuralTuringMachine | LSTMBaseline, algorithm: Algorithm, config: AlgorithmConfig):
        self.model, self.algorithm, self.config = model.eval(), algorithm, config

    @property
    def device(self) -> torch.device:
        return self.model.output_proj.weight.device

    @property
    def max_training_sizes(self) -> dict[str, int]:
        """The largest sizes of the training sequences, such as `{"length": 20}`."""
        return {name: self.algorithm.sizes[name][1] for name in self.algorithm.size_names}

    @cached_property
    def max_training_steps(self) -> int:
        """The steps of the longest training sequence."""
        return self.algorithm.sample(seeded_generator(0), 1, **self.max_training_sizes).inputs.shape[1]

    def memory_rows_for(self, num_steps: int) -> int | None:
        """The memory rows for a sequence of `num_steps`: those of training, times its relative length."""
        if not isinstance(self.model, NeuralTuringMachine):
            return None
        return self.model.memory_rows * math.ceil(num_steps / self.max_training_steps)

    @torch.no_grad()
    def compute_logits(
        self, inputs: Float[Tensor, "batch steps input_dim"], memory_rows: int | None = None
    ) -> Float[Tensor, "batch steps output_dim"]:
        """The outputs before the sigmoid.

        Args:
            inputs: a batch of sequences
            memory_rows: the size of the memory; by default `memory_rows_for` the length of the sequences
        """
        _check_positive(memory_rows=memory_rows)
        state: Any = None
        if isinstance(self.model, NeuralTuringMachine):
            state = self.model.init_state(len(inputs), memory_rows or self.memory_rows_for(inputs.shape[1]))
        elif memory_rows is not None:
            raise UnsupportedError("memory_rows is not possible: this model has no memory")
        return self.model(inputs.to(self.device), state)[0].cpu()

    def evaluate(
        self, num_sequences: int = EVAL_BATCH_SIZE, seed: int = 0, memory_rows: int | None = None, **sizes: int
    ) -> dict[str, Any]:
        """The cost in bits of a sequence of these sizes, and the rate of wrong bits.

        Args:
            num_sequences: sequences to generate
            seed: seed of the sequences
            memory_rows: the size of the memory; by default it grows with the sequences
            sizes: sizes of the algorithm, such as `length=40`; by default those of training
        """
        _check_positive(memory_rows=memory_rows, num_sequences=num_sequences)
        cost, num_wrong, num_bits, num_exact, best, rows = 0.0, 0, 0, 0, 0.0, memory_rows
        for batch in self._sample_batches(num_sequences, seed, sizes):
            rows = memory_rows or self.memory_rows_for(batch.inputs.shape[1])
            logits = self.compute_logits(batch.inputs, memory_rows)[:, batch.target_mask]
            targets = batch.targets[:, batch.target_mask]
            is_wrong = (logits > 0) != (targets > 0.5)
            cost += float(bits_per_sequence(logits, targets).sum())
            num_wrong, num_bits = num_wrong + int(is_wrong.sum()), num_bits + is_wrong.numel()
            num_exact += int((~is_wrong.flatten(1).any(1)).sum())
            if isinstance(self.algorithm, DynamicNGrams):
                best += float(optimal_cost(self.algorithm, batch).sum())
        return {
            **sizes,
            "sequences": num_sequences,
            "bits": cost / num_sequences,
            "wrong": num_wrong,
            "of": num_bits,
            "errors": 100 * num_wrong / max(num_bits, 1),
            "exact": 100 * num_exact / num_sequences,
            **({"best": best / num_sequences} if isinstance(self.algorithm, DynamicNGrams) else {}),
            **({} if rows is None else {"rows": rows}),
        }

    def _sample_batches(self, num_sequences: int, seed: int, sizes: dict[str, int]) -> Iterator[SequenceBatch]:
        for number, first in enumerate(range(0, num_sequences, EVAL_BATCH_SIZE)):
            count = min(EVAL_BATCH_SIZE, num_sequences - first)
            yield self.algorithm.sample(seeded_generator(TRIAL + seed, number), count, **sizes)

    @torch.no_grad()
    def explain(self, seed: int = 0, memory_rows: int | None = None, **sizes: int) -> MemoryTrace:
        """The trace of one sequence; the arguments are those of `evaluate`."""
        if not isinstance(self.model, NeuralTuringMachine):
            raise UnsupportedError("this model has no memory to show; train one with model=ntm")
        _check_positive(memory_rows=memory_rows)
        batch = self.algorithm.sample(seeded_generator(TRIAL + seed, 0), 1, **sizes)
        state = self.model.init_state(1, memory_rows or self.memory_rows_for(batch.inputs.shape[1]))
        steps = []
        for inputs in batch.inputs.to(self.device).unbind(1):
            steps.append(self.model.step(inputs, state))
            state = steps[-1].state
        outputs = torch.cat([step.output for step in steps]).sigmoid().cpu()
        is_wrong = ((outputs > 0.5) != (batch.targets[0] > 0.5))[batch.target_mask]
        target_mask = torch.zeros(len(steps), dtype=torch.bool)
        target_mask[batch.target_mask] = True
        return MemoryTrace(
            inputs=batch.inputs[0],
            outputs=outputs,
            targets=batch.targets[0],
            read_weights=torch.cat([step.state.read_weights for step in steps]).cpu(),
            write_weights=torch.cat([step.state.write_weights for step in steps]).cpu(),
            read_vectors=torch.cat([step.state.read for step in steps]).cpu(),
            add_vectors=torch.cat([step.add for step in steps]).cpu(),
            memory=torch.cat([step.state.memory for step in steps]).cpu(),
            optimal_outputs=self._optimal_outputs(batch)[0].where(target_mask[:, None], 0.0),
            target_mask=target_mask,
            num_wrong_bits=int(is_wrong.sum()),
            num_target_bits=is_wrong.numel(),
        )

    def _optimal_outputs(self, batch: SequenceBatch) -> Tensor:
        """The targets; of ngrams the optimal prediction, because the bits are random."""
        if isinstance(self.algorithm, DynamicNGrams):
            return self.algorithm.optimal_prediction(batch.targets[..., 0])[..., None]
        return batch.targets


def _check_positive(**values: int | None) -> None:
    for name, value in values.items():
        if value is not None and value < 1:
            raise ConfigError(f"invalid value '{value}' for {name}: must be at least 1")


def bits_per_sequence(
    logits: Float[Tensor, "batch steps output_dim"], targets: Float[Tensor, "batch steps output_dim"]
) -> Float[Tensor, " batch"]:
    """The cross entropy of each sequence in bits.

    Args:
        logits: outputs before the sigmoid
        targets: bits, 0 or 1

    Shape:
        - logits, targets: (batch, steps, output_dim)
        - returns: (batch,)

    Example:
        >>> bits_per_sequence(torch.zeros(1, 3, 4), torch.ones(1, 3, 4))
        tensor([12.])
    """
    losses = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return losses.flatten(1).sum(1) / math.log(2)


def optimal_cost(algorithm: DynamicNGrams, batch: SequenceBatch) -> Float[Tensor, " batch"]:
    """The cost of the optimal prediction in bits a sequence.

    Args:
        algorithm: the source of the sequences
        batch: sequences of it
    """
    targets = batch.targets[..., 0]
    probability = algorithm.optimal_prediction(targets)
    log_probs = torch.where(targets > 0.5, probability, 1 - probability).log2()
    return -log_probs[:, batch.target_mask].sum(1)
