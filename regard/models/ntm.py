"""The Neural Turing Machine: a controller network with a memory that it reads and writes by attention.

Graves, Wayne and Danihelka (2014), arXiv 1410.5401. Per step:

    state        = controller(input, last reads)                  an LSTM, or a feed-forward network
    w_write      = address(parameters of the write heads, M, w_write)
    M            = M * prod(1 - w_write erase) + sum(w_write add)
    w_read       = address(parameters of the read heads, M, w_read)    of the new memory
    read         = w_read M
    output       = W [state; read]

No state is kept on the module: memory and weights are in an `NTMState` that goes in and comes out. No parameter has the
number of memory rows in its shape, so a trained model can be used with a larger memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention import addressing, observers
from regard.attention.fast.addressing import can_use_fast_address
from regard.attention.module import Device, Dtype, FactoryKwargs, ResettableModule
from regard.errors import ShapeError, UsageError, require_choice
from regard.models.ntm_fast import ClipGradient, HeadLayout, cast_tensors, memory_step, promote_tensors

__all__ = [
    "CONTROLLERS", "FeedForwardController", "LSTMBaseline", "LSTMController", "NTMState", "NTMStep",
    "NeuralTuringMachine",
]  # fmt: skip

INITIAL_MEMORY = 1e-6  # every element of a memory that nothing was written to


@dataclass(frozen=True)
class NTMState:
    """What a Neural Turing Machine passes from step to step.

    Args:
        memory: the memory
        read: the vectors that the read heads have read
        read_weights: the weights of the rows, for each read head
        write_weights: the weights of the rows, for each write head
        controller: the state of the controller

    Example:
        >>> NeuralTuringMachine(9, 8, memory_rows=16, memory_width=6).init_state(2).memory.shape
        torch.Size([2, 16, 6])
    """

    memory: Float[Tensor, "batch rows width"]
    read: Float[Tensor, "batch read_heads width"]
    read_weights: Float[Tensor, "batch read_heads rows"]
    write_weights: Float[Tensor, "batch write_heads rows"]
    controller: tuple[Tensor, ...] = ()

    def detach(self) -> NTMState:
        """The same state without its graph, for truncated backpropagation through time."""
        return self._map(lambda *tensors: [tensor.detach() for tensor in tensors])

    def clip_gradients(self, limit: float) -> NTMState:
        """The same state; gradients that flow back through it are clipped to [-limit, limit] elementwise."""
        return self._map(partial(ClipGradient.apply, limit))

    def _map(self, function: Callable[..., Iterable[Tensor]]) -> NTMState:
        tensors = (self.memory, self.read, self.read_weights, self.write_weights, *self.controller)
        memory, read, read_weights, write_weights, *controller = function(*tensors)
        return NTMState(memory, read, read_weights, write_weights, tuple(controller))


class NTMStep(NamedTuple):
    """One step: the output, the state after it, and what the write heads erased and added.

    Args:
        output: (batch, output_dim)
        state: the state after the step
        erase: (batch, write_heads, width)
        add: (batch, write_heads, width)

    Example:
        >>> model = NeuralTuringMachine(9, 8, memory_rows=16, memory_width=6)
        >>> model.step(torch.rand(2, 9), model.init_state(2)).output.shape
        torch.Size([2, 8])
    """

    output: Tensor
    state: NTMState
    erase: Tensor
    add: Tensor


class NeuralTuringMachine(ResettableModule):
    """Neural Turing Machine with a memory of `memory_rows` x `memory_width` numbers.

    What is written determines what is read later, so a gradient may grow with every step that it flows back, and
    overflow within some hundred steps. `state_grad_clip` bounds each of its elements from step to step; without it
    gradients are exact. The paper clips to 10 (section 4.6); most recipes use 10,000, which few gradients reach.

    Args:
        input_dim: size of an input
        output_dim: size of an output
        memory_rows: rows of a new memory
        memory_width: size of a row
        num_read_heads: heads that read
        num_write_heads: heads that write
        controller: "lstm" or "feedforward"
        hidden_dim: size of the controller's state
        max_shift: farthest shift of a head in one step, in rows
        state_grad_clip: bound of the state's gradients, or None
        device, dtype: of the parameters, as in PyTorch

    Shape: (batch, steps, input_dim) -> (batch, steps, output_dim) and an `NTMState`

    Example:
        >>> model = NeuralTuringMachine(9, 8, memory_rows=16, memory_width=6)
        >>> output, state = model(torch.rand(2, 5, 9))
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
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        sizes = {"memory_rows": memory_rows, "memory_width": memory_width, "hidden_dim": hidden_dim}
        sizes |= {"num_read_heads": num_read_heads, "num_write_heads": num_write_heads, "max_shift": max_shift}
        for name, value in sizes.items():
            if value < (minimum := 0 if name == "max_shift" else 1):
                raise UsageError(f"NeuralTuringMachine: invalid value {value} for {name}: must be at least {minimum}")
        require_choice("controller", controller, CONTROLLERS, "NeuralTuringMachine")
        if state_grad_clip is not None and not state_grad_clip > 0:
            raise UsageError(
                f"NeuralTuringMachine: invalid value {state_grad_clip} for state_grad_clip: must be above 0, or None"
            )
        self.state_grad_clip = state_grad_clip
        self.input_dim, self.output_dim = input_dim, output_dim
        self.memory_rows, self.memory_width = memory_rows, memory_width
        self.head_layout = HeadLayout(num_read_heads, num_write_heads, memory_width, max_shift)
        self.hidden_dim, self.is_compiled = hidden_dim, False
        read_dim = num_read_heads * memory_width
        factory: FactoryKwargs = {"device": device, "dtype": dtype}
        self.controller = CONTROLLERS[controller](input_dim + read_dim, hidden_dim, **factory)
        self.interface_proj = nn.Linear(hidden_dim, sum(self.head_layout.sizes), **factory)
        self.output_proj = nn.Linear(hidden_dim + read_dim, output_dim, **factory)
        self.initial_read = nn.Parameter(torch.zeros(num_read_heads, memory_width, **factory))
        self._init_parameters()

    def _init_parameters(self) -> None:
        nn.init.xavier_uniform_(self.interface_proj.weight, gain=1.4)
        nn.init.normal_(self.interface_proj.bias, std=0.01)
        nn.init.xavier_uniform_(self.output_proj.weight)
        nn.init.zeros_(self.output_proj.bias)
        nn.init.normal_(self.initial_read, std=0.01)

    def init_state(self, batch_size: int, memory_rows: int | None = None) -> NTMState:
        """An empty memory, with every head on its first row.

        The heads start on one row, not spread over all, so that a shift is a shift from the first step on; that holds
        for a memory of any size.

        Args:
            batch_size: number of sequences
            memory_rows: rows of the memory; those of the constructor if None
        """
        memory_rows = self.memory_rows if memory_rows is None else memory_rows
        if memory_rows < 1:
            raise UsageError(f"NeuralTuringMachine: invalid value {memory_rows} for memory_rows: must be at least 1")
        num_read = self.head_layout.num_read
        like = self.initial_read
        focus = like.new_zeros(batch_size, num_read + self.head_layout.num_write, memory_rows)
        focus[..., 0] = 1.0
        memory = like.new_full((batch_size, memory_rows, self.memory_width), INITIAL_MEMORY)
        read, controller = like.expand(batch_size, -1, -1), self.controller.init_state(batch_size)
        return NTMState(memory, read, focus[:, :num_read], focus[:, num_read:], controller)

    def forward(
        self, inputs: Float[Tensor, "batch steps input_dim"], state: NTMState | None = None
    ) -> tuple[Float[Tensor, "batch steps output_dim"], NTMState]:
        """Outputs of all steps, before any sigmoid, and the state after the last one."""
        self._check_inputs("inputs", inputs, "batch", "steps")
        state = self.init_state(len(inputs)) if state is None else state
        self._check_state(state, len(inputs))
        num_offsets = 2 * self.head_layout.max_shift + 1
        is_fast = not self.is_compiled and can_use_fast_address(state.memory.shape[1], num_offsets)
        clip = self.state_grad_clip if torch.is_grad_enabled() else None
        features = []
        for x in inputs.unbind(1):
            state = state if clip is None else state.clip_gradients(clip)
            hidden, state = self._step(x, state, is_fast)
            observers.emit(self, partial(_head_weights, state))
            features.append(torch.cat((hidden, state.read.flatten(1)), -1))
        if not features:
            return inputs.new_empty(len(inputs), 0, self.output_dim), state
        return self.output_proj(torch.stack(features, 1)), state

    def step(self, inputs: Float[Tensor, "batch input_dim"], state: NTMState) -> NTMStep:
        """One step, with what the write heads erased and added."""
        self._check_inputs("inputs of a step", inputs, "batch")
        self._check_state(state, len(inputs))
        hidden, after = self._step(inputs, state)
        before = (state.memory, state.read_weights, state.write_weights)
        interface, *_ = promote_tensors(self.interface_proj(hidden), *before)
        *_, erase, add = self.head_layout.split(*self.head_layout.activate(interface))
        observers.emit(self, partial(_head_weights, after))
        output = self.output_proj(torch.cat((hidden, after.read.flatten(1)), -1))
        return NTMStep(output, after, erase, add)

    def _check_inputs(self, name: str, inputs: Tensor, *leading_axes: str) -> None:
        if inputs.dim() != len(leading_axes) + 1 or inputs.shape[-1] != self.input_dim:
            expected = f"({', '.join(leading_axes)}, {self.input_dim})"
            raise ShapeError(f"NeuralTuringMachine: {name} must be {expected}, got {tuple(inputs.shape)}")

    def _check_state(self, state: NTMState, batch_size: int) -> None:
        """Raise ShapeError if the state is of another batch or of another model."""
        num_read, num_write = state.read_weights.shape[1], state.write_weights.shape[1]
        actual = (state.memory.shape[0], state.memory.shape[-1], num_read, num_write)
        expected = (batch_size, self.memory_width, self.head_layout.num_read, self.head_layout.num_write)
        if actual != expected:
            raise ShapeError(
                "NeuralTuringMachine: the state has (batch, width, read heads, write heads)"
                f" {actual}, expected {expected}"
            )

    def compile_step(self) -> None:
        """Compile one step with torch.compile; sequences of all lengths share the kernel."""
        self.is_compiled = True
        self._step = torch.compile(self._step)  # type: ignore[method-assign]

    def _step(self, inputs: Tensor, state: NTMState, is_fast: bool = False) -> tuple[Tensor, NTMState]:
        """One step without the output, which can be computed for all steps at once.

        The fast one computes the same in fewer operations, and as one node of the graph if there is one.
        """
        controller_inputs = torch.cat((inputs, state.read.flatten(1)), -1)
        hidden, controller_state = self.controller(controller_inputs, state.controller)
        interface, before = self.interface_proj(hidden), (state.memory, state.read_weights, state.write_weights)
        if is_fast:
            after = memory_step(self.head_layout, interface, *before)
        else:
            interface, memory, read_weights, write_weights = promote_tensors(interface, *before)
            readers, writers, erase, add = self.head_layout.split(*self.head_layout.activate(interface))
            write_weights = addressing.address(*writers, memory, write_weights)
            memory = addressing.write(memory, write_weights, erase, add)
            read_weights = addressing.address(*readers, memory, read_weights)
            read = addressing.read(read_weights, memory)
            after = cast_tensors(state.memory.dtype, memory, read, read_weights, write_weights)
        memory, read, read_weights, write_weights = after
        return hidden, NTMState(memory, read, read_weights, write_weights, controller_state)

    def extra_repr(self) -> str:
        heads = f"num_read_heads={self.head_layout.num_read}, num_write_heads={self.head_layout.num_write}"
        return f"memory_rows={self.memory_rows}, memory_width={self.memory_width}, {heads}"


