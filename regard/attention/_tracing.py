"""Who follows the operations of a call, besides autograd on its way back."""

import torch
from torch.autograd import forward_ad


def followed() -> bool:
    """Whether a compiler, torch.func or forward-mode differentiation follows every operation.

    Their tensors do not say what is asked of them (a tensor inside of vmap or jvp does not require a gradient), and
    a node with a backward of its own is closed to them, so what they follow must be the definition.
    """
    return (
        torch.compiler.is_compiling()
        or forward_ad._current_level >= 0
        or torch._C._functorch.peek_interpreter_stack() is not None
    )
