"""How long, how fast and how carefully to train: one small typed object."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from regard.config import Config, option

Optimizer = Literal["adam", "adamw", "rmsprop"]
Schedule = Literal["constant", "inverse_sqrt", "cosine"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16"]

LESS_IS_BETTER = {"loss", "perplexity", "error", "errors", "aer", "ter", "wer", "cer", "bits"}


WATCH = "the score of the validation that says which weights are best"


@dataclass(frozen=True, kw_only=True)
class Settings(Config):
    """What the engine can be told; a recipe adds its own by inheriting.

    >>> Settings(steps=100, lr=0.01).rate(1)
    2.5e-05
    """

    steps: int = option(10_000, "steps of the optimizer, at most", ge=1, resumable=True)
    minutes: float | None = option(
        None, "minutes of training, at most; resumed runs add up", gt=0, resumable=True
    )
    optimizer: Optimizer = option("adam", "adam; adamw: weight decay beside the gradient; rmsprop")
    lr: float = option(1e-3, "learning rate at its highest", gt=0)
    beta1: float = option(0.9, "how much of the gradient's average is kept at each step", ge=0, lt=1)
    beta2: float = option(0.98, "how much of the squared gradient's average is kept at each step", ge=0, lt=1)
    momentum: float = option(
        0.9, "rmsprop: how much of the last step is taken again", ge=0, lt=1, when={"optimizer": "rmsprop"}
    )
    eps: float = option(1e-8, "added to the root of the squared gradient's average", gt=0)
    weight_decay: float = option(0.0, "pull of the matrices (not of biases and norms) towards zero", ge=0)
    schedule: Schedule = option("inverse_sqrt", "the learning rate after the warm-up")
    warmup: int = option(400, "steps in which the learning rate rises from zero", ge=0)
    clip: float | None = option(1.0, "longest gradient; a longer one is scaled down to it", gt=0)
    surprise: float | None = option(
        None, "longest gradient in multiples of its usual length; a longer one is scaled down", gt=0
    )
    accumulate: int = option(1, "batches whose gradients make one step", ge=1)
    validate_every: int = option(500, "steps between validations", ge=1, resumable=True)
    save_every: int = option(500, "steps between checkpoints", ge=1, resumable=True, neutral=True)
    patience: int | None = option(
        None, "validations without a better score after which training ends", ge=1, resumable=True
    )
    watch: str = option("loss", WATCH)
    keep: int = option(3, "checkpoints kept", ge=1, resumable=True, neutral=True)
    average: int = option(0, "last validations whose weights are averaged at the end", ge=0)
    seed: int = option(0, "where all chance begins", ge=0, lt=1 << 63)
    device: Device = option("auto", "where to compute; auto: cuda, else mps, else cpu", neutral=True)
    precision: Precision = option("float32", "float32, or bfloat16 in matrix products")
    compile: bool = option(False, "let torch.compile fuse the model", neutral=True)
    threads: int | None = option(
        None, "threads of one process; a resumed run keeps its number", ge=1, neutral=True
    )
    tensorboard: bool = option(False, "write TensorBoard files as well", resumable=True, neutral=True)

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 1.

            constant      lr min(1, step / warmup)
            inverse_sqrt  lr min(step / warmup, sqrt(warmup / step))
            cosine        lr step / warmup, then lr (1 + cos(pi (step - warmup) / (steps - warmup))) / 2

        The second is that of Vaswani et al. (2017), arXiv 1706.03762, 5.3, with its peak named; the third is
        one period of Loshchilov and Hutter (2017), arXiv 1608.03983.
        """
        if step < self.warmup:
            return self.lr * step / self.warmup
        if self.schedule == "inverse_sqrt":
            return self.lr * math.sqrt(max(self.warmup, 1) / step)
        if self.schedule == "cosine":
            way = (step - self.warmup) / max(self.steps - self.warmup, 1)
            return self.lr * (1 + math.cos(math.pi * min(way, 1.0))) / 2
        return self.lr

    def better(self, score: float, best: float | None, by: float = 0.0) -> bool:
        """Is this score of `watch` better than the best so far, by more than a share of it? A nan never is.

        >>> Settings(watch="loss").better(1.0, 2.0), Settings(watch="bleu").better(1.0, 2.0)
        (True, False)
        >>> Settings(watch="bleu").better(30.3, 30.0, by=0.02)
        False
        """
        if math.isnan(score):
            return False
        if best is None:
            return True
        gained = best - score if LESS_IS_BETTER & set(self.watch.lower().split("_")) else score - best
        return gained > by * abs(best)
