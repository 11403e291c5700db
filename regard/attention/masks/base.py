"""A mask is a rule on positions: may the query at i look at the key at j?

Rules join with ``&``, ``|`` and ``~`` and stay rules, so that a long causal, windowed, padded or
packed mask is asked only about the block of positions that is being computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.attention.masks.grid import Grid
from regard.errors import DtypeError, ShapeError


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

    def rule(self, grid: Grid) -> Bool[Tensor, "..."]:
        raise NotImplementedError(
            f"{type(self).__name__} must say which positions are visible: write rule(grid)"
        )

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        """Bounds on (key position - query position) outside of which nothing is visible."""
        return -math.inf, math.inf

    def prefix(self, grid: Grid) -> Tensor | None:
        """If what a query may look at is always the first so many keys: how many; laid out with one key."""
        return None

    def tensors(self) -> list[Tensor]:
        """Every tensor that the rule reads."""
        return []

    def axes(self) -> int:
        """How many batch axes the mask brings."""
        return 0

    def check(self, batch: tuple[int, ...], queries: int, keys: int) -> None:
        """Raise one sentence if the mask cannot belong to scores of this shape."""

    def near(self) -> Any:
        """The part of the mask that keeps each query near a centre of its own, if it has one."""
        return None

    @property
    def every_query_alike(self) -> bool:
        """Whether the rule looks at the key's position only."""
        return False

    def materialize(
        self, queries: int, keys: int, batch: int | None = None
    ) -> Bool[Tensor, "*batch queries keys"]:
        """The mask as a bool tensor; ``batch`` is the number of batch axes it shall have."""
        device = next((t.device for t in self.tensors()), None)
        grid = Grid.full(queries, keys, self.axes() if batch is None else batch, device)
        seen = self.rule(grid)
        return seen.expand(*seen.shape[:-2], queries, keys)

    def count(self, grid: Grid) -> Int[Tensor, "..."]:
        """How many keys each query may look at: (*batch, queries, 1)."""
        prefix = self.prefix(grid)
        if prefix is not None:
            return prefix.clamp(0, grid.keys)
        seen = self.rule(grid)
        return seen.expand(*seen.shape[:-1], grid.keys).sum(-1, keepdim=True)

    def __and__(self, other: Mask | Tensor) -> Mask:
        return Both(self, as_mask(other))

    def __or__(self, other: Mask | Tensor) -> Mask:
        return Either(self, as_mask(other))

    __rand__ = __and__
    __ror__ = __or__

    def __invert__(self) -> Mask:
        return Opposite(self)

    def __bool__(self) -> bool:
        raise TypeError(
            "a mask is not true or false by itself; join masks with & | ~ instead of and, or, not"
        )


class Joined(Mask):
    """Two masks asked together; the parts agree on nothing but the grid."""

    def __init__(self, left: Mask, right: Mask):
        self.left, self.right = left, right

    def tensors(self) -> list[Tensor]:
        return self.left.tensors() + self.right.tensors()

    def axes(self) -> int:
        return max(self.left.axes(), self.right.axes())

    def check(self, batch: tuple[int, ...], queries: int, keys: int) -> None:
        self.left.check(batch, queries, keys)
        self.right.check(batch, queries, keys)

    @property
    def every_query_alike(self) -> bool:
        return self.left.every_query_alike and self.right.every_query_alike

    def _prefixes(self, grid: Grid, join: Callable[[Tensor, Tensor], Tensor]) -> Tensor | None:
        left, right = self.left.prefix(grid), self.right.prefix(grid)
        return None if left is None or right is None else join(left, right)


class Both(Joined):
    """Visible where both masks say so: ``a & b``."""

    def rule(self, grid: Grid) -> Tensor:
        return self.left.rule(grid) & self.right.rule(grid)

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        (a, b), (c, d) = self.left.band(queries, keys), self.right.band(queries, keys)
        return max(a, c), min(b, d)

    def prefix(self, grid: Grid) -> Tensor | None:
        return self._prefixes(grid, torch.minimum)

    def near(self) -> Any:
        near = self.left.near()
        return self.right.near() if near is None else near

    def __repr__(self) -> str:
        return f"({self.left} & {self.right})"


class Either(Joined):
    """Visible where one of the masks says so: ``a | b``."""

    def rule(self, grid: Grid) -> Tensor:
        return self.left.rule(grid) | self.right.rule(grid)

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        (a, b), (c, d) = self.left.band(queries, keys), self.right.band(queries, keys)
        return min(a, c), max(b, d)

    def prefix(self, grid: Grid) -> Tensor | None:
        return self._prefixes(grid, torch.maximum)

    def __repr__(self) -> str:
        return f"({self.left} | {self.right})"


class Opposite(Mask):
    """Visible where the mask says no: ``~a``."""

    def __init__(self, mask: Mask):
        self.mask = mask

    def rule(self, grid: Grid) -> Tensor:
        return ~self.mask.rule(grid)

    def tensors(self) -> list[Tensor]:
        return self.mask.tensors()

    def axes(self) -> int:
        return self.mask.axes()

    def check(self, batch: tuple[int, ...], queries: int, keys: int) -> None:
        self.mask.check(batch, queries, keys)

    @property
    def every_query_alike(self) -> bool:
        return self.mask.every_query_alike

    def __invert__(self) -> Mask:
        return self.mask

    def __repr__(self) -> str:
        return f"~{self.mask}"


class Dense(Mask):
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

    def rule(self, grid: Grid) -> Tensor:
        tensor = self.tensor.to(grid.key_at.device)
        if grid.whole:
            return tensor
        rows, columns = tensor.shape[-2:]
        query_at = grid.query_at.clamp(0, rows - 1)
        key_at = grid.key_at.clamp(0, columns - 1)
        if key_at.dim() <= grid.inner + 2:
            return tensor[..., query_at, key_at]
        # A gathered grid: (*batch, queries, 1, width), each query with keys of its own.
        table = tensor if rows == 1 else tensor.index_select(-2, query_at.flatten())
        shape = torch.broadcast_shapes(table.shape[:-1], key_at.shape[:-2])
        found = table.expand(*shape, -1).gather(-1, key_at.squeeze(-2).expand(*shape, -1))
        return found.unsqueeze(-2)

    def tensors(self) -> list[Tensor]:
        return [self.tensor]

    def axes(self) -> int:
        return self.tensor.dim() - 2

    def check(self, batch: tuple[int, ...], queries: int, keys: int) -> None:
        want = (*batch, queries, keys)
        axes = enumerate(zip(reversed(self.tensor.shape), reversed(want), strict=False))
        fits = all(have in (1, size) or (size == 1 and axis >= 2) for axis, (have, size) in axes)
        if not fits:
            raise ShapeError(
                f"mask {tuple(self.tensor.shape)} does not broadcast to (*batch, queries, keys) = {want}; "
                "axes are matched from the right, and lengths belong into padding(lengths)"
            )

    @property
    def every_query_alike(self) -> bool:
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
    return Dense(tensor)


def as_mask(mask: Mask | Tensor) -> Mask:
    """A named mask as it is; a bool tensor as ``dense``; anything else refused in words."""
    return mask if isinstance(mask, Mask) else Dense(mask)
