"""Four layers of one size that turn a sequence into another: by convolution, by recurrence, by attention, all or near.

They are the rows of the table by which Vaswani et al. (2017), arXiv 1706.03762, table 1, compare what such layers cost.
With the usual sizes each has about 4 dim^2 weights, so that nothing but the way they look at a sequence differs:

    Convolution      3 dim^2 for three neighbors, dim^2 for what is made of them
    Recurrence       a GRU of 2/3 dim has 10/3 dim^2, its output 2/3 dim^2
    SelfAttention    query, key, value and output, dim^2 each
    LocalAttention   the same
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.attention import MultiHead, padding, window
from regard.errors import UsageError

Vectors = Float[Tensor, "rows length dim"]
Lengths = Int[Tensor, " rows"]


class Convolution(nn.Module):
    """Each position from its neighbors.

        y_t = W relu(sum_j K_j x_(t+j) + b) + c          j from -(kernel - 1) / 2 to (kernel - 1) / 2

    >>> Convolution(dim=12)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, dim: int, kernel: int = 3):
        super().__init__()
        if kernel < 1 or kernel % 2 == 0:
            raise UsageError(f"Convolution: kernel must be odd, so that it has a middle, but it is {kernel}")
        self.near = nn.Conv1d(dim, dim, kernel, padding=kernel // 2)
        self.output = nn.Linear(dim, dim)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        if lengths is not None:  # what fills up a row is a neighbor of its last vector, and must be nothing
            x = x * _inside(x, lengths)
        return self.output(torch.relu(self.near(x.transpose(1, 2))).transpose(1, 2))


class Recurrence(nn.Module):
    """Each position from all before it, one after the other: a GRU, read in one direction or in both.

        h_t = GRU(x_t, h_(t-1)),    y_t = W h_t + c

    >>> Recurrence(dim=12)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, dim: int, hidden_dim: int | None = None, *, both: bool = False, cell: type = nn.GRU):
        super().__init__()
        hidden_dim = hidden_dim or 2 * dim // 3
        self.read = cell(dim, hidden_dim, batch_first=True, bidirectional=both)
        self.output = nn.Linear(hidden_dim * (1 + both), dim)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        if lengths is None:
            return self.output(self.read(x)[0])
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states = pad_packed_sequence(self.read(packed)[0], batch_first=True, total_length=x.shape[1])[0]
        return self.output(states)


class SelfAttention(nn.Module):
    """Each position from all positions at once.

    >>> SelfAttention(dim=12, heads=4)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, dim: int, heads: int = 4):
        super().__init__()
        self.look = MultiHead(dim, heads)

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        return self.look(x, mask=None if lengths is None else padding(lengths)).context


class LocalAttention(nn.Module):
    """Each position from those within a radius: the restricted attention of the table.

    >>> LocalAttention(dim=12, heads=4, radius=2)(torch.randn(2, 5, 12)).shape
    torch.Size([2, 5, 12])
    """

    def __init__(self, dim: int, heads: int = 4, radius: int = 16):
        super().__init__()
        self.look, self.radius = MultiHead(dim, heads), radius

    def forward(self, x: Vectors, lengths: Lengths | None = None) -> Vectors:
        near = window(self.radius, self.radius)
        return self.look(x, mask=near if lengths is None else near & padding(lengths)).context


def _inside(x: Vectors, lengths: Lengths) -> Float[Tensor, "rows length 1"]:
    """1 where a row has a vector, 0 where it is filled up."""
    places = torch.arange(x.shape[1], device=x.device)
    return (places < lengths[:, None].to(x.device))[..., None].to(x.dtype)
