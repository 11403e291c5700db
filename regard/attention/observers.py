"""Who is told of a look: nobody, unless somebody watches.

A watcher is told after a look is done, and computes weights beside it, so it cannot change what the look gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial

import torch
from torch import Tensor, nn

from regard.attention._common import broadcast_batch_shape
from regard.attention.masks import Mask
from regard.attention.masks.base import DenseMask, NotMask, _BinaryMask
from regard.attention.normalizers import softmax
from regard.attention.output import AttentionInputs, AttentionOutput
from regard.attention.scores import Dot, ScaledDot

HeadSelection = Sequence[int] | None


Watcher = Callable[[nn.Module | None, Callable[[HeadSelection], Tensor]], None]
"""Told who looked, if that is known, and given a function from heads to the weights of the look."""


WATCHERS: ContextVar[tuple[Watcher, ...]] = ContextVar("WATCHING", default=())
"""The watchers of this thread."""


def is_watched() -> bool:
    """Whether this thread has watchers."""
    return bool(WATCHERS.get())


@contextmanager
def register_watcher(watcher: Watcher) -> Iterator[None]:
    """Tell this watcher of every look that is made in here, by this thread."""
    WATCHERS.set((*WATCHERS.get(), watcher))
    try:
        yield
    finally:
        WATCHERS.set(tuple(other for other in WATCHERS.get() if other is not watcher))


def notify_watchers(module: nn.Module | None, output: AttentionOutput) -> AttentionOutput:
    """The look, after its watchers have heard of it; inside a compiled graph there are none."""
    if not torch.compiler.is_compiling():  # asked first, so that a graph does not depend on who watches
        emit(module, partial(compute_weights_detached, output))
    return output


def emit(module: nn.Module | None, compute_weights: Callable[[HeadSelection], Tensor]) -> None:
    """Let the watchers hear of weights that somebody has in another way."""
    if not torch.compiler.is_compiling():
        for watcher in WATCHERS.get():
            watcher(module, compute_weights)


@torch.no_grad()
def compute_weights_detached(output: AttentionOutput, heads: HeadSelection) -> Tensor:
    """The weights of a look that was just made, of these heads only, without a trace in the look."""
    if output._computed is None:
        call = None if heads is None else _select_heads(output._inputs, heads)
        if call is not None:
            return _compute_with_rng_restored(call, output)
    weights = (
        _compute_with_rng_restored(output._inputs, output)
        if output._computed is None
        else output._computed[1].detach()
    )
    return weights if heads is None else weights[..., list(heads), :, :]


def _compute_with_rng_restored(inputs: AttentionInputs, output: AttentionOutput) -> Tensor:
    """The weights computed, and the generators of random numbers where they were: a part may draw unannounced."""
    devices = [inputs.query.device] if inputs.query.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        return output._compute(inputs)[1]


def _select_heads(inputs: AttentionInputs, heads: Sequence[int]) -> AttentionInputs | None:
    """The call for some heads only, where it is certain that a head does not know which one it is."""
    plain = type(inputs.score) in (Dot, ScaledDot) and inputs.normalize is softmax
    batch = broadcast_batch_shape(inputs.query, inputs.key)
    if not plain or not batch or not _is_head_independent(inputs.mask, inputs.num_batch_axes):
        return None

    def taken(tensor: Tensor) -> Tensor:
        own = tensor.dim() > 2 and tensor.shape[-3] == batch[-1]
        return tensor[..., list(heads), :, :] if own else tensor

    return inputs.replace(query=taken(inputs.query), key=taken(inputs.key), value=taken(inputs.value))


def _is_head_independent(mask: Mask | None, num_batch_axes: int) -> bool:
    if isinstance(mask, _BinaryMask):
        return _is_head_independent(mask.left, num_batch_axes) and _is_head_independent(
            mask.right, num_batch_axes
        )
    if isinstance(mask, NotMask):
        return _is_head_independent(mask.mask, num_batch_axes)
    if isinstance(mask, DenseMask):
        return mask.tensor.dim() == 2 or mask.tensor.shape[-3] == 1
    return mask is None or mask.num_batch_axes() < num_batch_axes
