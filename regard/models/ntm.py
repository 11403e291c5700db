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

from regard.attention import addressing
from regard.attention import observers as _watching
from regard.attention.fast.addressing import can_use_fast_address
from regard.errors import ShapeError, UsageError
from regard.models.ntm_fast import ClipGradient, HeadLayout, cast_tensors, memory_step, promote_tensors

INITIAL_MEMORY = 1e-6  # every number of an unwritten memory


@dataclass(frozen=True)
class NTMState:
    """What a machine carries from step to step."""

    memory: Float[Tensor, "batch rows width"]
    read: Float[Tensor, "batch read_heads width"]
    read_weights: Float[Tensor, "batch read_heads rows"]
    write_weights: Float[Tensor, "batch write_heads rows"]
    controller: tuple[Tensor, ...] = ()

    def detach(self) -> NTMState:
        """The same without its past, for sequences that are trained on in parts."""
        plain = {field.name: getattr(self, field.name) for field in fields(self)}
        cut = {name: value.detach() for name, value in plain.items() if isinstance(value, Tensor)}
        return replace(self, **cut, controller=tuple(part.detach() for part in self.controller))

    def clip_gradients(self, limit: float) -> NTMState:
        """The same, but no number of a gradient that goes back through it is beyond the limit."""
        plain = (self.memory, self.read, self.read_weights, self.write_weights)
        memory, read, reading, writing, *controller = ClipGradient.apply(limit, *plain, *self.controller)
        return NTMState(memory, read, reading, writing, tuple(controller))


class NTMStep(NamedTuple):
    """One step of a machine, for those who want to look: what went in and out, and what the heads did."""

    output: Tensor
    state: NTMState
    erase: Tensor
    add: Tensor


