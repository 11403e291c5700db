"""Options of a training, and the learning-rate schedule."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from regard.config import Config, option

__all__ = ["DeviceName", "OptimizerName", "Precision", "Schedule", "TrainingConfig"]

OptimizerName = Literal["adam", "adamw", "rmsprop"]
Schedule = Literal["constant", "inverse_sqrt", "cosine"]
DeviceName = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16"]

MONITOR_HELP = "validation metric that selects the best weights"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """Options of `fit`; a task adds its own in a subclass.

    Example:
        >>> TrainingConfig(steps=100, lr=0.01).learning_rate(1)
        2.5e-05
    """

    steps: int = option(10_000, "maximum number of optimizer steps", ge=1, resumable=True)
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
