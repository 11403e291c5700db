"""What a kind of experiment has to say, so that runs of it can be trained, resumed and loaded."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from regard.errors import WeightsMismatchError
from regard.training import Outcome, Run, Settings, Source, fill, fit

Say = Callable[[str], None]
Told = TypeVar("Told", bound=Settings)
DOWNLOAD = "download"  # in place of the folder
Made = TypeVar("Made", bound=nn.Module)
MAKERS = (torch.empty, torch.zeros, torch.ones, torch.randn, torch.rand)
SPARE = 10_000_000  # for what is computed and not kept in files, such as tables of positions


@dataclass(frozen=True)
class Experiment(Generic[Told]):
    """All that is needed to train: an objective, data for it, how to measure it, and what is worth knowing."""

    run: Run
    settings: Told
    objective: nn.Module
    data: Source
    validate: Callable[[], dict[str, float]]
    facts: Mapping[str, Any] = field(default_factory=dict)  # for run.json
    lines: Sequence[str] = ()  # said when a training begins

    def fit(self, say: Say | None = None) -> Outcome:
        return fit(self.objective, self.data, self.settings, self.run, self.validate, say)


class Task(ABC, Generic[Told]):
    """One kind of experiment, such as translation. A recipe is a task with data and defaults."""

    settings: ClassVar[type[Settings]]
    uses: ClassVar[tuple[str, ...]]  # what can be done with a run, as words of the command line
    files: ClassVar[tuple[str, ...]] = ()  # what a run keeps beside its weights, such as tokenizers

    def offers(self, settings: Told) -> tuple[str, ...]:
        """Those of `uses` that go with a run of these settings."""
        return self.uses

    @abstractmethod
    def check(self, recipe: Recipe, settings: Told) -> None:
        """Refuse what cannot be trained before a folder is made for it."""

    @abstractmethod
    def experiment(self, run: Run, recipe: Recipe, settings: Told) -> Experiment[Told]:
        """Data, model and measures."""

    @abstractmethod
    def load(
        self,
        run: Run,
        recipe: Recipe,
        settings: Told,
        weights: Mapping[str, Tensor],
        where: str,
        device: str,
    ) -> Any:
        """What was trained, ready for use."""

    @abstractmethod
    def judge(self, recipe: Recipe, made: Any, part: str | None = None) -> dict[str, Any]:
        """How good is what `load` gave, as plain numbers; on one part of the recipe's tests, or its first."""

    def follows(self, other: Task[Any]) -> bool:
        """Whether a run of this task can begin with the weights of one of another."""
        return type(other) is type(self)

    def like(self, settings: Told, kept: Mapping[str, Any]) -> Told:
        """The settings of a run that begins with the weights of another, whose settings were kept."""
        return settings.inherit_from(kept)

    def ready(self, run: Run, recipe: Recipe, settings: Told, origin: Run | None) -> None:
        """Make `files`: from the data, or those of the run it begins with."""

    def begin_with(self, objective: nn.Module, weights: dict[str, Tensor], where: str) -> None:
        """Fill the objective with the weights of another run."""
        fill(objective, weights, where)


@dataclass(frozen=True)
class Recipe:
    """One named experiment: what is trained on which data, with which settings unless others are given."""

    name: str
    sentence: str
    zh: str
    material: Callable[[Any], Any]  # from settings to data
    defaults: Mapping[str, Any] = field(default_factory=dict)
    task: Task[Any] = field(kw_only=True)
    clean: Callable[[str], str] = str  # what a text goes through before it is read
    unlinked: frozenset[str] = frozenset()  # target words that belong to no source word

    @property
    def kind(self) -> type[Settings]:
        """Its settings."""
        return self.task.settings


def fitted(build: Callable[[], Made], weights: Mapping[str, Tensor], where: str) -> Made:
    """A module with these weights; settings that were damaged do not make it take all memory first."""
    with Sparing(sum(tensor.numel() for tensor in weights.values()), where):
        made = build()
    fill(made, weights, where)
    return made


class Sparing(TorchFunctionMode):
    """Inside, no tensor is made that has far more numbers than all weights of a file together."""

    def __init__(self, numbers: int, where: str):
        super().__init__()
        self.most, self.where = 2 * numbers + SPARE, where

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in MAKERS:
            sizes = args[0] if args and isinstance(args[0], list | tuple) else args
            if math.prod(size for size in sizes if isinstance(size, int)) > self.most:
                raise WeightsMismatchError(
                    f"the settings of the run tell of a larger model than {self.where} holds"
                )
        return func(*args, **(kwargs or {}))
