"""The Neural Turing Machine: a small network with a memory that it reads and writes by attention.

Graves, Wayne and Danihelka (2014), arXiv 1410.5401. Per step:

    state        = controller(input, last reads)                 an LSTM, or a feed-forward network
    w_write      = address(what the write heads say, M, w_write)
    M            = M * prod(1 - w_write erase) + sum(w_write add)
    w_read       = address(what the read heads say, M, w_read)    of the new memory
    read         = w_read M
    output       = W [state; read]

Nothing stays on the module: the memory and all weights are in a `State` that goes in and comes out. No
parameter has the number of rows in its shape, so a trained machine can be given a larger memory.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import _watching, addressing
from regard.attention.fast.addressing import applies
from regard.errors import ShapeError, UsageError
from regard.models._step import Clipped, Heads, move, typed, widened

BLANK = 1e-6  # every number of an unwritten memory


@dataclass(frozen=True)
class State:
    """What a machine carries from step to step."""

    memory: Float[Tensor, "batch rows width"]
    read: Float[Tensor, "batch read_heads width"]
    read_weights: Float[Tensor, "batch read_heads rows"]
    write_weights: Float[Tensor, "batch write_heads rows"]
    controller: tuple[Tensor, ...] = ()

    def detach(self) -> State:
        """The same without its past, for sequences that are trained on in parts."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        cut = {name: value.detach() for name, value in plain.items() if isinstance(value, Tensor)}
        return replace(self, **cut, controller=tuple(part.detach() for part in self.controller))

    def clip(self, limit: float) -> State:
        """The same, but no number of a gradient that goes back through it is beyond the limit."""
        plain = (self.memory, self.read, self.read_weights, self.write_weights)
        memory, read, reading, writing, *controller = Clipped.apply(limit, *plain, *self.controller)
        return State(memory, read, reading, writing, tuple(controller))


class Step(NamedTuple):
    """One step of a machine, for those who want to look: what went in and out, and what the heads did."""

    output: Tensor
    state: State
    erase: Tensor
    add: Tensor


