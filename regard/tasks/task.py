"""One kind of problem: its config, data, processor, model and loss. `predictor.py` has the other half: its use."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar, cast

from torch import Tensor, nn

from regard.errors import UnknownNameError
from regard.tasks.loading import Processor, TokenizerProcessor
from regard.tasks.predictor import Metric, Predictor
from regard.training import Loss, TrainingConfig, load_into
from regard.training.engine import Batch, BatchSource, CompileMode

__all__ = [
    "AnyTask", "Batch", "BatchSource", "DataSplits", "LazyExamples", "LossFn", "Processor", "Task",
    "TokenizerProcessor", "sum_losses",
]  # fmt: skip

ConfigT = TypeVar("ConfigT", bound=TrainingConfig)
ProcessorT = TypeVar("ProcessorT", bound="Processor")
ExampleT = TypeVar("ExampleT")
ExampleT_co = TypeVar("ExampleT_co", covariant=True)
BatchT = TypeVar("BatchT")
LossFn = Callable[[nn.Module, Any], Loss]


@dataclass(frozen=True)
class LazyExamples(Generic[ExampleT_co]):
    """Examples that are read or generated when they are iterated.

    Args:
        load: returns the examples; called for every iteration
        name: where they come from, for messages

    Example:
        >>> examples = LazyExamples(lambda: range(3))
        >>> list(examples), list(examples)
        ([0, 1, 2], [0, 1, 2])
    """

    load: Callable[[], Iterable[ExampleT_co]]
    name: str = ""

    def __str__(self) -> str:
        return self.name

    def __iter__(self) -> Iterator[ExampleT_co]:
        return iter(self.load())


@dataclass(frozen=True)
class DataSplits(Generic[ExampleT]):
    """Examples to train on, to choose weights by, and to test with.

    Args:
        train, valid: anything that can be iterated again and again; `train` may also be an object with
            `sample(rng, count)`
        tests: the test splits by name
        files: what is fingerprinted, so that a resumed run trains on the same data

    Example:
        >>> DataSplits([1, 2], [3]).select()
        {'valid': [3]}
    """

    train: Any
    valid: Any
    tests: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[Path, ...] = ()

    def select(self, name: str | None = None) -> Mapping[str, Iterable[ExampleT]]:
        """The split of a name; without a name all tests, or the validation split if there is no test.

        Example:
            >>> DataSplits([1, 2], [3]).select(), DataSplits([1], [2], {"test": [3]}).select("valid")
            ({'valid': [3]}, {'valid': [2]})
        """
        splits = {**self.tests, "valid": self.valid}
        if name is None:
            return self.tests or {"valid": self.valid}
        UnknownNameError.check("split", name, splits)
        return {name: splits[name]}


class Task(ABC, Generic[ConfigT, ProcessorT, ExampleT, BatchT]):
    """One kind of problem. A task has no state: all that it makes, it makes from a config and a processor.

    Example:
        >>> from regard.tasks import get_recipe, get_task, make_config
        >>> task, config = get_task("algorithm"), make_config("copy", ["max_size=10"])
        >>> processor = task.build_processor(config, get_recipe("copy").load_data(config))
        >>> type(task.build_model(config, processor)).__name__
        'NeuralTuringMachine'
    """

    name: ClassVar[str]
    verb: ClassVar[str]
    config_class: ClassVar[type[TrainingConfig]]
    processor_class: ClassVar[type[Processor]]
    predictor_class: ClassVar[type[Predictor[Any, Any, Any]]]
    metrics: ClassVar[tuple[Metric, ...]]

    def validate(self, config: ConfigT, data: DataSplits[ExampleT]) -> None:
        """Refuse what cannot be trained, before a folder is created for it."""

    @abstractmethod
    def build_processor(self, config: ConfigT, data: DataSplits[ExampleT]) -> ProcessorT:
        """Learn from the training data what inputs need: tokenizers, labels."""

    def inherit_processor(
        self, config: ConfigT, data: DataSplits[ExampleT], other: AnyTask, folder: Path
    ) -> ProcessorT:
        """The processor of a run that begins with the weights of another.

        Args:
            other: the task of the other run
            folder: the folder of its processor
        """
        return cast(ProcessorT, self.processor_class.load(folder))

    @abstractmethod
    def build_model(self, config: ConfigT, processor: ProcessorT) -> nn.Module:
        """The network. Weight files hold its state dict and nothing else."""

    @abstractmethod
    def train_batches(self, config: ConfigT, processor: ProcessorT, examples: Any) -> BatchSource:
        """Batches to train on, resumable at any position."""

    @abstractmethod
    def eval_batches(self, config: ConfigT, processor: ProcessorT, examples: Iterable[ExampleT]) -> Iterable[BatchT]:
        """Every example once, in batches."""

    def loss(self, model: nn.Module, batch: BatchT) -> Loss:
        """The loss of a batch as sums: `Loss(total, count, metrics)`."""
        raise NotImplementedError(f"{type(self).__name__} defines neither loss nor build_loss")

    def build_loss(self, config: ConfigT) -> Callable[[nn.Module, BatchT], Loss] | nn.Module:
        """The loss as the engine calls it: loss(model, batch).

        A loss with state of its own is an nn.Module; its state is saved in checkpoints, never in weights.
        """
        return self.loss

    def compile_mode(self, config: ConfigT) -> CompileMode:
        """What `compile=on` compiles: the "whole" model, one "step" of it, or nothing ("off")."""
        return "whole"

    def describe_data(self, config: ConfigT, batches: BatchSource, valid: Iterable[BatchT]) -> Mapping[str, Any]:
        """Reports of what was read, by split: objects with `as_dict()` for run.json and a sentence as `str`.

        Args:
            batches: what `train_batches` returned
            valid: what `eval_batches` returned for the validation split
        """
        return {}

    def compute_metrics(
        self, predictor: Predictor[Any, Any, Any], loss: LossFn, batches: Iterable[BatchT], examples: Iterable[ExampleT]
    ) -> dict[str, float]:
        """The metrics of a validation during the training.

        By default these are the loss and the metrics of `Loss`, divided by `Loss.count`; if the monitored metric is not
        among them, also those of `Predictor.evaluate`.

        Args:
            predictor: the model that is trained, with its processor
            loss: the loss function, in evaluation mode
            batches: `eval_batches` of the validation split
            examples: the validation split
        """
        total, count, sums = sum_losses(predictor, loss, batches)
        metrics = {"loss": total / count, **{name: value / count for name, value in sums.items()}}
        if predictor.config.monitor not in metrics:
            metrics |= predictor.evaluate(examples).metrics
        return metrics

    def can_init_from(self, other: AnyTask) -> bool:
        """Whether a run of this task can begin with the weights of a run of another."""
        return type(other) is type(self)

    def inherit_config(self, config: ConfigT, other: AnyTask, values: Mapping[str, Any]) -> ConfigT:
        """The config of a run that begins with the weights of another.

        Args:
            other: the task of the other run
            values: its config
        """
        return config.inherit_from(values)

    def init_model(self, model: nn.Module, other: AnyTask, weights: Mapping[str, Tensor], origin: str) -> None:
        """Fill a model with the weights of another run.

        Args:
            other: the task of the other run
            weights: its state dict
            origin: where they come from, for error messages
        """
        load_into(model, dict(weights), origin)


AnyTask = Task[Any, Any, Any, Any]


def sum_losses(
    predictor: Predictor[Any, Any, Any], loss: LossFn, batches: Iterable[Any]
) -> tuple[float, float, dict[str, float]]:
    """The losses of all batches: their total, what to divide it by, and the sums of their metrics.

    Args:
        predictor: the model and its device
        loss: the loss function, in evaluation mode
        batches: as the loss takes them

    Returns:
        The total, the count, and the sums by name.
    """
    total = count = 0.0
    sums: dict[str, float] = {}
    for batch in batches:
        result = loss(predictor.model, batch.to(predictor.device))
        total, count = total + float(result.total), count + result.count
        for name, value in result.metrics.items():
            sums[name] = sums.get(name, 0.0) + float(value)
    return total, count, sums
