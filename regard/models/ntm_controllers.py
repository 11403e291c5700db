"""Controllers of a Neural Turing Machine."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.attention.module import Device, Dtype, ResettableModule

__all__ = ["CONTROLLERS", "FeedForwardController", "LSTMController"]


class LSTMController(ResettableModule):
    """An LSTM cell with a learned initial state.

    Args:
        input_dim: size of the input
        hidden_dim: size of the state
        device, dtype: of the parameters, as in PyTorch

    Shape: inputs (batch, input_dim), state (hidden, cell) -> hidden (batch, hidden_dim), state

    Example:
        >>> controller = LSTMController(5, 8)
        >>> controller(torch.rand(2, 5), controller.init_state(2))[0].shape
        torch.Size([2, 8])
    """

    def __init__(self, input_dim: int, hidden_dim: int, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.cell = nn.LSTMCell(input_dim, hidden_dim, device=device, dtype=dtype)
        self.initial_state = nn.Parameter(torch.zeros(2, hidden_dim, device=device, dtype=dtype))
        self._init_parameters()

    def _init_parameters(self) -> None:
        nn.init.normal_(self.initial_state, std=0.01)
        nn.init.zeros_(self.cell.bias_ih)
        nn.init.zeros_(self.cell.bias_hh)

    def init_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """The learned state for every sequence of a batch."""
        hidden, cell = self.initial_state.unbind()
        return hidden.tanh().expand(batch_size, -1), cell.expand(batch_size, -1)

    def forward(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden, cell = self.cell(inputs, state)
        return hidden, (hidden, cell)


class FeedForwardController(ResettableModule):
    """A linear layer with ReLU; all it has of the past is what the read heads read.

    Args:
        input_dim: size of the input
        hidden_dim: size of the output
        device, dtype: of the parameters, as in PyTorch

    Shape: inputs (batch, input_dim), state () -> hidden (batch, hidden_dim), state ()

    Example:
        >>> FeedForwardController(5, 8)(torch.rand(2, 5), ())[0].shape
        torch.Size([2, 8])
    """

    def __init__(self, input_dim: int, hidden_dim: int, *, device: Device = None, dtype: Dtype = None):
        super().__init__()
        self.layer = nn.Linear(input_dim, hidden_dim, device=device, dtype=dtype)

    def init_state(self, batch_size: int) -> tuple[Tensor, ...]:
        """The empty state."""
        return ()

    def forward(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.layer(inputs).relu(), ()


CONTROLLERS: dict[str, type[LSTMController] | type[FeedForwardController]] = {
    "lstm": LSTMController,
    "feedforward": FeedForwardController,
}
