"""What an objective gives the engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor


@dataclass(frozen=True)
class Loss:
    """A sum to make small, and what to divide it by: the loss of a step is sum(total) / sum(count).

    So a step weighs every token alike, however tokens are spread over batches and processes. `extra` are
    other sums over the same tokens, for the metrics only.

    >>> Loss(torch.tensor(6.0), count=3).count
    3
    """

    total: Tensor
    count: int
    extra: Mapping[str, float | Tensor] = field(default_factory=dict)
