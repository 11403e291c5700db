"""Masks of a number of visible keys, or of padding: padding and prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

from regard.attention.masks.base import Mask, PositionGrid
from regard.errors import DtypeError, ShapeError, UsageError

__all__ = ["KeyMask", "PaddingMask", "PrefixMask", "check_leading_axes", "padding", "prefix"]


def check_leading_axes(table: Tensor, batch_shape: tuple[int, ...], num_trailing_axes: int, name: str) -> None:
    """Raise unless the first axes of a table are the leading batch axes of the scores.

    Args:
        table: the table
        batch_shape: the batch axes of the scores
        num_trailing_axes: how many axes of the table follow the batch axes
        name: the name of the table, for the message

    Shape: table (*leading batch axes, *trailing axes)
    """
    leading = tuple(table.shape[: table.dim() - num_trailing_axes])
    # Comparisons, as a compiler finds no dynamic size in a tuple.
    pairs = zip(leading, batch_shape, strict=False)
    if any(actual != size and actual != 1 and size != 1 for actual, size in pairs):
        raise ShapeError(
            f"{name} {tuple(table.shape)} must have the leading batch axes of the scores first, and these are "
            f"{batch_shape}"
        )


def _is_readable(tensor: Tensor) -> bool:
    """Whether the values of a tensor can be read; it would make a GPU wait, and break the graph of a compiler."""
    is_eager = not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is None
    return is_eager and tensor.is_cpu and type(tensor) is Tensor and tensor.numel() > 0


def _as_integers(name: str, value: object) -> Tensor:
    tensor = torch.as_tensor(value)
    if tensor.dtype.is_floating_point or tensor.dtype == torch.bool or tensor.is_complex():
        raise DtypeError(
            f"{name} must be whole numbers, got {tensor.dtype}; a bool tensor of visible keys is a mask already"
        )
    return tensor


def _check_lengths(name: str, lengths: Tensor, keys: int) -> None:
    if _is_readable(lengths):
        low, high = lengths.aminmax()
        if int(low) < 0 or int(high) > keys:
            raise UsageError(f"{name}: lengths must be from 0 to the number of keys, {keys}, got {low} to {high}")


def _check_batch_axes(
    name: str, table: Tensor, num_trailing_axes: int, num_batch_axes: int, has_heads: bool = False
) -> None:
    """Raise if a table has more axes than the batch, other than one of size 1 for the heads."""
    batch = table.shape[: table.dim() - num_trailing_axes]
    if len(batch) > num_batch_axes + has_heads or any(size != 1 for size in batch[num_batch_axes:]):
        advice = "" if num_trailing_axes else "; prefix(lengths) is the mask for lengths of each query"
        shape = tuple(table.shape)
        raise ShapeError(f"{name} {shape} have more axes than the batch, which has {num_batch_axes}{advice}")


class PaddingMask(Mask):
    """The mask that `padding` returns.

    Args:
        lengths: the number of keys of each sequence

    Example:
        >>> PaddingMask([1, 3])
        padding((2,))
    """

    def __init__(self, lengths: Int[Tensor, "*batch"] | Sequence[int] | int):
        self.lengths = _as_integers("padding: lengths", lengths)

    def rule(self, grid: PositionGrid) -> Tensor:
        return grid.key_positions < self.prefix_lengths(grid)

    def prefix_lengths(self, grid: PositionGrid) -> Tensor:
        return grid.align_leading(self.lengths.to(grid.key_positions.device), 0)

    def tensors(self) -> list[Tensor]:
        return [self.lengths]

    def num_batch_axes(self) -> int:
        return self.lengths.dim()

    def check_axes(self, num_batch_axes: int, has_heads: bool = False) -> None:
        _check_batch_axes("padding: lengths", self.lengths, 0, num_batch_axes, has_heads)

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        check_leading_axes(self.lengths, batch_shape, 0, "padding: lengths")
        _check_lengths("padding", self.lengths, keys)

    @property
    def is_query_independent(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"padding({tuple(self.lengths.shape)})"


class KeyMask(Mask):
    """The mask that `padding` returns for one entry of each key, such as the attention_mask of a tokenizer.

    Args:
        visible: (*batch, keys), True where a key is visible

    Example:
        >>> KeyMask(torch.tensor([[False, True]])).materialize(1, 2)
        tensor([[[False,  True]]])
    """

    def __init__(self, visible: Bool[Tensor, "*batch keys"]):
        self.visible = visible

    def rule(self, grid: PositionGrid) -> Tensor:
        visible = self.visible.to(grid.key_positions.device)
        if grid.is_full:
            return grid.align_leading(visible[..., None, :], 2)
        return grid.take(visible, grid.key_positions)

    def tensors(self) -> list[Tensor]:
        return [self.visible]

    def num_batch_axes(self) -> int:
        return self.visible.dim() - 1

    def check_axes(self, num_batch_axes: int, has_heads: bool = False) -> None:
        _check_batch_axes("padding: entries", self.visible, 1, num_batch_axes, has_heads)

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        if self.visible.shape[-1] != keys:
            raise ShapeError(f"padding: the mask {tuple(self.visible.shape)} must end in the number of keys, {keys}")
        check_leading_axes(self.visible, batch_shape, 1, "padding: the mask")

    @property
    def is_query_independent(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"padding(attention_mask={tuple(self.visible.shape)})"


class PrefixMask(Mask):
    """The mask that `prefix` returns.

    Args:
        lengths: (*batch, queries), the number of visible keys of each query

    Example:
        >>> PrefixMask(torch.tensor([1, 3]))
        prefix((2,))
    """

    def __init__(self, lengths: Int[Tensor, "*batch queries"]):
        self.lengths = lengths

    def rule(self, grid: PositionGrid) -> Tensor:
        return grid.key_positions < self.prefix_lengths(grid)

    def prefix_lengths(self, grid: PositionGrid) -> Tensor:
        lengths = self.lengths.to(grid.key_positions.device)
        return grid.align_leading(lengths[..., None], 2) if grid.is_full else grid.take(lengths, grid.query_positions)

    def tensors(self) -> list[Tensor]:
        return [self.lengths]

    def num_batch_axes(self) -> int:
        return self.lengths.dim() - 1

    def check_axes(self, num_batch_axes: int, has_heads: bool = False) -> None:
        _check_batch_axes("prefix: lengths", self.lengths, 1, num_batch_axes, has_heads)

    def check_shape(self, batch_shape: tuple[int, ...], queries: int, keys: int) -> None:
        if self.lengths.shape[-1] != queries:
            shape = tuple(self.lengths.shape)
            raise ShapeError(f"prefix: lengths {shape} must end in the number of queries, {queries}")
        check_leading_axes(self.lengths, batch_shape, 1, "prefix: lengths")
        _check_lengths("prefix", self.lengths, keys)

    def __repr__(self) -> str:
        return f"prefix({tuple(self.lengths.shape)})"


def padding(
    lengths: Int[Tensor, "*batch"] | Sequence[int] | int | None = None,
    *,
    attention_mask: Shaped[Tensor, "*batch keys"] | None = None,
    key_padding_mask: Bool[Tensor, "*batch keys"] | None = None,
) -> Mask:
    """The keys of each sequence are visible, those of its padding are not.

        visible(i, j) = j < lengths[batch]     or  attention_mask[batch, j]     or  not key_padding_mask[batch, j]

    Args:
        lengths: the number of keys of each sequence, which come before the padding, from 0 to the number of keys; its
            axes are the leading batch axes, heads and queries follow. Out of this range a call raises a UsageError; on
            a GPU and under a compiler, where values are not read, fewer than 0 are 0, and more than all are all.
        attention_mask: as tokenizers of Hugging Face return it, bool or integers: 1 at tokens, 0 at padding, which may
            be on the left
        key_padding_mask: as `nn.MultiheadAttention` takes it: True at padding

    Shape: lengths (*batch,), attention_mask and key_padding_mask (*batch, keys)

    Returns: the mask

    Example:
        >>> padding([1, 3]).materialize(1, 3).int()
        tensor([[[1, 0, 0]],
        <BLANKLINE>
                [[1, 1, 1]]], dtype=torch.int32)
        >>> padding(attention_mask=torch.tensor([[0, 1, 1]])).materialize(1, 3).int()
        tensor([[[0, 1, 1]]], dtype=torch.int32)
    """
    arguments = {"lengths": lengths, "attention_mask": attention_mask, "key_padding_mask": key_padding_mask}
    names = [name for name, value in arguments.items() if value is not None]
    if len(names) != 1:
        raise UsageError(f"padding: give one of {', '.join(arguments)}, got {' and '.join(names) or 'none'}")
    if lengths is not None:
        return PaddingMask(lengths)
    return KeyMask(_as_visible(names[0], arguments[names[0]]))


def _as_visible(name: str, mask: object) -> Tensor:
    """The visible keys of an attention_mask or key_padding_mask."""
    is_padding = name == "key_padding_mask"
    expected = "True at padding" if is_padding else "1 at tokens and 0 at padding"
    if not isinstance(mask, Tensor) or mask.dim() < 1:
        raise ShapeError(f"padding: {name} must be a tensor (*batch, keys), {expected}, got {mask!r}")
    if mask.is_floating_point() or mask.is_complex() or (is_padding and mask.dtype != torch.bool):
        advice = "a float mask that is added to scores is a bias, score=ScaledDot() + bias; otherwise write mask.bool()"
        kind = "a bool tensor" if is_padding else "a bool or integer tensor"
        raise DtypeError(f"padding: {name} must be {kind}, {expected}, got {mask.dtype}; {advice}")
    if mask.dtype != torch.bool and _is_readable(mask) and bool(((mask != 0) & (mask != 1)).any()):
        raise UsageError(f"padding: {name} must be {expected}, got {mask.min()} to {mask.max()}")
    return ~mask if is_padding else mask.bool()


def prefix(lengths: Int[Tensor, "*batch queries"] | Sequence[Any]) -> Mask:
    """The first keys are visible, as many as the length that each query has.

        visible(i, j) = j < lengths[batch, i]

    Args:
        lengths: the number of visible keys of each query, from 0 to the number of keys; the axes before the last one
            are the leading batch axes

    Shape: lengths (*batch, queries)

    Returns: the mask

    Example:
        >>> prefix([1, 3]).materialize(2, 3).int()
        tensor([[1, 0, 0],
                [1, 1, 1]], dtype=torch.int32)
    """
    integers = _as_integers("prefix: lengths", lengths)
    if integers.dim() == 0:
        raise ShapeError("prefix: lengths must be (*batch, queries); padding(length) is one length for all queries")
    return PrefixMask(integers)
