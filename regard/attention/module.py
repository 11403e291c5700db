"""The base class of the modules of regard: initialization that can be repeated."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.types import Device

__all__ = ["Device", "Dtype", "FactoryKwargs", "ResettableModule", "reset_modules"]

Dtype = torch.dtype | None
FactoryKwargs = dict[str, Any]
"""The arguments `device` and `dtype`, for the parts of a module."""


class ResettableModule(nn.Module):
    """A module whose `reset_parameters()` repeats the initialization of its constructor.

    A large model can be built on the device "meta", without memory. `to_empty` and `reset_parameters` then give it the
    values that the constructor draws with the same seed. A subclass overrides `_init_parameters` and calls it at the
    end of its constructor; it overrides `reset_parameters` if its submodules are not created in the order in which they
    are registered, as those that the caller passes to the constructor, which are created first.

    Shape: that of the subclass

    Example:
        >>> with torch.device("meta"):
        ...     attention = MultiHead(8, 2)
        >>> attention.to_empty(device="cpu").reset_parameters()
        >>> attention(torch.randn(2, 3, 8)).context.shape
        torch.Size([2, 3, 8])
    """

    repr_settings: tuple[str, ...] = ()
    """The names of the attributes that the repr shows."""

    def reset_parameters(self) -> None:
        """Initialize all parameters and buffers again: the same seed gives the values of the constructor."""
        reset_modules(*self.children())
        self._init_parameters()

    def _init_parameters(self) -> None:
        """Initialize the parameters of this module itself, after those of its submodules."""

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.repr_settings)


def reset_modules(*modules: object) -> None:
    """Call `reset_parameters` of each module in turn, or of its children where it has none.

    Args:
        modules: the modules; None and functions, such as a normalizer, are skipped

    Example:
        >>> reset_modules(torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Tanh()), None)
    """
    for module in modules:
        if isinstance(module, nn.Module):
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
            else:
                reset_modules(*module.children())
