"""The weights of sparsemax and entmax, and their gradients.

Sparsemax and entmax belong to one family. With z_i = (alpha - 1) (s_i - max_j s_j) <= 0,

    w_i = max(z_i + t, 0) ^ (1 / (alpha - 1)),    t such that the weights sum to 1

and n^(1 - alpha) <= t <= 1 for n keys: at the lower bound each of n weights is at most 1/n, at the upper one
the best key alone has 1. For alpha = 2 and 1.5 a sort would give t in closed form, but a sort costs more than all
passes over the scores that find t here. For alpha > 2 the weights are steep at 0, and t is found relative to the
last key of the support.
"""

from typing import Any

import torch
from torch import Tensor

from regard.attention._common import is_transformed

__all__ = ["entmax_weights"]


Alpha = float | Tensor  # a tensor is (*batch, queries, 1)


def _threshold_weights(z: Tensor, t: Tensor, alpha: Alpha) -> Tensor:
    """max(z + t, 0)^q with q = 1 / (alpha - 1)."""
    if not isinstance(alpha, Tensor):
        if alpha == 2:
            return (z + t).clamp_(min=0)
        if alpha == 1.5:
            return (z + t).clamp_(min=0).square_()
    # As t^q (1 + z/t)^q: near alpha = 1, where q is large, z + t would round z away.
    return (z / t).clamp_(min=-1).log1p_().add_(t.log()).mul_(1 / (alpha - 1)).exp_()


def _bisect(z: Tensor, alpha: Alpha) -> Tensor:
    """t = exp((alpha - 1) u) with -log n <= u <= 0, bisected until u is exact."""
    step = torch.full_like(z[..., :1], z.shape[-1]).log_()
    u = -step
    for _ in range(25 if z.dtype == torch.float32 else 54):
        step = step / 2
        trial = u + step
        total = _threshold_weights(z, torch.exp((alpha - 1) * trial), alpha).sum(-1, keepdim=True)
        u = torch.where(total <= 1, trial, u)
    return torch.exp((alpha - 1) * u)


def _newton(z: Tensor, alpha: float) -> Tensor:
    """t for alpha = 2 or 1.5: the sum of the weights is convex in t, so steps from t = 1 never overshoot.

    For alpha = 2 each step but the last removes a key (Michelot 1986), so n + 1 steps suffice; five to ten are usual.
    """
    t = torch.ones_like(z[..., :1])
    tolerance = 8 * torch.finfo(z.dtype).eps
    for _ in range(z.shape[-1] + 50):
        excess = (z + t).clamp_(min=0)
        if alpha == 2:
            total, slope = excess.sum(-1, keepdim=True), excess.sign_().sum(-1, keepdim=True)
        else:
            slope, total = 2 * excess.sum(-1, keepdim=True), excess.square_().sum(-1, keepdim=True)
        step = (total - 1) / slope
        t = t - step
        if not (step > tolerance * t).any():
            break
    return t


def as_double(tensor: Tensor) -> Tensor:
    """The tensor in float64, where the device has it."""
    return tensor if tensor.device.type == "mps" else tensor.double()  # Apple's GPUs have no float64


def _solve_from_boundary(z: Tensor, alpha: Alpha, steps: int) -> Tensor:
    """The weights for alpha > 2, where they are steep near 0: t is measured from the last key with a weight, b.

    w_i = (z_i - z_b + p^(alpha - 1))^q, and p is the weight of b itself. A key is in the support where the keys before
    it, with t = -z of this key, have weights whose sum is below 1.
    """
    q, sorted_z = 1 / (alpha - 1), z.sort(-1, descending=True).values

    def weigh(boundary: Tensor, p: Tensor) -> Tensor:
        weights = (z - boundary + p ** (alpha - 1)).clamp(min=0).pow(q)
        return torch.where(z == boundary, p, weights)  # p^(alpha - 1) may be too small for a float

    p = torch.zeros_like(z[..., :1])
    last = p.long()
    for bit in reversed(range(z.shape[-1].bit_length())):
        trial = last + (1 << bit)
        boundary = sorted_z.gather(-1, trial.clamp(max=z.shape[-1] - 1))
        last = torch.where((trial < z.shape[-1]) & (weigh(boundary, p).sum(-1, keepdim=True) < 1), trial, last)
    boundary = sorted_z.gather(-1, last)
    for k in range(1, steps + 1):
        trial = p + 0.5**k
        p = torch.where(weigh(boundary, trial).sum(-1, keepdim=True) <= 1, trial, p)
    return weigh(boundary, p)