class NeuralTuringMachine(nn.Module):
    """A network with a memory of `rows` x `width` numbers and heads that read and write it.

    Where what is written decides what is found next, a gradient may grow with every step that it goes back, within
    some hundred beyond all numbers. `state_clip` bounds each of its numbers from step to step; without it gradients
    are exact. The paper clips to 10 (section 4.6); the recipes have 10,000, which few gradients reach.

    >>> machine = NeuralTuringMachine(input_dim=9, output_dim=8, memory_rows=16, memory_width=6)
    >>> output, state = machine(torch.rand(2, 5, 9))
    >>> output.shape, state.memory.shape, state.read_weights.shape
    (torch.Size([2, 5, 8]), torch.Size([2, 16, 6]), torch.Size([2, 1, 16]))
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        memory_rows: int = 128,
        memory_width: int = 20,
        num_read_heads: int = 1,
        num_write_heads: int = 1,
        controller: Literal["lstm", "feedforward"] = "lstm",
        hidden_dim: int = 100,
        max_shift: int = 1,
        state_grad_clip: float | None = None,
    ):
        super().__init__()
        for name, value in (("rows", memory_rows), ("width", memory_width), ("hidden_dim", hidden_dim)):
            if value < 1:
                raise UsageError(f"NeuralTuringMachine: {name}={value} must be at least 1")
        if num_read_heads < 1 or num_write_heads < 1:
            raise UsageError(
                f"NeuralTuringMachine needs a head to read and one to write, got {num_read_heads} and {num_write_heads}"
            )
        if max_shift < 0:
            raise UsageError(f"NeuralTuringMachine: shift={max_shift} must not be negative")
        if controller not in CONTROLLERS:
            raise UsageError(
                f"NeuralTuringMachine: controller={controller!r} must be {' or '.join(CONTROLLERS)}"
            )
        if state_grad_clip is not None and not state_grad_clip > 0:
            raise UsageError(
                f"NeuralTuringMachine: state_clip={state_grad_clip} must be greater than 0, or None"
            )
        self.state_grad_clip = state_grad_clip
        self.input_dim, self.output_dim, self.memory_rows, self.memory_width = (
            input_dim,
            output_dim,
            memory_rows,
            memory_width,
        )
        self.head_layout = HeadLayout(num_read_heads, num_write_heads, memory_width, max_shift)
        self.hidden_dim, self.is_compiled = hidden_dim, False
        self.controller = CONTROLLERS[controller](input_dim + num_read_heads * memory_width, hidden_dim)
        self.interface_proj = nn.Linear(
            hidden_dim, sum(self.head_layout.sizes)
        )  # one product for all that all heads are told
        self.output_proj = nn.Linear(hidden_dim + num_read_heads * memory_width, output_dim)
        self.initial_read = nn.Parameter(torch.zeros(num_read_heads, memory_width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.interface_proj.weight, gain=1.4)
        nn.init.normal_(self.interface_proj.bias, std=0.01)
        nn.init.xavier_uniform_(self.output_proj.weight)
        nn.init.zeros_(self.output_proj.bias)
        nn.init.normal_(self.initial_read, std=0.01)

    def init_state(self, batch_size: int, memory_rows: int | None = None) -> NTMState:
        """A blank memory, and every head on its first row.

        The heads stand on a row, and not everywhere a little, so that a step aside is a step from the start;
        that also holds for a memory of any size.
        """
        memory_rows = self.memory_rows if memory_rows is None else memory_rows
        if memory_rows < 1:
            raise UsageError(f"NeuralTuringMachine: rows={memory_rows} must be at least 1")
        like = self.initial_read
        focus = like.new_zeros(
            batch_size, self.head_layout.num_read + self.head_layout.num_write, memory_rows
        )
        focus[..., 0] = 1.0
        return NTMState(
            memory=like.new_full((batch_size, memory_rows, self.memory_width), INITIAL_MEMORY),
            read=like.expand(batch_size, -1, -1),
            read_weights=focus[:, : self.head_layout.num_read],
            write_weights=focus[:, self.head_layout.num_read :],
            controller=self.controller.init_state(batch_size),
        )

    def forward(
        self, inputs: Float[Tensor, "batch steps inputs"], state: NTMState | None = None
    ) -> tuple[Float[Tensor, "batch steps outputs"], NTMState]:
        """The outputs (before any sigmoid) of all steps, and the state after the last."""
        if inputs.dim() != 3 or inputs.shape[-1] != self.input_dim:
            raise ShapeError(
                f"NeuralTuringMachine takes inputs (batch, steps, {self.input_dim}), got {tuple(inputs.shape)}"
            )
        state = self.init_state(len(inputs)) if state is None else state
        self._check_state(state, len(inputs))
        seen, fast = (
            [],
            not self.is_compiled
            and can_use_fast_address(state.memory.shape[1], 2 * self.head_layout.max_shift + 1),
        )
        clip = self.state_grad_clip if torch.is_grad_enabled() else None
        for now in inputs.unbind(1):
            state = state if clip is None else state.clip_gradients(clip)
            hidden, state = self._step_fast(now, state) if fast else self._step(now, state)[:2]
            _watching.emit(self, partial(_head_weights, state))
            seen.append(torch.cat((hidden, state.read.flatten(1)), -1))
        if not seen:
            return inputs.new_empty(len(inputs), 0, self.output_dim), state
        return self.output_proj(torch.stack(seen, 1)), state

    def step(self, inputs: Float[Tensor, "batch inputs"], state: NTMState) -> NTMStep:
        """One step, with everything that it did."""
        if inputs.dim() != 2 or inputs.shape[-1] != self.input_dim:
            raise ShapeError(
                f"NeuralTuringMachine: a step takes inputs (batch, {self.input_dim}), got {tuple(inputs.shape)}"
            )
        self._check_state(state, len(inputs))
        hidden, state, erase, add = self._step(inputs, state)
        _watching.emit(self, partial(_head_weights, state))
        return NTMStep(self.output_proj(torch.cat((hidden, state.read.flatten(1)), -1)), state, erase, add)

    def _check_state(self, state: NTMState, batch_size: int) -> None:
        """Refuses the state of another batch or machine."""
        memory, heads = state.memory.shape, (state.read_weights.shape[1], state.write_weights.shape[1])
        if memory[0] != batch_size:
            raise UsageError(
                f"NeuralTuringMachine: the state is of a batch of {memory[0]}, the inputs of {batch_size}"
            )
        if (memory[-1], *heads) != (self.memory_width, self.head_layout.num_read, self.head_layout.num_write):
            raise UsageError(
                f"NeuralTuringMachine: the state has width {memory[-1]}, {heads[0]} read and {heads[1]} write heads, "
                f"the machine {self.memory_width}, {self.head_layout.num_read} and {self.head_layout.num_write}"
            )

    def compile_step(self) -> None:
        """Let torch.compile make one kernel of a step's many small operations; sequences of all lengths share it."""
        self.is_compiled = True
        self._step = torch.compile(self._step)  # type: ignore[method-assign]

    def _step(self, inputs: Tensor, state: NTMState) -> tuple[Tensor, NTMState, Tensor, Tensor]:
        """All of a step but the output, which can wait for the other steps."""
        given = torch.cat((inputs, state.read.flatten(1)), -1)
        hidden, memory_of = self.controller(given, state.controller)
        before = (state.memory, state.read_weights, state.write_weights)
        told, memory, reading, writing = promote_tensors(self.interface_proj(hidden), *before)
        readers, writers, erase, add = self.head_layout.split(*self.head_layout.activate(told))
        writing = addressing.address(*writers, memory, writing)
        memory = addressing.write(memory, writing, erase, add)
        reading = addressing.address(*readers, memory, reading)
        after = (memory, addressing.read(reading, memory), reading, writing)
        memory, read, reading, writing = cast_tensors(state.memory.dtype, *after)
        return hidden, NTMState(memory, read, reading, writing, memory_of), erase, add

    def _step_fast(self, inputs: Tensor, state: NTMState) -> tuple[Tensor, NTMState]:
        """The same in fewer operations, and as one node of the graph if there is one."""
        given = torch.cat((inputs, state.read.flatten(1)), -1)
        hidden, memory_of = self.controller(given, state.controller)
        before = (state.memory, state.read_weights, state.write_weights)
        memory, read, reading, writing = memory_step(self.head_layout, self.interface_proj(hidden), *before)
        return hidden, NTMState(memory, read, reading, writing, memory_of)

    def extra_repr(self) -> str:
        return f"rows={self.memory_rows}, width={self.memory_width}, read_heads={self.head_layout.num_read}, write_heads={self.head_layout.num_write}"


