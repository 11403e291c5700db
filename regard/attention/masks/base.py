"""Masks as rules on positions: is the key at j visible to the query at i?

Rules combine with ``&``, ``|`` and ``~`` and stay rules, so that a long causal, windowed, padded or packed mask is
evaluated only for the block of positions that is being computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention._common import call_without_arguments
from regard.errors import DtypeError, ShapeError

__all__ = ["CombinedMask", "DenseMask", "Mask", "PositionGrid", "as_mask", "dense"]


@dataclass
class PositionGrid:
    """The query and key positions that a rule is evaluated for, and the layout of the scores they belong to.

    The scores have axes ``(*batch, *inner, queries, keys)``.

    Args:
        num_queries: the number of queries of the whole call
        num_keys: the number of keys of the whole call
        num_batch_axes: the number of leading axes that belong to the caller
        query_positions: the query positions, broadcastable to the scores from the right
        key_positions: the key positions, broadcastable to the scores from the right
        num_inner_axes: the number of axes that a fast path has inserted, such as the blocks of a band
        is_full: whether these are all positions
        is_consecutive: whether positions are consecutive, at the same distances in every block

    Example:
        >>> PositionGrid.full(2, 3).key_positions
        tensor([[0, 1, 2]])
    """

    num_queries: int
    num_keys: int
    num_batch_axes: int
    query_positions: Int[Tensor, "..."]
    key_positions: Int[Tensor, "..."]
    num_inner_axes: int = 0
    is_full: bool = False
    is_consecutive: bool = True

    @classmethod
    def full(
        cls, num_queries: int, num_keys: int, num_batch_axes: int = 0, device: torch.device | None = None
    ) -> PositionGrid:
        """Every query and every key."""
        query_positions = torch.arange(num_queries, device=device)[:, None]
        key_positions = torch.arange(num_keys, device=device)[None, :]
        return cls(num_queries, num_keys, num_batch_axes, query_positions, key_positions, is_full=True)

    def align_leading(self, table: Tensor, num_trailing_axes: int) -> Tensor:
        """The table with its first axes as leading batch axes and its last ``num_trailing_axes`` axes last."""
        split = table.dim() - num_trailing_axes
        gap = self.num_batch_axes + self.num_inner_axes + 2 - table.dim()
        return table.reshape(table.shape[:split] + (1,) * gap + table.shape[split:])

    def take(self, table: Tensor, positions: Tensor) -> Tensor:
        """``table[*leading, position]`` for every position, in the layout of the scores."""
        positions = positions.clamp(0, max(table.shape[-1] - 1, 0))
        if positions.dim() <= self.num_inner_axes + 2:
            return self.align_leading(table[..., positions], positions.dim())
        table = self.align_leading(table, 1)
        shape = torch.broadcast_shapes(table.shape[:-1], positions.shape[:-1])
        return table.expand(*shape, -1).gather(-1, positions.expand(*shape, -1))

    def take_pairs(self, matrix: Tensor) -> Tensor:
        """``matrix[..., query position, key position]`` for every pair; axes are matched from the right."""
        if self.is_full:
            return matrix
        rows, columns = matrix.shape[-2:]
        query_positions = self.query_positions.clamp(0, rows - 1)
        key_positions = self.key_positions.clamp(0, columns - 1)
        if key_positions.dim() <= self.num_inner_axes + 2:
            return matrix[..., query_positions, key_positions]
        # A gathered grid: (*batch, queries, 1, width), with different keys for each query.
        table = matrix if rows == 1 else matrix.index_select(-2, query_positions.flatten())
        shape = torch.broadcast_shapes(table.shape[:-1], key_positions.shape[:-2])
        return table.expand(*shape, -1).gather(-1, key_positions.squeeze(-2).expand(*shape, -1)).unsqueeze(-2)


class Mask:
    """Which keys are visible to each query.

        visible(i, j) = rule(position of query i, position of key j)

    A subclass implements ``rule``; all other methods have a safe default. Masks combine with ``&``, ``|`` and ``~``.

    Example:
        >>> from regard.attention import causal, padding
        >>> (causal() & padding(torch.tensor([2]))).materialize(3, 3).int()
        tensor([[[1, 0, 0],
                 [1, 1, 0],
                 [1, 1, 0]]], dtype=torch.int32)
    """

    def rule(self, grid: PositionGrid) -> Bool[Tensor, "..."]:
        """True where a key is visible, broadcastable to the scores of the grid."""
        raise NotImplementedError(f"{type(self).__name__} must implement rule(grid)")

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        """Lower and upper bound of (key position - query position) for visible keys."""
        return -math.inf, math.inf

    def prefix_lengths(self, grid: PositionGrid) -> Tensor | None:
        """The number of visible keys, (..., queries, 1), if they are the first ones of each query; otherwise None."""
        return None

    def tensors(self) -> list[Tensor]:
        """The tensors that the rule depends on."""
        return []

    def num_batch_axes(self) -> int:
        """The number of batch axes of the mask."""
        return 0

    def check_axes(self, num_batch_axes: int, has_heads: bool = False) -> None:
        """Raise if axes of the mask could be mistaken for others of the scores.

        Args:
            num_batch_axes: the number of batch axes of query, key and value
            has_heads: whether the scores have an axis for the heads after these
        """

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        """Raise if the mask does not fit scores of shape (*batch_shape, queries, keys)."""

    def find_around(self) -> Any:
        """The part of the mask that restricts each query to keys around a center, if there is one."""
        return None

    @property
    def is_query_independent(self) -> bool:
        """Whether the rule depends on the position of the key only."""
        return False

    def materialize(
        self, queries: int, keys: int, num_batch_axes: int | None = None
    ) -> Bool[Tensor, "*batch queries keys"]:
        """The mask as a bool tensor.

        Args:
            queries: the number of queries
            keys: the number of keys
            num_batch_axes: the number of batch axes of the result; that of the mask by default
        """
        self.check_shape((), queries, keys)
        device = next((t.device for t in self.tensors()), None)
        num_batch_axes = self.num_batch_axes() if num_batch_axes is None else num_batch_axes
        visible = self.rule(PositionGrid.full(queries, keys, num_batch_axes, device))
        return visible.expand(*visible.shape[:-2], queries, keys)

    def count_visible(self, grid: PositionGrid) -> Int[Tensor, "..."]:
        """The number of visible keys of each query: (*batch, queries, 1)."""
        prefix = self.prefix_lengths(grid)
        if prefix is not None:
            return prefix.clamp(0, grid.num_keys)
        visible = self.rule(grid)
        return visible.expand(*visible.shape[:-1], grid.num_keys).sum(-1, keepdim=True)

    def __and__(self, other: Mask | Tensor) -> Mask:
        return AndMask(self, as_mask(other))

    def __or__(self, other: Mask | Tensor) -> Mask:
        return OrMask(self, as_mask(other))

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Mask:
        return NotMask(self)

    def __bool__(self) -> bool:
        raise TypeError("a mask has no truth value; join masks with & | ~ instead of and, or, not")


class CombinedMask(Mask):
    """Other masks combined, each evaluated on the same grid.

    Args:
        parts: the combined masks

    Example:
        >>> (dense(torch.ones(2, 1, 3) > 0) & dense(torch.ones(3) > 0)).num_batch_axes()
        1
    """

    def __init__(self, *parts: Mask):
        self.parts = parts

    def tensors(self) -> list[Tensor]:
        return [tensor for part in self.parts for tensor in part.tensors()]

    def num_batch_axes(self) -> int:
        return max(part.num_batch_axes() for part in self.parts)

    def check_axes(self, num_batch_axes: int, has_heads: bool = False) -> None:
        for part in self.parts:
            part.check_axes(num_batch_axes, has_heads)

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        for part in self.parts:
            part.check_shape(batch_shape, queries, keys)

    @property
    def is_query_independent(self) -> bool:
        return all(part.is_query_independent for part in self.parts)

    def _combine_prefixes(self, grid: PositionGrid, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
        left, right = (part.prefix_lengths(grid) for part in self.parts)
        return None if left is None or right is None else combine(left, right)


class AndMask(CombinedMask):
    """Visible in both masks: ``a & b``."""

    def rule(self, grid: PositionGrid) -> Tensor:
        return self.parts[0].rule(grid) & self.parts[1].rule(grid)

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        (a, b), (c, d) = (part.band(queries, keys) for part in self.parts)
        return max(a, c), min(b, d)

    def prefix_lengths(self, grid: PositionGrid) -> Tensor | None:
        return self._combine_prefixes(grid, torch.minimum)

    def find_around(self) -> Any:
        return next((around for part in self.parts if (around := part.find_around()) is not None), None)

    def __repr__(self) -> str:
        return "({} & {})".format(*self.parts)


class OrMask(CombinedMask):
    """Visible in at least one of the masks: ``a | b``."""

    def rule(self, grid: PositionGrid) -> Tensor:
        return self.parts[0].rule(grid) | self.parts[1].rule(grid)

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        (a, b), (c, d) = (part.band(queries, keys) for part in self.parts)
        return min(a, c), max(b, d)

    def prefix_lengths(self, grid: PositionGrid) -> Tensor | None:
        return self._combine_prefixes(grid, torch.maximum)

    def __repr__(self) -> str:
        return "({} | {})".format(*self.parts)


class NotMask(CombinedMask):
    """Visible where the mask hides: ``~a``."""

    def rule(self, grid: PositionGrid) -> Tensor:
        return ~self.parts[0].rule(grid)

    def __invert__(self) -> Mask:
        return self.parts[0]

    def __repr__(self) -> str:
        return f"~{self.parts[0]}"


class DenseMask(Mask):
    """A mask given as a bool tensor that broadcasts to (*batch, queries, keys) from the right.

        visible(i, j) = tensor[..., i, j]

    Args:
        tensor: True where a key is visible to a query

    Example:
        >>> dense(torch.tensor([True, False])).materialize(1, 2)
        tensor([[ True, False]])
    """

    def __init__(self, tensor: Bool[Tensor, "..."]):
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool or tensor.is_nested:
            is_tensor = isinstance(tensor, Tensor)
            actual = f"{'nested ' * tensor.is_nested}{tensor.dtype}" if is_tensor else type(tensor).__name__
            raise DtypeError(
                f"a mask is a bool tensor, True where a key is visible to a query, got {actual}; write mask.bool() for "
                "ones and zeros, padding(lengths) for lengths, padding(attention_mask=...) for that of a tokenizer, "
                "and score=ScaledDot() + bias for a float tensor, which is a bias"
            )
        self.tensor = tensor.reshape((1,) * (2 - tensor.dim()) + tensor.shape)

    def rule(self, grid: PositionGrid) -> Tensor:
        return grid.take_pairs(self.tensor.to(grid.key_positions.device))

    def tensors(self) -> list[Tensor]:
        return [self.tensor]

    def num_batch_axes(self) -> int:
        return self.tensor.dim() - 2

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        expected = (*batch_shape, queries, keys)
        axes = enumerate(zip(reversed(self.tensor.shape), reversed(expected), strict=False))
        fits = all(actual == size or actual == 1 or (size == 1 and axis >= 2) for axis, (actual, size) in axes)
        if not fits:
            raise ShapeError(
                f"mask {tuple(self.tensor.shape)} does not broadcast to (*batch, queries, keys) = {expected}; "
                "axes are matched from the right, and lengths belong into padding(lengths)"
            )
        leading = self.tensor.shape[:-2]
        pairs = zip(leading, batch_shape, strict=False)
        if len(leading) < len(batch_shape) and all(a == b or a == 1 for a, b in pairs):
            self.check_axes(len(leading), has_heads=True)

    def check_axes(self, num_batch_axes: int, has_heads: bool = False) -> None:
        leading = self.tensor.shape[:-2]
        if has_heads and len(leading) <= num_batch_axes and any(size != 1 for size in leading):
            raise ShapeError(
                f"mask {tuple(self.tensor.shape)} has a part of the batch axes of the scores only, and it is ambiguous "
                "which; write mask[:, None] for (batch, 1, queries, keys) and mask[None] for (1, heads, queries, keys)"
            )

    @property
    def is_query_independent(self) -> bool:
        return self.tensor.shape[-2] == 1

    def __repr__(self) -> str:
        return f"dense({tuple(self.tensor.shape)})"


def dense(tensor: Bool[Tensor, "..."]) -> Mask:
    """A mask given as a bool tensor, True where a key is visible to a query.

        visible(i, j) = tensor[..., i, j]

    Args:
        tensor: a bool tensor that broadcasts to (*batch, queries, keys) from the right

    Shape: (*batch, queries, keys), each axis of that size or 1

    Returns: the mask

    Example:
        >>> dense(torch.tensor([[True, False], [True, True]])).materialize(2, 2).int()
        tensor([[1, 0],
                [1, 1]], dtype=torch.int32)
    """
    return DenseMask(tensor)


def as_mask(mask: Mask | Tensor) -> Mask:
    """The mask itself, or a bool tensor as ``dense``; anything else is a TypeError.

    Args:
        mask: a mask, or a bool tensor that broadcasts to (*batch, queries, keys)

    Shape: (*batch, queries, keys), each axis of that size or 1

    Returns: the mask

    Example:
        >>> as_mask(torch.tensor([True, False]))
        dense((1, 2))
    """
    if isinstance(mask, Mask):
        return mask
    if callable(mask):  # causal in place of causal()
        return as_mask(call_without_arguments(mask, "mask"))
    return DenseMask(mask)
