"""One step of a memory in few operations, with the backward written out.

At the sizes of a Neural Turing Machine the time is not in the numbers but in the number of operations, and
automatic differentiation triples it. Here each of the two halves of a step, addressing and writing, is one
node of the graph. The definitions are in `regard.attention.addressing`; these are the same to rounding.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Addressed(torch.autograd.Function):
    """sharpen(shift(interpolate(content(key, memory, strength), previous, gate), offsets), sharpness)"""

    @staticmethod
    def forward(
        ctx: Any,
        key: Tensor,
        strength: Tensor,
        gate: Tensor,
        offsets: Tensor,
        sharpness: Tensor,
        memory: Tensor,
        previous: Tensor,
    ) -> Tensor:
        turned, length = _direction(key)
        rows, lengths = _direction(memory)
        cosine = turned @ rows.mT
        found = torch.softmax(cosine * strength.unsqueeze(-1), -1)
        gate = gate.unsqueeze(-1)
        blend = torch.lerp(previous, found, gate)
        windows = _windows(blend, offsets.shape[-1], -1)
        spread = (windows @ offsets.unsqueeze(-1)).squeeze(-1)
        spread += _floor(spread)
        logs = torch.log(spread)
        weights = torch.softmax(logs * sharpness.unsqueeze(-1), -1)
        ctx.save_for_backward(
            strength, gate, offsets, sharpness, previous, turned, length, rows, lengths, cosine, found,
            windows, spread, logs, weights,
        )  # fmt: skip
        return weights

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (strength, gate, offsets, sharpness, previous, turned, length, rows, lengths, cosine, found,
         windows, spread, logs, weights) = ctx.saved_tensors  # fmt: skip
        slope = _through_softmax(grad, weights)
        to_sharpness = (slope * logs).sum(-1)
        slope = slope.mul_(sharpness.unsqueeze(-1)).div_(spread)
        to_offsets = (slope.unsqueeze(-2) @ windows).squeeze(-2)
        slope = (_windows(slope, offsets.shape[-1], 1) @ offsets.unsqueeze(-1)).squeeze(-1)
        to_gate = (slope * (found - previous)).sum(-1)
        to_found = slope * gate
        to_previous = slope - to_found
        slope = _through_softmax(to_found, found)
        to_strength = (slope * cosine).sum(-1)
        slope = slope.mul_(strength.unsqueeze(-1))
        to_key = _through_direction(slope @ rows, turned, length)
        to_memory = _through_direction(slope.mT @ turned, rows, lengths)
        return to_key, to_strength, to_gate, to_offsets, to_sharpness, to_memory, to_previous


class Written(torch.autograd.Function):
    """memory * prod_heads(1 - weights erase) + sum_heads weights add"""

    @staticmethod
    def forward(ctx: Any, memory: Tensor, weights: Tensor, erase: Tensor, add: Tensor) -> Tensor:
        heads = weights.shape[-2]
        kept = [1 - weights[..., h, :, None] * erase[..., h, None, :] for h in range(heads)]
        left = kept[0]
        for more in kept[1:]:
            left = left * more
        ctx.save_for_backward(memory, weights, erase, add, left, *(kept if heads > 1 else ()))
        return torch.addcmul(weights.mT @ add, memory, left)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        memory, weights, erase, add, left, *kept = ctx.saved_tensors
        to_left = grad * memory
        to_weights = add @ grad.mT
        to_erase = []
        for h in range(weights.shape[-2]):
            to_kept = to_left if not kept else to_left * _others(kept, h)
            to_weights[..., h, :] -= (to_kept @ erase[..., h, :, None]).squeeze(-1)
            to_erase.append(-(weights[..., h, None, :] @ to_kept))
        return grad * left, to_weights, torch.cat(to_erase, -2), weights @ grad


def applies(*tensors: Tensor) -> bool:
    """Whether gradients are wanted of plain tensors; a compiler fuses the definition by itself."""
    return (
        torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and any(tensor.requires_grad for tensor in tensors)
        and not any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in tensors)
    )


def _others(kept: list[Tensor], h: int) -> Tensor:
    """What all heads but one leave: a product, not a division, as one may leave 0."""
    left = torch.ones_like(kept[0])
    for at, more in enumerate(kept):
        left = left if at == h else left * more
    return left


def _windows(weights: Tensor, width: int, way: int) -> Tensor:
    """(*batch, heads, rows, width): row i sees the weights at i + way * offset, round and round."""
    rows = weights.shape[-1]
    reach = width // 2
    place = torch.arange(rows, device=weights.device).unsqueeze(-1)
    aside = torch.arange(-reach, reach + 1, device=weights.device)
    return weights[..., (place + way * aside) % rows]


def _direction(vector: Tensor) -> tuple[Tensor, Tensor]:
    """The vector by its length, and one over that; 0 and 0 for 0."""
    length = torch.linalg.vector_norm(vector, dim=-1, keepdim=True)
    inverse = torch.where(length > 0, 1 / length, 0.0)
    return vector * inverse, inverse


def _through_direction(grad: Tensor, turned: Tensor, inverse: Tensor) -> Tensor:
    along = (grad * turned).sum(-1, keepdim=True)
    return torch.addcmul(grad, turned, along, value=-1).mul_(inverse)


def _through_softmax(grad: Tensor, weights: Tensor) -> Tensor:
    slope = grad * weights
    return torch.addcmul(slope, weights, slope.sum(-1, keepdim=True), value=-1)


def _floor(weights: Tensor) -> float:
    return 1e8 * torch.finfo(weights.dtype).tiny
