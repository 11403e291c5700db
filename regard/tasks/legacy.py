"""The frame of the tasks that are not ported to the protocol of `task.py` yet; deleted with the last of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from torch import Tensor, nn

from regard.errors import ConfigError
from regard.training import BatchSource, Loss, RunFolder, TrainingConfig, TrainingResult, fit, load_into
from regard.training.display import LogFn
from regard.training.engine import CompileMode

if TYPE_CHECKING:
    from regard.tasks.translation.predictor import Translator

LOWER_IS_BETTER = ("loss", "perplexity", "bits", "errors")  # monitored metrics; the others should grow


ConfigT = TypeVar("ConfigT", bound=TrainingConfig)


@dataclass(frozen=True)
class Experiment(Generic[ConfigT]):
    """All that is needed to train: an objective, data for it, how to measure it, and what is worth knowing."""

    run: RunFolder
    settings: ConfigT
    objective: Any  # an nn.Module with the attribute `model`
    data: BatchSource
    validate: Callable[[], dict[str, float]]
    facts: Mapping[str, Any] = field(default_factory=dict)  # for run.json
    lines: Sequence[str] = ()  # said when a training begins

    compile_mode: CompileMode = "whole"

    def fit(self, log: LogFn | None = None) -> TrainingResult:
        return fit(
            self.objective.model,
            ObjectiveLoss(self.objective),
            self.data,
            self.settings,
            self.run,
            self.validate,
            log,
            lower_is_better=self.settings.monitor in LOWER_IS_BETTER,
            compile_mode=self.compile_mode,
        )


class ObjectiveLoss(nn.Module):
    """The loss function of an objective, a module that contains its model; its state is that of the objective alone.

    Args:
        objective: `objective(batch)` returns a `Loss`, `objective.model` is the model
    """

    objective: nn.Module

    def __init__(self, objective: nn.Module):
        super().__init__()
        self.__dict__["objective"] = objective  # not a submodule: the model is a submodule of `Objective` already

    def forward(self, model: nn.Module, batch: Any) -> Loss:
        return cast(Loss, self.objective(batch))

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Tensor]:  # type: ignore[override]
        state = self.objective.state_dict(*args, **kwargs)
        return {name: tensor for name, tensor in state.items() if not name.startswith("model.")}

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        return self.objective.load_state_dict({**self.objective.state_dict(), **state_dict}, strict, assign)

    def train(self, mode: bool = True) -> ObjectiveLoss:
        self.objective.train(mode)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> ObjectiveLoss:
        self.objective._apply(fn, recurse)
        return self


class Task(ABC, Generic[ConfigT]):
    """One kind of experiment, such as translation. A recipe is a task with data and defaults."""

    config_class: ClassVar[type[TrainingConfig]]
    uses: ClassVar[tuple[str, ...]]  # what can be done with a run, as words of the command line
    files: ClassVar[tuple[str, ...]] = ()  # what a run keeps beside its weights, such as tokenizers

    def available_commands(self, config: ConfigT) -> tuple[str, ...]:
        """Those of `uses` that go with a run of these settings."""
        return self.uses

    @abstractmethod
    def validate(self, recipe: Recipe, config: ConfigT) -> None:
        """Refuse what cannot be trained before a folder is made for it."""

    @abstractmethod
    def experiment(self, run: RunFolder, recipe: Recipe, config: ConfigT) -> Experiment[ConfigT]:
        """Data, model and measures."""

    @abstractmethod
    def load(
        self, run: RunFolder, recipe: Recipe, config: ConfigT, weights: Mapping[str, Tensor], where: str, device: str
    ) -> Any:
        """What was trained, ready for use."""

    @abstractmethod
    def judge(self, recipe: Recipe, made: Any, part: str | None = None) -> dict[str, Any]:
        """How good is what `load` gave, as plain numbers; on one part of the recipe's tests, or its first."""

    def can_init_from(self, other: Task[Any]) -> bool:
        """Whether a run of this task can begin with the weights of one of another."""
        return type(other) is type(self)

    def like(self, config: ConfigT, kept: Mapping[str, Any]) -> ConfigT:
        """The settings of a run that begins with the weights of another, whose settings were kept."""
        return config.inherit_from(kept)

    def ready(self, run: RunFolder, recipe: Recipe, config: ConfigT, origin: RunFolder | None) -> None:
        """Make `files`: from the data, or those of the run it begins with."""

    def init_model(self, model: nn.Module, weights: dict[str, Tensor], where: str) -> None:
        """Load the weights of another run into a model."""
        load_into(model, weights, where)


@dataclass(frozen=True)
class Recipe:
    """One named experiment: what is trained on which data, with which settings unless others are given."""

    name: str
    summary: str
    summary_zh: str
    data: Callable[[Any], Any]  # from settings to data
    defaults: Mapping[str, Any] = field(default_factory=dict)
    task: Task[Any] = field(kw_only=True)
    clean: Callable[[str], str] = str  # what a text goes through before it is read
    unaligned_words: frozenset[str] = frozenset()  # target words that belong to no source word
    reads_files: bool = False

    def load_data(self, config: Any) -> Any:
        """The data for a config."""
        return self.data(config)

    @property
    def config_class(self) -> type[TrainingConfig]:
        """Its settings."""
        return self.task.config_class


def load_translator(
    folder: str | Path, device: str = "cpu", weights: str | Path | None = None, *, engine: str | None = None
) -> Translator:
    """The translator of a run; a run of another task is refused."""
    from regard.tasks.runner import load, recipe_name
    from regard.tasks.translation.predictor import Translator

    predictor = load(folder, device, weights, engine=engine)
    if not isinstance(predictor, Translator):
        raise ConfigError(
            f"{folder} was trained for {recipe_name(folder)} and cannot translate; `regard info` says what it is"
        )
    return predictor
