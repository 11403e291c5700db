"""How long, how fast and how carefully to train: one small typed object."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from regard.errors import ConfigError

Optimizer = Literal["adam", "adamw", "rmsprop"]
Schedule = Literal["constant", "inverse_sqrt", "cosine"]
Device = Literal["auto", "cpu", "cuda", "mps"]
Precision = Literal["float32", "bfloat16"]

LESS_IS_BETTER = {"loss", "perplexity", "error", "errors", "aer", "ter", "wer", "cer", "bits"}


def setting(default: Any, help: str) -> Any:
    """A field of settings with its line of help."""
    return field(default=default, metadata={"help": help})


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What the engine can be told; a recipe adds its own by inheriting.

    >>> Settings(steps=100, lr=0.01).rate(1)
    2.5e-05
    """

    steps: int = setting(10_000, "steps of the optimizer, at most")
    minutes: float | None = setting(None, "minutes of training, at most; resumed runs add up")
    optimizer: Optimizer = setting("adam", "adam; adamw: weight decay beside the gradient; rmsprop")
    lr: float = setting(1e-3, "learning rate at its highest")
    beta1: float = setting(0.9, "how much of the gradient's average is kept at each step")
    beta2: float = setting(0.98, "how much of the squared gradient's average is kept at each step")
    momentum: float = setting(0.9, "rmsprop: how much of the last step is taken again")
    eps: float = setting(1e-8, "added to the root of the squared gradient's average")
    weight_decay: float = setting(0.0, "pull of the matrices (not of biases and norms) towards zero")
    schedule: Schedule = setting("inverse_sqrt", "the learning rate after the warm-up")
    warmup: int = setting(400, "steps in which the learning rate rises from zero")
    clip: float | None = setting(1.0, "longest gradient; a longer one is scaled down to it")
    surprise: float | None = setting(
        None, "longest gradient in multiples of its usual length; a longer one is scaled down"
    )
    accumulate: int = setting(1, "batches whose gradients make one step")
    validate_every: int = setting(500, "steps between validations")
    save_every: int = setting(500, "steps between checkpoints")
    patience: int | None = setting(None, "validations without a better score after which training ends")
    watch: str = setting("loss", "the score of the validation that says which weights are best")
    keep: int = setting(3, "checkpoints kept")
    average: int = setting(0, "last validations whose weights are averaged at the end")
    seed: int = setting(0, "where all chance begins")
    device: Device = setting("auto", "where to compute; auto: cuda, else mps, else cpu")
    precision: Precision = setting("float32", "float32, or bfloat16 in matrix products")
    compile: bool = setting(False, "let torch.compile fuse the model")
    threads: int | None = setting(None, "threads of one process; a resumed run keeps its number")
    tensorboard: bool = setting(False, "write TensorBoard files as well")

    def __post_init__(self) -> None:
        for name in ("steps", "accumulate", "validate_every", "save_every", "keep", "patience", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}={value} is too small: it must be at least 1")
        for name in ("lr", "eps", "clip", "surprise", "minutes"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name}={value} must be a number above 0")
        for name in ("warmup", "average", "weight_decay", "seed"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(f"{name}={getattr(self, name)} must not be negative")
        if self.seed >= 1 << 63:
            raise ConfigError(f"seed={self.seed} is too large: it must be below 2^63")
        for name in ("beta1", "beta2", "momentum"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigError(f"{name}={getattr(self, name)} must be at least 0 and below 1")

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

    @classmethod
    def helps(cls) -> dict[str, str]:
        """The line of help of each setting."""
        return {item.name: item.metadata.get("help", "") for item in fields(cls)}
