"""Nested tensors: padded for attention, and nested again afterwards."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

from regard.attention.masks.base import CombinedMask, Mask, as_mask
from regard.attention.masks.padding_masks import padding, prefix
from regard.errors import ShapeError, UnsupportedError

__all__ = ["lengths_of_nested", "pad_nested_inputs", "to_nested_like", "to_padded"]


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
        lengths = _lengths(tensor)  # of a jagged tensor with gaps
        return torch.diff(_offsets(tensor)) if lengths is None else lengths
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
    return torch.nested.to_padded_tensor(tensor.contiguous(), 0.0)


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
        offsets = (
            torch.nn.functional.pad(lengths.cumsum(0), (1, 0)) if _lengths(nested) is not None else _offsets(nested)
        )
        return torch.nested.nested_tensor_from_jagged(padded[visible], offsets)
    rows = [row[:length] for row, length in zip(padded, lengths.tolist(), strict=True)]
    return torch.nested.as_nested_tensor(rows)


def _offsets(tensor: Any) -> Tensor:
    return tensor.offsets()


def _lengths(tensor: Any) -> Tensor | None:
    return tensor.lengths()


def pad_nested_inputs(
    query: Tensor | None, key: Tensor, value: Tensor, mask: Mask | Tensor | None, score: object
) -> tuple[Tensor | None, Tensor, Tensor, Mask | None]:
    """Query, key and value padded to one length, and a mask that hides the padding, also of the queries.

    Args:
        query: (batch, queries, query_dim), nested or not
        key: (batch, keys, key_dim), nested or not
        value: (batch, keys, value_dim), nested if the keys are, with the same lengths
        mask: the mask of the padded sequences
        score: the score, which may depend on positions

    Shape: nested (batch, length, dim) -> (batch, max_length, dim)

    Returns: query, key, value and mask

    Example:
        >>> from regard.attention.masks.nested import pad_nested_inputs
        >>> x = torch.nested.nested_tensor([torch.ones(2, 4), torch.ones(3, 4)], layout=torch.jagged)
        >>> query, key, value, mask = pad_nested_inputs(x, x, x, None, ScaledDot())
        >>> query.shape, mask.materialize(3, 3)[0].int().tolist()
        (torch.Size([2, 3, 4]), [[1, 1, 0], [1, 1, 0], [0, 0, 0]])
    """
    tensors: dict[str, Tensor | None] = {"query": query, "key": key, "value": value}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_nested:
            _check_nested(name, tensor)
    query_lengths, key_lengths, value_lengths = (
        None if tensor is None else lengths_of_nested(tensor) for tensor in tensors.values()
    )
    if (key_lengths is None) != (value_lengths is None) or not _are_equal(key_lengths, value_lengths):
        raise ShapeError("if keys or values are nested tensors, both must be, with one value for each key")
    padded = [tensor if tensor is None or not tensor.is_nested else to_padded(tensor) for tensor in tensors.values()]
    query, key, value = padded[0], _require(padded[1]), _require(padded[2])
    num_queries, num_keys = 1 if query is None else query.shape[-2], key.shape[-2]
    if query is not None and (query.dim() != 3 or key.dim() != 3 or len(query) != len(key)):
        raise ShapeError(
            f"with nested tensors query and key must be (batch, length, dim) of one batch size, got query "
            f"{tuple(query.shape)} and key {tuple(key.shape)}, padded"
        )
    mask = None if mask is None else as_mask(mask)
    lengths = torch.full((len(key),), num_keys, device=key.device) if key_lengths is None else key_lengths
    counts = torch.full_like(lengths, num_queries) if query_lengths is None else query_lengths
    is_aligned = bool((lengths - counts == num_keys - num_queries).all())
    if not is_aligned and (_is_aligned_at_end(mask) or _is_aligned_at_end(score)):
        raise UnsupportedError(
            "nested query and key have different numbers of queries and keys, so that the position of the first query "
            "differs between the sequences, and mask or score derive it from the lengths; give it, as in "
            "causal(offset=0) or Rotary(offset=0), or call attention for each sequence"
        )
    if query_lengths is None:
        hidden = padding(lengths)
    else:
        is_query = torch.arange(num_queries, device=key.device) < counts[:, None]
        hidden = prefix(torch.where(is_query, lengths[:, None], 0))
    return query, key, value, hidden if mask is None else mask & hidden


def _check_nested(name: str, tensor: Any) -> None:
    """Raise unless a nested tensor is (batch, length, dim), and only its lengths differ."""
    fits = tensor.dim() == 3
    if fits and tensor.layout == torch.jagged:
        fits = tensor._ragged_idx == 1
    elif fits:
        fits = len({row.shape[-1] for row in tensor.unbind()}) == 1
    if not fits:
        raise ShapeError(f"a nested {name} must be (batch, length, dim), where only lengths differ")


def _are_equal(left: Tensor | None, right: Tensor | None) -> bool:
    return left is right or (left is not None and right is not None and torch.equal(left, right))


def _require(tensor: Tensor | None) -> Tensor:
    assert tensor is not None
    return tensor


def _is_aligned_at_end(part: object) -> bool:
    """Whether a mask or score puts the last query at the last key."""
    parts: Any = (part,)
    if isinstance(part, CombinedMask):
        return any(map(_is_aligned_at_end, part.parts))
    if isinstance(part, nn.Module):
        parts = part.modules()
    return any(getattr(one, "offset", 0) is None for one in parts)