# One opaque operator: unrolled, the bisection would take a compiler a minute, and Newton stops by a value.
@torch.library.custom_op("regard::entmax", mutates_args=())
def _entmax(scores: Tensor, alpha: float) -> Tensor:
    if alpha > 2:
        wide = as_double(scores)
        z = (wide - wide.amax(-1, keepdim=True)).mul_(alpha - 1)
        weights = _solve_from_boundary(z, alpha, 32 if scores.dtype == torch.float32 else 52)
        return weights.div_(weights.sum(-1, keepdim=True)).to(scores.dtype)
    z = (scores - scores.amax(-1, keepdim=True)).mul_(alpha - 1)
    # Stopping by a value makes a GPU wait, and cannot be recorded in a CUDA graph.
    newton = alpha in (1.5, 2.0) and z.device.type == "cpu"
    weights = _threshold_weights(z, _newton(z, alpha) if newton else _bisect(z, alpha), alpha)
    return weights.div_(weights.sum(-1, keepdim=True))


@_entmax.register_fake
def _(scores: Tensor, alpha: float) -> Tensor:
    return torch.empty_like(scores)


def _setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
    ctx.alpha = inputs[1]
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    """The Jacobian is diag(r) - r r' / sum(r) with r = w^(2 - alpha) on the support."""
    (weights,) = ctx.saved_tensors
    if ctx.alpha > 2:
        return _backward_from_boundary(as_double(weights), as_double(grad), ctx.alpha).to(grad.dtype), None
    ratio = _ratio(weights, ctx.alpha)
    weighted = ratio * grad
    mean = weighted.sum(-1, keepdim=True) / ratio.sum(-1, keepdim=True)
    return weighted - ratio * mean, None


def _relative_powers(weights: Tensor, alpha: Alpha) -> tuple[Tensor, Tensor]:
    """r / r_b, which is at most 1, and the key b with the largest r: for alpha > 2 that with the smallest weight."""
    base = weights.detach().masked_fill(weights <= 0, torch.inf).argmin(-1, keepdim=True)
    if isinstance(alpha, Tensor):
        base = torch.where(alpha > 2, base, weights.detach().argmax(-1, keepdim=True))
    return torch.where(weights > 0, weights / weights.gather(-1, base), 1.0).pow(2 - alpha) * (weights > 0), base


def _backward_from_boundary(weights: Tensor, grad: Tensor, alpha: Alpha) -> Tensor:
    """The same for alpha > 2, where r grows without limit towards 0, and for any: relative to the key b."""
    share, base = _relative_powers(weights, alpha)
    relative = grad - grad.gather(-1, base)
    support = (weights > 0) & (relative != 0)
    weighted = torch.where(support, weights, 1.0).pow(2 - alpha) * relative * support
    return weighted - share * (weighted.sum(-1, keepdim=True) / share.sum(-1, keepdim=True))


def _ratio(weights: Tensor, alpha: float) -> Tensor:
    if alpha == 2:
        return weights.sign()
    support = weights > 0
    # The power of 0 has no finite slope, and it would reach the second derivative.
    powers = torch.where(support, weights, 1.0).pow(2 - alpha)
    return powers * support


_entmax.register_autograd(_backward, setup_context=_setup_context)


