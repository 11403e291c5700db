"""Addressing and writing of a Neural Turing Machine in few operations, with explicit backward passes.

At the sizes of a Neural Turing Machine the time is in the number of operations rather than in arithmetic, and automatic
differentiation triples it. Here addressing and writing are one node of the autograd graph each, and their parts can be
combined into a larger node. The definitions are in `regard.attention.addressing`; these agree to rounding.

    address_forward, write_forward         the result, and the tensors that the backward pass needs
    address_backward, write_backward       from the gradient of the result to those of the inputs
    differentiable_backward                the same gradients, as differentiable functions
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from regard.attention._common import differentiable_backward, is_transformed
from regard.attention.fast.additive import autocast_disabled

__all__ = [
    "address_backward", "address_fast", "address_forward", "batched_matmul", "can_use_fast_address",
    "inverse_norm", "run_explicit", "softmax_backward", "write_backward", "write_fast", "write_forward",
]  # fmt: skip

SavedTensors = Sequence[Tensor]  # the tensors that the backward pass needs
Gradients = Sequence[Tensor | None]
MEMORY_INDEX, NUM_SAVED = 4, 15  # of the saved tensors of an address: the index of the memory, and their number
# Below this norm squares lose digits (3e-16 in float32), and gradients, which are divided by the norm, overflow.
MIN_NORM = {
    dtype: math.sqrt(torch.finfo(dtype).tiny / torch.finfo(dtype).eps) for dtype in (torch.float32, torch.float64)
}


def address_forward(
    key: Tensor, strength: Tensor, gate: Tensor, offsets: Tensor, sharpness: Tensor, memory: Tensor, previous: Tensor
) -> tuple[Tensor, SavedTensors]:
    """sharpen(shift(interpolate(content(key, memory, strength), previous, gate), offsets), sharpness).

    Args:
        key, strength, gate, offsets, sharpness, memory, previous: as in `regard.attention.addressing.address`

    Shape: as in `regard.attention.addressing.address`

    Returns: the weights (*batch, heads, rows), and the tensors that `address_backward` needs

    Example:
        >>> key, memory, previous = torch.randn(2, 1, 4), torch.randn(2, 8, 4), torch.full((2, 1, 8), 1 / 8)
        >>> ones, offsets = torch.ones(2, 1), torch.tensor([0.1, 0.8, 0.1]).expand(2, 1, 3)
        >>> weights, saved = address_forward(key, ones, ones, offsets, ones, memory, previous)
        >>> weights.shape
        torch.Size([2, 1, 8])
    """
    key_scale, row_scale = inverse_norm(key), inverse_norm(memory).mT
    unit_key = key * key_scale
    cosine = batched_matmul(unit_key, memory.mT).mul_(row_scale)
    strength, gate, sharpness = strength.unsqueeze(-1), gate.unsqueeze(-1), sharpness.unsqueeze(-1)
    content = torch.softmax(cosine * strength, -1)
    windows = _gather_windows(torch.lerp(previous, content, gate), offsets.shape[-1], -1)
    shifted = (windows * offsets.unsqueeze(-2)).sum(-1)
    shifted += 1e8 * torch.finfo(shifted.dtype).tiny  # as in `sharpen`
    logs = torch.log(shifted)
    weights = torch.softmax(logs * sharpness, -1)
    saved = (strength, gate, offsets, sharpness, memory, previous, key_scale, row_scale, unit_key, cosine)
    return weights, (*saved, content, windows, shifted, logs, weights)


def address_backward(saved: SavedTensors, grad: Tensor) -> SavedTensors:
    """Gradients in the order of the arguments of `address_forward`.

    Args:
        saved: the tensors that `address_forward` returns
        grad: the gradient of the weights

    Shape: grad (*batch, heads, rows) -> the shapes of the arguments

    Returns: the gradients

    Example:
        >>> key, memory, previous = torch.randn(2, 1, 4), torch.randn(2, 8, 4), torch.full((2, 1, 8), 1 / 8)
        >>> ones, offsets = torch.ones(2, 1), torch.tensor([0.1, 0.8, 0.1]).expand(2, 1, 3)
        >>> weights, saved = address_forward(key, ones, ones, offsets, ones, memory, previous)
        >>> [tuple(part.shape) for part in address_backward(saved, torch.ones_like(weights))]
        [(2, 1, 4), (2, 1), (2, 1), (2, 1, 3), (2, 1), (2, 8, 4), (2, 1, 8)]
    """
    strength, gate, offsets, sharpness, memory, previous, key_scale, row_scale, unit_key, cosine = saved[:10]
    content, windows, shifted, logs, weights = saved[10:]
    slope = softmax_backward(grad, weights)
    to_sharpness = (slope * logs).sum(-1)
    slope = slope.mul_(sharpness).div_(shifted)
    to_offsets = (windows * slope.unsqueeze(-1)).sum(-2)
    slope = (_gather_windows(slope, offsets.shape[-1], 1) * offsets.unsqueeze(-2)).sum(-1)
    to_gate = (slope * (content - previous)).sum(-1)
    to_content = slope * gate
    to_previous = slope - to_content
    slope = softmax_backward(to_content, content)
    along = slope * cosine
    to_strength = along.sum(-1)
    along = along.mul_(strength).sum(-2, keepdim=True).mul_(row_scale).mul_(row_scale).mT
    slope = slope.mul_(strength).mul_(row_scale)
    to_memory = batched_matmul(slope.mT, unit_key).addcmul_(memory, along, value=-1)
    to_key = batched_matmul(slope, memory)
    aside = (to_key * unit_key).sum(-1, keepdim=True)
    to_key = to_key.addcmul_(unit_key, aside, value=-1).mul_(key_scale)
    return to_key, to_strength, to_gate, to_offsets, to_sharpness, to_memory, to_previous


def write_forward(memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> tuple[Tensor, SavedTensors]:
    """memory * prod_heads(1 - weights erase) + sum_heads weights add.

    Args:
        memory, weights, erase, add: as in `regard.attention.addressing.write`

    Shape: as in `regard.attention.addressing.write`

    Returns: the memory (*batch, rows, width), and the tensors that `write_backward` needs

    Example:
        >>> memory, weights, ones = torch.randn(2, 8, 4), torch.full((2, 1, 8), 1 / 8), torch.ones(2, 1, 4)
        >>> write_forward(memory, weights, ones, ones)[0].shape
        torch.Size([2, 8, 4])
    """
    column, row = weights.unsqueeze(-1), erase.unsqueeze(-2)
    factors = [1 - column[..., h, :, :] * row[..., h, :, :] for h in range(weights.shape[-2])]
    remaining = functools.reduce(torch.mul, factors)
    per_head = factors if len(factors) > 1 else ()
    result = batched_matmul(weights.mT, add).addcmul_(memory, remaining)
    return result, (memory, weights, erase, add, remaining, *per_head)


def write_backward(saved: SavedTensors, grad: Tensor) -> SavedTensors:
    """Gradients in the order of the arguments of `write_forward`.

    Args:
        saved: the tensors that `write_forward` returns
        grad: the gradient of the memory

    Shape: grad (*batch, rows, width) -> the shapes of the arguments

    Returns: the gradients

    Example:
        >>> memory, weights, ones = torch.randn(2, 8, 4), torch.full((2, 1, 8), 1 / 8), torch.ones(2, 1, 4)
        >>> result, saved = write_forward(memory, weights, ones, ones)
        >>> [tuple(part.shape) for part in write_backward(saved, torch.ones_like(result))]
        [(2, 8, 4), (2, 1, 8), (2, 1, 4), (2, 1, 4)]
    """
    memory, weights, erase, add, remaining, *per_head = saved
    to_remaining, to_weights = grad * memory, batched_matmul(add, grad.mT)
    if not per_head:
        to_weights -= batched_matmul(erase, to_remaining.mT)
        to_erase = batched_matmul(weights, to_remaining).neg_()
        return grad * remaining, to_weights, to_erase, batched_matmul(weights, grad)
    to_erase = torch.empty_like(erase)
    for h in range(len(per_head)):
        # the factors of the other heads: a product, not a division, as a factor may be 0
        to_factor = functools.reduce(torch.mul, [to_remaining, *per_head[:h], *per_head[h + 1 :]])
        to_weights[..., h, :] -= (to_factor @ erase[..., h, :, None]).squeeze(-1)
        to_erase[..., h, :] = -(weights[..., h, None, :] @ to_factor).squeeze(-2)
    return grad * remaining, to_weights, to_erase, weights @ grad


class ExplicitFunction(torch.autograd.Function):
    """A forward pass and its explicit backward pass as a node of the autograd graph."""

    @staticmethod
    def forward(ctx: Any, forward: Callable[..., Any], backward: Callable[..., Any], *inputs: Tensor) -> Any:
        ctx.passes, ctx.num_inputs = (forward, backward), len(inputs)
        result, saved = forward(*inputs)
        ctx.save_for_backward(*inputs, *saved)
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Gradients:
        tensors, (forward, backward) = ctx.saved_tensors, ctx.passes  # read once: each access unpacks all of them
        inputs, saved = tensors[: ctx.num_inputs], tensors[ctx.num_inputs :]
        with autocast_disabled(grads[0]):
            if torch.is_grad_enabled():
                return None, None, *differentiable_backward(lambda *inputs: forward(*inputs)[0], inputs, grads)
            return None, None, *backward(saved, *grads)


def run_explicit(forward: Callable[..., Any], backward: Callable[..., Any], *inputs: Tensor) -> Any:
    """The results of an explicit forward pass, as a node of the autograd graph if gradients are enabled.

    Args:
        forward: from the inputs to the results and the tensors that backward needs
        backward: from these tensors and the gradients of the results to the gradients of the inputs
        inputs: of the forward pass

    Returns: the results

    Example:
        >>> x = torch.tensor([3.0], requires_grad=True)
        >>> square = run_explicit(lambda x: (x**2, [x]), lambda saved, grad: [2 * saved[0] * grad], x)
        >>> torch.autograd.grad(square, x)[0].tolist()
        [6.0]
    """
    if not torch.is_grad_enabled():  # an autograd node costs time even where no graph is recorded
        return forward(*inputs)[0]
    return ExplicitFunction.apply(forward, backward, *inputs)


def address_fast(*inputs: Tensor) -> Tensor:
    """`address_forward`, with a backward pass if gradients are enabled; all inputs are float32 or wider.

    Args:
        inputs: the arguments of `address_forward`

    Returns: the weights (*batch, heads, rows)

    Example:
        >>> key, memory, previous = torch.randn(2, 1, 4), torch.randn(2, 8, 4), torch.full((2, 1, 8), 1 / 8)
        >>> ones, offsets = torch.ones(2, 1), torch.tensor([0.1, 0.8, 0.1]).expand(2, 1, 3)
        >>> address_fast(key, ones, ones, offsets, ones, memory, previous).shape
        torch.Size([2, 1, 8])
    """
    return run_explicit(address_forward, address_backward, *inputs)


def write_fast(*inputs: Tensor) -> Tensor:
    """`write_forward`, with a backward pass if gradients are enabled.

    Args:
        inputs: the arguments of `write_forward`

    Returns: the memory (*batch, rows, width)

    Example:
        >>> ones = torch.ones(2, 1, 4)
        >>> write_fast(torch.randn(2, 8, 4), torch.full((2, 1, 8), 1 / 8), ones, ones).shape
        torch.Size([2, 8, 4])
    """
    return run_explicit(write_forward, write_backward, *inputs)


def can_use_fast_address(num_rows: int, num_offsets: int) -> bool:
    """Whether the explicit passes apply: no transform traces the operations, and offsets lead to different rows.

    Args:
        num_rows: the number of rows of the memory
        num_offsets: the number of offsets of a shift

    Returns: True if they apply

    Example:
        >>> can_use_fast_address(num_rows=8, num_offsets=3), can_use_fast_address(num_rows=2, num_offsets=3)
        (True, False)
    """
    return num_offsets % 2 == 1 and num_offsets <= num_rows and not is_transformed()


def batched_matmul(left: Tensor, right: Tensor) -> Tensor:
    """The matrix product, with less overhead than ``@`` for three axes.

    Args:
        left, right: the factors

    Shape: left (*batch, n, k), right (*batch, k, m) -> (*batch, n, m)

    Returns: the product

    Example:
        >>> batched_matmul(torch.ones(2, 3, 4), torch.ones(2, 4, 5)).shape
        torch.Size([2, 3, 5])
    """
    return torch.bmm(left, right) if left.dim() == 3 else left @ right


def softmax_backward(grad: Tensor, weights: Tensor) -> Tensor:
    """The gradient of the scores from that of the softmax weights.

    Args:
        grad: the gradient of the weights
        weights: the weights

    Shape: grad and weights (*batch, keys) -> (*batch, keys)

    Returns: the gradient of the scores

    Example:
        >>> softmax_backward(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.5, 0.5]])).tolist()
        [[0.25, -0.25]]
    """
    return torch.ops.aten._softmax_backward_data(grad, weights, -1, weights.dtype)


def _gather_windows(weights: Tensor, width: int, direction: int) -> Tensor:
    """(*batch, heads, rows, width): for row i the weights at i + direction * offset, cyclically."""
    # Within a mode, such as that of fake tensors, tensors must neither enter nor leave the cache.
    positions = _window_positions.__wrapped__ if torch._C._len_torch_dispatch_stack() else _window_positions
    return weights[..., positions(weights.shape[-1], width, direction, weights.device)]


@functools.lru_cache(maxsize=64)
@torch.inference_mode(False)  # a cached tensor may be needed for a gradient later
def _window_positions(rows: int, width: int, direction: int, device: torch.device) -> Tensor:
    row = torch.arange(rows, device=device).unsqueeze(-1)
    offset = torch.arange(width, device=device) - width // 2
    return (row + direction * offset) % rows


def inverse_norm(vector: Tensor) -> Tensor:
    """One over the norm of a vector; 0, without a gradient, if the norm is too small.

    Args:
        vector: (*batch, dim)

    Shape: (*batch, dim) -> (*batch, 1)

    Returns: (*batch, 1)

    Example:
        >>> inverse_norm(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist()
        [[0.2...], [0.0]]
    """
    length = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    # Norms that are too small become infinity, whose reciprocal and slope are 0.
    return torch.threshold(length, MIN_NORM[vector.dtype], math.inf).reciprocal_()
