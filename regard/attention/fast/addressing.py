"""One step of a memory in few operations, with the backward written out.

At the sizes of a Neural Turing Machine the time is not in the numbers but in the number of operations, and
automatic differentiation triples it. Here addressing and writing are one node of the graph each, and their
parts can be put together to a larger one. The definitions are in `regard.attention.addressing`; these are the
same to rounding.

    addressed, written                     what comes out, and what the way back needs
    through_address, through_write         from the gradient of what came out to those of what went in
    again                                  the same gradients, where they are to be differentiated once more
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention._common import is_transformed
from regard.attention.fast.additive import autocast_disabled

SavedTensors = Sequence[Tensor]  # what the way back needs
Gradients = Sequence[Tensor | None]
MEMORY_INDEX, PREVIOUS_INDEX = 4, 5  # where in what is kept of an address these are, as they were given
# Below this length squares lose digits (3e-16 in float32), and gradients, which are divided by the length, overflow.
MIN_NORM = {
    dtype: math.sqrt(torch.finfo(dtype).tiny / torch.finfo(dtype).eps)
    for dtype in (torch.float32, torch.float64)
}


def address_forward(
    key: Tensor,
    strength: Tensor,
    gate: Tensor,
    offsets: Tensor,
    sharpness: Tensor,
    memory: Tensor,
    previous: Tensor,
) -> tuple[Tensor, SavedTensors]:
    """sharpen(shift(interpolate(content(key, memory, strength), previous, gate), offsets), sharpness)"""
    over_key, over_rows = inverse_norm(key), inverse_norm(memory).mT
    turned = key * over_key
    cosine = batched_matmul(turned, memory.mT).mul_(over_rows)
    strength, gate, sharpness = strength.unsqueeze(-1), gate.unsqueeze(-1), sharpness.unsqueeze(-1)
    found = torch.softmax(cosine * strength, -1)
    windows = _gather_windows(torch.lerp(previous, found, gate), offsets.shape[-1], -1)
    spread = (windows * offsets.unsqueeze(-2)).sum(-1)
    spread += _smallest_weight(spread)
    logs = torch.log(spread)
    weights = torch.softmax(logs * sharpness, -1)
    kept = (strength, gate, offsets, sharpness, memory, previous, over_key, over_rows, turned, cosine, found)
    return weights, (*kept, windows, spread, logs, weights)


def address_backward(saved: SavedTensors, grad: Tensor) -> SavedTensors:
    """Gradients in the order of the arguments of `addressed`."""
    strength, gate, offsets, sharpness, memory, previous, over_key, over_rows, turned, cosine, found = saved[
        :11
    ]
    windows, spread, logs, weights = saved[11:]
    slope = softmax_backward(grad, weights)
    to_sharpness = (slope * logs).sum(-1)
    slope = slope.mul_(sharpness).div_(spread)
    to_offsets = (windows * slope.unsqueeze(-1)).sum(-2)
    slope = (_gather_windows(slope, offsets.shape[-1], 1) * offsets.unsqueeze(-2)).sum(-1)
    to_gate = (slope * (found - previous)).sum(-1)
    to_found = slope * gate
    to_previous = slope - to_found
    slope = softmax_backward(to_found, found)
    along = slope * cosine
    to_strength = along.sum(-1)
    along = along.mul_(strength).sum(-2, keepdim=True).mul_(over_rows).mul_(over_rows).mT
    slope = slope.mul_(strength).mul_(over_rows)
    to_memory = batched_matmul(slope.mT, turned).addcmul_(memory, along, value=-1)
    to_key = batched_matmul(slope, memory)
    aside = (to_key * turned).sum(-1, keepdim=True)
    to_key = to_key.addcmul_(turned, aside, value=-1).mul_(over_key)
    return to_key, to_strength, to_gate, to_offsets, to_sharpness, to_memory, to_previous


def write_forward(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> tuple[Tensor, SavedTensors]:
    """memory * prod_heads(1 - weights erase) + sum_heads weights add"""
    shares, erased = weights.unsqueeze(-1), erase.unsqueeze(-2)
    kept = [1 - shares[..., h, :, :] * erased[..., h, :, :] for h in range(weights.shape[-2])]
    left = functools.reduce(torch.mul, kept)
    more = kept if len(kept) > 1 else ()
    return batched_matmul(weights.mT, add).addcmul_(memory, left), (memory, weights, erase, add, left, *more)


def write_backward(saved: SavedTensors, grad: Tensor) -> SavedTensors:
    """Gradients in the order of the arguments of `written`."""
    memory, weights, erase, add, left, *each = saved
    to_left, to_weights = grad * memory, batched_matmul(add, grad.mT)
    if not each:
        to_weights -= batched_matmul(erase, to_left.mT)
        return grad * left, to_weights, batched_matmul(weights, to_left).neg_(), batched_matmul(weights, grad)
    to_erase = torch.empty_like(erase)
    for h in range(len(each)):
        # what the other heads leave: a product, not a division, as one may leave 0
        to_kept = functools.reduce(torch.mul, [to_left, *each[:h], *each[h + 1 :]])
        to_weights[..., h, :] -= (to_kept @ erase[..., h, :, None]).squeeze(-1)
        to_erase[..., h, :] = -(weights[..., h, None, :] @ to_kept).squeeze(-2)
    return grad * left, to_weights, to_erase, weights @ grad


class AddressFunction(torch.autograd.Function):
    """`addressed` as a node of the graph."""

    @staticmethod
    def forward(ctx: Any, *said: Tensor) -> Tensor:
        weights, kept = address_forward(*said)
        ctx.save_for_backward(*said, *kept)
        return weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        saved = ctx.saved_tensors
        said, kept = saved[:7], saved[7:]
        with autocast_disabled(grad):
            if torch.is_grad_enabled():
                return differentiable_backward(lambda *said: address_forward(*said)[0], said, grad)
            return address_backward(kept, grad)


class WriteFunction(torch.autograd.Function):
    """`written` as a node of the graph."""

    @staticmethod
    def forward(ctx: Any, *given: Tensor) -> Tensor:
        memory, kept = write_forward(*given)
        ctx.save_for_backward(*kept)
        return memory

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Gradients:
        with autocast_disabled(grad):
            if torch.is_grad_enabled():
                return differentiable_backward(
                    lambda *given: write_forward(*given)[0], ctx.saved_tensors[:4], grad
                )
            return write_backward(ctx.saved_tensors, grad)


def differentiable_backward(function: Callable[..., Any], inputs: SavedTensors, grads: Any) -> Gradients:
    """The gradients of what was given, operation by operation, so that they have gradients themselves.

    Backward asks for it where a graph of it is made: those that are written out would be constants in it.
    """
    # Views, since one given tensor may have been made of another, and gradients must not go on to that.
    fresh = [tensor.view_as(tensor) for tensor in inputs]
    wanted = [tensor for tensor in fresh if tensor.requires_grad]
    found = iter(torch.autograd.grad(function(*fresh), wanted, grads, create_graph=True, allow_unused=True))
    return tuple(next(found) if tensor.requires_grad else None for tensor in fresh)


def address_fast(*said: Tensor) -> Tensor:
    """`addressed`, with a way back if one may be wanted; everything is float32 or wider."""
    return AddressFunction.apply(*said) if torch.is_grad_enabled() else address_forward(*said)[0]


def write_fast(*given: Tensor) -> Tensor:
    """`written`, with a way back if one may be wanted."""
    return WriteFunction.apply(*given) if torch.is_grad_enabled() else write_forward(*given)[0]


def can_use_fast_address(num_rows: int, num_offsets: int) -> bool:
    """Whether the numbers may come from here: nobody follows the operations, and every offset is another row."""
    return num_offsets % 2 == 1 and num_offsets <= num_rows and not is_transformed()


def batched_matmul(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product, which for three axes has a shorter way than `@`."""
    return torch.bmm(left, right) if left.dim() == 3 else left @ right


