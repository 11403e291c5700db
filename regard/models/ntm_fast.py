"""One memory step of a Neural Turing Machine as one node of the graph.

    memory, read, read_weights, write_weights = memory_step(layout, interface, memory, read_weights, write_weights)

The definition is `NeuralTuringMachine._step`. Its parts are those of `regard.attention.fast.addressing`; this module
adds the activations of the interface vector (what the controller sends to the heads) and the backward pass. Whatever
the dtypes of the interface and of the state, everything in between is computed in float32 or wider.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor

from regard.attention.fast import addressing
from regard.attention.fast.additive import autocast_disabled

__all__ = ["ClipGradient", "HeadLayout", "bounded_softplus", "cast_tensors", "memory_step", "promote_tensors"]

# Bound of strength and sharpness: above it float32 weights do not become sharper, and gradients are noise.
MAX_STRENGTH = 100.0
HeadParameters = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]  # key, strength, gate, offsets, sharpness


class HeadLayout(NamedTuple):
    """Numbers of heads, and the layout of the interface vector.

    Args:
        num_read: read heads
        num_write: write heads
        memory_width: size of a row of the memory
        max_shift: farthest shift of a head in one step, in rows

    Example:
        >>> HeadLayout(num_read=1, num_write=1, memory_width=4, max_shift=1).sizes
        [12, 6, 4, 6]
    """

    num_read: int
    num_write: int
    memory_width: int
    max_shift: int

    @property
    def sizes(self) -> list[int]:
        """Sizes of the parts of the interface: numbers with the same activation are one part."""
        heads, edits = self.num_read + self.num_write, self.num_write * self.memory_width
        return [heads * self.memory_width + edits, heads + edits, 2 * heads, heads * (2 * self.max_shift + 1)]

    def activate(self, interface: Tensor) -> tuple[Tensor, ...]:
        """The parts after tanh, sigmoid, `bounded_softplus` and softmax."""
        vectors, gates, positive, offsets = interface.split_with_sizes(self.sizes, -1)
        offsets = offsets.view(len(interface), -1, 2 * self.max_shift + 1).softmax(-1)
        return vectors.tanh(), gates.sigmoid(), bounded_softplus(positive), offsets

    def split(
        self, vectors: Tensor, gates: Tensor, positive: Tensor, offsets: Tensor
    ) -> tuple[HeadParameters, HeadParameters, Tensor, Tensor]:
        """Parameters of the read heads and of the write heads, in the order of `addressing.address`; erase and add."""
        heads = self.num_read + self.num_write
        vectors = vectors.view(len(vectors), -1, self.memory_width)
        gate, erase = gates[:, :heads], gates[:, heads:].view(len(gates), -1, self.memory_width)
        strength, sharpness = positive.chunk(2, -1)
        of_all = (vectors[:, :heads], strength, gate, offsets, 1 + sharpness)
        readers = cast(HeadParameters, tuple(part[:, : self.num_read] for part in of_all))
        writers = cast(HeadParameters, tuple(part[:, self.num_read :] for part in of_all))
        return readers, writers, erase, vectors[:, heads:]


def bounded_softplus(x: Tensor, limit: float = MAX_STRENGTH) -> Tensor:
    """Softplus below a limit.

        limit tanh(log(1 + exp(x)) / limit)

    The slope vanishes soon above the limit: in float32 it is 0 from about nine times the limit on.

    Args:
        x: any tensor
        limit: the bound

    Shape: (*) -> (*)

    Returns:
        a tensor of the same shape

    Example:
        >>> bounded_softplus(torch.tensor([0.0, 1e6])).tolist()
        [0.693..., 100.0]
    """
    return limit * torch.tanh(torch.nn.functional.softplus(x) / limit)


class ClipGradient(torch.autograd.Function):
    """Identity; backward clips gradients elementwise to [-limit, limit].

    Example:
        >>> x = torch.zeros(2, requires_grad=True)
        >>> (ClipGradient.apply(1.0, x)[0] * torch.tensor([0.5, 5.0])).sum().backward()
        >>> x.grad.tolist()
        [0.5, 1.0]
    """

    @staticmethod
    def forward(ctx: Any, limit: float, *state: Tensor) -> tuple[Tensor, ...]:
        ctx.limit = limit
        return tuple(part.view_as(part) for part in state)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, *(grad.clamp(-ctx.limit, ctx.limit) for grad in grads)


def promote_tensors(*tensors: Tensor) -> Sequence[Tensor]:
    """The tensors in one dtype: the widest of theirs, and at least float32.

    Args:
        tensors: any tensors

    Returns:
        the tensors in this dtype

    Example:
        >>> [tensor.dtype for tensor in promote_tensors(torch.ones(1).half(), torch.ones(1).double())]
        [torch.float64, torch.float64]
    """
    widest = torch.float32
    for tensor in tensors:
        widest = widest if tensor.dtype == widest else torch.promote_types(widest, tensor.dtype)
    return cast_tensors(widest, *tensors)


def cast_tensors(dtype: torch.dtype, *tensors: Tensor) -> Sequence[Tensor]:
    """The tensors in a dtype; `to` is not called where it would do nothing, because the call itself costs time.

    Args:
        dtype: the dtype
        tensors: any tensors

    Returns:
        the tensors in this dtype

    Example:
        >>> [tensor.dtype for tensor in cast_tensors(torch.float64, torch.ones(1))]
        [torch.float64]
    """
    return tensors if all(tensor.dtype == dtype for tensor in tensors) else [tensor.to(dtype) for tensor in tensors]


def memory_step(
    layout: HeadLayout, interface: Tensor, memory: Tensor, read_weights: Tensor, write_weights: Tensor
) -> Sequence[Tensor]:
    """Memory, read vectors, read weights and write weights after a step, in the memory's dtype.

    Args:
        layout: layout of the interface
        interface: (batch, sum(layout.sizes)), the controller's output for all heads
        memory: (batch, rows, width)
        read_weights, write_weights: (batch, heads, rows), of the step before

    Shape: as above; read vectors (batch, read_heads, width)

    Returns:
        the four tensors

    Example:
        >>> layout = HeadLayout(num_read=1, num_write=1, memory_width=4, max_shift=1)
        >>> focus, memory = torch.full((2, 1, 8), 1 / 8), torch.randn(2, 8, 4)
        >>> [tuple(part.shape) for part in memory_step(layout, torch.randn(2, 28), memory, focus, focus)]
        [(2, 8, 4), (2, 1, 4), (2, 1, 8), (2, 1, 8)]
    """
    inputs = promote_tensors(interface, memory, read_weights, write_weights)
    with autocast_disabled(memory):
        passes = partial(memory_step_forward, layout), partial(_memory_step_backward, layout)
        outputs = addressing.run_explicit(*passes, *inputs)
    return cast_tensors(memory.dtype, *outputs)


def memory_step_forward(
    layout: HeadLayout, interface: Tensor, memory: Tensor, read_weights: Tensor, write_weights: Tensor
) -> tuple[tuple[Tensor, ...], addressing.SavedTensors]:
    """The results of `memory_step` for inputs of one dtype, and the tensors that backward needs."""
    activated = layout.activate(interface)
    readers, writers, erase, add = layout.split(*activated)
    write_weights, saved_writing = addressing.address_forward(*writers, memory, write_weights)
    memory, saved_write = addressing.write_forward(memory, write_weights, erase, add)
    read_weights, saved_reading = addressing.address_forward(*readers, memory, read_weights)
    outputs = (memory, addressing.batched_matmul(read_weights, memory), read_weights, write_weights)
    return outputs, (interface, *activated, *saved_writing, *saved_reading, *saved_write)


def _memory_step_backward(layout: HeadLayout, saved: addressing.SavedTensors, *grads: Tensor) -> tuple[Tensor, ...]:
    """Gradients of the interface and of the state before the step."""
    grad_memory, grad_read, grad_read_weights, grad_write_weights = grads
    interface, activated = saved[0], saved[1:5]
    reading_start, write_start = 5 + addressing.NUM_SAVED, 5 + 2 * addressing.NUM_SAVED
    saved_writing, saved_reading = saved[5:reading_start], saved[reading_start:write_start]
    saved_write = saved[write_start:]
    memory, read_weights = saved_reading[addressing.MEMORY_INDEX], saved_reading[-1]
    grad_read_weights = torch.baddbmm(grad_read_weights, grad_read, memory.mT)
    *grad_readers, grad_addressed, grad_previous_read = addressing.address_backward(saved_reading, grad_read_weights)
    grad_memory = torch.baddbmm(grad_memory, read_weights.mT, grad_read).add_(grad_addressed)
    grad_memory, grad_written, grad_erase, grad_add = addressing.write_backward(saved_write, grad_memory)
    grad_write_weights = grad_written.add_(grad_write_weights)
    *grad_writers, grad_addressed, grad_previous_write = addressing.address_backward(saved_writing, grad_write_weights)
    pairs = zip(grad_readers, grad_writers, strict=True)
    key, strength, gate, offsets, sharpness = (torch.cat(pair, 1) for pair in pairs)
    vectors = torch.cat((key, grad_add), 1).flatten(1)
    gates = torch.cat((gate, grad_erase.flatten(1)), 1)
    positive = torch.cat((strength, sharpness), 1)
    grad_interface = _activation_backward(layout, interface, activated, (vectors, gates, positive, offsets))
    return grad_interface, grad_memory.add_(grad_addressed), grad_previous_read, grad_previous_write


def _activation_backward(layout: HeadLayout, interface: Tensor, activated: Any, grads: tuple[Tensor, ...]) -> Tensor:
    vectors, gates, positive, offsets = grads
    x = interface.split_with_sizes(layout.sizes, -1)[2]
    slope = torch.sigmoid(x).mul_(1 - (activated[2] / MAX_STRENGTH).square_())
    vectors = torch.ops.aten.tanh_backward(vectors, activated[0])
    gates = torch.ops.aten.sigmoid_backward(gates, activated[1])
    offsets = addressing.softmax_backward(offsets, activated[3]).flatten(1)
    return torch.cat((vectors, gates, positive.mul_(slope), offsets), 1)
