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

from regard.attention._call import Call, batch_shape
from regard.attention._result import Attended
from regard.attention.masks import Mask
from regard.attention.masks.base import Dense, Joined, Opposite
from regard.attention.normalizers import softmax
from regard.attention.scores import Dot, ScaledDot

Heads = Sequence[int] | None
Watcher = Callable[[nn.Module | None, Callable[[Heads], Tensor]], None]
"""Told who looked, if that is known, and given a function from heads to the weights of the look."""

WATCHING: ContextVar[tuple[Watcher, ...]] = ContextVar("WATCHING", default=())
"""The watchers of this thread."""


@contextmanager
def telling(watcher: Watcher) -> Iterator[None]:
    """Tell this watcher of every look that is made in here, by this thread."""
    WATCHING.set((*WATCHING.get(), watcher))
    try:
        yield
    finally:
        WATCHING.set(tuple(other for other in WATCHING.get() if other is not watcher))


def told(who: nn.Module | None, seen: Attended) -> Attended:
    """The look, after its watchers have heard of it; inside a compiled graph there are none."""
    if not torch.compiler.is_compiling():  # asked first, so that a graph does not depend on who watches
        tell(who, partial(beside, seen))
    return seen


def tell(who: nn.Module | None, weights: Callable[[Heads], Tensor]) -> None:
    """Let the watchers hear of weights that somebody has in another way."""
    if not torch.compiler.is_compiling():
        for watcher in WATCHING.get():
            watcher(who, weights)


@torch.no_grad()
def beside(seen: Attended, heads: Heads) -> Tensor:
    """The weights of a look that was just made, of these heads only, without a trace in the look."""
    if seen._seen is None:
        call = None if heads is None else _narrowed(seen._call, heads)
        if call is not None:
            return _still(call, seen)
    weights = _still(seen._call, seen) if seen._seen is None else seen._seen[1].detach()
    return weights if heads is None else weights[..., list(heads), :, :]


def _still(call: Call, seen: Attended) -> Tensor:
    """The weights computed, and the generators of random numbers where they were: a part may draw unannounced."""
    devices = [call.query.device] if call.query.device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        return seen._look(call)[1]


def _narrowed(call: Call, heads: Sequence[int]) -> Call | None:
    """The call for some heads only, where it is certain that a head does not know which one it is."""
    plain = type(call.score) in (Dot, ScaledDot) and call.normalize is softmax
    batch = batch_shape(call.query, call.key)
    if not plain or not batch or not _knows_no_heads(call.mask, call.batch):
        return None

    def taken(tensor: Tensor) -> Tensor:
        own = tensor.dim() > 2 and tensor.shape[-3] == batch[-1]
        return tensor[..., list(heads), :, :] if own else tensor

    return call.part(query=taken(call.query), key=taken(call.key), value=taken(call.value))


def _knows_no_heads(mask: Mask | None, batch: int) -> bool:
    if isinstance(mask, Joined):
        return _knows_no_heads(mask.left, batch) and _knows_no_heads(mask.right, batch)
    if isinstance(mask, Opposite):
        return _knows_no_heads(mask.mask, batch)
    if isinstance(mask, Dense):
        return mask.tensor.dim() == 2 or mask.tensor.shape[-3] == 1
    return mask is None or mask.axes() < batch
