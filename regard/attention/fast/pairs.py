"""Sums over all pairs of a query and a key, without a tensor of all pairs.

    scores_qk = sum_h v_h y_qkh                          y a function of a_qh and b_kh, see FORMS
    da_qh = v_h sum_k g_qk y'_qkh     db_kh = v_h sum_q g_qk y'_qkh     dv_h = sum_qk g_qk y_qkh

Large work is done in compiled loops. Without them it goes block by block, each small enough for the cache.
"""

import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.attention.fast import kernels

__all__ = ["compiled", "pull_pairs", "sum_pairs"]

LARGE = 2**22  # pairs x hidden; from here on compiled loops are worth the wait for them
BLOCK = 2**19  # pairs x hidden of one block without them: about what stays in a core's cache


class Form(NamedTuple):
    """One way to get y for every pair from its two sides. Works in place: a block stays in the cache."""

    value: Callable[[Tensor, Tensor], Tensor]  # y
    pull: Callable[[Tensor, Tensor], Tensor]  # from the gradient g at y: g dy/dx, overwrites y


FORMS = {
    "product": Form(lambda a, b: (a * b).add_(1).reciprocal_(), lambda g, y: (gy := g * y).sub_(y.mul_(gy))),
    "sigmoid": Form(lambda a, b: (a + b).sigmoid_(), lambda g, y: (gy := g * y).sub_(y.mul_(gy))),
    "tanh": Form(lambda a, b: (a + b).tanh_(), lambda g, y: y.mul_(g * y).neg_().add_(g)),
    "relu": Form(lambda a, b: (a + b).relu_(), lambda g, y: torch.where(y <= 0, 0.0, g)),
}


def sum_pairs(form: str, a: Tensor, b: Tensor, v: Tensor) -> Tensor:
    """sum_h v_h y_qkh"""
    scores = compiled(f"forward {form}", forward_kernel(form), a, b, v)
    if scores is None:
        scores = a.new_empty(a.shape[0], a.shape[1], b.shape[1])
        for i, q, k in blocks(a, b):
            scores[i, q, k] = FORMS[form].value(a[i, q, None], b[i, None, k]) @ v
    return scores


def pull_pairs(
    form: str, a: Tensor, b: Tensor, v: Tensor, g: Tensor, shift: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """v_h sum_k g y', v_h sum_q g y' and sum_qk g (y - shift): in parts, before they grow and cancel."""
    result = compiled(f"backward {form}", backward_kernel(form), a, b, v, g, g.mT.contiguous())
    if result is not None:
        da, db, rows = result
        return da, db, (rows.sub_(shift * g.sum(-1, keepdim=True)) if shift else rows).sum((0, 1))
    da, db, dv = torch.zeros_like(a), torch.zeros_like(b), torch.zeros_like(v)
    for i, q, k in blocks(a, b):
        y, part = FORMS[form].value(a[i, q, None], b[i, None, k]), g[i, q, k]
        dv += part.reshape(-1) @ y.flatten(0, 2)
        if shift:
            dv -= shift * part.sum()
        y = FORMS[form].pull(part[..., None], y)
        da[i, q] += y.sum(2)
        db[i, k] += y.sum(1)
    return da.mul_(v), db.mul_(v), dv


def blocks(a: Tensor, b: Tensor) -> Iterator[tuple[slice, slice, slice]]:
    """Slices of batch, queries and keys, each of at most BLOCK pairs x hidden."""
    (count, queries, hidden), keys = a.shape, b.shape[1]
    k = max(1, min(keys, BLOCK // max(1, hidden)))
    q = max(1, min(queries, BLOCK // max(1, k * hidden)))
    i = max(1, min(count, BLOCK // max(1, k * q * hidden)))
    for x in range(0, count, i):
        for y in range(0, queries, q):
            for z in range(0, keys, k):
                yield slice(x, x + i), slice(y, y + q), slice(z, z + k)


def compiled(name: str, kernel: Callable[..., Any], a: Tensor, b: Tensor, *others: Tensor) -> Any:
    """kernel(a, b, *others) in compiled loops, or None if the work is small or there is no compiler."""
    sizes = (a.shape[1], b.shape[1], a.shape[2])
    if a.shape[0] * math.prod(sizes) < LARGE or min(sizes) < 2:  # a size of 1 would be compiled for itself
        return None
    example = functools.partial(arguments, 2 + len(others))
    return kernels.run(f"additive {name}", kernel, example, a, b, *others)


def arguments(count: int, like: Tensor, batch: int) -> list[Tensor]:
    """The first of a, b, v, g, g^T to compile a kernel on: an odd batch, even sizes, no two equal."""
    q, k, hidden = 134, 138, 272
    shapes = [(batch, q, hidden), (batch, k, hidden), (hidden,), (batch, q, k), (batch, k, q)]
    return [like.new_zeros(shape) for shape in shapes[:count]]


# The loops as torch.compile is to fuse them: the tensor of all pairs is written down and never made.


@functools.cache
def forward_kernel(form: str) -> Callable[..., Tensor]:
    def additive_forward(a: Tensor, b: Tensor, v: Tensor) -> Tensor:
        kernels.only_compiled()
        return (FORMS[form].value(a[:, :, None], b[:, None]) * v).sum(-1)

    return additive_forward


@functools.cache
def backward_kernel(form: str) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    def additive_backward(
        a: Tensor, b: Tensor, v: Tensor, g: Tensor, g_by_key: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        kernels.only_compiled()
        value, pull = FORMS[form]
        y, g = value(a[:, :, None], b[:, None]), g[..., None]
        rows = (g * y).sum(2)
        da = pull(g, y).sum(2) * v
        # Keys first: each sum runs over the inner axis, and a second division is cheaper than a stride.
        db = pull(g_by_key[..., None], value(b[:, :, None], a[:, None])).sum(2) * v
        return da, db, rows

    return additive_backward
