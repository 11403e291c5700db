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

from regard.data.algorithms import Algorithm, Ngrams, Sequences, chance
from regard.errors import UnknownNameError, UnsupportedError, UsageError
from regard.models import LongShortTerm, NeuralTuringMachine
from regard.recipes.machines.settings import Remembering
from regard.viewing import players
from regard.viewing.players import Player

AT_ONCE = 20  # sequences in a batch of an evaluation
VALIDATED = 160  # sequences of a validation
SIDES = ("read", "write")
TRIAL = 7_000_001  # the seed of evaluations is far from those of training


@dataclass(frozen=True)
class Tape:
    """All that a machine did with one sequence, step by step: the pictures of the paper."""

    inputs: Float[Tensor, "steps inputs"]
    outputs: Float[Tensor, "steps outputs"]
    targets: Float[Tensor, "steps outputs"]
    reads: Float[Tensor, "steps read_heads rows"]
    writes: Float[Tensor, "steps write_heads rows"]
    read: Float[Tensor, "steps read_heads width"]
    adds: Float[Tensor, "steps write_heads width"]
    memory: Float[Tensor, "steps rows width"]
    wanted: Float[Tensor, "steps outputs"]  # targets; of ngrams, what the best possible guess would say
    counts: Bool[Tensor, " steps"]  # whether the output of a step is asked for
    wrong: int
    asked: int

    @property
    def said(self) -> Float[Tensor, "steps outputs"]:
        """The outputs that are asked for; 0 in the other steps."""
        return self.outputs.where(self.counts[:, None], 0.0)

    def used(self, least: float = 0.05) -> Tensor:
        """The rows that some head looked at, in the order of the ring that the memory is, behind its widest gap.

        Where no head is sharp, those with more than half of the largest weight; all, if none can be told from others.
        """
        largest = torch.cat((self.reads, self.writes), 1).amax((0, 1))
        looked = largest > min(least, float(largest.max()) / 2)
        rows = looked.nonzero().squeeze(1) if looked.any() else torch.arange(len(looked))
        gaps = (rows.roll(-1) - rows) % len(looked)
        first = len(rows) - int(gaps.flip(0).argmax())  # behind the widest gap, the last of several
        return rows.roll(-first)

    @property
    def sharpest(self) -> tuple[int, int]:
        """The read head and the write head that stand on single rows most: those that are worth a look."""
        reader, writer = (int(heads.amax(-1).mean(0).argmax()) for heads in (self.reads, self.writes))
        return reader, writer

    def chosen(self, head: int | None) -> tuple[int, int]:
        """The read head and the write head of this number; on a side that does not have it, the sharpest."""
        counts = self.reads.shape[1], self.writes.shape[1]
        if head is None:
            return self.sharpest
        if not 0 <= head < max(counts):
            reads, writes = (
                f"{count} {name} head{'s' * (count > 1)}" for count, name in zip(counts, SIDES, strict=True)
            )
            raise UnknownNameError(
                f"There is no head {head}; this machine has {reads} and {writes}, counted from 0."
            )
        reader, writer = (
            head if head < count else sharp for count, sharp in zip(counts, self.sharpest, strict=True)
        )
        return reader, writer

    def player(self, title: str, language: str | None = None, head: int | None = None) -> Player:
        """A page to step through it, which opens on a head, or on the sharpest."""
        told = players.Tape(
            inputs=self.inputs,
            outputs=self.outputs,
            reads=self.reads,
            writes=self.writes,
            memory=self.memory,
            adds=self.adds,
            returned=self.read,
            wanted=self.wanted,
            asked=self.counts,
        )
        return players.tape(told, title=title, heads=self.chosen(head), language=language)


