"""Recurrent cells of which a part of the input may come earlier than the rest."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

State = tuple[Tensor, ...]  # what a cell remembers: (h,) or (h, c), each (rows, dim)


class Cell(nn.Module):
    """One step of a recurrent layer over [early; late].

    `ahead` does the early input's share for all steps in one product; a step has the rest to do.
    """

    gates: int
    memories: int

    def __init__(self, early_dim: int, late_dim: int, dim: int):
        super().__init__()
        self.early = nn.Linear(early_dim, self.gates * dim)
        self.late = nn.Linear(late_dim, self.gates * dim, bias=False) if late_dim else None
        self.past = nn.Linear(dim, self.gates * dim)
        for matrix in self.parameters():
            nn.init.uniform_(matrix, -(dim**-0.5), dim**-0.5)

    def ahead(self, early: Tensor) -> Tensor:
        return self.early(early)

    def forward(self, ahead: Tensor, late: Tensor | None, state: State) -> State:
        if self.late is not None and late is not None:
            ahead = ahead + self.late(late)
        return self.turn(ahead, state)

    def turn(self, given: Tensor, state: State) -> State:
        raise NotImplementedError(f"{type(self).__name__} must say how it steps: write turn(given, state)")


class GRUCell(Cell):
    """h' = z h + (1 - z) tanh(W x + r (U h)): Cho et al. (2014), arXiv 1406.1078, in the form that PyTorch has."""

    gates, memories = 3, 1

    def turn(self, given: Tensor, state: State) -> State:
        (h,) = state
        r_x, z_x, n_x = given.chunk(3, -1)
        r_h, z_h, n_h = self.past(h).chunk(3, -1)
        reset, keep = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
        new = torch.tanh(torch.addcmul(n_x, reset, n_h))
        return (torch.lerp(new, h, keep),)


class LSTMCell(Cell):
    """c' = f c + i g, h' = o tanh(c'): Hochreiter and Schmidhuber (1997), with Gers et al.'s forget gate (2000)."""

    gates, memories = 4, 2

    def turn(self, given: Tensor, state: State) -> State:
        h, c = state
        i, f, g, o = (given + self.past(h)).chunk(4, -1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


CELLS: dict[str, type[Cell]] = {"gru": GRUCell, "lstm": LSTMCell}
LAYERS: dict[str, Any] = {"gru": nn.GRU, "lstm": nn.LSTM}
