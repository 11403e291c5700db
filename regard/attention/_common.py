"""Who follows the operations of a call, besides autograd on its way back."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd import forward_ad


def upcast_half(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Half-width floats as float32, in which sums over many keys are still sums."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def is_autocast_enabled(device: str) -> bool:
    """Whether autocast is on for a kind of device; some, like meta, do not know it."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def broadcast_batch_shape(*tensors: Tensor) -> tuple[int, ...]:
    """What the leading axes broadcast to; torch.broadcast_shapes is slow, and they are mostly the same."""
    first, *others = (tensor.shape[:-2] for tensor in tensors)
    same = all(other == first for other in others)
    return tuple(first) if same else tuple(torch.broadcast_shapes(first, *others))


def is_transformed() -> bool:
    """Whether a compiler, torch.func or forward-mode differentiation follows every operation.

    Their tensors do not say what is asked of them (a tensor inside of vmap or jvp does not require a gradient), and
    a node with a backward of its own is closed to them, so what they follow must be the definition.
    """
    return (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )
