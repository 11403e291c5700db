"""Additive scores without the queries x keys x hidden tensor.

    score(q, k) = sum_h v_h tanh(a_qh + b_kh)          a = W q, b = U k

The sigmoid of a sum needs exponentials of its parts only,

    sigmoid(a + b) = 1 / (1 + e^-a e^-b)               tanh(x) = 2 sigmoid(2x) - 1

so A = e^-2a and B = e^-2b are computed once, and a pair costs a multiplication, an addition and a division:

    score(q, k) = 2 sum_h v_h r_qkh - sum_h v_h        r = 1 / (1 + A_qh B_kh)

The backward pass computes r again; dr/da = 2 (r - r^2). The product stands for the definition where A and B
can be represented (see `exponential_factors`); elsewhere, and for relu, the definition is computed pair by pair.
"""

import functools
import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention._common import broadcast_batch_shape, differentiable_backward, is_autocast_enabled
from regard.attention.fast.pairs import compiled_or_none, pairwise_sum, pairwise_sum_backward, require_compiled
from regard.errors import UsageError

__all__ = ["ACTIVATIONS", "additive_scores", "autocast_disabled"]

ACTIVATIONS = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}
TANH_SCALE = {"tanh": 2.0, "sigmoid": 1.0}  # activation(x) = TANH_SCALE sigmoid(TANH_SCALE x) - (TANH_SCALE - 1)
MAX_REFERENCE_WORK = 2**18  # pairs x hidden; below this the definition is the fastest
FACTOR_MARGIN = {torch.float32: 20.0, torch.float64: 40.0}  # sigmoid(+-FACTOR_MARGIN) is 1 or 0 to working precision
FACTOR_REACH = {torch.float32: 68.0, torch.float64: 668.0}  # e^(FACTOR_REACH + FACTOR_MARGIN) is still finite


def additive_scores(
    a: Float[Tensor, "*#batch queries hidden"],
    b: Float[Tensor, "*#batch keys hidden"],
    v: Float[Tensor, " hidden"],
    activation: str = "tanh",
) -> Float[Tensor, "... queries keys"]:
    """The additive score of each query and key, from projected queries a and projected keys b.

        score(q, k) = sum_h v_h activation(a_qh + b_kh)

    Args:
        a: the projected queries
        b: the projected keys
        v: the weight of each hidden unit
        activation: "tanh", "sigmoid" or "relu"

    Shape: a (*batch, queries, hidden), b (*batch, keys, hidden), v (hidden) -> (*batch, queries, keys); the batch axes
        broadcast, and half precision is computed, and returned, in float32

    Returns: the scores

    Example:
        >>> additive_scores(torch.randn(2, 3, 8), torch.randn(2, 5, 8), torch.randn(8)).shape
        torch.Size([2, 3, 5])
    """
    if activation not in ACTIVATIONS:
        raise UsageError(f"activation must be one of {', '.join(ACTIVATIONS)}, got {activation!r}")
    if not (a.dtype == b.dtype == v.dtype in FACTOR_MARGIN):
        dtype = functools.reduce(torch.promote_types, (a.dtype, b.dtype, v.dtype), torch.float32)
        a, b, v = a.to(dtype), b.to(dtype), v.to(dtype)
    batch = broadcast_batch_shape(a, b)
    (queries, hidden), keys, count = a.shape[-2:], b.shape[-2], math.prod(batch)
    # For a compiler a choice by size would tie the graph to it: the operator chooses itself.
    if not torch.compiler.is_compiling() and is_small(count, queries, keys, hidden):
        return reference_additive_scores(a, b, v, activation)
    a = a.expand(*batch, queries, hidden).reshape(count, queries, hidden)
    b = b.expand(*batch, keys, hidden).reshape(count, keys, hidden)
    return forward_op(a, b, v, activation)[0].reshape(*batch, queries, keys)


def is_small(batch_size: int, num_queries: int, num_keys: int, hidden_dim: int) -> bool:
    """Whether the definition is the fastest. With a single query or key a product saves little."""
    limit = MAX_REFERENCE_WORK if min(num_queries, num_keys) > 1 else 4 * MAX_REFERENCE_WORK
    return batch_size * num_queries * num_keys * hidden_dim < limit


def reference_additive_scores(a: Tensor, b: Tensor, v: Tensor, activation: str) -> Tensor:
    """The formula by definition, with the queries x keys x hidden tensor."""
    with autocast_disabled(a):
        return ACTIVATIONS[activation](a.unsqueeze(-2) + b.unsqueeze(-3)) @ v


def autocast_disabled(tensor: Tensor) -> AbstractContextManager[Any]:
    """A context without autocast for the device of a tensor; it would compute sums in half precision.

    Args:
        tensor: a tensor

    Shape: tensor (*)

    Returns: a context manager

    Example:
        >>> with torch.autocast("cpu", torch.bfloat16), autocast_disabled(torch.ones(2, 2)):
        ...     (torch.ones(2, 2) @ torch.ones(2, 2)).dtype
        torch.float32
    """
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if is_autocast_enabled(device) else nullcontext()


# ---- the product, and when it equals the definition


