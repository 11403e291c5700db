"""Dropout that is cheap on a CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.errors import UsageError

STEPS = 1 << 16  # sixteen random bits decide about a number


class Dropout(nn.Module):
    """Forget some of the numbers in training, and make up for them with the others.

        y = x / (1 - p) with probability 1 - p, else 0

    Srivastava et al. (2014). On a CPU the random bits come from NumPy's SFC64, seeded anew in each call by
    PyTorch's generator: ten times as many a second, and `torch.manual_seed` still decides everything. There p
    is rounded to a multiple of 1/65536, and the factor with it. Elsewhere it is PyTorch's own dropout.

    >>> from regard.models._dropout import Dropout
    >>> Dropout(0.5).eval()(torch.ones(2, 3)).tolist()
    [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]
    """

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise UsageError(f"Dropout: p must be at least 0 and below 1, got {p}")
        self.p = p

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        return _Drop.apply(x, min(round(self.p * STEPS), STEPS - 1))

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _Drop(torch.autograd.Function):
    """Keeps one byte a number for backward, instead of a matrix of factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, below: int) -> Tensor:
        kept = (_bits(x.numel()) >= below).view(np.uint8)  # PyTorch multiplies by bytes faster than by bools
        mask = torch.from_numpy(kept).view(x.shape)
        ctx.save_for_backward(mask)
        ctx.factor = STEPS / (STEPS - below)
        return (x * mask).mul_(ctx.factor)

    @staticmethod
    def backward(ctx: Any, by: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (by * mask).mul_(ctx.factor), None


def _bits(count: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """So many random numbers from 0 to 65535."""
    seed = int(torch.randint(1 << 62, ()))
    return np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count]
