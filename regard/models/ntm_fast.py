"""What a Neural Turing Machine does to its memory in one step, as one node of the graph.

    memory, read, weights = move(heads, told, memory, weights)       the definition: `NeuralTuringMachine._move`

The pieces are those of `regard.attention.fast.addressing`; here is what bounds the numbers that a controller says,
and the way back through all of it. Whatever the type of what is said and of the state, between them everything is
float32 or wider.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.fast.additive import autocast_disabled
from regard.attention.fast.addressing import (
    MEMORY_INDEX,
    PREVIOUS_INDEX,
    SavedTensors,
    address_backward,
    address_forward,
    batched_matmul,
    differentiable_backward,
    softmax_backward,
    write_backward,
    write_forward,
)

MAX_STRENGTH = 100.0  # strength and sharpness: beyond, weights are as sharp as float32 can tell, and gradients only noise


class HeadParameters(NamedTuple):
    """What a controller tells some heads in one step."""

    key: Tensor
    strength: Tensor
    gate: Tensor
    offsets: Tensor
    sharpness: Tensor


class HeadLayout(NamedTuple):
    """How many heads there are, and what they are told."""

    num_read: int
    num_write: int
    memory_width: int
    max_shift: int

    @property
    def sizes(self) -> list[int]:
        """How the numbers that a controller says are laid out: what has the same bounds stands together."""
        heads, edits = self.num_read + self.num_write, self.num_write * self.memory_width
        return [heads * self.memory_width + edits, heads + edits, 2 * heads, heads * (2 * self.max_shift + 1)]

    def activate(self, interface: Tensor) -> tuple[Tensor, ...]:
        """Numbers without bounds within theirs: tanh, sigmoid, `bounded`, and shares of one."""
        vectors, opening, positive, shares = interface.split_with_sizes(self.sizes, -1)
        shares = shares.view(len(interface), -1, 2 * self.max_shift + 1).softmax(-1)
        return vectors.tanh(), opening.sigmoid(), bounded_softplus(positive), shares

    def split(
        self, vectors: Tensor, opening: Tensor, positive: Tensor, offsets: Tensor
    ) -> tuple[HeadParameters, HeadParameters, Tensor, Tensor]:
        """Which of these is what, and for whom: for the heads that read, for those that write, erase and add."""
        heads = self.num_read + self.num_write
        vectors = vectors.view(len(vectors), -1, self.memory_width)
        gate, erase = opening[:, :heads], opening[:, heads:].view(len(opening), -1, self.memory_width)
        strength, sharpness = positive.chunk(2, -1)
        of_all = (vectors[:, :heads], strength, gate, offsets, 1 + sharpness)
        readers = HeadParameters(*(part[:, : self.num_read] for part in of_all))
        writers = HeadParameters(*(part[:, self.num_read :] for part in of_all))
        return readers, writers, erase, vectors[:, heads:]


def bounded_softplus(x: Tensor, limit: float = MAX_STRENGTH) -> Tensor:
    """Softplus that never passes a limit.

        limit tanh(log(1 + exp(number)) / limit)

    Beyond the limit the slope soon vanishes: in float32 it is 0 from about nine times the limit on.

    >>> bounded_softplus(torch.tensor([0.0, 1e6])).tolist()
    [0.693..., 100.0]
    """
    return limit * torch.tanh(torch.nn.functional.softplus(x) / limit)


class ClipGradient(torch.autograd.Function):
    """Tensors as they are; on the way back no number of their gradients is beyond a limit."""

    @staticmethod
    def forward(ctx: Any, limit: float, *state: Tensor) -> tuple[Tensor, ...]:
        ctx.limit = limit
        return tuple(part.view_as(part) for part in state)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, *(grad.clamp(-ctx.limit, ctx.limit) for grad in grads)


def promote_tensors(*tensors: Tensor) -> Sequence[Tensor]:
    """Tensors of one type: the widest of theirs, and at least float32."""
    wide = torch.float32
    for tensor in tensors:
        wide = wide if tensor.dtype == wide else torch.promote_types(wide, tensor.dtype)
    return cast_tensors(wide, *tensors)


def cast_tensors(dtype: torch.dtype, *tensors: Tensor) -> Sequence[Tensor]:
    """Tensors in a type; `to` costs time also where there is nothing to do."""
    return (
        tensors
        if all(tensor.dtype == dtype for tensor in tensors)
        else [tensor.to(dtype) for tensor in tensors]
    )


def memory_step(
    layout: HeadLayout, interface: Tensor, memory: Tensor, read_weights: Tensor, write_weights: Tensor
) -> Sequence[Tensor]:
    """Memory, read, read weights and write weights after a step, in the type of the memory."""
    given = promote_tensors(interface, memory, read_weights, write_weights)
    with autocast_disabled(memory):
        # Without a way back, the plain functions: a node of the graph costs time also where there is no graph.
        made = (
            MemoryStepFunction.apply(layout, *given)
            if torch.is_grad_enabled()
            else memory_step_forward(layout, *given)[0]
        )
    return cast_tensors(memory.dtype, *made)


def memory_step_forward(
    layout: HeadLayout, interface: Tensor, memory: Tensor, read_weights: Tensor, write_weights: Tensor
) -> tuple[tuple[Tensor, ...], list[SavedTensors]]:
    """Memory, read, read weights and write weights, and what the way back needs."""
    bound = layout.activate(interface)
    readers, writers, erase, add = layout.split(*bound)
    write_weights, of_writing = address_forward(*writers, memory, write_weights)
    memory, of_write = write_forward(memory, write_weights, erase, add)
    read_weights, of_reading = address_forward(*readers, memory, read_weights)
    return (memory, batched_matmul(read_weights, memory), read_weights, write_weights), [
        bound,
        of_writing,
        of_reading,
        of_write,
    ]


class MemoryStepFunction(torch.autograd.Function):
    """`moved` as a node of the graph."""

    @staticmethod
    def forward(ctx: Any, layout: HeadLayout, *inputs: Tensor) -> Any:
        made, kept = memory_step_forward(layout, *inputs)
        ctx.heads, ctx.value_range = layout, list(itertools.accumulate(map(len, kept), initial=1))
        ctx.save_for_backward(inputs[0], *itertools.chain(*kept))
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved = ctx.saved_tensors  # asked once: each time they are all unpacked
        told = saved[0]
        kept = [saved[start:end] for start, end in itertools.pairwise(ctx.value_range)]
        with autocast_disabled(told):
            if torch.is_grad_enabled():
                _, of_writing, of_reading, _ = kept
                given = (
                    told,
                    of_writing[MEMORY_INDEX],
                    of_reading[PREVIOUS_INDEX],
                    of_writing[PREVIOUS_INDEX],
                )
                return None, *differentiable_backward(
                    lambda *given: memory_step_forward(ctx.heads, *given)[0], given, grads
                )
            return None, *_memory_step_backward(ctx.heads, told, kept, *grads)


def _memory_step_backward(
    layout: HeadLayout,
    interface: Tensor,
    saved: Sequence[SavedTensors],
    grad_memory: Tensor,
    grad_read: Tensor,
    grad_read_weights: Tensor,
    grad_write_weights: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of what was said and of the state before."""
    bound, of_writing, of_reading, of_write = saved
    memory, reading = of_reading[MEMORY_INDEX], of_reading[-1]
    *to_readers, of_memory, before_reading = address_backward(
        of_reading, torch.baddbmm(grad_read_weights, grad_read, memory.mT)
    )
    grad_memory = torch.baddbmm(grad_memory, reading.mT, grad_read).add_(of_memory)
    grad_memory, of_weights, to_erase, to_add = write_backward(of_write, grad_memory)
    *to_writers, of_memory, before_writing = address_backward(of_writing, of_weights.add_(grad_write_weights))
    both = zip(to_readers, to_writers, strict=True)
    key, strength, gate, offsets, sharpness = (torch.cat(parts, 1) for parts in both)
    vectors = torch.cat((key, to_add), 1).flatten(1)
    opening = torch.cat((gate, to_erase.flatten(1)), 1)
    positive = torch.cat((strength, sharpness), 1)
    to_told = _activation_backward(layout, interface, bound, (vectors, opening, positive, offsets))
    return to_told, grad_memory.add_(of_memory), before_reading, before_writing


def _activation_backward(
    layout: HeadLayout, interface: Tensor, activated: Any, grads: tuple[Tensor, ...]
) -> Tensor:
    vectors, opening, positive, shares = grads
    plain = interface.split_with_sizes(layout.sizes, -1)[2]
    slope = torch.sigmoid(plain).mul_(1 - (activated[2] / MAX_STRENGTH).square_())
    return torch.cat(
        (
            torch.ops.aten.tanh_backward(vectors, activated[0]),
            torch.ops.aten.sigmoid_backward(opening, activated[1]),
            positive.mul_(slope),
            softmax_backward(shares, activated[3]).flatten(1),
        ),
        1,
    )
