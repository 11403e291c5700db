"""The positions that a mask, a positional score or a bell is asked about.

A mask is a rule on positions: may the query at i look at the key at j?

Rules join with ``&``, ``|`` and ``~`` and stay rules, so that a long causal, windowed, padded or
packed mask is asked only about the block of positions that is being computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.errors import DtypeError, ShapeError


@dataclass
class PositionGrid:
    """The positions that a rule is asked about, and how the scores they belong to are laid out.

    The scores have axes ``(*batch, *inner, queries, keys)``. ``batch`` counts the leading axes that belong
    to the caller, ``inner`` those that a fast path put in (the blocks of a band). ``query_at`` and ``key_at``
    broadcast to the scores from the right; ``queries`` and ``keys`` are the full numbers of them. ``whole``
    says that all positions are asked about, ``consecutive`` that they follow one another and lie alike in
    every block.
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
        query_at = torch.arange(num_queries, device=device)[:, None]
        key_at = torch.arange(num_keys, device=device)[None, :]
        return cls(num_queries, num_keys, num_batch_axes, query_at, key_at, is_full=True)

    def align_leading(self, table: Tensor, num_trailing_axes: int) -> Tensor:
        """Let the first axes of ``table`` be the leading batch axes and its last ``own`` axes stay last."""
        split, gap = (
            table.dim() - num_trailing_axes,
            self.num_batch_axes + self.num_inner_axes + 2 - table.dim(),
        )
        return table.reshape(table.shape[:split] + (1,) * gap + table.shape[split:])

    def take(self, table: Tensor, positions: Tensor) -> Tensor:
        """``table[*lead, position]`` at the positions ``at``, laid out like the scores."""
        positions = positions.clamp(0, max(table.shape[-1] - 1, 0))
        if positions.dim() <= self.num_inner_axes + 2:
            return self.align_leading(table[..., positions], positions.dim())
        table = self.align_leading(table, 1)
        shape = torch.broadcast_shapes(table.shape[:-1], positions.shape[:-1])
        return table.expand(*shape, -1).gather(-1, positions.expand(*shape, -1))


class Mask:
    """Who may be looked at: True where a query may look at a key.

        visible(i, j) = rule(position of query i, position of key j)

    Subclass it and write ``rule``; what else is here has a safe default.

    >>> from regard.attention import causal, padding
    >>> (causal() & padding(torch.tensor([2]))).materialize(3, 3).int()
    tensor([[[1, 0, 0],
             [1, 1, 0],
             [1, 1, 0]]], dtype=torch.int32)
    """

    def rule(self, grid: PositionGrid) -> Bool[Tensor, "..."]:
        raise NotImplementedError(
            f"{type(self).__name__} must say which positions are visible: write rule(grid)"
        )

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        """Bounds on (key position - query position) outside of which nothing is visible."""
        return -math.inf, math.inf

    def prefix_lengths(self, grid: PositionGrid) -> Tensor | None:
        """If what a query may look at is always the first so many keys: how many; laid out with one key."""
        return None

    def tensors(self) -> list[Tensor]:
        """Every tensor that the rule reads."""
        return []

    def num_batch_axes(self) -> int:
        """How many batch axes the mask brings."""
        return 0

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        """Raise one sentence if the mask cannot belong to scores of this shape."""

    def find_around(self) -> Any:
        """The part of the mask that keeps each query near a centre of its own, if it has one."""
        return None

    @property
    def is_query_independent(self) -> bool:
        """Whether the rule looks at the key's position only."""
        return False

    def materialize(
        self, queries: int, keys: int, num_batch_axes: int | None = None
    ) -> Bool[Tensor, "*batch queries keys"]:
        """The mask as a bool tensor; ``batch`` is the number of batch axes it shall have."""
        device = next((t.device for t in self.tensors()), None)
        grid = PositionGrid.full(
            queries, keys, self.num_batch_axes() if num_batch_axes is None else num_batch_axes, device
        )
        seen = self.rule(grid)
        return seen.expand(*seen.shape[:-2], queries, keys)

    def count_visible(self, grid: PositionGrid) -> Int[Tensor, "..."]:
        """How many keys each query may look at: (*batch, queries, 1)."""
        prefix = self.prefix_lengths(grid)
        if prefix is not None:
            return prefix.clamp(0, grid.num_keys)
        seen = self.rule(grid)
        return seen.expand(*seen.shape[:-1], grid.num_keys).sum(-1, keepdim=True)

    def __and__(self, other: Mask | Tensor) -> Mask:
        return AndMask(self, as_mask(other))

    def __or__(self, other: Mask | Tensor) -> Mask:
        return OrMask(self, as_mask(other))

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Mask:
        return NotMask(self)

    def __bool__(self) -> bool:
        raise TypeError(
            "a mask is not true or false by itself; join masks with & | ~ instead of and, or, not"
        )


class _BinaryMask(Mask):
    """Two masks asked together; the parts agree on nothing but the grid."""

    def __init__(self, left: Mask, right: Mask):
        self.left, self.right = left, right

    def tensors(self) -> list[Tensor]:
        return self.left.tensors() + self.right.tensors()

    def num_batch_axes(self) -> int:
        return max(self.left.num_batch_axes(), self.right.num_batch_axes())

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        self.left.check_shape(batch_shape, queries, keys)
        self.right.check_shape(batch_shape, queries, keys)

    @property
    def is_query_independent(self) -> bool:
        return self.left.is_query_independent and self.right.is_query_independent

    def _combine_prefixes(
        self, grid: PositionGrid, combine: Callable[[Tensor, Tensor], Tensor]
    ) -> Tensor | None:
        left, right = self.left.prefix_lengths(grid), self.right.prefix_lengths(grid)
        return None if left is None or right is None else combine(left, right)


