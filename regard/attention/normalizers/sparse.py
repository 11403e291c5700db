"""Sparse normalizers: most keys get weight 0 exactly, or all but one (hardmax, Sample, StraightThrough, Gumbel)."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention._common import is_transformed, upcast_half
from regard.attention.module import Device, Dtype
from regard.attention.normalizers import base
from regard.attention.normalizers.base import Normalizer, Number, Scores, Weights, masked_normalizer
from regard.attention.normalizers.basic import divide_by_temperature, softmax
from regard.attention.normalizers.entmax import entmax_weights
from regard.attention.normalizers.wrappers import NormalizerWrapper, as_masked_normalizer
from regard.errors import ShapeError, UsageError

__all__ = ["Entmax", "Gumbel", "Sample", "StraightThrough", "entmax15", "hardmax", "sparsemax"]

MIN_EXCESS = 1e-6
"""A learned alpha stays this far above 1: closer to it, float32 would round it to 1."""


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
    return entmax_weights(scores, 2.0)


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
    return entmax_weights(scores, 1.5)


class Entmax(Normalizer):
    """The family from softmax (alpha = 1) over entmax15 (1.5) to sparsemax (2) and sparser.

        w_i = max((alpha - 1) s_i - tau, 0)^(1 / (alpha - 1))

    Args:
        alpha: 1 or more, the larger, the sparser; or a tensor above 1 that broadcasts to (*batch, queries, 1), such as
            (heads, 1, 1), with a gradient if it requires one
        learned: whether alpha is trained, from this value above 1; it is 1 + exp(log_excess) and at least 1.000001
        device: the device of a learned alpha
        dtype: the dtype of a learned alpha

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: Peters, Niculae and Martins (2019), arXiv 1905.05702; Blondel, Martins and Niculae (2019), arXiv
        1805.09717; a learned alpha: Correia, Niculae and Martins (2019), arXiv 1909.00015.

    Example:
        >>> Entmax(2)(torch.tensor([[1.0, 0.5, -1.0, -torch.inf]])).tolist()
        [[0.75, 0.25, 0.0, 0.0]]
        >>> Entmax(torch.tensor([[2.0], [1.5]]))(torch.tensor([[1.0, 0.5, -1.0], [1.0, 1.0, -2.0]])).tolist()
        [[0.75, 0.25, 0.0], [0.5, 0.5, 0.0]]
    """

    def __init__(
        self, alpha: Number | Tensor, learned: bool = False, *, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        if isinstance(alpha, Tensor):
            if alpha.dim() and alpha.shape[-1] != 1:
                raise ShapeError(
                    f"Entmax: alpha must be a number or (*batch, queries, 1), got {tuple(alpha.shape)}; write "
                    "alpha[..., None] for one of each query"
                )
            if not learned:
                _check_above_1(alpha, alpha.dtype)
        elif isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not 1 <= alpha < float("inf"):
            raise UsageError(f"Entmax: alpha must be a number, 1 (softmax) or more, not {alpha!r}")
        if learned:
            initial = torch.as_tensor(alpha, dtype=torch.float64).detach()
            if not ((initial > 1 + MIN_EXCESS) & initial.isfinite()).all():
                raise UsageError(f"Entmax: a learned alpha must start above {1 + MIN_EXCESS}, not at {alpha}")
            self._initial = (initial - 1 - MIN_EXCESS).log().tolist()
            self.log_excess = nn.Parameter(torch.empty(initial.shape, device=device, dtype=dtype))
            self._init_parameters()
        else:
            base.store_setting(self, "fixed_alpha", alpha if isinstance(alpha, Tensor) else float(alpha))
        self.learned = learned

    def _init_parameters(self) -> None:
        if "log_excess" in self._parameters:
            with torch.no_grad():
                self.log_excess.copy_(torch.tensor(self._initial))

    @property
    def alpha(self) -> Any:
        """The current alpha: a number, or a tensor if it is learned (then in float32 or wider) or one of several."""
        return 1 + MIN_EXCESS + upcast_half(self.log_excess).exp() if self.learned else self.fixed_alpha

    def compute_weights(self, scores: Tensor) -> Tensor:
        alpha = self.alpha
        if not isinstance(alpha, Tensor) and alpha == 1:
            return torch.softmax(scores, -1)
        if isinstance(alpha, Tensor) and not self.learned:
            _check_above_1(alpha, scores.dtype)
        return entmax_weights(scores, alpha)

    def extra_repr(self) -> str:
        alpha = self.alpha
        displayed = f"tensor{tuple(alpha.shape)}" if isinstance(alpha, Tensor) else alpha
        return f"alpha={displayed}{', learned=True' if self.learned else ''}"


def _check_above_1(alpha: Tensor, dtype: torch.dtype) -> None:
    """Refuse an alpha that gives NaN; where its values cannot be read at once, it is not checked."""
    if not alpha.is_cpu or is_transformed():
        return
    rounded = alpha.detach().to(dtype)
    if not ((rounded > 1) & rounded.isfinite()).all():
        raise UsageError(
            f"Entmax: a tensor alpha must be above 1 and finite everywhere, also when it is rounded to {dtype}; for "
            "softmax, write the number 1"
        )


# ---- one key: the best one, or a sample


def first_argmax_one_hot(scores: Tensor) -> Tensor:
    """1 at the first largest score of each row, 0 elsewhere; no gradient passes."""
    scores = scores.detach()
    best = scores.argmax(-1, keepdim=True)
    top = scores.gather(-1, best)  # NaN, if there is one
    return torch.zeros_like(scores).scatter(-1, best, top.masked_fill(~top.isnan(), 1.0))


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
        base.store_temperature(self, temperature)

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
            soft = as_masked_normalizer(self.normalize)(wide)
            hard = first_argmax_one_hot(soft) * (soft.amax(-1, keepdim=True) > 0)
        # The difference is exactly 0, so the result is exactly one-hot.
        return (hard.detach() + (soft - soft.detach())).to(scores.dtype)
