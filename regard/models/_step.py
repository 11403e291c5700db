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

from regard.attention.fast.additive import full_precision
from regard.attention.fast.addressing import (
    MEMORY,
    PREVIOUS,
    Kept,
    addressed,
    again,
    through_address,
    through_softmax,
    through_write,
    times,
    written,
)

MOST = 100.0  # strength and sharpness: beyond, weights are as sharp as float32 can tell, and gradients only noise


class Said(NamedTuple):
    """What a controller tells some heads in one step."""

    key: Tensor
    strength: Tensor
    gate: Tensor
    offsets: Tensor
    sharpness: Tensor


class Heads(NamedTuple):
    """How many heads there are, and what they are told."""

    read: int
    write: int
    width: int
    shift: int

    @property
    def sizes(self) -> list[int]:
        """How the numbers that a controller says are laid out: what has the same bounds stands together."""
        heads, edits = self.read + self.write, self.write * self.width
        return [heads * self.width + edits, heads + edits, 2 * heads, heads * (2 * self.shift + 1)]

    def bound(self, told: Tensor) -> tuple[Tensor, ...]:
        """Numbers without bounds within theirs: tanh, sigmoid, `bounded`, and shares of one."""
        vectors, opening, positive, shares = told.split_with_sizes(self.sizes, -1)
        shares = shares.view(len(told), -1, 2 * self.shift + 1).softmax(-1)
        return vectors.tanh(), opening.sigmoid(), bounded(positive), shares

    def heard(
        self, vectors: Tensor, opening: Tensor, positive: Tensor, offsets: Tensor
    ) -> tuple[Said, Said, Tensor, Tensor]:
        """Which of these is what, and for whom: for the heads that read, for those that write, erase and add."""
        heads = self.read + self.write
        vectors = vectors.view(len(vectors), -1, self.width)
        gate, erase = opening[:, :heads], opening[:, heads:].view(len(opening), -1, self.width)
        strength, sharpness = positive.chunk(2, -1)
        of_all = (vectors[:, :heads], strength, gate, offsets, 1 + sharpness)
        readers = Said(*(part[:, : self.read] for part in of_all))
        writers = Said(*(part[:, self.read :] for part in of_all))
        return readers, writers, erase, vectors[:, heads:]


def bounded(number: Tensor, limit: float = MOST) -> Tensor:
    """Softplus that never passes a limit.

        limit tanh(log(1 + exp(number)) / limit)

    Beyond the limit the slope soon vanishes: in float32 it is 0 from about nine times the limit on.

    >>> bounded(torch.tensor([0.0, 1e6])).tolist()
    [0.693..., 100.0]
    """
    return limit * torch.tanh(torch.nn.functional.softplus(number) / limit)


class Clipped(torch.autograd.Function):
    """Tensors as they are; on the way back no number of their gradients is beyond a limit."""

    @staticmethod
    def forward(ctx: Any, limit: float, *state: Tensor) -> tuple[Tensor, ...]:
        ctx.limit = limit
        return tuple(part.view_as(part) for part in state)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return None, *(grad.clamp(-ctx.limit, ctx.limit) for grad in grads)


def widened(*tensors: Tensor) -> Sequence[Tensor]:
    """Tensors of one type: the widest of theirs, and at least float32."""
    wide = torch.float32
    for tensor in tensors:
        wide = wide if tensor.dtype == wide else torch.promote_types(wide, tensor.dtype)
    return typed(wide, *tensors)


def typed(dtype: torch.dtype, *tensors: Tensor) -> Sequence[Tensor]:
    """Tensors in a type; `to` costs time also where there is nothing to do."""
    return (
        tensors
        if all(tensor.dtype == dtype for tensor in tensors)
        else [tensor.to(dtype) for tensor in tensors]
    )