class AndMask(_BinaryMask):
    """Visible where both masks say so: ``a & b``."""

    def rule(self, grid: PositionGrid) -> Tensor:
        return self.left.rule(grid) & self.right.rule(grid)

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        (a, b), (c, d) = self.left.band(queries, keys), self.right.band(queries, keys)
        return max(a, c), min(b, d)

    def prefix_lengths(self, grid: PositionGrid) -> Tensor | None:
        return self._combine_prefixes(grid, torch.minimum)

    def find_around(self) -> Any:
        near = self.left.find_around()
        return self.right.find_around() if near is None else near

    def __repr__(self) -> str:
        return f"({self.left} & {self.right})"


class OrMask(_BinaryMask):
    """Visible where one of the masks says so: ``a | b``."""

    def rule(self, grid: PositionGrid) -> Tensor:
        return self.left.rule(grid) | self.right.rule(grid)

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        (a, b), (c, d) = self.left.band(queries, keys), self.right.band(queries, keys)
        return min(a, c), max(b, d)

    def prefix_lengths(self, grid: PositionGrid) -> Tensor | None:
        return self._combine_prefixes(grid, torch.maximum)

    def __repr__(self) -> str:
        return f"({self.left} | {self.right})"


class NotMask(Mask):
    """Visible where the mask says no: ``~a``."""

    def __init__(self, mask: Mask):
        self.mask = mask

    def rule(self, grid: PositionGrid) -> Tensor:
        return ~self.mask.rule(grid)

    def tensors(self) -> list[Tensor]:
        return self.mask.tensors()

    def num_batch_axes(self) -> int:
        return self.mask.num_batch_axes()

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        self.mask.check_shape(batch_shape, queries, keys)

    @property
    def is_query_independent(self) -> bool:
        return self.mask.is_query_independent

    def __invert__(self) -> Mask:
        return self.mask

    def __repr__(self) -> str:
        return f"~{self.mask}"


class DenseMask(Mask):
    """A mask given as a bool tensor that broadcasts to (*batch, queries, keys) from the right.

        visible(i, j) = tensor[..., i, j]

    >>> dense(torch.tensor([True, False])).materialize(1, 2)
    tensor([[ True, False]])
    """

    def __init__(self, tensor: Bool[Tensor, "..."]):
        if not isinstance(tensor, Tensor) or tensor.dtype != torch.bool:
            kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise DtypeError(
                f"a mask is a bool tensor, True where a query may look at a key, got {kind}; write mask.bool() for "
                "ones and zeros, mask == 0 for a tensor that is added to the scores, padding(lengths) for lengths"
            )
        self.tensor = tensor.reshape((1,) * (2 - tensor.dim()) + tensor.shape)

    def rule(self, grid: PositionGrid) -> Tensor:
        tensor = self.tensor.to(grid.key_positions.device)
        if grid.is_full:
            return tensor
        rows, columns = tensor.shape[-2:]
        query_at = grid.query_positions.clamp(0, rows - 1)
        key_at = grid.key_positions.clamp(0, columns - 1)
        if key_at.dim() <= grid.num_inner_axes + 2:
            return tensor[..., query_at, key_at]
        # A gathered grid: (*batch, queries, 1, width), each query with keys of its own.
        table = tensor if rows == 1 else tensor.index_select(-2, query_at.flatten())
        shape = torch.broadcast_shapes(table.shape[:-1], key_at.shape[:-2])
        found = table.expand(*shape, -1).gather(-1, key_at.squeeze(-2).expand(*shape, -1))
        return found.unsqueeze(-2)

    def tensors(self) -> list[Tensor]:
        return [self.tensor]

    def num_batch_axes(self) -> int:
        return self.tensor.dim() - 2

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        want = (*batch_shape, queries, keys)
        axes = enumerate(zip(reversed(self.tensor.shape), reversed(want), strict=False))
        fits = all(have in (1, size) or (size == 1 and axis >= 2) for axis, (have, size) in axes)
        if not fits:
            raise ShapeError(
                f"mask {tuple(self.tensor.shape)} does not broadcast to (*batch, queries, keys) = {want}; "
                "axes are matched from the right, and lengths belong into padding(lengths)"
            )

    @property
    def is_query_independent(self) -> bool:
        return self.tensor.shape[-2] == 1

    def __repr__(self) -> str:
        return f"dense({tuple(self.tensor.shape)})"


def dense(tensor: Bool[Tensor, "..."]) -> Mask:
    """A mask given as a bool tensor, True where a query may look at a key.

        visible(i, j) = tensor[..., i, j]

    >>> dense(torch.tensor([[True, False], [True, True]])).materialize(2, 2).int()
    tensor([[1, 0],
            [1, 1]], dtype=torch.int32)
    """
    return DenseMask(tensor)


def as_mask(mask: Mask | Tensor) -> Mask:
    """A named mask as it is; a bool tensor as ``dense``; anything else refused in words."""
    return mask if isinstance(mask, Mask) else DenseMask(mask)
