"""Recurrent cells laid out for steps: what is known before a word is, and what the word adds, in one product each.

The definitions are in _cells.py. All that a cell adds up before its gates stands in one row, and a gate that sees both
the past and the inputs is the sum of both:

    GRU     [ new, of the past | reset | keep | new | more ]      the past: the first three; inputs: all but the first
    LSTM    [ enter | forget | out | new            | more ]      the past: the first four; inputs: all

where `more` is whatever else is wanted of the same inputs.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.models._cells import Cell, GRUCell, LSTMCell, State


class More(NamedTuple):
    """What else is wanted of a cell's inputs."""

    late: Float[Tensor, "late more"]
    early: Float[Tensor, "early more"]
    bias: Float[Tensor, " more"]


class PackedCell:
    """The weights of a cell, each matrix in the order in which a product reads it."""

    of_past: tuple[int, ...]  # the cell's gates that see the past, in the order in which they stand in a row
    of_inputs: tuple[int, ...]  # those that see inputs
    skipped: int  # gates at the front of a row that see no input

    def __init__(self, cell: Cell, more: More | None = None):
        self.dim = cell.past.in_features
        self.past, self.past_bias = self._ordered(cell.past, self.of_past)
        self.early, self.early_bias = self._ordered(cell.early, self.of_inputs)
        self.late = None if cell.late is None else self._ordered(cell.late, self.of_inputs)[0]
        if more is not None and self.late is not None:
            self.late, self.early = (
                torch.cat((self.late, more.late), 1),
                torch.cat((self.early, more.early), 1),
            )
            self.early_bias = torch.cat((self.early_bias, more.bias))
        self.begin = self.skipped * self.dim  # of what inputs add
        self.end = self.begin + len(self.of_inputs) * self.dim  # of the gates

    def _ordered(self, layer: nn.Linear, gates: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        """A layer's columns and its bias, gate by gate in this order."""
        weight, held = layer.weight.detach(), layer._parameters["bias"]
        bias = weight.new_zeros(len(weight)) if held is None else held.detach()
        weights, biases = weight.split(self.dim), bias.split(self.dim)
        columns = torch.cat([weights[gate] for gate in gates]).t().contiguous()
        return columns, torch.cat([biases[gate] for gate in gates])

    def ahead(self, early: Float[Tensor, "rows early"]) -> Float[Tensor, "rows added"]:
        """What the early input adds to a row."""
        return torch.addmm(self.early_bias, early, self.early)

    def before(
        self, h: Float[Tensor, "rows dim"], late: Float[Tensor, "rows late"] | None
    ) -> Float[Tensor, "rows all"]:
        """All of a row but what the early input adds."""
        row = h.new_empty(len(h), self.begin + self.early.shape[1])
        past = self.past.shape[1]
        torch.addmm(self.past_bias, h, self.past, out=row[:, :past])
        row[:, past:].zero_()
        if self.late is not None and late is not None:
            row[:, self.begin :].addmm_(late, self.late)
        return row

    def turn(self, row: Float[Tensor, "rows all"], ahead: Float[Tensor, "rows added"], state: State) -> State:
        """The next state. Of the row only what is more than gates is left."""
        row[:, self.begin :].add_(ahead)
        return self.gates(row[:, : self.end].split(self.dim, 1), state)

    def more(self, row: Float[Tensor, "rows all"]) -> Float[Tensor, "rows more"]:
        return row[:, self.end :]

    def gates(self, parts: tuple[Tensor, ...], state: State) -> State:
        raise NotImplementedError(f"{type(self).__name__} must say how it steps: write gates(parts, state)")


class PackedGRU(PackedCell):
    of_past, of_inputs, skipped = (2, 0, 1), (0, 1, 2), 1

    def gates(self, parts: tuple[Tensor, ...], state: State) -> State:
        past, reset, keep, new = parts
        new = torch.addcmul(new, reset.sigmoid_(), past).tanh_()
        return (new.lerp_(state[0], keep.sigmoid_()),)


class PackedLSTM(PackedCell):
    of_past, of_inputs, skipped = (0, 1, 3, 2), (0, 1, 3, 2), 0

    def gates(self, parts: tuple[Tensor, ...], state: State) -> State:
        enter, forget, out, new = parts
        c = forget.sigmoid_().mul(state[1]).addcmul_(enter.sigmoid_(), new.tanh_())
        return torch.tanh(c).mul_(out.sigmoid_()), c


PACKED: dict[type[Cell], type[PackedCell]] = {GRUCell: PackedGRU, LSTMCell: PackedLSTM}