class _TransformableEntmax(torch.autograd.Function):
    """The same for torch.func and forward mode, which would silently drop the derivative of an operator."""

    @staticmethod
    def forward(scores: Tensor, alpha: float) -> Tensor:
        return _entmax(scores, alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        _setup_context(ctx, inputs, output)
        ctx.save_for_forward(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _backward(ctx, grad)

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _backward(ctx, tangent)[0]  # the Jacobian is symmetric

    @staticmethod
    def vmap(info: Any, axes: tuple[int, None], scores: Tensor, alpha: float) -> tuple[Tensor, int]:
        return _TransformableEntmax.apply(scores.movedim(axes[0], 0), alpha), 0


# ---- a tensor of alphas, with a gradient


@torch.library.custom_op("regard::entmax_rows", mutates_args=())
def _entmax_rows(scores: Tensor, alpha: Tensor) -> Tensor:
    wide, alpha = as_double(scores), as_double(alpha)
    z = (wide - wide.amax(-1, keepdim=True)).mul_(alpha - 1)
    weights = _threshold_weights(z, _bisect(z, alpha.clamp(max=2)), alpha.clamp(max=2))
    if not z.is_cpu or (alpha > 2).any():  # reading a value would make a GPU wait
        weights = torch.where(alpha > 2, _solve_from_boundary(z, alpha.clamp(min=2), 52), weights)
    return weights.div_(weights.sum(-1, keepdim=True)).to(scores.dtype)


@_entmax_rows.register_fake
def _(scores: Tensor, alpha: Tensor) -> Tensor:
    return torch.empty_like(scores)


def _setup_rows_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(inputs[1], output)


def _rows_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
    alpha, weights = (as_double(tensor) for tensor in ctx.saved_tensors)
    wide = as_double(grad)
    slope = (_differentiate_alpha(weights, alpha) * wide).sum(-1, keepdim=True) if ctx.needs_input_grad[1] else None
    return _backward_from_boundary(weights, wide, alpha).to(grad.dtype), None if slope is None else slope.to(grad.dtype)


def _differentiate_alpha(weights: Tensor, alpha: Tensor) -> Tensor:
    """dw / dalpha = ((w - p) / (alpha - 1) - w log w + p sum_j w_j log w_j) / (alpha - 1), p = w^(2 - alpha) / sum.

    Near alpha = 1, where w - p vanishes, the difference comes from expm1.

    Reference: Correia, Niculae and Martins (2019), arXiv 1909.00015, proposition 1.
    """
    support, excess = weights > 0, alpha - 1
    weights = weights / weights.sum(-1, keepdim=True)  # the error of a rounded sum would be divided by excess^2
    share = _relative_powers(weights, alpha)[0]
    skewed = share / share.sum(-1, keepdim=True)
    logs = torch.where(support, weights, 1.0).log()
    small = torch.expm1(-excess.clamp(max=1) * logs) / excess
    mean = (weights * small).sum(-1, keepdim=True)
    difference = torch.where(alpha <= 2, weights * (mean - small) / (1 + excess * mean), (weights - skewed) / excess)
    entropy = (weights * logs).sum(-1, keepdim=True)
    return (difference - weights * logs + skewed * entropy) / excess


_entmax_rows.register_autograd(_rows_backward, setup_context=_setup_rows_context)


class _TransformableEntmaxRows(torch.autograd.Function):
    """The same for torch.func and forward mode."""

    @staticmethod
    def forward(scores: Tensor, alpha: Tensor) -> Tensor:
        return _entmax_rows(scores, alpha)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        _setup_rows_context(ctx, inputs, output)
        ctx.save_for_forward(inputs[1], output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None]:
        return _rows_backward(ctx, grad)

    @staticmethod
    def jvp(ctx: Any, scores_tangent: Tensor, alpha_tangent: Tensor) -> Tensor:
        alpha, weights = (as_double(tensor) for tensor in ctx.saved_tensors)
        change = _backward_from_boundary(weights, as_double(scores_tangent), alpha)
        return (change + _differentiate_alpha(weights, alpha) * as_double(alpha_tangent)).to(scores_tangent.dtype)

    @staticmethod
    def vmap(info: Any, axes: tuple[int | None, int | None], *tensors: Tensor) -> tuple[Tensor, int]:
        batched = [
            tensor.expand(info.batch_size, *tensor.shape) if axis is None else tensor.movedim(axis, 0)
            for tensor, axis in zip(tensors, axes, strict=True)
        ]
        return _TransformableEntmaxRows.apply(*batched), 0


def entmax_weights(scores: Tensor, alpha: Alpha) -> Tensor:
    """The weights of `Entmax(alpha)` for rows with a visible key.

    Args:
        scores: the masked scores
        alpha: above 1; a tensor broadcasts to (*batch, queries, 1)

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Returns: the weights

    Example:
        >>> entmax_weights(torch.tensor([[1.0, 0.5, -1.0]]), 2.0).tolist()
        [[0.75, 0.25, 0.0]]
    """
    is_opaque = not is_transformed() or torch.compiler.is_compiling()
    if not isinstance(alpha, Tensor):
        return _entmax(scores, alpha) if is_opaque else _TransformableEntmax.apply(scores, alpha)
    rows = alpha.to(scores).expand(*scores.shape[:-1], 1)
    return _entmax_rows(scores, rows) if is_opaque else _TransformableEntmaxRows.apply(scores, rows)