class NeuralTuringMachine(nn.Module):
    """A network with a memory of `rows` x `width` numbers and heads that read and write it.

    Where what is written decides what is found next, a gradient may grow with every step that it goes back, within
    some hundred beyond all numbers. `state_clip` bounds each of its numbers from step to step; without it gradients
    are exact. The paper clips to 10 (section 4.6); the recipes have 10,000, which few gradients reach.

    >>> machine = NeuralTuringMachine(inputs=9, outputs=8, rows=16, width=6)
    >>> output, state = machine(torch.rand(2, 5, 9))
    >>> output.shape, state.memory.shape, state.read_weights.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 16, 6]), torch.Size([2, 1, 16]))
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        *,
        rows: int = 128,
        width: int = 20,
        read_heads: int = 1,
        write_heads: int = 1,
        controller: Literal["lstm", "feedforward"] = "lstm",
        hidden_dim: int = 100,
        shift: int = 1,
        state_clip: float | None = None,
    ):
        super().__init__()
        for name, value in (("rows", rows), ("width", width), ("hidden_dim", hidden_dim)):
            if value < 1:
                raise UsageError(f"NeuralTuringMachine: {name}={value} must be at least 1")
        if read_heads < 1 or write_heads < 1:
            raise UsageError(
                f"NeuralTuringMachine needs a head to read and one to write, got {read_heads} and {write_heads}"
            )
        if shift < 0:
            raise UsageError(f"NeuralTuringMachine: shift={shift} must not be negative")
        if controller not in CONTROLLERS:
            raise UsageError(
                f"NeuralTuringMachine: controller={controller!r} must be {' or '.join(CONTROLLERS)}"
            )
        if state_clip is not None and not state_clip > 0:
            raise UsageError(f"NeuralTuringMachine: state_clip={state_clip} must be greater than 0, or None")
        self.state_clip = state_clip
        self.inputs, self.outputs, self.rows, self.width = inputs, outputs, rows, width
        self.heads = Heads(read_heads, write_heads, width, shift)
        self.hidden_dim, self.fused = hidden_dim, False
        self.controller = CONTROLLERS[controller](inputs + read_heads * width, hidden_dim)
        self.tell = nn.Linear(
            hidden_dim, sum(self.heads.sizes)
        )  # one product for all that all heads are told
        self.output = nn.Linear(hidden_dim + read_heads * width, outputs)
        self.first_read = nn.Parameter(torch.zeros(read_heads, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.tell.weight, gain=1.4)
        nn.init.normal_(self.tell.bias, std=0.01)
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)
        nn.init.normal_(self.first_read, std=0.01)

    def begin(self, batch: int, rows: int | None = None) -> State:
        """A blank memory, and every head on its first row.

        The heads stand on a row, and not everywhere a little, so that a step aside is a step from the start;
        that also holds for a memory of any size.
        """
        rows = self.rows if rows is None else rows
        if rows < 1:
            raise UsageError(f"NeuralTuringMachine: rows={rows} must be at least 1")
        like = self.first_read
        focus = like.new_zeros(batch, self.heads.read + self.heads.write, rows)
        focus[..., 0] = 1.0
        return State(
            memory=like.new_full((batch, rows, self.width), BLANK),
            read=like.expand(batch, -1, -1),
            read_weights=focus[:, : self.heads.read],
            write_weights=focus[:, self.heads.read :],
            controller=self.controller.begin(batch),
        )

    def forward(
        self, inputs: Float[Tensor, "batch steps inputs"], state: State | None = None
    ) -> tuple[Float[Tensor, "batch steps outputs"], State]:
        """The outputs (before any sigmoid) of all steps, and the state after the last."""
        if inputs.dim() != 3 or inputs.shape[-1] != self.inputs:
            raise ShapeError(
                f"NeuralTuringMachine takes inputs (batch, steps, {self.inputs}), got {tuple(inputs.shape)}"
            )
        state = self.begin(len(inputs)) if state is None else state
        self._check(state, len(inputs))
        seen, fast = [], not self.fused and applies(state.memory.shape[1], 2 * self.heads.shift + 1)
        clip = self.state_clip if torch.is_grad_enabled() else None
        for now in inputs.unbind(1):
            state = state if clip is None else state.clip(clip)
            hidden, state = self._move_fast(now, state) if fast else self._move(now, state)[:2]
            _watching.tell(self, partial(_looks, state))
            seen.append(torch.cat((hidden, state.read.flatten(1)), -1))
        if not seen:
            return inputs.new_empty(len(inputs), 0, self.outputs), state
        return self.output(torch.stack(seen, 1)), state

    def step(self, now: Float[Tensor, "batch inputs"], state: State) -> Step:
        """One step, with everything that it did."""
        if now.dim() != 2 or now.shape[-1] != self.inputs:
            raise ShapeError(
                f"NeuralTuringMachine: a step takes inputs (batch, {self.inputs}), got {tuple(now.shape)}"
            )
        self._check(state, len(now))
        hidden, state, erase, add = self._move(now, state)
        _watching.tell(self, partial(_looks, state))
        return Step(self.output(torch.cat((hidden, state.read.flatten(1)), -1)), state, erase, add)

    def _check(self, state: State, batch: int) -> None:
        """Refuses the state of another batch or machine."""
        memory, heads = state.memory.shape, (state.read_weights.shape[1], state.write_weights.shape[1])
        if memory[0] != batch:
            raise UsageError(
                f"NeuralTuringMachine: the state is of a batch of {memory[0]}, the inputs of {batch}"
            )
        if (memory[-1], *heads) != (self.width, self.heads.read, self.heads.write):
            raise UsageError(
                f"NeuralTuringMachine: the state has width {memory[-1]}, {heads[0]} read and {heads[1]} write heads, "
                f"the machine {self.width}, {self.heads.read} and {self.heads.write}"
            )

    def fuse(self) -> None:
        """Let torch.compile make one kernel of a step's many small operations; sequences of all lengths share it."""
        self.fused = True
        self._move = torch.compile(self._move)  # type: ignore[method-assign]

    def _move(self, now: Tensor, state: State) -> tuple[Tensor, State, Tensor, Tensor]:
        """All of a step but the output, which can wait for the other steps."""
        given = torch.cat((now, state.read.flatten(1)), -1)
        hidden, memory_of = self.controller(given, state.controller)
        before = (state.memory, state.read_weights, state.write_weights)
        told, memory, reading, writing = widened(self.tell(hidden), *before)
        readers, writers, erase, add = self.heads.heard(*self.heads.bound(told))
        writing = addressing.address(*writers, memory, writing)
        memory = addressing.write(memory, writing, erase, add)
        reading = addressing.address(*readers, memory, reading)
        after = (memory, addressing.read(reading, memory), reading, writing)
        memory, read, reading, writing = typed(state.memory.dtype, *after)
        return hidden, State(memory, read, reading, writing, memory_of), erase, add

    def _move_fast(self, now: Tensor, state: State) -> tuple[Tensor, State]:
        """The same in fewer operations, and as one node of the graph if there is one."""
        given = torch.cat((now, state.read.flatten(1)), -1)
        hidden, memory_of = self.controller(given, state.controller)
        before = (state.memory, state.read_weights, state.write_weights)
        memory, read, reading, writing = move(self.heads, self.tell(hidden), *before)
        return hidden, State(memory, read, reading, writing, memory_of)

    def extra_repr(self) -> str:
        return f"rows={self.rows}, width={self.width}, read_heads={self.heads.read}, write_heads={self.heads.write}"


