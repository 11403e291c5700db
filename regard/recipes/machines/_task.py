"""The task of a machine with a memory: sequences of bits made on the fly, and bits to be said in return."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from regard.data.algorithms import Algorithm, Copy, Endless, Ngrams, Recall, RepeatCopy, Sequences, Sort
from regard.models import LongShortTerm, NeuralTuringMachine
from regard.recipes._task import Experiment, Recipe, Task, fitted
from regard.recipes.machines.machine import VALIDATED, Machine
from regard.recipes.machines.settings import Remembering
from regard.training import Loss, Run, Settings


class Bits(nn.Module):
    """The cross entropy of each bit that is asked for, summed over a batch."""

    def __init__(self, model: NeuralTuringMachine | LongShortTerm):
        super().__init__()
        self.model = model

    def forward(self, batch: Sequences) -> Loss:
        outputs = self.model(batch.inputs)[0][:, batch.asked]
        total = nn.functional.binary_cross_entropy_with_logits(
            outputs, batch.targets[:, batch.asked], reduction="sum"
        )
        return Loss(total, batch.tokens)

    def fuse(self) -> None:
        if isinstance(self.model, NeuralTuringMachine):
            self.model.fuse()


class Recalling(Task[Remembering]):
    """From a sequence to another that an algorithm makes of it."""

    settings: ClassVar[type[Settings]] = Remembering
    uses = ("evaluate {run}", "show {run}", "info {run}")

    def offers(self, settings: Remembering) -> tuple[str, ...]:
        return tuple(use for use in self.uses if settings.model == "ntm" or not use.startswith("show"))

    def check(self, recipe: Recipe, settings: Remembering) -> None:
        algorithm: Algorithm = recipe.material(settings)
        with torch.device("meta"):
            build(settings, algorithm)

    def experiment(self, run: Run, recipe: Recipe, settings: Remembering) -> Experiment[Remembering]:
        algorithm: Algorithm = recipe.material(settings)
        objective = Bits(build(settings, algorithm))
        data = Endless(algorithm, settings.batch, settings.seed)
        machine = Machine(objective.model, algorithm, settings)
        return Experiment(run, settings, objective, data, Validation(machine))

    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Remembering,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Machine:
        algorithm: Algorithm = recipe.material(settings)
        objective = fitted(lambda: Bits(build(settings, algorithm)), weights, where)
        return Machine(objective.to(device).model, algorithm, settings)

    def judge(self, recipe: Recipe, made: Machine, part: str | None = None) -> dict[str, Any]:
        return made.evaluate(sequences=200, **made.greatest)


@dataclass(frozen=True)
class Validation:
    """Sequences of the greatest size of training: their cost in bits, and wrong bits in a hundred."""

    machine: Machine

    def __call__(self) -> dict[str, float]:
        found = self.machine.evaluate(sequences=VALIDATED, **self.machine.greatest)
        scores = {"bits": found["bits"], "errors": found["errors"]}
        return scores | {"loss": math.log(2) * found["bits"] * found["sequences"] / found["of"]}


def build(settings: Remembering, algorithm: Algorithm) -> NeuralTuringMachine | LongShortTerm:
    """The network that the settings describe, for the channels of an algorithm."""
    inputs, outputs = algorithm.channels
    if settings.model == "lstm":
        return LongShortTerm(inputs, outputs, hidden_dim=settings.hidden_dim, layers=settings.layers)
    return NeuralTuringMachine(
        inputs,
        outputs,
        rows=settings.rows,
        width=settings.width,
        read_heads=settings.read_heads,
        write_heads=settings.write_heads,
        controller=settings.controller,
        hidden_dim=settings.hidden_dim,
        shift=settings.shift,
        state_clip=settings.state_clip,
    )


def copy(settings: Remembering) -> Algorithm:
    return Copy({"length": (settings.shortest, settings.longest)}, settings.bits)


def repeat_copy(settings: Remembering) -> Algorithm:
    sizes = {"length": (settings.shortest, settings.longest), "repeats": (1, settings.repeats)}
    return RepeatCopy(sizes, settings.bits)


def recall(settings: Remembering) -> Algorithm:
    return Recall({"items": (settings.shortest, settings.longest)}, settings.bits)


def ngrams(settings: Remembering) -> Algorithm:
    return Ngrams({"length": (settings.shortest, settings.longest)}, 1)


def sort(settings: Remembering) -> Algorithm:
    return Sort({"length": (settings.shortest, settings.longest)}, settings.bits)
