"""Masks by position or document: causal, window, around, documents."""

from __future__ import annotations

import math

import torch
from jaxtyping import Int
from torch import Tensor

from regard.attention.masks.base import Mask, PositionGrid
from regard.attention.masks.padding_masks import check_leading_axes
from regard.errors import ShapeError, UsageError

__all__ = ["AroundMask", "DocumentMask", "WindowMask", "around", "causal", "documents", "window"]


def _check_integer(name: str, argument: str, value: object, minimum: int | None = None) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or (minimum is not None and value < minimum):
        allowed = "a whole number" + (f" of at least {minimum}" if minimum is not None else "")
        raise UsageError(f"{name}: {argument} must be {allowed}, got {value!r}")
    return value


class WindowMask(Mask):
    """The mask that `window` and `causal` return: the band -left <= key - (query + offset) <= right.

    Args:
        left: the number of visible keys before the query's position; infinite for a causal mask
        right: the number of visible keys after it
        offset: the key position of the first query; keys - queries if None

    Example:
        >>> WindowMask(1, 0, None).band(3, 5)
        (1, 2)
    """

    def __init__(self, left: float, right: int, offset: int | None):
        self.left, self.right, self.offset = left, right, offset

    def _resolve_offset(self, queries: int, keys: int) -> int:
        return keys - queries if self.offset is None else self.offset

    def rule(self, grid: PositionGrid) -> Tensor:
        step = grid.key_positions - (grid.query_positions + self._resolve_offset(grid.num_queries, grid.num_keys))
        return step <= self.right if self.left == math.inf else (step >= -self.left) & (step <= self.right)

    def band(self, queries: int, keys: int) -> tuple[float, float]:
        offset = self._resolve_offset(queries, keys)
        return offset - self.left, offset + self.right

    def prefix_lengths(self, grid: PositionGrid) -> Tensor | None:
        if self.left != math.inf:
            return None
        return grid.query_positions + (self._resolve_offset(grid.num_queries, grid.num_keys) + self.right + 1)

    def __repr__(self) -> str:
        sides = "" if self.left == math.inf and self.right == 0 else f"left={self.left}, right={self.right}, "
        return f"{'window' if sides else 'causal'}({sides}offset={self.offset})"


class AroundMask(Mask):
    """The mask that `around` returns.

    Args:
        center: a number, or (*batch, queries) with the leading batch axes
        radius: the largest distance of a visible key

    Example:
        >>> AroundMask(torch.tensor([0.0, 2.5]), 1)
        around((2,), radius=1)
    """

    def __init__(self, center: Tensor | float, radius: float):
        if not radius >= 0:
            raise UsageError(f"around: radius must be at least 0, got {radius!r}")
        # The choice of keys has no gradient: that of a predicted center passes through the Gaussian window only.
        self.center = (center if isinstance(center, Tensor) else torch.tensor(float(center))).detach()
        self.radius = radius

    def center_at(self, grid: PositionGrid) -> Tensor:
        """The centers in the layout of the scores, with one key."""
        center = self.center.to(grid.key_positions.device)
        if center.dim() == 0:
            return center
        return grid.align_leading(center[..., None], 2) if grid.is_full else grid.take(center, grid.query_positions)

    def rule(self, grid: PositionGrid) -> Tensor:
        return (grid.key_positions - self.center_at(grid)).abs() <= self.radius

    def find_around(self) -> AroundMask:
        return self

    def tensors(self) -> list[Tensor]:
        return [self.center]

    def num_batch_axes(self) -> int:
        return max(self.center.dim() - 1, 0)

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        if self.center.dim() == 0:
            return
        if self.center.shape[-1] not in (1, queries):
            raise ShapeError(
                f"around: center {tuple(self.center.shape)} must end in the number of queries, which is {queries}"
            )
        check_leading_axes(self.center, batch_shape, 1, "around: center")

    def __repr__(self) -> str:
        return f"around({tuple(self.center.shape)}, radius={self.radius})"


