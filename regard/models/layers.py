"""Dropout that is cheap on a CPU.

Recurrent cells of which a part of the input may come earlier than the rest.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Sinusoidal
from regard.errors import UsageError

NUM_LEVELS = 1 << 16  # sixteen random bits decide about a number


class FastDropout(nn.Module):
    """Forget some of the numbers in training, and make up for them with the others.

        y = x / (1 - p) with probability 1 - p, else 0

    Srivastava et al. (2014). On a CPU the random bits come from NumPy's SFC64, seeded anew in each call by
    PyTorch's generator: ten times as many a second, and `torch.manual_seed` still decides everything. There p
    is rounded to a multiple of 1/65536, and the factor with it. Elsewhere it is PyTorch's own dropout.

    >>> from regard.models.layers import FastDropout
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
        return _DropoutFunction.apply(x, min(round(self.p * NUM_LEVELS), NUM_LEVELS - 1))

    def extra_repr(self) -> str:
        return f"p={self.p}"


class _DropoutFunction(torch.autograd.Function):
    """Keeps one byte a number for backward, instead of a matrix of factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int) -> Tensor:
        kept = (_random_uint16(x.numel()) >= threshold).view(
            np.uint8
        )  # PyTorch multiplies by bytes faster than by bools
        mask = torch.from_numpy(kept).view(x.shape)
        ctx.save_for_backward(mask)
        ctx.factor = NUM_LEVELS / (NUM_LEVELS - threshold)
        return (x * mask).mul_(ctx.factor)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (grad_output * mask).mul_(ctx.factor), None


def _random_uint16(count: int) -> np.ndarray[Any, np.dtype[np.uint16]]:
    """So many random numbers from 0 to 65535."""
    seed = int(torch.randint(1 << 62, ()))
    return np.random.SFC64(seed).random_raw(-(-count // 4)).view(np.uint16)[:count]


CellState = tuple[Tensor, ...]  # what a cell remembers: (h,) or (h, c), each (rows, dim)


class RNNCell(nn.Module):
    """One step of a recurrent layer over [early; late].

    `ahead` does the early input's share for all steps in one product; a step has the rest to do.
    """

    num_gates: int
    num_states: int

    def __init__(self, input_dim: int, context_dim: int, hidden_dim: int):
        super().__init__()
        self.input_proj = nn.Linear(input_dim, self.num_gates * hidden_dim)
        self.context_proj = (
            nn.Linear(context_dim, self.num_gates * hidden_dim, bias=False) if context_dim else None
        )
        self.hidden_proj = nn.Linear(hidden_dim, self.num_gates * hidden_dim)
        for matrix in self.parameters():
            nn.init.uniform_(matrix, -(hidden_dim**-0.5), hidden_dim**-0.5)

    def project_input(self, inputs: Tensor) -> Tensor:
        return self.input_proj(inputs)

    def forward(self, projected_input: Tensor, context: Tensor | None, state: CellState) -> CellState:
        if self.context_proj is not None and context is not None:
            projected_input = projected_input + self.context_proj(context)
        return self.update(projected_input, state)

    def update(self, gate_inputs: Tensor, state: CellState) -> CellState:
        raise NotImplementedError(f"{type(self).__name__} must say how it steps: write turn(given, state)")


class GRUCell(RNNCell):
    """h' = z h + (1 - z) tanh(W x + r (U h)): Cho et al. (2014), arXiv 1406.1078, in the form that PyTorch has."""

    num_gates, num_states = 3, 1

    def update(self, gate_inputs: Tensor, state: CellState) -> CellState:
        (h,) = state
        r_x, z_x, n_x = gate_inputs.chunk(3, -1)
        r_h, z_h, n_h = self.hidden_proj(h).chunk(3, -1)
        reset, keep = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        new = torch.tanh(torch.addcmul(n_x, reset, n_h))
        return (torch.lerp(new, h, keep),)


class LSTMCell(RNNCell):
    """c' = f c + i g, h' = o tanh(c'): Hochreiter and Schmidhuber (1997), with Gers et al.'s forget gate (2000)."""

    num_gates, num_states = 4, 2

    def update(self, gate_inputs: Tensor, state: CellState) -> CellState:
        h, c = state
        i, f, g, o = (gate_inputs + self.hidden_proj(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


RNN_CELLS: dict[str, type[RNNCell]] = {"gru": GRUCell, "lstm": LSTMCell}


RNN_LAYERS: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM}


class FeedForward(nn.Sequential):
    """W2 relu(W1 x + b1) + b2, at each position by itself."""

    def __init__(self, embed_dim: int, ffn_dim: int):
        widen, narrow = nn.Linear(embed_dim, ffn_dim), nn.Linear(ffn_dim, embed_dim)
        super().__init__(widen, nn.ReLU(), narrow)
        for layer in (widen, narrow):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)


class TokenEmbedding(nn.Module):
    """Words as vectors, times sqrt(dim), with their positions added (3.4, 3.5)."""

    def __init__(self, vocab_size: int, embed_dim: int, dropout: float):
        super().__init__()
        self.words, self.scale = nn.Embedding(vocab_size, embed_dim), math.sqrt(embed_dim)
        nn.init.normal_(self.words.weight, std=embed_dim**-0.5)
        self.positions, self.dropout = Sinusoidal(embed_dim), FastDropout(dropout)

    def forward(
        self, tokens: Int[Tensor, "rows length"], offset: int = 0
    ) -> Float[Tensor, "rows length dim"]:
        return self.dropout(self.positions(self.words(tokens) * self.scale, offset))