def move(heads: Heads, told: Tensor, memory: Tensor, reading: Tensor, writing: Tensor) -> Sequence[Tensor]:
    """Memory, read, read weights and write weights after a step, in the type of the memory."""
    given = widened(told, memory, reading, writing)
    with full_precision(memory):
        # Without a way back, the plain functions: a node of the graph costs time also where there is no graph.
        made = Moved.apply(heads, *given) if torch.is_grad_enabled() else moved(heads, *given)[0]
    return typed(memory.dtype, *made)


def moved(
    heads: Heads, told: Tensor, memory: Tensor, reading: Tensor, writing: Tensor
) -> tuple[tuple[Tensor, ...], list[Kept]]:
    """Memory, read, read weights and write weights, and what the way back needs."""
    bound = heads.bound(told)
    readers, writers, erase, add = heads.heard(*bound)
    writing, of_writing = addressed(*writers, memory, writing)
    memory, of_write = written(memory, writing, erase, add)
    reading, of_reading = addressed(*readers, memory, reading)
    return (memory, times(reading, memory), reading, writing), [bound, of_writing, of_reading, of_write]


class Moved(torch.autograd.Function):
    """`moved` as a node of the graph."""

    @staticmethod
    def forward(ctx: Any, heads: Heads, *given: Tensor) -> Any:
        made, kept = moved(heads, *given)
        ctx.heads, ctx.ends = heads, list(itertools.accumulate(map(len, kept), initial=1))
        ctx.save_for_backward(given[0], *itertools.chain(*kept))
        return made

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        saved = ctx.saved_tensors  # asked once: each time they are all unpacked
        told = saved[0]
        kept = [saved[start:end] for start, end in itertools.pairwise(ctx.ends)]
        with full_precision(told):
            if torch.is_grad_enabled():
                _, of_writing, of_reading, _ = kept
                given = (told, of_writing[MEMORY], of_reading[PREVIOUS], of_writing[PREVIOUS])
                return None, *again(lambda *given: moved(ctx.heads, *given)[0], given, grads)
            return None, *_through_move(ctx.heads, told, kept, *grads)


def _through_move(
    heads: Heads,
    told: Tensor,
    kept: Sequence[Kept],
    to_memory: Tensor,
    to_read: Tensor,
    to_reading: Tensor,
    to_writing: Tensor,
) -> tuple[Tensor, ...]:
    """Gradients of what was said and of the state before."""
    bound, of_writing, of_reading, of_write = kept
    memory, reading = of_reading[MEMORY], of_reading[-1]
    *to_readers, of_memory, before_reading = through_address(
        of_reading, torch.baddbmm(to_reading, to_read, memory.mT)
    )
    to_memory = torch.baddbmm(to_memory, reading.mT, to_read).add_(of_memory)
    to_memory, of_weights, to_erase, to_add = through_write(of_write, to_memory)
    *to_writers, of_memory, before_writing = through_address(of_writing, of_weights.add_(to_writing))
    both = zip(to_readers, to_writers, strict=True)
    key, strength, gate, offsets, sharpness = (torch.cat(parts, 1) for parts in both)
    vectors = torch.cat((key, to_add), 1).flatten(1)
    opening = torch.cat((gate, to_erase.flatten(1)), 1)
    positive = torch.cat((strength, sharpness), 1)
    to_told = _through_bounds(heads, told, bound, (vectors, opening, positive, offsets))
    return to_told, to_memory.add_(of_memory), before_reading, before_writing


def _through_bounds(heads: Heads, told: Tensor, bound: Any, grads: tuple[Tensor, ...]) -> Tensor:
    vectors, opening, positive, shares = grads
    plain = told.split_with_sizes(heads.sizes, -1)[2]
    slope = torch.sigmoid(plain).mul_(1 - (bound[2] / MOST).square_())
    return torch.cat(
        (
            torch.ops.aten.tanh_backward(vectors, bound[0]),
            torch.ops.aten.sigmoid_backward(opening, bound[1]),
            positive.mul_(slope),
            through_softmax(shares, bound[3]).flatten(1),
        ),
        1,
    )
