"""What a Neural Turing Machine does to its memory in one step, as one node of the graph.

    weights, memory, read = move(told, memory, weights)       the definition: `NeuralTuringMachine._move`

The pieces are those of `regard.attention.fast.addressing`; here is what bounds the numbers that a controller says,
and the way back through all of it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.attention.fast.addressing import (
    addressed,
    applies,
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
        vectors, opening, positive, shares = told.split(self.sizes, -1)
        shares = shares.unflatten(-1, (-1, 2 * self.shift + 1)).softmax(-1)
        return vectors.tanh(), opening.sigmoid(), bounded(positive), shares

    def heard(
        self, vectors: Tensor, opening: Tensor, positive: Tensor, offsets: Tensor
    ) -> tuple[Said, Said, Tensor, Tensor]:
        """Which of these is what, and for whom: for the heads that read, for those that write, erase and add."""
        heads = self.read + self.write
        vectors = vectors.unflatten(-1, (-1, self.width))
        gate, erase = opening[:, :heads], opening[:, heads:].unflatten(-1, (-1, self.width))
        strength, sharpness = positive.split(heads, -1)
        of_all = (vectors[:, :heads], strength, gate, offsets, 1 + sharpness)
        readers = Said(*(part[:, : self.read] for part in of_all))
        writers = Said(*(part[:, self.read :] for part in of_all))
        return readers, writers, erase, vectors[:, heads:]


def bounded(number: Tensor, limit: float = MOST) -> Tensor:
    """Softplus that never passes a limit, with a slope everywhere.

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


class Moved(torch.autograd.Function):
    """From what is said and the state before to memory, read, read weights and write weights."""

    @staticmethod
    def forward(
        ctx: Any, heads: Heads, told: Tensor, memory: Tensor, reading: Tensor, writing: Tensor
    ) -> Any:
        bound = heads.bound(told)
        readers, writers, erase, add = heads.heard(*bound)
        writing, of_writing = addressed(*writers, memory, writing)
        memory, of_write = written(memory, writing, erase, add)
        reading, of_reading = addressed(*readers, memory, reading)
        ctx.heads, ctx.each = heads, len(of_writing)  # as many are kept of reading
        ctx.save_for_backward(told, memory, *bound, *of_writing, *of_reading, *of_write)
        return memory, times(reading, memory), reading, writing

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_memory: Tensor, to_read: Tensor, to_reading: Tensor, to_writing: Tensor) -> Any:
        told, memory, *rest = ctx.saved_tensors
        bound, rest = rest[:4], rest[4:]
        of_writing, of_reading, of_write = (
            rest[: ctx.each],
            rest[ctx.each : 2 * ctx.each],
            rest[2 * ctx.each :],
        )
        reading = of_reading[-1]
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
        to_told = _through_bounds(ctx.heads, told, bound, (vectors, opening, positive, offsets))
        return None, to_told, to_memory.add_(of_memory), before_reading, before_writing


def _through_bounds(heads: Heads, told: Tensor, bound: Any, grads: tuple[Tensor, ...]) -> Tensor:
    vectors, opening, positive, shares = grads
    plain = told.split(heads.sizes, -1)[2]
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


def fits(heads: Heads, *tensors: Tensor) -> bool:
    """Whether a step may be one node: gradients are wanted, of one type, and every offset reaches another row."""
    return (
        applies(*tensors)
        and 2 * heads.shift + 1 <= tensors[1].shape[-2]
        and not torch.is_autocast_enabled(tensors[0].device.type)
    )