def exponential_factors(a: Tensor, b: Tensor, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    """A, B with 1 / (1 + A B) = sigmoid(scale (a + b)), and half the range of the narrower side.

    Only a + b matters, so per batch element and hidden unit a constant is moved from one side to the other
    until the narrower side lies in [-r, r]. The wider side may then be clamped to [-r - m, r + m]: beyond,
    the sigmoid is saturated for every partner. (Clamping both sides without recentering would be wrong.) With
    r < FACTOR_REACH neither factor overflows; their product may, and 1 / (1 + A B) = 0 is then right.
    """
    x, y = -scale * a, -scale * b  # then in place: new memory costs more than the arithmetic
    low_x, high_x, low_y, high_y = (f(t, 1, keepdim=True) for t in (x, y) for f in (torch.amin, torch.amax))
    reach_x, reach_y = (high_x - low_x) / 2, (high_y - low_y) / 2
    center = torch.where(reach_x <= reach_y, (low_x + high_x) / 2, -(low_y + high_y) / 2)
    reach = torch.minimum(reach_x, reach_y)
    bound = reach + FACTOR_MARGIN[a.dtype]
    x, y = x.sub_(center).clamp_(-bound, bound), y.add_(center).clamp_(-bound, bound)
    return x.exp_(), y.exp_(), reach.amax()


@functools.cache
def build_factors_kernel(activation: str) -> Callable[..., tuple[Tensor, Tensor, Tensor]]:
    def additive_factors(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        require_compiled()
        return exponential_factors(a, b, TANH_SCALE[activation])

    return additive_factors


def can_use_factors(a: Tensor, activation: str) -> bool:
    """Whether the product is used: not on a GPU, where a sigmoid is cheap and reading a value would block."""
    return activation in TANH_SCALE and a.device.type == "cpu"


def compute_factors(a: Tensor, b: Tensor, v: Tensor, activation: str) -> tuple[Tensor, Tensor, Tensor]:
    """A, B and whether they are valid, which NaN and infinity anywhere make False."""
    if not can_use_factors(a, activation):
        return a.new_empty(0), a.new_empty(0), torch.zeros((), dtype=torch.bool)
    if a.numel() == 0 or b.numel() == 0:
        return torch.empty_like(a), torch.empty_like(b), torch.zeros((), dtype=torch.bool)
    result = compiled_or_none(f"factors {activation}", build_factors_kernel(activation), a, b)
    left, right, reach = result or exponential_factors(a, b, TANH_SCALE[activation])
    return left, right, (reach < FACTOR_REACH[a.dtype]) & v.isfinite().all()


# ---- operators: opaque to torch.compile and torch.export, so that they can branch on values


@torch.library.custom_op("regard::additive", mutates_args=())
def forward_op(a: Tensor, b: Tensor, v: Tensor, activation: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The scores, and for the backward pass the factors and whether they were used."""
    with torch.no_grad(), autocast_disabled(a):
        a, b, v = a.detach().contiguous(), b.detach().contiguous(), v.detach().contiguous()
        left, right, fits = compute_factors(a, b, v, activation)
        if not fits:
            return pairwise_sum(activation, a, b, v), left, right, fits
        scale = TANH_SCALE[activation]
        scores = pairwise_sum("product", left, right, scale * v).sub_((scale - 1) * v.sum())
        return scores, left, right, fits


@torch.library.custom_op("regard::additive_backward", mutates_args=())
def backward_op(
    g: Tensor, a: Tensor, b: Tensor, v: Tensor, left: Tensor, right: Tensor, fits: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients at a, b and v."""
    with torch.no_grad(), autocast_disabled(a):
        g, v = g.detach().contiguous(), v.detach().contiguous()
        if not fits:
            return pairwise_sum_backward(activation, a.detach().contiguous(), b.detach().contiguous(), v, g)
        scale = TANH_SCALE[activation]
        shift = (scale - 1) / scale
        da, db, dv = pairwise_sum_backward("product", left.detach(), right.detach(), scale**2 * v, g, shift)
        return da, db, dv.mul_(scale)


@forward_op.register_fake
def _(a: Tensor, b: Tensor, v: Tensor, activation: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    factors = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in (a, b)]
    left, right = factors if can_use_factors(a, activation) else (a.new_empty(0), a.new_empty(0))
    fits = torch.empty((), dtype=torch.bool)
    return a.new_empty(a.shape[0], a.shape[1], b.shape[1]), left, right, fits


@backward_op.register_fake
def _(
    g: Tensor, a: Tensor, b: Tensor, v: Tensor, left: Tensor, right: Tensor, fits: Tensor, activation: str
) -> tuple[Tensor, Tensor, Tensor]:
    da, db, dv = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (a, b, v))
    return da, db, dv


def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.activation = inputs
    ctx.save_for_backward(*tensors, *output[1:])
    ctx.set_materialize_grads(False)


def backward(ctx: Any, g: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    a, b, v, left, right, fits = ctx.saved_tensors
    if g is None:
        return None, None, None, None
    if torch.is_grad_enabled():  # a second derivative is required: torch differentiates the definition
        definition = functools.partial(reference_additive_scores, activation=ctx.activation)
        return *differentiable_backward(definition, (a, b, v), g), None
    return *backward_op(g, a, b, v, left, right, fits, ctx.activation), None


forward_op.register_autograd(backward, setup_context=setup_context)