def _head_weights(state: NTMState, heads: observers.HeadSelection) -> Float[Tensor, "batch heads 1 rows"]:
    """Weights of the heads after a step, read heads first, as watchers get them."""
    weights = torch.cat((state.read_weights, state.write_weights), 1).detach()
    return (weights if heads is None else weights[:, list(heads)]).unsqueeze(2)


class LSTMBaseline(ResettableModule):
    """The paper's baseline: LSTM layers without a memory.

    Args:
        input_dim: size of an input
        output_dim: size of an output
        hidden_dim: size of the state
        num_layers: LSTM layers
        device, dtype: of the parameters, as in PyTorch

    Shape: (batch, steps, input_dim) -> (batch, steps, output_dim) and the LSTM's state

    Example:
        >>> LSTMBaseline(9, 8, hidden_dim=16, num_layers=3)(torch.rand(2, 5, 9))[0].shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        input_dim: int,
        output_dim: int,
        *,
        hidden_dim: int = 256,
        num_layers: int = 3,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        self.input_dim, self.output_dim = input_dim, output_dim
        self.lstm = nn.LSTM(input_dim, hidden_dim, num_layers, batch_first=True, device=device, dtype=dtype)
        self.output_proj = nn.Linear(hidden_dim, output_dim, device=device, dtype=dtype)

    def forward(
        self, inputs: Float[Tensor, "batch steps input_dim"], state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Float[Tensor, "batch steps output_dim"], tuple[Tensor, Tensor]]:
        """Outputs of all steps, before any sigmoid, and the state after the last one."""
        hidden, state = self.lstm(inputs, state)
        return self.output_proj(hidden), state


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
