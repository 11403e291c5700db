"""Layers that several models share: dropout, recurrent cells, feed-forward networks and token embeddings."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.attention import Sinusoidal
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule, reset_modules
from regard.errors import UsageError, require_choice

__all__ = [
    "ACTIVATIONS", "RNN_CELLS", "RNN_LAYERS", "CellState", "FastDropout", "FeedForward", "GRUCell", "LSTMCell",
    "Lengths", "Logits", "MakeModule", "MakePositions", "RNNCell", "ScaledRMSNorm", "SourceTokens", "TargetTokens",
    "TokenEmbedding", "untie",
]  # fmt: skip

NUM_LEVELS = 1 << 16  # FastDropout compares 16 random bits per element with a threshold
MakePositions = Callable[[], nn.Module | None]
MakeModule = Callable[[], nn.Module]
SourceTokens = Int[Tensor, "batch src_len"]
TargetTokens = Int[Tensor, "batch tgt_len"]
Lengths = Int[Tensor, " batch"]
Logits = Float[Tensor, "batch tgt_len vocab"]
CellState = tuple[Tensor, ...]  # (h,) of a GRU, (h, c) of an LSTM, each (batch, hidden_dim)


class FastDropout(ResettableModule):
    """Dropout that is fast on a CPU.

        y = x / (1 - p) with probability 1 - p, else 0

    On a CPU the random bits come from NumPy's SFC64, seeded in each call by PyTorch's generator: ten times as many per
    second, and `torch.manual_seed` still determines the result. There p is rounded to a multiple of 1/65536, and the
    factor with it. On other devices, and inside `torch.compile`, it is `torch.nn.functional.dropout`.

    Args:
        p: probability of setting an element to 0, in [0, 1)

    Shape: (*) -> (*)

    Example:
        >>> FastDropout(0.5).eval()(torch.ones(2, 3)).tolist()
        [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]

    Reference: Srivastava et al. (2014), "Dropout", JMLR 15.
    """

    repr_settings = ("p",)

    def __init__(self, p: float):
        super().__init__()
        if not 0 <= p < 1:
            raise UsageError(f"FastDropout: invalid value {p} for p: must be at least 0 and below 1")
        self.p = p

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        return _DropoutFunction.apply(x, min(round(self.p * NUM_LEVELS), NUM_LEVELS - 1))


class _DropoutFunction(torch.autograd.Function):
    """Dropout that saves one byte per element for backward, not a matrix of factors."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int) -> Tensor:
        seed = int(torch.randint(1 << 62, ()))
        bits = np.random.SFC64(seed).random_raw(-(-x.numel() // 4)).view(np.uint16)[: x.numel()]
        mask = torch.from_numpy((bits >= threshold).view(np.uint8)).view(x.shape)  # uint8 multiplies faster than bool
        ctx.save_for_backward(mask)
        ctx.factor = NUM_LEVELS / (NUM_LEVELS - threshold)
        return (x * mask).mul_(ctx.factor)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return (grad_output * mask).mul_(ctx.factor), None


class RNNCell(ResettableModule):
    """One step of a recurrent layer with the input [x; context], where x is known before the context.

    `project_input` computes the part of the gates that depends on x for all steps in one product; `forward` adds the
    parts that depend on the context and on the previous state.

    Args:
        input_dim: size of x
        context_dim: size of the context; 0 if there is none
        hidden_dim: size of the state
        device, dtype: of the parameters, as in PyTorch

    Shape: projected_input (batch, num_gates * hidden_dim), context (batch, context_dim), state: `num_states` tensors
        (batch, hidden_dim) -> state

    Example:
        >>> cell, x, context = GRUCell(3, 4, 5), torch.randn(2, 3), torch.randn(2, 4)
        >>> cell(cell.project_input(x), context, (torch.zeros(2, 5),))[0].shape
        torch.Size([2, 5])
    """

    num_gates: int
    num_states: int

    def __init__(
        self, input_dim: int, context_dim: int, hidden_dim: int, *, device: Device = None, dtype: Dtype = None
    ):
        super().__init__()
        gates_dim = self.num_gates * hidden_dim
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.input_proj = nn.Linear(input_dim, gates_dim, **factory)
        self.context_proj = nn.Linear(context_dim, gates_dim, bias=False, **factory) if context_dim else None
        self.hidden_proj = nn.Linear(hidden_dim, gates_dim, **factory)
        self._init_parameters()

    def _init_parameters(self) -> None:
        bound = self.hidden_proj.in_features**-0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    def project_input(self, inputs: Tensor) -> Tensor:
        """The part of the gates that depends on x: (*, input_dim) -> (*, num_gates * hidden_dim)."""
        return self.input_proj(inputs)

    def forward(self, projected_input: Tensor, context: Tensor | None, state: CellState) -> CellState:
        if self.context_proj is not None and context is not None:
            projected_input = projected_input + self.context_proj(context)
        return self.update(projected_input, state)

    def update(self, gate_inputs: Tensor, state: CellState) -> CellState:
        """The next state from the projected inputs of all gates and the previous state."""
        raise NotImplementedError(f"{type(self).__name__} must implement update(gate_inputs, state)")


class GRUCell(RNNCell):
    """Gated recurrent unit, in PyTorch's form.

        h' = z h + (1 - z) tanh(W x + r (U h))

    Args:
        input_dim, context_dim, hidden_dim, device, dtype: as in `RNNCell`

    Shape: as in `RNNCell`; the state is (h,)

    Example:
        >>> cell = GRUCell(3, 0, 5)
        >>> cell(cell.project_input(torch.randn(2, 3)), None, (torch.zeros(2, 5),))[0].shape
        torch.Size([2, 5])

    Reference: Cho et al. (2014), arXiv 1406.1078.
    """

    num_gates, num_states = 3, 1

    def update(self, gate_inputs: Tensor, state: CellState) -> CellState:
        """The next state (h,)."""
        (h,) = state
        r_x, z_x, n_x = gate_inputs.chunk(3, -1)
        r_h, z_h, n_h = self.hidden_proj(h).chunk(3, -1)
        reset, keep = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        new = torch.tanh(torch.addcmul(n_x, reset, n_h))
        return (torch.lerp(new, h, keep),)


class LSTMCell(RNNCell):
    """Long short-term memory with a forget gate.

        c' = f c + i g,    h' = o tanh(c')

    Args:
        input_dim, context_dim, hidden_dim, device, dtype: as in `RNNCell`

    Shape: as in `RNNCell`; the state is (h, c)

    Example:
        >>> cell, state = LSTMCell(3, 0, 5), (torch.zeros(2, 5), torch.zeros(2, 5))
        >>> [part.shape for part in cell(cell.project_input(torch.randn(2, 3)), None, state)]
        [torch.Size([2, 5]), torch.Size([2, 5])]

    Reference: Hochreiter and Schmidhuber (1997); Gers et al. (2000).
    """

    num_gates, num_states = 4, 2

    def update(self, gate_inputs: Tensor, state: CellState) -> CellState:
        """The next state (h, c)."""
        h, c = state
        i, f, g, o = (gate_inputs + self.hidden_proj(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


RNN_CELLS: dict[str, type[RNNCell]] = {"gru": GRUCell, "lstm": LSTMCell}
RNN_LAYERS: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM}


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


class FeedForward(ResettableModule):
    """Position-wise feed-forward network.

        y = W2 activation(W1 x + b1) + b2                       b1 = b2 = 0 without `bias`
        y = W2 (activation(W1 x + b1) * (W3 x + b3)) + b2       with `gated`

    Args:
        embed_dim: size of x and y
        ffn_dim: size of the inner layer
        activation: "relu", "gelu", "gelu_tanh" (its approximation by tanh) or "silu"
        gated: multiply the inner layer with a second one, `linear3` (Shazeer 2020, arXiv 2002.05202)
        bias: whether the layers have a bias
        device, dtype: of the parameters, as in PyTorch

    Shape: (*, embed_dim) -> (*, embed_dim)

    Example:
        >>> FeedForward(8, 32)(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])

    Reference: Vaswani et al. (2017), arXiv 1706.03762, 3.3.
    """

    repr_settings = ("activation",)

    def __init__(
        self,
        embed_dim: int,
        ffn_dim: int,
        *,
        activation: str = "relu",
        gated: bool = False,
        bias: bool = True,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        require_choice("activation", activation, ACTIVATIONS, "FeedForward")
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.activation = activation
        self.linear1 = nn.Linear(embed_dim, ffn_dim, bias, **factory)
        self.linear2 = nn.Linear(ffn_dim, embed_dim, bias, **factory)
        self.linear3 = nn.Linear(embed_dim, ffn_dim, bias, **factory) if gated else None
        self._init_parameters()

    def _init_parameters(self) -> None:
        for linear in (self.linear1, self.linear2, self.linear3):
            if linear is not None:
                nn.init.xavier_uniform_(linear.weight)
                if linear.bias is not None:
                    nn.init.zeros_(linear.bias)

    def forward(self, x: Float[Tensor, "*batch embed_dim"]) -> Float[Tensor, "*batch embed_dim"]:
        inner = ACTIVATIONS[self.activation](self.linear1(x))
        return self.linear2(inner if self.linear3 is None else inner * self.linear3(x))


class ScaledRMSNorm(nn.RMSNorm):
    """RMSNorm times a number, as T5 scales the input of an output layer that shares the weight of the embeddings.

        y = scale * weight * x / sqrt(mean(x^2) + eps)

    Args:
        embed_dim: size of a vector
        eps: added to the mean square
        scale: the number
        device, dtype: of the parameters, as in PyTorch

    Shape: (*, embed_dim) -> (*, embed_dim)

    Example:
        >>> ScaledRMSNorm(4, scale=0.5)(torch.ones(2, 4))[0]
        tensor([0.5000, 0.5000, 0.5000, 0.5000], grad_fn=<SelectBackward0>)

    Reference: Zhang and Sennrich (2019), arXiv 1910.07467; Raffel et al. (2020), arXiv 1910.10683.
    """

    def __init__(
        self, embed_dim: int, eps: float = 1e-6, *, scale: float = 1.0, device: Device = None, dtype: Dtype = None
    ):
        super().__init__(embed_dim, eps, device=device, dtype=dtype)
        self.scale = scale

    def forward(self, x: Float[Tensor, "*batch embed_dim"]) -> Float[Tensor, "*batch embed_dim"]:
        return super().forward(x) * self.scale

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scale={self.scale}"


class TokenEmbedding(nn.Embedding):
    """Token vectors times a scale, plus positions, with dropout; in some models normalized before it.

    Args:
        vocab_size: number of tokens
        embed_dim: size of a vector; even
        dropout: probability of dropout on the sum
        make_positions: returns the module that adds positions, called with the vectors and the first position, or None
            for no positions; `Sinusoidal(embed_dim)` if None
        scale: factor of the token vectors; sqrt(embed_dim) if None
        make_norm: returns the module that normalizes the sum; without it, the sum is not normalized
        device, dtype: of the parameters, as in PyTorch

    Shape: (batch, seq_len) -> (batch, seq_len, embed_dim)

    Example:
        >>> TokenEmbedding(20, 8)(torch.tensor([[4, 5, 6]])).shape
        torch.Size([1, 3, 8])

    Reference: Vaswani et al. (2017), arXiv 1706.03762, 3.4 and 3.5.
    """

    def __init__(
        self,
        vocab_size: int,
        embed_dim: int,
        dropout: float = 0.0,
        *,
        make_positions: MakePositions | None = None,
        scale: float | None = None,
        make_norm: MakeModule | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__(vocab_size, embed_dim, device=device, dtype=dtype)
        self.scale = math.sqrt(embed_dim) if scale is None else scale
        self.positions = Sinusoidal(embed_dim) if make_positions is None else make_positions()
        self.norm = None if make_norm is None else make_norm()
        self.dropout = FastDropout(dropout)

    def reset_parameters(self) -> None:
        """Draw the vectors and the positions again; the first draw, that of nn.Embedding, is overwritten."""
        super().reset_parameters()
        nn.init.normal_(self.weight, std=self.embedding_dim**-0.5)
        # Not set yet when the constructor of nn.Embedding calls this.
        reset_modules(self._modules.get("positions"), self._modules.get("norm"))

    def forward(
        self, tokens: Int[Tensor, "batch seq_len"], offset: int = 0
    ) -> Float[Tensor, "batch seq_len embed_dim"]:
        """The vectors of tokens at positions offset, offset + 1, ..."""
        vectors = super().forward(tokens) * self.scale
        vectors = vectors if self.positions is None else self.positions(vectors, offset)
        return self.dropout(vectors if self.norm is None else self.norm(vectors))


def untie(output: nn.Linear, embedding: nn.Embedding) -> None:
    """Give an output layer a weight of its own, so that resetting it leaves a tied embedding unchanged.

    Args:
        output: the output layer
        embedding: the embedding; if its weight is another one, nothing is done

    Example:
        >>> embedding, output = torch.nn.Embedding(5, 3), torch.nn.Linear(3, 5, bias=False)
        >>> output.weight = embedding.weight
        >>> untie(output, embedding)
        >>> output.weight is embedding.weight
        False
    """
    if output.weight is embedding.weight:
        output.weight = nn.Parameter(torch.empty_like(output.weight))