class DocumentMask(Mask):
    """The mask that `documents` returns.

    Args:
        query_ids: the document of each query, (*batch, queries)
        key_ids: the document of each key, (*batch, keys); query_ids if None

    Example:
        >>> DocumentMask(torch.tensor([0, 0, 1]), None)
        documents((3,))
    """

    def __init__(self, query_ids: Int[Tensor, "*batch queries"], key_ids: Int[Tensor, "*batch keys"] | None):
        self.query_ids = torch.as_tensor(query_ids)
        self.key_ids = self.query_ids if key_ids is None else torch.as_tensor(key_ids)
        self.has_shared_ids = key_ids is None
        if self.query_ids.dim() == 0 or self.key_ids.dim() == 0:
            raise UsageError("documents: ids must have one entry for each position: (*batch, positions)")

    def rule(self, grid: PositionGrid) -> Tensor:
        query_ids, key_ids = (ids.to(grid.key_positions.device) for ids in (self.query_ids, self.key_ids))
        if grid.is_full:
            return grid.align_leading(query_ids[..., None], 2) == grid.align_leading(key_ids[..., None, :], 2)
        return grid.take(query_ids, grid.query_positions) == grid.take(key_ids, grid.key_positions)

    def tensors(self) -> list[Tensor]:
        return [self.query_ids] if self.has_shared_ids else [self.query_ids, self.key_ids]

    def num_batch_axes(self) -> int:
        return max(self.query_ids.dim(), self.key_ids.dim()) - 1

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        for side, ids, size in (("query", self.query_ids, queries), ("key", self.key_ids, keys)):
            if ids.shape[-1] != size:
                raise ShapeError(
                    f"documents: {side}_ids {tuple(ids.shape)} must end in the number of {side} positions, "
                    f"which is {size}"
                )
            check_leading_axes(ids, batch_shape, 1, f"documents: {side}_ids")

    def __repr__(self) -> str:
        return f"documents({tuple(self.query_ids.shape)})"


def causal(offset: int | None = None) -> Mask:
    """All keys up to the query's own position, included.

        visible(i, j) = j <= i + offset          offset = keys - queries unless given

    With the default offset every key is visible to the last query, so a single query of a decoder with a cache sees
    all earlier positions (with PyTorch's is_causal it would see the first key only).

    Args:
        offset: the key position of the first query; keys - queries by default

    Returns: the mask

    Reference: Vaswani et al. (2017), arXiv 1706.03762, 3.2.3.

    Example:
        >>> causal().materialize(2, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    return WindowMask(math.inf, 0, offset if offset is None else _check_integer("causal", "offset", offset))


def window(left: int, right: int, offset: int | None = None) -> Mask:
    """The keys near the query's own position: sliding-window attention.

        visible(i, j) = -left <= j - (i + offset) <= right          offset = keys - queries unless given

    Args:
        left: the number of visible keys before the query's position
        right: the number of visible keys after it
        offset: the key position of the first query; keys - queries by default

    Returns: the mask

    Reference: Beltagy, Peters and Cohan (2020), arXiv 2004.05150.

    Example:
        >>> window(1, 0).materialize(3, 3).int()
        tensor([[1, 0, 0],
                [1, 1, 0],
                [0, 1, 1]], dtype=torch.int32)
    """
    left, right = _check_integer("window", "left", left, 0), _check_integer("window", "right", right, 0)
    return WindowMask(left, right, offset if offset is None else _check_integer("window", "offset", offset))


def around(center: Tensor | float, radius: float) -> Mask:
    """The keys within a distance of each query's center.

        visible(i, j) = |j - center[i]| <= radius

    Args:
        center: a number, or (*batch, queries) with the leading batch axes
        radius: the largest distance of a visible key

    Shape: center () or (*batch, queries)

    Returns: the mask

    Reference: Luong, Pham and Manning (2015), arXiv 1508.04025, 3.2, for local attention.

    Example:
        >>> around(torch.tensor([0.0, 2.5]), 1).materialize(2, 5).int()
        tensor([[1, 1, 0, 0, 0],
                [0, 0, 1, 1, 0]], dtype=torch.int32)
    """
    return AroundMask(center, radius)


def documents(query_ids: Int[Tensor, "*batch queries"], key_ids: Int[Tensor, "*other keys"] | None = None) -> Mask:
    """The keys of the query's own document, where several documents are packed into one sequence.

        visible(i, j) = query_ids[i] == key_ids[j]          key_ids = query_ids unless given

    Args:
        query_ids: the document of each query, (*batch, queries)
        key_ids: the document of each key, (*batch, keys); query_ids by default

    Shape: query_ids (*batch, queries), key_ids (*batch, keys)

    Returns: the mask

    Reference: Krell et al. (2021), arXiv 2107.02027.

    Example:
        >>> documents(torch.tensor([0, 0, 1])).materialize(3, 3).int()
        tensor([[1, 1, 0],
                [1, 1, 0],
                [0, 0, 1]], dtype=torch.int32)
    """
    return DocumentMask(query_ids, key_ids)
