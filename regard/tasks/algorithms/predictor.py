"""A trained machine, ready to be tried on sequences of any size, and to be looked at."""

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
from regard.errors import UnknownNameError, UnsupportedError, UsageError
from regard.models import LSTMBaseline, NeuralTuringMachine
from regard.tasks.algorithms.config import AlgorithmConfig
from regard.viewing import pages as players
from regard.viewing.pages import HtmlPage

EVAL_BATCH_SIZE = 20  # sequences in a batch of an evaluation


NUM_VALID_SEQUENCES = 160  # sequences of a validation


HEAD_TYPES = ("read", "write")


TRIAL = 7_000_001  # the seed of evaluations is far from those of training


@dataclass(frozen=True)
class MemoryTrace:
    """All that a machine did with one sequence, step by step: the pictures of the paper."""

    inputs: Float[Tensor, "steps inputs"]
    outputs: Float[Tensor, "steps outputs"]
    targets: Float[Tensor, "steps outputs"]
    read_weights: Float[Tensor, "steps read_heads rows"]
    write_weights: Float[Tensor, "steps write_heads rows"]
    read_vectors: Float[Tensor, "steps read_heads width"]
    add_vectors: Float[Tensor, "steps write_heads width"]
    memory: Float[Tensor, "steps rows width"]
    optimal_outputs: Float[
        Tensor, "steps outputs"
    ]  # targets; of ngrams, what the best possible guess would say
    target_mask: Bool[Tensor, " steps"]  # whether the output of a step is asked for
    num_wrong_bits: int
    num_target_bits: int

    @property
    def masked_outputs(self) -> Float[Tensor, "steps outputs"]:
        """The outputs that are asked for; 0 in the other steps."""
        return self.outputs.where(self.target_mask[:, None], 0.0)

    def used_rows(self, min_weight: float = 0.05) -> Tensor:
        """The rows that some head looked at, in the order of the ring that the memory is, behind its widest gap.

        Where no head is sharp, those with more than half of the largest weight; all, if none can be told from others.
        """
        largest = torch.cat((self.read_weights, self.write_weights), 1).amax((0, 1))
        looked = largest > min(min_weight, float(largest.max()) / 2)
        rows = looked.nonzero().squeeze(1) if looked.any() else torch.arange(len(looked))
        gaps = (rows.roll(-1) - rows) % len(looked)
        first = len(rows) - int(gaps.flip(0).argmax())  # behind the widest gap, the last of several
        return rows.roll(-first)

    @property
    def sharpest_heads(self) -> tuple[int, int]:
        """The read head and the write head that stand on single rows most: those that are worth a look."""
        reader, writer = (
            int(heads.amax(-1).mean(0).argmax()) for heads in (self.read_weights, self.write_weights)
        )
        return reader, writer

    def select_heads(self, head: int | None) -> tuple[int, int]:
        """The read head and the write head of this number; on a side that does not have it, the sharpest."""
        counts = self.read_weights.shape[1], self.write_weights.shape[1]
        if head is None:
            return self.sharpest_heads
        if not 0 <= head < max(counts):
            reads, writes = (
                f"{count} {name} head{'s' * (count > 1)}"
                for count, name in zip(counts, HEAD_TYPES, strict=True)
            )
            raise UnknownNameError(
                f"There is no head {head}; this machine has {reads} and {writes}, counted from 0."
            )
        reader, writer = (
            head if head < count else sharp for count, sharp in zip(counts, self.sharpest_heads, strict=True)
        )
        return reader, writer

    def to_page(self, title: str, language: str | None = None, head: int | None = None) -> HtmlPage:
        """A page to step through it, which opens on a head, or on the sharpest."""
        told = players.MemoryPageData(
            inputs=self.inputs,
            outputs=self.outputs,
            reads=self.read_weights,
            writes=self.write_weights,
            memory=self.memory,
            adds=self.add_vectors,
            returned=self.read_vectors,
            wanted=self.optimal_outputs,
            asked=self.target_mask,
        )
        return players.memory_page(told, title=title, heads=self.select_heads(head), language=language)