def softmax_backward(grad: Tensor, weights: Tensor) -> Tensor:
    return torch.ops.aten._softmax_backward_data(grad, weights, -1, weights.dtype)


def _gather_windows(weights: Tensor, width: int, direction: int) -> Tensor:
    """(*batch, heads, rows, width): row i sees the weights at i + way * offset, round and round."""
    # Within a mode (of fake tensors, say) nothing that is made or kept would be of use outside or inside.
    places = _window_positions.__wrapped__ if torch._C._len_torch_dispatch_stack() else _window_positions
    return weights[..., places(weights.shape[-1], width, direction, weights.device)]


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)  # what is kept may be wanted for a gradient later
def _window_positions(rows: int, width: int, direction: int, device: torch.device) -> Tensor:
    place = torch.arange(rows, device=device).unsqueeze(-1)
    aside = torch.arange(width, device=device) - width // 2
    return (place + direction * aside) % rows


def inverse_norm(vector: Tensor) -> Tensor:
    """One over the length of a vector, and 0 where it is too short to have a direction, with no gradient then."""
    length = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    # One over infinity, which stands for what is too short, is 0, and so is its slope.
    return torch.threshold(length, MIN_NORM[vector.dtype], math.inf).reciprocal_()


def _smallest_weight(weights: Tensor) -> float:
    return 1e8 * torch.finfo(weights.dtype).tiny