class Machine:
    """A model with the algorithm that it learned. `regard.load(RUN)` gives one."""

    def __init__(
        self, model: NeuralTuringMachine | LongShortTerm, algorithm: Algorithm, settings: Remembering
    ):
        self.model, self.algorithm, self.settings = model.eval(), algorithm, settings

    @property
    def device(self) -> torch.device:
        return self.model.output.weight.device

    @property
    def greatest(self) -> dict[str, int]:
        """The greatest sizes of training."""
        return {name: self.algorithm.sizes[name][1] for name in self.algorithm.names}

    @cached_property
    def longest(self) -> int:
        """The most steps that a sequence of training has."""
        return self.algorithm.make(chance(0), 1, **self.greatest).inputs.shape[1]

    def rows_for(self, steps: int) -> int | None:
        """The rows of memory for a sequence: those of training, and as many times more as it is longer."""
        if not isinstance(self.model, NeuralTuringMachine):
            return None
        return self.model.rows * math.ceil(steps / self.longest)

    @torch.no_grad()
    def outputs(self, inputs: Float[Tensor, "rows steps inputs"], rows: int | None = None) -> Tensor:
        """Before any sigmoid; `rows` of memory in place of `rows_for` so many steps."""
        _at_least_one(rows=rows)
        state: Any = None
        if isinstance(self.model, NeuralTuringMachine):
            state = self.model.begin(len(inputs), rows or self.rows_for(inputs.shape[1]))
        elif rows is not None:
            raise UnsupportedError("rows: this model has no memory whose size could change")
        return self.model(inputs.to(self.device), state)[0].cpu()

    def evaluate(
        self, sequences: int = AT_ONCE, seed: int = 0, rows: int | None = None, **sizes: int
    ) -> dict[str, Any]:
        """The cost of sequences of the given sizes in bits each, and how many of their bits come out wrong."""
        _at_least_one(rows=rows, sequences=sequences)
        cost, wrong, bits, whole, best, most = 0.0, 0, 0, 0, 0.0, rows
        for batch in self._trials(sequences, seed, sizes):
            most = rows or self.rows_for(batch.inputs.shape[1])
            outputs = self.outputs(batch.inputs, rows)[:, batch.asked]
            targets = batch.targets[:, batch.asked]
            missed = (outputs > 0) != (targets > 0.5)
            cost += float(cost_of(outputs, targets).sum())
            wrong, bits = wrong + int(missed.sum()), bits + missed.numel()
            whole += int((~missed.flatten(1).any(1)).sum())
            if isinstance(self.algorithm, Ngrams):
                best += float(best_cost(self.algorithm, batch).sum())
        return {
            **sizes,
            "sequences": sequences,
            "bits": cost / sequences,
            "wrong": wrong,
            "of": bits,
            "errors": 100 * wrong / max(bits, 1),
            "exact": 100 * whole / sequences,
            **({"best": best / sequences} if isinstance(self.algorithm, Ngrams) else {}),
            **({} if most is None else {"rows": most}),
        }

    def _trials(self, sequences: int, seed: int, sizes: dict[str, int]) -> Iterator[Sequences]:
        for number, first in enumerate(range(0, sequences, AT_ONCE)):
            count = min(AT_ONCE, sequences - first)
            yield self.algorithm.make(chance(TRIAL + seed, number), count, **sizes)

    @torch.no_grad()
    def tape(self, seed: int = 0, rows: int | None = None, **sizes: int) -> Tape:
        """One sequence, with everything that the heads did."""
        if not isinstance(self.model, NeuralTuringMachine):
            raise UnsupportedError("this model has no memory to look at; train one with model=ntm")
        _at_least_one(rows=rows)
        batch = self.algorithm.make(chance(TRIAL + seed, 0), 1, **sizes)
        state, steps = self.model.begin(1, rows or self.rows_for(batch.inputs.shape[1])), []
        for now in batch.inputs.to(self.device).unbind(1):
            steps.append(self.model.step(now, state))
            state = steps[-1].state
        outputs = torch.cat([step.output for step in steps]).sigmoid().cpu()
        missed = ((outputs > 0.5) != (batch.targets[0] > 0.5))[batch.asked]
        counts = torch.zeros(len(steps), dtype=torch.bool)
        counts[batch.asked] = True
        return Tape(
            inputs=batch.inputs[0],
            outputs=outputs,
            targets=batch.targets[0],
            reads=torch.cat([step.state.read_weights for step in steps]).cpu(),
            writes=torch.cat([step.state.write_weights for step in steps]).cpu(),
            read=torch.cat([step.state.read for step in steps]).cpu(),
            adds=torch.cat([step.add for step in steps]).cpu(),
            memory=torch.cat([step.state.memory for step in steps]).cpu(),
            wanted=self._wanted(batch)[0].where(counts[:, None], 0.0),
            counts=counts,
            wrong=int(missed.sum()),
            asked=missed.numel(),
        )

    def _wanted(self, batch: Sequences) -> Tensor:
        """What a machine should say, as far as that can be known."""
        if isinstance(self.algorithm, Ngrams):
            return self.algorithm.best(batch.targets[..., 0])[..., None]
        return batch.targets


def _at_least_one(**given: int | None) -> None:
    for name, count in given.items():
        if count is not None and count < 1:
            raise UsageError(f"{name}={count} is too small: it must be at least 1")


def cost_of(
    outputs: Float[Tensor, "rows steps outputs"], targets: Float[Tensor, "rows steps outputs"]
) -> Float[Tensor, " rows"]:
    """The cross entropy of each sequence in bits."""
    plain = torch.nn.functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none")
    return plain.flatten(1).sum(1) / math.log(2)


def best_cost(algorithm: Ngrams, batch: Sequences) -> Float[Tensor, " rows"]:
    """What the best possible guess would cost, in bits a sequence."""
    targets = batch.targets[..., 0]
    probability = algorithm.best(targets)
    surprise = torch.where(targets > 0.5, probability, 1 - probability).log2()
    return -surprise[:, batch.asked].sum(1)