class AlgorithmPredictor:
    """A model with the algorithm that it learned. `regard.load(RUN)` gives one."""

    def __init__(
        self, model: NeuralTuringMachine | LSTMBaseline, algorithm: Algorithm, config: AlgorithmConfig
    ):
        self.model, self.algorithm, self.config = model.eval(), algorithm, config

    @property
    def device(self) -> torch.device:
        return self.model.output_proj.weight.device

    @property
    def max_training_sizes(self) -> dict[str, int]:
        """The greatest sizes of training."""
        return {name: self.algorithm.sizes[name][1] for name in self.algorithm.size_names}

    @cached_property
    def max_training_steps(self) -> int:
        """The most steps that a sequence of training has."""
        return self.algorithm.sample(seeded_generator(0), 1, **self.max_training_sizes).inputs.shape[1]

    def memory_rows_for(self, num_steps: int) -> int | None:
        """The rows of memory for a sequence: those of training, and as many times more as it is longer."""
        if not isinstance(self.model, NeuralTuringMachine):
            return None
        return self.model.memory_rows * math.ceil(num_steps / self.max_training_steps)

    @torch.no_grad()
    def compute_logits(
        self, inputs: Float[Tensor, "rows steps inputs"], memory_rows: int | None = None
    ) -> Tensor:
        """Before any sigmoid; `rows` of memory in place of `rows_for` so many steps."""
        _check_positive(memory_rows=memory_rows)
        state: Any = None
        if isinstance(self.model, NeuralTuringMachine):
            state = self.model.init_state(len(inputs), memory_rows or self.memory_rows_for(inputs.shape[1]))
        elif memory_rows is not None:
            raise UnsupportedError("memory_rows: this model has no memory whose size could change")
        return self.model(inputs.to(self.device), state)[0].cpu()

    def evaluate(
        self,
        num_sequences: int = EVAL_BATCH_SIZE,
        seed: int = 0,
        memory_rows: int | None = None,
        **sizes: int,
    ) -> dict[str, Any]:
        """The cost of sequences of the given sizes in bits each, and how many of their bits come out wrong."""
        _check_positive(memory_rows=memory_rows, num_sequences=num_sequences)
        cost, wrong, bits, whole, best, most = 0.0, 0, 0, 0, 0.0, memory_rows
        for batch in self._sample_batches(num_sequences, seed, sizes):
            most = memory_rows or self.memory_rows_for(batch.inputs.shape[1])
            outputs = self.compute_logits(batch.inputs, memory_rows)[:, batch.target_mask]
            targets = batch.targets[:, batch.target_mask]
            missed = (outputs > 0) != (targets > 0.5)
            cost += float(bits_per_sequence(outputs, targets).sum())
            wrong, bits = wrong + int(missed.sum()), bits + missed.numel()
            whole += int((~missed.flatten(1).any(1)).sum())
            if isinstance(self.algorithm, DynamicNGrams):
                best += float(optimal_cost(self.algorithm, batch).sum())
        return {
            **sizes,
            "sequences": num_sequences,
            "bits": cost / num_sequences,
            "wrong": wrong,
            "of": bits,
            "errors": 100 * wrong / max(bits, 1),
            "exact": 100 * whole / num_sequences,
            **({"best": best / num_sequences} if isinstance(self.algorithm, DynamicNGrams) else {}),
            **({} if most is None else {"rows": most}),
        }

    def _sample_batches(
        self, num_sequences: int, seed: int, sizes: dict[str, int]
    ) -> Iterator[SequenceBatch]:
        for number, first in enumerate(range(0, num_sequences, EVAL_BATCH_SIZE)):
            count = min(EVAL_BATCH_SIZE, num_sequences - first)
            yield self.algorithm.sample(seeded_generator(TRIAL + seed, number), count, **sizes)

    @torch.no_grad()
    def explain(self, seed: int = 0, memory_rows: int | None = None, **sizes: int) -> MemoryTrace:
        """One sequence, with everything that the heads did."""
        if not isinstance(self.model, NeuralTuringMachine):
            raise UnsupportedError("this model has no memory to look at; train one with model=ntm")
        _check_positive(memory_rows=memory_rows)
        batch = self.algorithm.sample(seeded_generator(TRIAL + seed, 0), 1, **sizes)
        state, steps = (
            self.model.init_state(1, memory_rows or self.memory_rows_for(batch.inputs.shape[1])),
            [],
        )
        for now in batch.inputs.to(self.device).unbind(1):
            steps.append(self.model.step(now, state))
            state = steps[-1].state
        outputs = torch.cat([step.output for step in steps]).sigmoid().cpu()
        missed = ((outputs > 0.5) != (batch.targets[0] > 0.5))[batch.target_mask]
        counts = torch.zeros(len(steps), dtype=torch.bool)
        counts[batch.target_mask] = True
        return MemoryTrace(
            inputs=batch.inputs[0],
            outputs=outputs,
            targets=batch.targets[0],
            read_weights=torch.cat([step.state.read_weights for step in steps]).cpu(),
            write_weights=torch.cat([step.state.write_weights for step in steps]).cpu(),
            read_vectors=torch.cat([step.state.read for step in steps]).cpu(),
            add_vectors=torch.cat([step.add for step in steps]).cpu(),
            memory=torch.cat([step.state.memory for step in steps]).cpu(),
            optimal_outputs=self._optimal_outputs(batch)[0].where(counts[:, None], 0.0),
            target_mask=counts,
            num_wrong_bits=int(missed.sum()),
            num_target_bits=missed.numel(),
        )

    def _optimal_outputs(self, batch: SequenceBatch) -> Tensor:
        """What a machine should say, as far as that can be known."""
        if isinstance(self.algorithm, DynamicNGrams):
            return self.algorithm.optimal_prediction(batch.targets[..., 0])[..., None]
        return batch.targets


def _check_positive(**values: int | None) -> None:
    for name, count in values.items():
        if count is not None and count < 1:
            raise UsageError(f"{name}={count} is too small: it must be at least 1")


def bits_per_sequence(
    logits: Float[Tensor, "rows steps outputs"], targets: Float[Tensor, "rows steps outputs"]
) -> Float[Tensor, " rows"]:
    """The cross entropy of each sequence in bits."""
    plain = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return plain.flatten(1).sum(1) / math.log(2)


def optimal_cost(algorithm: DynamicNGrams, batch: SequenceBatch) -> Float[Tensor, " rows"]:
    """What the best possible guess would cost, in bits a sequence."""
    targets = batch.targets[..., 0]
    probability = algorithm.optimal_prediction(targets)
    surprise = torch.where(targets > 0.5, probability, 1 - probability).log2()
    return -surprise[:, batch.target_mask].sum(1)
