"""Options of a training, and the learning-rate schedule."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from regard.config import Config, option

__all__ = ["DeviceName", "OptimizerName", "Precision", "Schedule", "TrainingConfig"]

OptimizerName = Literal["adam", "adamw", "rmsprop"]
Schedule = Literal["constant", "inverse_sqrt", "cosine"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16"]

ConfigT = TypeVar("ConfigT", bound="TrainingConfig")
MONITOR_HELP = "validation metric that selects the best weights"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """Options of `fit`; a task adds its own in a subclass.

    Example:
        >>> TrainingConfig(steps=100, lr=0.01).learning_rate(1)
        2.5e-05
    """

    alternatives: ClassVar[Mapping[str, str]] = {"epochs": "steps", "batch_size": "batch_tokens"}  # in place of

    steps: int = option(10_000, "maximum number of optimizer steps", ge=1, resumable=True)
    epochs: int | None = option(None, "passes over the training data, in place of steps", ge=1, resumable=True)
    max_minutes: float | None = option(
        None, "maximum minutes of training, summed over resumed runs", gt=0, resumable=True
    )
    optimizer: OptimizerName = option("adam", "optimizer; adamw: decoupled weight decay")
    lr: float = option(1e-3, "peak learning rate", gt=0)
    beta1: float = option(0.9, "decay of the running mean of the gradient", ge=0, lt=1)
    beta2: float = option(0.98, "decay of the running mean of the squared gradient", ge=0, lt=1)
    momentum: float = option(0.9, "momentum of rmsprop", ge=0, lt=1, when={"optimizer": "rmsprop"})
    eps: float = option(1e-8, "added to the denominator of the optimizer", gt=0)
    weight_decay: float = option(0.0, "weight decay of matrices (not of biases and norms)", ge=0)
    schedule: Schedule = option("inverse_sqrt", "learning rate after the warm-up")
    warmup_steps: int = option(400, "steps in which the learning rate rises from 0", ge=0)
    max_grad_norm: float | None = option(1.0, "gradients with a larger norm are scaled down to it", gt=0)
    grad_accumulation: int = option(1, "batches per optimizer step", ge=1)
    validate_every: int = option(500, "steps between validations", ge=1, resumable=True)
    save_every: int = option(500, "steps between checkpoints", ge=1, resumable=True, neutral=True)
    patience: int | None = option(
        None, "validations without improvement after which training stops", ge=1, resumable=True
    )
    monitor: str = option("loss", MONITOR_HELP)
    keep_checkpoints: int = option(3, "number of checkpoints to keep", ge=1, resumable=True, neutral=True)
    average_last: int = option(
        0, "average the weights saved at the last validations, this many, when training ends; 0: off", ge=0
    )
    seed: int = option(0, "seed of all random numbers", ge=0, lt=1 << 63)
    device: DeviceName = option("auto", "device to train on; auto: cuda, else mps, else cpu", neutral=True)
    precision: Precision = option("float32", "bfloat16: mixed precision with torch.autocast")
    compile: bool = option(False, "compile the model with torch.compile", neutral=True)
    num_threads: int | None = option(
        None, "CPU threads per process; none: as PyTorch chooses, or as before when resumed", ge=1, neutral=True
    )
    tensorboard: bool = option(False, "also write TensorBoard files", resumable=True, neutral=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, other in self._alternatives():
            value = getattr(self, other)
            if getattr(self, name) is not None and value != self.option(other).default:
                raise self.error(name, f"it is in place of {other}, which is {value:,}; leave one of them out")

    def replace(self: ConfigT, **changes: Any) -> ConfigT:
        """The same with other values; of two options of which one is in place of the other, the last one given counts.

        Example:
            >>> TrainingConfig(steps=100).replace(epochs=3).replace(steps=200).epochs is None
            True
        """
        for name, other in self._alternatives():
            if changes.get(name) is not None:
                changes.setdefault(other, self.option(other).default)
            elif other in changes:
                changes.setdefault(name, None)
        return super().replace(**changes)

    @classmethod
    def drop_replaced(cls, defaults: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
        """The defaults without those in whose place another option is chosen.

        Args:
            defaults: values by name
            chosen: values, or their texts, by name

        Example:
            >>> TrainingConfig.drop_replaced({"steps": 300, "lr": 0.1}, {"epochs": "2"})
            {'lr': 0.1}
        """
        replaced = {other for name, other in cls._alternatives() if chosen.get(name) not in (None, "none")}
        return {name: value for name, value in defaults.items() if name not in replaced}

    @classmethod
    def _alternatives(cls) -> list[tuple[str, str]]:
        """Those of which the config has both options."""
        names = {item.name for item in cls.options()}
        return [pair for pair in cls.alternatives.items() if names.issuperset(pair)]

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step.

            constant      lr min(1, step / warmup_steps)
            inverse_sqrt  lr min(step / warmup_steps, sqrt(warmup_steps / step))
            cosine        lr step / warmup_steps, then
                          lr (1 + cos(pi (step - warmup_steps) / (steps - warmup_steps))) / 2

        Args:
            step: counted from 1

        Reference: inverse_sqrt: Vaswani et al. (2017), arXiv 1706.03762, 5.3, here with its peak as an option; cosine:
        one period of Loshchilov and Hutter (2017), arXiv 1608.03983.
        """
        if step < self.warmup_steps:
            return self.lr * step / self.warmup_steps
        if self.schedule == "inverse_sqrt":
            return self.lr * math.sqrt(max(self.warmup_steps, 1) / step)
        if self.schedule == "cosine":
            progress = (step - self.warmup_steps) / max(self.steps - self.warmup_steps, 1)
            return self.lr * (1 + math.cos(math.pi * min(progress, 1.0))) / 2
        return self.lr
