"""The product with all words of the vocabulary, the largest there is, laid out once for all steps."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor, nn

LOG2E = 1 / math.log(2)

Version = tuple[int, int, int, float]


class Words:
    """x W^T, with W^T in the order in which it is read: for a handful of rows half the time."""

    def __init__(self, weight: Tensor):
        self.weight = weight.detach()

    def __call__(self, x: Float[Tensor, "rows dim"]) -> Float[Tensor, "rows words"]:
        return torch.mm(x, self.columns)

    @cached_property
    def columns(self) -> Float[Tensor, "dim words"]:
        return self.weight.t().contiguous()

    @cached_property
    def doubling(self) -> Float[Tensor, "dim words"]:
        """The same divided by ln 2: what it gives are powers of two."""
        return self.weight.t().mul(LOG2E).contiguous()


def bits(
    output: Callable[[Tensor], Tensor],
    x: Float[Tensor, "rows dim"],
    block: int,
    room: Float[Tensor, "room padded"] | None,
) -> Float[Tensor, "rows padded"]:
    """What `output` gives, divided by ln 2, in whole blocks: behind the last word stands -inf.

    It is written into `room`, or into new room where there is too little.
    """
    if isinstance(output, Words) and x.dtype == torch.float32:
        vocab = output.doubling.shape[1]
        room = _room(room, x, vocab, block)
        torch.mm(x, output.doubling, out=room[:, :vocab])
    else:
        scores = output(x).float()
        room = _room(room, x, scores.shape[1], block)
        torch.mul(scores, LOG2E, out=room[:, : scores.shape[1]])
    return room


def _room(room: Tensor | None, x: Tensor, vocab: int, block: int) -> Tensor:
    if room is None or len(room) < len(x):
        return x.new_full((len(x), -(-vocab // block) * block), -math.inf, dtype=torch.float32)
    return room[: len(x)]


KEPT: WeakKeyDictionary[nn.Module, tuple[Version, Words]] = WeakKeyDictionary()


def words(output: nn.Linear) -> Callable[[Tensor], Tensor]:
    """The same as the last layer, to be asked again and again; the layer itself where it must be called."""
    weight = output.weight
    plain = untouched(output) and output._parameters["bias"] is None
    if not (plain and unrecorded(weight)) or weight.is_inference():
        return output
    version, kept = (id(weight), weight._version, weight.data_ptr(), mark(weight)), KEPT.get(output)
    if kept is None or kept[0] != version:
        kept = KEPT[output] = version, Words(weight)
    return kept[1]


def mark(weight: Tensor) -> float:
    """A number that tells whether weights have changed: a fused optimizer changes them without counting a version.

    Each weight counts by its place, so that it also tells if they were only moved.
    """
    left = weight.detach()
    while left.dim():
        left = left @ torch.linspace(1, 2, left.shape[-1], dtype=left.dtype, device=left.device)
    return float(left)


def unrecorded(weight: Tensor) -> bool:
    """Whether nobody records what is computed now, or computes in another precision than the weights'."""
    return not (
        torch.is_grad_enabled()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()  # type: ignore[attr-defined]
        or torch.is_autocast_enabled(weight.device.type)
    )


def untouched(part: nn.Module) -> bool:
    """Whether a part does what its class says: no hooks, no class or function made for it."""
    known = type(part).__module__.startswith(("regard.", "torch.nn.modules."))
    return known and "forward" not in vars(part) and not (part._forward_hooks or part._forward_pre_hooks)
