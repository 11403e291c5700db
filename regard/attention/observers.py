"""Watchers: functions that are notified of every attention call, and can ask for its weights.

A watcher is notified after the call and computes weights separately, so it cannot change the result of the call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention.masks import Mask
from regard.attention.masks.base import CombinedMask, DenseMask
from regard.attention.normalizers.basic import softmax
from regard.attention.output import AttentionInputs, AttentionOutput
from regard.attention.scores.dot import Dot, ScaledDot

__all__ = ["WATCHERS", "HeadSelection", "Watcher", "emit", "notify_watchers", "register_watcher"]

HeadSelection = Sequence[int] | None
Watcher = Callable[[nn.Module | None, Callable[[HeadSelection], Tensor]], None]
"""Called with the module of the call, if known, and a function from a selection of heads to their weights."""

WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("WATCHERS", default=())
"""The watchers of this thread; a hot path reads it directly instead of calling a function."""


@contextmanager
def register_watcher(watcher: Watcher) -> Iterator[None]:
    """Notify the watcher of every attention call of this thread within the block.

    Args:
        watcher: called with the module of a call and a function that computes its weights

    Returns: a context manager

    Example:
        >>> shapes = []
        >>> with register_watcher(lambda module, compute_weights: shapes.append(compute_weights(None).shape)):
        ...     output = attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6))
        >>> shapes
        [torch.Size([2, 3, 5])]
    """
    WATCHERS.set((*WATCHERS.get(), watcher))
    try:
        yield
    finally:
        WATCHERS.set(tuple(other for other in WATCHERS.get() if other is not watcher))


def notify_watchers(module: nn.Module | None, output: AttentionOutput) -> AttentionOutput:
    """The output, after every watcher has been notified of it; a compiled graph has no watchers.

    Args:
        module: the module of the call, or None
        output: the output of the call

    Returns: the same output

    Example:
        >>> output = attend(*torch.randn(3, 2, 4))
        >>> notify_watchers(None, output) is output
        True
    """
    # The compiler is checked first, so that a graph does not depend on the watchers.
    if not torch.compiler.is_compiling() and WATCHERS.get():
        emit(module, partial(compute_weights_detached, output))
    return output


def emit(module: nn.Module | None, compute_weights: Callable[[HeadSelection], Tensor]) -> None:
    """Notify the watchers of weights that are computed elsewhere, such as by a module of another library.

    Args:
        module: the module of the call, or None
        compute_weights: from a selection of heads, None for all, to their weights

    Shape: weights (*batch, heads, queries, keys)

    Example:
        >>> with register_watcher(lambda module, compute_weights: print(compute_weights([0]).shape)):
        ...     emit(None, lambda heads: torch.ones(1, 4, 2, 2)[:, heads])
        torch.Size([1, 1, 2, 2])
    """
    if not torch.compiler.is_compiling():
        for watcher in WATCHERS.get():
            watcher(module, compute_weights)


@torch.no_grad()
def compute_weights_detached(output: AttentionOutput, heads: HeadSelection) -> Tensor:
    """The weights of the selected heads, without storing anything in the output."""
    if output._computed is not None:
        weights = output._computed[1].detach()
    elif heads is not None and (selected := _select_heads(output._inputs, heads)) is not None:
        return _compute_with_rng_restored(selected, output)
    else:
        weights = _compute_with_rng_restored(output._inputs, output)
    return weights if heads is None else weights[..., list(heads), :, :]


def _compute_with_rng_restored(inputs: AttentionInputs, output: AttentionOutput) -> Tensor:
    """The weights; the random number generators keep their state, as a user's score may draw from them."""
    devices = [inputs.query.device] if inputs.query.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        return output._compute(inputs)[1]


def _select_heads(inputs: AttentionInputs, heads: Sequence[int]) -> AttentionInputs | None:
    """The call for some heads only, where the result of a head does not depend on its index; otherwise None."""
    is_plain = type(inputs.score) in (Dot, ScaledDot) and inputs.normalize is softmax
    batch = inputs.batch_shape
    if not is_plain or not batch or not _is_head_independent(inputs.mask, inputs.num_batch_axes):
        return None

    def select(tensor: Tensor, num_groups: int = 1) -> Tensor:
        has_heads = tensor.dim() > 2 and tensor.shape[-3] * num_groups == batch[-1]
        return tensor[..., [head // num_groups for head in heads], :, :] if has_heads else tensor

    key, value = select(inputs.key, inputs.num_groups), select(inputs.value, inputs.num_groups)
    return inputs.replace(query=select(inputs.query), key=key, value=value, num_groups=1)


def _is_head_independent(mask: Mask | None, num_batch_axes: int) -> bool:
    if isinstance(mask, CombinedMask):
        return all(_is_head_independent(part, num_batch_axes) for part in mask.parts)
    if isinstance(mask, DenseMask):
        return mask.tensor.dim() == 2 or mask.tensor.shape[-3] == 1
    return mask is None or mask.num_batch_axes() < num_batch_axes
