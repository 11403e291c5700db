"""Sparse normalizers: most keys get weight 0 exactly, or all but one (hardmax, Sample, StraightThrough, Gumbel).

Sparsemax and entmax belong to one family. With z_i = (alpha - 1) (s_i - max_j s_j) <= 0,

    w_i = max(z_i + t, 0) ^ (1 / (alpha - 1)),    t such that the weights sum to 1

and n^(1 - alpha) <= t <= 1 for n keys: at the lower bound each of n weights is at most 1/n, at the upper one
the best key alone has 1. For alpha = 2 and 1.5 a sort would give t in closed form, but a sort costs more than all
passes over the scores that find t here.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention._common import is_transformed, upcast_half
from regard.attention.normalizers import base
from regard.attention.normalizers.base import Normalizer, NormalizerWrapper, Number, Scores, Weights, masked_normalizer
from regard.attention.normalizers.basic import divide_by_temperature, softmax
from regard.errors import UsageError

__all__ = ["Entmax", "Gumbel", "Sample", "StraightThrough", "entmax15", "hardmax", "sparsemax"]


def _threshold_weights(z: Tensor, t: Tensor, alpha: float) -> Tensor:
    """max(z + t, 0)^q with q = 1 / (alpha - 1)."""
    if alpha == 2:
        return (z + t).clamp_(min=0)
    if alpha == 1.5:
        return (z + t).clamp_(min=0).square_()
    # As t^q (1 + z/t)^q: near alpha = 1, where q is large, z + t would round z away.
    return (z / t).clamp_(min=-1).log1p_().add_(t.log()).mul_(1 / (alpha - 1)).exp_()


def _bisect(z: Tensor, alpha: float) -> Tensor:
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


# One opaque operator: unrolled, the bisection would take a compiler a minute, and Newton stops by a value.
@torch.library.custom_op("regard::entmax", mutates_args=())
def _entmax(scores: Tensor, alpha: float) -> Tensor:
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
    ratio = _ratio(weights, ctx.alpha)
    weighted = ratio * grad
    mean = weighted.sum(-1, keepdim=True) / ratio.sum(-1, keepdim=True)
    return weighted - ratio * mean, None


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


def _entmax_weights(scores: Tensor, alpha: float) -> Tensor:
    if is_transformed() and not torch.compiler.is_compiling():
        return _TransformableEntmax.apply(scores, alpha)
    return _entmax(scores, alpha)


@masked_normalizer
def sparsemax(scores: Scores) -> Weights:
    """The projection of the scores onto the simplex: keys with low scores get weight 0.

        w = argmin_p |p - s|^2,    so w_i = max(s_i - tau, 0)

    Args:
        scores: the masked scores

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Returns: the weights

    Reference: Martins and Astudillo (2016), arXiv 1602.02068.

    Example:
        >>> sparsemax(torch.tensor([[1.0, 0.5, -1.0, -torch.inf]])).tolist()
        [[0.75, 0.25, 0.0, 0.0]]
    """
    return _entmax_weights(scores, 2.0)


@masked_normalizer
def entmax15(scores: Scores) -> Weights:
    """Between softmax and sparsemax: sparse, and with a continuous gradient.

        w_i = max(s_i / 2 - tau, 0)^2

    Args:
        scores: the masked scores

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Returns: the weights

    Reference: Peters, Niculae and Martins (2019), arXiv 1905.05702.

    Example:
        >>> entmax15(torch.tensor([[1.0, 1.0, -2.0, -torch.inf]])).tolist()
        [[0.5, 0.5, 0.0, 0.0]]
    """
    return _entmax_weights(scores, 1.5)


class Entmax(Normalizer):
    """The family from softmax (alpha = 1) over entmax15 (1.5) to sparsemax (2) and sparser.

        w_i = max((alpha - 1) s_i - tau, 0)^(1 / (alpha - 1))

    Args:
        alpha: 1 or more; the larger, the sparser

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: Peters, Niculae and Martins (2019), arXiv 1905.05702; Blondel, Martins and Niculae (2019), arXiv
        1805.09717.

    Example:
        >>> Entmax(2)(torch.tensor([[1.0, 0.5, -1.0, -torch.inf]])).tolist()
        [[0.75, 0.25, 0.0, 0.0]]
    """

    repr_settings = ("alpha",)

    def __init__(self, alpha: Number) -> None:
        super().__init__()
        if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 1 <= alpha < float("inf"):
            raise UsageError(f"Entmax: alpha must be a number, 1 (softmax) or more, not {alpha!r}")
        self.alpha = float(alpha)

    def compute_weights(self, scores: Tensor) -> Tensor:
        return torch.softmax(scores, -1) if self.alpha == 1 else _entmax_weights(scores, self.alpha)


# ---- one key: the best one, or a sample


def first_argmax_one_hot(scores: Tensor) -> Tensor:
    """1 at the first largest score of each row, 0 elsewhere; no gradient passes."""
    best = scores.argmax(-1, keepdim=True)
    return torch.zeros_like(scores).scatter(-1, best, 1.0)


@masked_normalizer
def hardmax(scores: Scores) -> Weights:
    """Weight 1 for the best key, the first one of ties. The gradient is 0.

        w_i = 1 if i = argmax_j s_j else 0

    Args:
        scores: the masked scores

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Returns: the weights

    Example:
        >>> hardmax(torch.tensor([[1.0, 3.0, 3.0, -torch.inf]])).tolist()
        [[0.0, 1.0, 0.0, 0.0]]
    """
    return first_argmax_one_hot(scores)


class _NoisyNormalizer(Normalizer):
    """Scores with Gumbel noise in training: the key with the largest one is a sample from their softmax."""

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.generator = generator

    @property
    def is_random(self) -> bool:
        return self.training

    def add_noise(self, scores: Tensor) -> Tensor:
        """The scores plus -log(-log u), u uniform in (0, 1): always finite, so that a hidden key stays at -inf."""
        if not self.training:
            return scores
        if self.generator is None:  # torch.rand(..., generator=None) does not compile with dynamic shapes
            uniform = torch.rand_like(scores)
        else:
            uniform = torch.rand(scores.shape, generator=self.generator, dtype=scores.dtype, device=scores.device)
        limits = torch.finfo(scores.dtype)
        return scores - torch.log(-torch.log(uniform.clamp(limits.tiny, 1 - limits.eps / 2)))


class Sample(_NoisyNormalizer):
    """Weight 1 for one key, sampled from softmax; in eval mode for the best one. The gradient is 0.

        w_i = 1 with probability softmax(s)_i

    Train it with REINFORCE: ``log_prob`` of the sampled key has a gradient, and ``entropy`` is the usual bonus.

    Args:
        generator: the random number generator, on the device of the scores; torch.compile cannot trace one

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: Xu et al. (2015), arXiv 1502.03044, hard attention.

    Example:
        >>> weights = Sample()(torch.tensor([[0.5, 1.0, -torch.inf]]))
        >>> weights.sum().item(), weights[0, 2].item()
        (1.0, 0.0)
    """

    def compute_weights(self, scores: Tensor) -> Tensor:
        return first_argmax_one_hot(self.add_noise(scores))

    def log_prob(self, scores: Scores, weights: Weights) -> Float[Tensor, "*batch queries"]:
        """The log-probability of the keys sampled in ``weights``; 0 for a query without visible keys."""
        if scores.shape[-1] == 0:
            return scores.sum(-1)
        wide = upcast_half(scores)
        log_probs = torch.log_softmax(base.fill_empty_rows(wide), -1)
        sampled = log_probs.gather(-1, weights.argmax(-1, keepdim=True))
        return base.zero_hidden(sampled, wide.detach().amax(-1, keepdim=True)).squeeze(-1).to(scores.dtype)

    def entropy(self, scores: Scores) -> Float[Tensor, "*batch queries"]:
        """The entropy, -sum_i w_i log w_i with w = softmax(s); 0 for a query without visible keys."""
        if scores.shape[-1] == 0:
            return scores.sum(-1)
        wide = upcast_half(scores)
        log_probs = torch.log_softmax(base.fill_empty_rows(wide), -1)
        # 0 log 0 = 0: for a hidden key it would be 0 * -inf.
        return -(log_probs.exp() * base.zero_hidden(log_probs, wide)).sum(-1).to(scores.dtype)


class Gumbel(_NoisyNormalizer):
    """Gumbel-softmax: softmax of scores with noise, a differentiable sample of one key; no noise in eval mode.

        w = softmax((s + g) / temperature),    g_i = -log(-log u_i)

    Args:
        temperature: a positive number or tensor, as in `Temperature`
        generator: the random number generator, as in `Sample`

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: Jang, Gu and Poole (2017), arXiv 1611.01144; Maddison, Mnih and Teh (2017), arXiv 1611.00712.

    Example:
        >>> Gumbel(temperature=0.5).eval()(torch.zeros(1, 4)).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """

    repr_settings = ("temperature",)

    temperature: Tensor | Number

    def __init__(self, temperature: Tensor | Number = 1.0, generator: torch.Generator | None = None) -> None:
        super().__init__(generator)
        base.store_positive(self, "temperature", temperature)

    def compute_weights(self, scores: Tensor) -> Tensor:
        return torch.softmax(divide_by_temperature(self.add_noise(scores), self.temperature), -1)


class StraightThrough(NormalizerWrapper):
    """The straight-through estimator: weight 1 for one key, with the gradient of the soft weights.

        forward  w = one-hot of argmax_i normalize(s)_i, the first on ties
        backward the gradient of normalize(s)

    Around `hardmax` or `Sample` the forward pass is theirs and the gradient that of softmax; around `Sample` there are
    also its ``log_prob`` and ``entropy``. Around `Gumbel` this is the estimator of Jang, Gu and Poole.

    Args:
        normalize: the wrapped normalizer

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: Bengio, Léonard and Courville (2013), arXiv 1308.3432; Jang, Gu and Poole (2017), arXiv 1611.01144.

    Example:
        >>> scores = torch.tensor([[0.0, 1.0, -torch.inf]], requires_grad=True)
        >>> weights = StraightThrough(softmax)(scores)
        >>> weights.tolist(), torch.autograd.grad(weights[0, 1], scores)[0].abs().sum().item() > 0
        ([[0.0, 1.0, 0.0]], True)
    """

    def __init__(self, normalize: base.NormalizeFunction) -> None:
        super().__init__(normalize)
        if isinstance(normalize, Sample):
            self.log_prob = normalize.log_prob
            self.entropy = normalize.entropy

    def forward(self, scores: Scores) -> Weights:
        if scores.shape[-1] == 0:
            return scores
        wide = upcast_half(scores)
        if self.normalize is hardmax or isinstance(self.normalize, Sample):
            hard, soft = self.normalize(wide), softmax(wide)
        else:
            soft = self.normalize(wide)
            hard = first_argmax_one_hot(soft) * (soft.amax(-1, keepdim=True) > 0)
        # The difference is exactly 0, so the result is exactly one-hot.
        return (hard.detach() + (soft - soft.detach())).to(scores.dtype)
