"""Nested tensors: padded for attention, and nested again afterwards."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

__all__ = ["lengths_of_nested", "to_nested_like", "to_padded"]


def lengths_of_nested(tensor: Tensor) -> Int[Tensor, " batch"] | None:
    """The length of each sequence of a nested tensor; None for another tensor.

    Args:
        tensor: (batch, length, dim)

    Shape: (batch, length, dim) -> (batch,)

    Returns: the lengths, or None

    Example:
        >>> from regard.attention.masks.nested import lengths_of_nested
        >>> x = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
        >>> lengths_of_nested(x)
        tensor([2, 3])
    """
    if not tensor.is_nested:
        return None
    if tensor.layout == torch.jagged:
        return torch.diff(_offsets(tensor))
    return torch.tensor([len(row) for row in tensor.unbind()], device=tensor.device)


def to_padded(tensor: Tensor) -> Tensor:
    """A nested tensor, padded with zeros to the longest sequence.

    Args:
        tensor: nested (batch, length, dim)

    Shape: (batch, max_length, dim)

    Returns: the padded tensor

    Example:
        >>> from regard.attention.masks.nested import to_padded
        >>> to_padded(torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)).shape
        torch.Size([2, 3, 4])
    """
    return torch.nested.to_padded_tensor(tensor, 0.0)


def to_nested_like(padded: Tensor, nested: Tensor) -> Tensor:
    """A padded tensor as a nested tensor with the lengths and layout of another one.

    Args:
        padded: (batch, max_length, dim)
        nested: the nested tensor whose lengths are taken

    Shape: nested (batch, length, dim)

    Returns: the nested tensor

    Example:
        >>> from regard.attention.masks.nested import to_nested_like, to_padded
        >>> x = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
        >>> to_nested_like(2 * to_padded(x), x).offsets()
        tensor([0, 2, 5])
    """
    lengths = lengths_of_nested(nested)
    assert lengths is not None
    if nested.layout == torch.jagged:
        visible = torch.arange(padded.shape[1], device=padded.device) < lengths[:, None]
        return torch.nested.nested_tensor_from_jagged(padded[visible], _offsets(nested))
    rows = [row[:length] for row, length in zip(padded, lengths.tolist(), strict=True)]
    return torch.nested.as_nested_tensor(rows)


def _offsets(tensor: Any) -> Tensor:
    return tensor.offsets()
