"""Sums over all pairs of a query and a key, without a tensor of all pairs; compiled loops for large work.

    scores_qk = sum_h v_h y_qkh                          y a function of a_qh and b_kh, see PAIR_FUNCTIONS
    da_qh = v_h sum_k g_qk y'_qkh     db_kh = v_h sum_q g_qk y'_qkh     dv_h = sum_qk g_qk y_qkh

Large work is done in loops that torch.compile fuses, other work block by block, each small enough for the cache.

`compiled_or_none` returns None where compiled loops are unavailable (no C++ compiler, disabled, a forked process); the
caller then computes the same in blocks. Each kernel is compiled on a small artificial example with different sizes,
none of them 1, so that one compilation serves all shapes and does not depend on the first one. (A batch of one has its
own kernel.)

    REGARD_COMPILE=0                  disables compilation for a process
    with compile_kernels(False): ...  disables it for a block
"""

from __future__ import annotations

import functools
import logging
import math
import os
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import torch
from torch import Tensor

__all__ = ["compile_kernels", "compiled_or_none", "pairwise_sum", "pairwise_sum_backward", "require_compiled"]

MIN_COMPILED_WORK = 2**22  # pairs x hidden; from here on compiled loops repay the compilation
BLOCK_WORK = 2**19  # pairs x hidden of one block without them: about the size of a core's cache


class PairFunction(NamedTuple):
    """y of every pair from its two sides, and its gradient. In place, so that a block stays in the cache."""

    value: Callable[[Tensor, Tensor], Tensor]  # y
    backward: Callable[[Tensor, Tensor], Tensor]  # from the gradient g at y: g dy/dx, overwrites y


PAIR_FUNCTIONS = {
    "product": PairFunction(lambda a, b: (a * b).add_(1).reciprocal_(), lambda g, y: (gy := g * y).sub_(y.mul_(gy))),
    "sigmoid": PairFunction(lambda a, b: (a + b).sigmoid_(), lambda g, y: (gy := g * y).sub_(y.mul_(gy))),
    "tanh": PairFunction(lambda a, b: (a + b).tanh_(), lambda g, y: y.mul_(g * y).neg_().add_(g)),
    "relu": PairFunction(lambda a, b: (a + b).relu_(), lambda g, y: torch.where(y <= 0, 0.0, g)),
}


