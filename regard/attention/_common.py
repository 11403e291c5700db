"""Helpers for dtypes and shapes that the whole package shares."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd import forward_ad

HALF_DTYPES = (torch.bfloat16, torch.float16)


def upcast_half(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """bfloat16 and float16 as float32, in which sums over many keys stay accurate; other dtypes unchanged."""
    return tensor.float() if tensor.dtype in HALF_DTYPES else tensor


def is_autocast_enabled(device_type: str) -> bool:
    """Whether autocast is enabled for a device type; False for types without autocast, such as meta."""
    return torch.amp.is_autocast_available(device_type) and torch.is_autocast_enabled(device_type)


def broadcast_batch_shape(*tensors: Tensor) -> tuple[int, ...]:
    """The broadcast shape of all axes but the last two; a shortcut for equal shapes, as the general case is slow."""
    first, *others = (tensor.shape[:-2] for tensor in tensors)
    is_equal = all(other == first for other in others)
    return tuple(first) if is_equal else tuple(torch.broadcast_shapes(first, *others))


def is_transformed() -> bool:
    """Whether a compiler, torch.func or forward-mode differentiation traces every operation.

    Tensors inside such a transform do not report what is required of them (a tensor inside of vmap or jvp does not
    require a gradient), and a node with a backward of its own is opaque to them, so they must see the definition.
    """
    return (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )


def reset_module(part: object) -> None:
    """Call ``part.reset_parameters()`` if it is a module that has this method."""
    reset = getattr(part, "reset_parameters", None)
    if isinstance(part, nn.Module) and reset is not None:
        reset()