def _head_weights(state: NTMState, heads: _watching.HeadSelection) -> Float[Tensor, "batch heads 1 rows"]:
    """Where the heads are after a step, those that read first; who watches asks for it."""
    both = torch.cat((state.read_weights, state.write_weights), 1).detach()
    return (both if heads is None else both[:, list(heads)]).unsqueeze(2)


class LSTMController(nn.Module):
    """A controller that remembers: an LSTM cell with a first state that is learned."""

    def __init__(self, input_dim: int, hidden_dim: int):
        super().__init__()
        self.cell = nn.LSTMCell(input_dim, hidden_dim)
        self.initial_state = nn.Parameter(torch.zeros(2, hidden_dim))
        nn.init.normal_(self.initial_state, std=0.01)
        with torch.no_grad():
            for bias in (self.cell.bias_ih, self.cell.bias_hh):
                bias.zero_()

    def init_state(self, batch_size: int) -> tuple[Tensor, ...]:
        hidden, cell = self.initial_state.unbind()
        return hidden.tanh().expand(batch_size, -1), cell.expand(batch_size, -1)

    def forward(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        hidden, cell = self.cell(inputs, state)
        return hidden, (hidden, cell)


class FeedForwardController(nn.Module):
    """A controller without a memory of its own: all it knows of the past is in what it reads."""

    def __init__(self, input_dim: int, hidden_dim: int):
        super().__init__()
        self.layer = nn.Linear(input_dim, hidden_dim)

    def init_state(self, batch_size: int) -> tuple[Tensor, ...]:
        return ()

    def forward(self, inputs: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return self.layer(inputs).relu(), ()


CONTROLLERS: dict[str, type[LSTMController] | type[FeedForwardController]] = {
    "lstm": LSTMController,
    "feedforward": FeedForwardController,
}


class LSTMBaseline(nn.Module):
    """What the paper compares with: layers of LSTM, as wide as the task wants, and no memory beside them.

    >>> LSTMBaseline(input_dim=9, output_dim=8, hidden_dim=16, num_layers=3)(torch.rand(2, 5, 9))[0].shape
    torch.Size([2, 5, 8])
    """

    def __init__(self, input_dim: int, output_dim: int, *, hidden_dim: int = 256, num_layers: int = 3):
        super().__init__()
        self.input_dim, self.output_dim = input_dim, output_dim
        self.lstm = nn.LSTM(input_dim, hidden_dim, num_layers, batch_first=True)
        self.output_proj = nn.Linear(hidden_dim, output_dim)

    def forward(
        self, inputs: Float[Tensor, "batch steps inputs"], state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "batch steps outputs"], tuple[Tensor, Tensor]]:
        hidden, state = self.lstm(inputs, state)
        return self.output_proj(hidden), state
