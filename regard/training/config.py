"""How long, how fast and how carefully to train: one small typed object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from regard.config import Config, option

OptimizerName = Literal["adam", "adamw", "rmsprop"]


Schedule = Literal["constant", "inverse_sqrt", "cosine"]


Device = Literal["auto", "cpu", "cuda", "mps"]


Precision = Literal["float32", "bfloat16"]


LESS_IS_BETTER = {"loss", "perplexity", "error", "errors", "aer", "ter", "wer", "cer", "bits"}


WATCH = "the score of the validation that says which weights are best"


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(Config):
    """What the engine can be told; a recipe adds its own by inheriting.

    >>> TrainingConfig(steps=100, lr=0.01).learning_rate(1)
    2.5e-05
    """

    steps: int = option(10_000, "steps of the optimizer, at most", ge=1, resumable=True)
    max_minutes: float | None = option(
        None, "minutes of training, at most; resumed runs add up", gt=0, resumable=True
    )
    optimizer: OptimizerName = option("adam", "adam; adamw: weight decay beside the gradient; rmsprop")
    lr: float = option(1e-3, "learning rate at its highest", gt=0)
    beta1: float = option(0.9, "how much of the gradient's average is kept at each step", ge=0, lt=1)
    beta2: float = option(0.98, "how much of the squared gradient's average is kept at each step", ge=0, lt=1)
    momentum: float = option(
        0.9, "rmsprop: how much of the last step is taken again", ge=0, lt=1, when={"optimizer": "rmsprop"}
    )
    eps: float = option(1e-8, "added to the root of the squared gradient's average", gt=0)
    weight_decay: float = option(0.0, "pull of the matrices (not of biases and norms) towards zero", ge=0)
    schedule: Schedule = option("inverse_sqrt", "the learning rate after the warm-up")
    warmup_steps: int = option(400, "steps in which the learning rate rises from zero", ge=0)
    max_grad_norm: float | None = option(1.0, "longest gradient; a longer one is scaled down to it", gt=0)
    surprise: float | None = option(
        None, "longest gradient in multiples of its usual length; a longer one is scaled down", gt=0
    )
    grad_accumulation: int = option(1, "batches whose gradients make one step", ge=1)
    validate_every: int = option(500, "steps between validations", ge=1, resumable=True)
    save_every: int = option(500, "steps between checkpoints", ge=1, resumable=True, neutral=True)
    patience: int | None = option(
        None, "validations without a better score after which training ends", ge=1, resumable=True
    )
    monitor: str = option("loss", WATCH)
    keep_checkpoints: int = option(3, "checkpoints kept", ge=1, resumable=True, neutral=True)
    average_last: int = option(0, "last validations whose weights are averaged at the end", ge=0)
    seed: int = option(0, "where all chance begins", ge=0, lt=1 << 63)
    device: Device = option("auto", "where to compute; auto: cuda, else mps, else cpu", neutral=True)
    precision: Precision = option("float32", "float32, or bfloat16 in matrix products")
    compile: bool = option(False, "let torch.compile fuse the model", neutral=True)
    num_threads: int | None = option(
        None, "threads of one process; a resumed run keeps its number", ge=1, neutral=True
    )
    tensorboard: bool = option(False, "write TensorBoard files as well", resumable=True, neutral=True)

    def learning_rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1.

            constant      lr min(1, step / warmup)
            inverse_sqrt  lr min(step / warmup, sqrt(warmup / step))
            cosine        lr step / warmup, then lr (1 + cos(pi (step - warmup) / (steps - warmup))) / 2

        The second is that of Vaswani et al. (2017), arXiv 1706.03762, 5.3, with its peak named; the third is
        one period of Loshchilov and Hutter (2017), arXiv 1608.03983.
        """
        if step < self.warmup_steps:
            return self.lr * step / self.warmup_steps
        if self.schedule == "inverse_sqrt":
            return self.lr * math.sqrt(max(self.warmup_steps, 1) / step)
        if self.schedule == "cosine":
            way = (step - self.warmup_steps) / max(self.steps - self.warmup_steps, 1)
            return self.lr * (1 + math.cos(math.pi * min(way, 1.0))) / 2
        return self.lr

    def is_better(self, score: float, best: float | None, min_relative_gain: float = 0.0) -> bool:
        """Is this score of `watch` better than the best so far, by more than a share of it? A nan never is.

        >>> TrainingConfig(monitor="loss").is_better(1.0, 2.0), TrainingConfig(monitor="bleu").is_better(1.0, 2.0)
        (True, False)
        >>> TrainingConfig(monitor="bleu").is_better(30.3, 30.0, min_relative_gain=0.02)
        False
        """
        if math.isnan(score):
            return False
        if best is None:
            return True
        gained = best - score if LESS_IS_BETTER & set(self.monitor.lower().split("_")) else score - best
        return gained > min_relative_gain * abs(best)
