"""How far a training has come: the part of a checkpoint's state that is not tensors."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from regard.training.config import TrainingConfig

__all__ = ["Progress", "is_better", "step_seed"]


@dataclass
class Progress:
    """The state of a training.

    It contains no random state: every step has a seed of its own, see `step_seed`.

    Args:
        step: number of optimizer steps
        data_position: position in the data after the last batch
        tokens: tokens trained on
        seconds: time of training, summed over resumed runs
        best: best value of the monitored metric
        best_step: its step
        validations_since_best: number of validations after it
        last_validated_step: step of the last validation, -1 before the first one
        scores: metrics of the last validation
    """

    step: int = 0
    data_position: dict[str, Any] | None = None
    tokens: int = 0
    seconds: float = 0.0
    best: float | None = None
    best_step: int = 0
    validations_since_best: int = 0
    last_validated_step: int = -1
    scores: dict[str, float] = field(default_factory=dict)

    def record_validation(self, scores: dict[str, float], monitor: str, lower_is_better: bool) -> bool:
        """Add the metrics of a validation.

        Args:
            scores: all metrics
            monitor: name of the monitored one
            lower_is_better: whether smaller values of it are better

        Returns:
            Whether it is the best value so far.
        """
        improved = is_better(scores[monitor], self.best, lower_is_better)
        self.last_validated_step, self.scores = self.step, scores
        if improved:
            self.best, self.best_step, self.validations_since_best = scores[monitor], self.step, 0
        else:
            self.validations_since_best += 1
        return improved

    def stop_reason(self, config: TrainingConfig) -> str:
        """Why the training is over, or "" if it is not."""
        if self.step >= config.steps:
            return f"all {config.steps:,} steps are done"
        if config.patience is not None and self.validations_since_best >= config.patience:
            return f"{config.monitor} did not improve in {self.validations_since_best} validations"
        if config.max_minutes is not None and self.seconds >= 60 * config.max_minutes:
            return f"max_minutes={config.max_minutes:g} is reached"
        return ""

    def to_json(self) -> dict[str, Any]:
        """All fields as plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Progress:
        """The progress of which `to_json` is a part of `state`."""
        return cls(**{item.name: state[item.name] for item in fields(cls) if item.name in state})


def is_better(score: float, best: float | None, lower_is_better: bool, margin: float = 0.0) -> bool:
    """Whether a value is better than the best one; NaN never is.

    Args:
        score: the new value
        best: the best value so far, if any
        lower_is_better: whether smaller values are better
        margin: required relative improvement

    >>> is_better(1.0, 2.0, lower_is_better=True), is_better(1.0, 2.0, lower_is_better=False)
    (True, False)
    >>> is_better(30.3, 30.0, lower_is_better=False, margin=0.02)
    False
    """
    if math.isnan(score):
        return False
    if best is None:
        return True
    gain = best - score if lower_is_better else score - best
    return gain > margin * abs(best)


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of one step in one process.

    With a seed for every step a resumed run draws the same random numbers as one that was not interrupted; validations
    and the number of processes do not change them.

    Args:
        seed: seed of the training
        step: number of the step
        rank: index of the process

    >>> step_seed(0, 1) != step_seed(0, 2) != step_seed(0, 2, rank=1)
    True
    """
    mixed = seed & 0xFFFF_FFFF_FFFF_FFFF
    for number in (step, rank):  # splitmix64
        mixed = (mixed + (number + 1) * 0x9E37_79B9_7F4A_7C15) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & 0xFFFF_FFFF_FFFF_FFFF
        mixed ^= mixed >> 31
    return mixed >> 32  # PyTorch's generator on the CPU uses 32 bits only
