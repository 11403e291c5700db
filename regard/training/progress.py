"""How far a training has come: what a checkpoint has to know beside the tensors."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from regard.training.config import TrainingConfig


@dataclass
class Progress:
    """Where a training stands.

    There is no random state in it: every step draws its numbers from a seed of its own, see `seed_of`.
    """

    step: int = 0
    data_position: dict[str, Any] | None = None  # in the data, after the last batch that was used
    tokens: int = 0
    seconds: float = 0.0  # of training, resumed runs added up
    best: float | None = None
    best_step: int = 0
    validations_since_best: int = 0  # validations since the best one
    last_validated_step: int = -1  # the step of the last validation
    scores: dict[str, float] = field(default_factory=dict)  # and what it found
    usual: float | None = None  # the length that gradients had of late

    def longest(self, config: TrainingConfig) -> float | None:
        """How long the next gradient may be: at most `clip`, and at most `surprise` times as long as usual."""
        if config.surprise is None or self.usual is None:
            return config.max_grad_norm
        return min(config.surprise * self.usual, config.max_grad_norm or math.inf)

    def felt(self, norm: float, longest: float | None) -> None:
        """Remember the length of a gradient, about twenty of them, none as longer than it was allowed to be."""
        norm = norm if longest is None else min(norm, longest)
        self.usual = norm if self.usual is None else 0.95 * self.usual + 0.05 * norm

    def record_validation(self, scores: dict[str, float], config: TrainingConfig) -> bool:
        """Take the scores of a validation in; True if they are the best so far."""
        better = config.is_better(scores[config.monitor], self.best)
        self.last_validated_step, self.scores = self.step, scores
        if better:
            self.best, self.best_step, self.validations_since_best = scores[config.monitor], self.step, 0
        else:
            self.validations_since_best += 1
        return better

    def stop_reason(self, config: TrainingConfig) -> str:
        """Why training is over, or "" while it is not."""
        if self.step >= config.steps:
            return f"all {config.steps:,} steps are done"
        if config.patience is not None and self.validations_since_best >= config.patience:
            return f"{config.monitor} did not get better in {self.validations_since_best} validations"
        if config.max_minutes is not None and self.seconds >= 60 * config.max_minutes:
            return f"{config.max_minutes:g} minutes are over"
        return ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Progress:
        return cls(**{item.name: state[item.name] for item in fields(cls) if item.name in state})


def step_seed(seed: int, step: int, rank: int = 0) -> int:
    """The seed of one step in one process.

    With a seed for every step a resumed run draws the numbers that it would have drawn without the crash, and
    a validation in between, or another number of processes, does not disturb them.

    >>> step_seed(0, 1) != step_seed(0, 2) != step_seed(0, 2, rank=1)
    True
    """
    mixed = seed & 0xFFFF_FFFF_FFFF_FFFF
    for number in (step, rank):  # splitmix64: neighbors in, strangers out
        mixed = (mixed + (number + 1) * 0x9E37_79B9_7F4A_7C15) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 30)) * 0xBF58_476D_1CE4_E5B9) & 0xFFFF_FFFF_FFFF_FFFF
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D0_49BB_1331_11EB) & 0xFFFF_FFFF_FFFF_FFFF
        mixed ^= mixed >> 31
    return mixed >> 32  # PyTorch's generator on the CPU looks at 32 bits only