def _looks(state: State, heads: _watching.Heads) -> Float[Tensor, "batch heads 1 rows"]:
    """Where the heads are after a step, those that read first; who watches asks for it."""
    both = torch.cat((state.read_weights, state.write_weights), 1).detach()
    return (both if heads is None else both[:, list(heads)]).unsqueeze(2)


class Recurrent(nn.Module):
    """A controller that remembers: an LSTM cell with a first state that is learned."""

    def __init__(self, given: int, dim: int):
        super().__init__()
        self.cell = nn.LSTMCell(given, dim)
        self.first = nn.Parameter(torch.zeros(2, dim))
        nn.init.normal_(self.first, std=0.01)
        with torch.no_grad():
            for bias in (self.cell.bias_ih, self.cell.bias_hh):
                bias.zero_()

    def begin(self, batch: int) -> tuple[Tensor, ...]:
        hidden, cell = self.first.unbind()
        return hidden.tanh().expand(batch, -1), cell.expand(batch, -1)

    def forward(self, given: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden, cell = self.cell(given, state)
        return hidden, (hidden, cell)


class FeedForward(nn.Module):
    """A controller without a memory of its own: all it knows of the past is in what it reads."""

    def __init__(self, given: int, dim: int):
        super().__init__()
        self.layer = nn.Linear(given, dim)

    def begin(self, batch: int) -> tuple[Tensor, ...]:
        return ()

    def forward(self, given: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.layer(given).relu(), ()


CONTROLLERS: dict[str, type[Recurrent] | type[FeedForward]] = {"lstm": Recurrent, "feedforward": FeedForward}


class LongShortTerm(nn.Module):
    """What the paper compares with: layers of LSTM, as wide as the task wants, and no memory beside them.

    >>> LongShortTerm(inputs=9, outputs=8, hidden_dim=16, layers=3)(torch.rand(2, 5, 9))[0].shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, inputs: int, outputs: int, *, hidden_dim: int = 256, layers: int = 3):
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.lstm = nn.LSTM(inputs, hidden_dim, layers, batch_first=True)
        self.output = nn.Linear(hidden_dim, outputs)

    def forward(
        self, inputs: Float[Tensor, "batch steps inputs"], state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "batch steps outputs"], tuple[Tensor, Tensor]]:
        hidden, state = self.lstm(inputs, state)
        return self.output(hidden), state