def pairwise_sum(function: str, a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """The scores sum_h v_h y_qkh of all pairs.

    Args:
        function: a name in PAIR_FUNCTIONS
        a: the side of the queries
        b: the side of the keys
        v: the weight of each hidden unit

    Shape: a (batch, queries, hidden), b (batch, keys, hidden), v (hidden) -> (batch, queries, keys)

    Returns: the scores

    Example:
        >>> pairwise_sum("tanh", torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(8)).shape
        torch.Size([2, 3, 5])
    """
    scores = compiled_or_none(f"forward {function}", build_forward_kernel(function), a, b, v)
    if scores is None:
        scores = a.new_empty(a.shape[0], a.shape[1], b.shape[1])
        for i, q, k in iter_blocks(a, b):
            scores[i, q, k] = PAIR_FUNCTIONS[function].value(a[i, q, None], b[i, None, k]) @ v
    return scores


def pairwise_sum_backward(
    function: str, a: Tensor, b: Tensor, v: Tensor, g: Tensor, shift: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of `pairwise_sum`: v_h sum_k g y', v_h sum_q g y' and sum_qk g (y - shift).

    Args:
        function, a, b, v: as in `pairwise_sum`
        g: the gradient of the scores
        shift: subtracted from y part by part, before large sums cancel

    Shape: g (batch, queries, keys) -> the shapes of a, b and v

    Returns: the gradients of a, b and v

    Example:
        >>> a, b, v, g = torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(8), torch.randn(2, 3, 5)
        >>> [tuple(gradient.shape) for gradient in pairwise_sum_backward("tanh", a, b, v, g)]
        [(2, 3, 8), (2, 5, 8), (8,)]
    """
    result = compiled_or_none(f"backward {function}", build_backward_kernel(function), a, b, v, g, g.mT.contiguous())
    if result is not None:
        da, db, rows = result
        return da, db, (rows.sub_(shift * g.sum(-1, keepdim=True)) if shift else rows).sum((0, 1))
    da, db, dv = torch.zeros_like(a), torch.zeros_like(b), torch.zeros_like(v)
    for i, q, k in iter_blocks(a, b):
        y, part = PAIR_FUNCTIONS[function].value(a[i, q, None], b[i, None, k]), g[i, q, k]
        dv += part.reshape(-1) @ y.flatten(0, 2)
        if shift:
            dv -= shift * part.sum()
        y = PAIR_FUNCTIONS[function].backward(part[..., None], y)
        da[i, q] += y.sum(2)
        db[i, k] += y.sum(1)
    return da.mul_(v), db.mul_(v), dv


def iter_blocks(a: Tensor, b: Tensor) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of batch, queries and keys, each of at most BLOCK_WORK pairs x hidden."""
    (count, queries, hidden), keys = a.shape, b.shape[1]
    k = max(1, min(keys, BLOCK_WORK // max(1, hidden)))
    q = max(1, min(queries, BLOCK_WORK // max(1, k * hidden)))
    i = max(1, min(count, BLOCK_WORK // max(1, k * q * hidden)))
    for x in range(0, count, i):
        for y in range(0, queries, q):
            for z in range(0, keys, k):
                yield slice(x, x + i), slice(y, y + q), slice(z, z + k)


def compiled_or_none(name: str, kernel: Callable[..., Any], a: Tensor, b: Tensor, *others: Tensor) -> Any:
    """``kernel(a, b, *others)`` in compiled loops, or None if the work is small or they are unavailable.

    Args:
        name: identifies the kernel
        kernel: the function to compile
        a, b, others: its arguments

    Shape: a (batch, queries, hidden), b (batch, keys, hidden)

    Returns: the result of the kernel, or None

    Example:
        >>> compiled_or_none("product", torch.bmm, torch.ones(1, 2, 2), torch.ones(1, 2, 2)) is None  # little work
        True
    """
    sizes = (a.shape[1], b.shape[1], a.shape[2])
    is_small = a.shape[0] * math.prod(sizes) < MIN_COMPILED_WORK
    if is_small or min(sizes) < 2 or not _enabled.get() or _broken:  # a size of 1 would need its own compilation
        return None
    # Everything that torch.compile would recompile for has a kernel of its own instead.
    threads = torch.get_num_threads()
    # Too small to occupy all threads, so that the queries are distributed among them too.
    batch = 1 if a.shape[0] == 1 else max(2 * threads - 1, 3)
    key = (f"additive {name}", a.dtype, a.device, batch, threads, torch.is_inference_mode_enabled())
    try:
        compiled = _kernels.get(key) or _compile(key, kernel, example_arguments(2 + len(others), a, batch))
        return compiled(a, b, *others)
    except Exception as error:  # any error of a missing or broken toolchain
        _disable_compiler(error)
        return None


def example_arguments(count: int, like: Tensor, batch: int) -> list[Tensor]:
    """The first of a, b, v, g, g^T for the compilation of a kernel: an odd batch, even sizes, no two equal."""
    q, k, hidden = 134, 138, 272
    shapes = [(batch, q, hidden), (batch, k, hidden), (hidden,), (batch, q, k), (batch, k, q)]
    return [like.new_zeros(shape) for shape in shapes[:count]]


# Functions for torch.compile to fuse: the tensor of all pairs is in the code but is never allocated.


@functools.cache
def build_forward_kernel(function: str) -> Callable[..., Tensor]:
    def additive_forward(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
        require_compiled()
        return (PAIR_FUNCTIONS[function].value(a[:, :, None], b[:, None]) * v).sum(-1)

    return additive_forward


@functools.cache
def build_backward_kernel(function: str) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    def additive_backward(
        a: Tensor, b: Tensor, v: Tensor, g: Tensor, g_by_key: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        require_compiled()
        value, backward = PAIR_FUNCTIONS[function]
        y, g = value(a[:, :, None], b[:, None]), g[..., None]
        rows = (g * y).sum(2)
        da = backward(g, y).sum(2) * v
        # Keys first: each sum runs over the inner axis, and a second division is cheaper than a stride.
        db = backward(g_by_key[..., None], value(b[:, :, None], a[:, None])).sum(2) * v
        return da, db, rows

    return additive_backward


# ---- compiled kernels

log = logging.getLogger("regard")

_enabled = ContextVar("regard_compiling", default=os.environ.get("REGARD_COMPILE", "1") != "0")
_lock = threading.Lock()
_kernels: dict[tuple[Any, ...], Callable[..., Any]] = {}
_broken = False  # after one failure no other kernel is tried: the reason is the machine, not the kernel


@contextmanager
def compile_kernels(enabled: bool) -> Iterator[None]:
    """Enable or disable compiled kernels within the block.

    Args:
        enabled: whether kernels may be compiled

    Returns: a context manager

    Example:
        >>> with compile_kernels(False):
        ...     scores = Additive(4, 6, 8)(torch.randn(3, 4), torch.randn(5, 6))
    """
    token = _enabled.set(enabled)
    try:
        yield
    finally:
        _enabled.reset(token)


def require_compiled() -> None:
    """Raise when a kernel runs uncompiled: it would allocate the tensor that it exists to avoid.

    torch.compile may run a function uncompiled (when it is disabled, or at its limit on recompilations).

    Example:
        >>> require_compiled()
        Traceback (most recent call last):
        RuntimeError: torch.compile ran a kernel of regard uncompiled
    """
    if not torch.compiler.is_compiling():
        raise RuntimeError("torch.compile ran a kernel of regard uncompiled")


def _compile(key: tuple[Any, ...], function: Callable[..., Any], example: list[Tensor]) -> Callable[..., Any]:
    with _lock:
        if key not in _kernels:
            if not _kernels:
                log.info("compiling kernels, once per process, for some seconds (REGARD_COMPILE=0 disables it)")
            start = time.perf_counter()
            kernel = torch.compile(_clone_code(function, len(_kernels)), fullgraph=True, dynamic=True)
            with warnings.catch_warnings():  # of torch, on first use; as errors they would stop it
                warnings.simplefilter("ignore")
                kernel(*example)
            log.debug("compiled %s in %.1f s", key[0], time.perf_counter() - start)
            _kernels[key] = kernel
    return _kernels[key]


def _clone_code(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The function with its own code object, as torch.compile limits the compilations of each."""
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=f"{function.__name__}_{number}")
    return types.FunctionType(code, function.__globals__, closure=function.__closure__)


def _disable_compiler(error: Exception) -> None:
    global _broken
    _broken = True
    log.info("no compiled kernels available, computing in blocks instead (%s)", type(error).__name__)
    log.debug("the reason", exc_info=error)


def _after_fork() -> None:
    """Compilers and their threads do not survive a fork, and the lock may have been held during it."""
    global _lock, _broken
    _lock, _broken = threading.Lock(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
