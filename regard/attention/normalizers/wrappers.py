"""Normalizers that wrap another normalizer."""

from __future__ import annotations

import torch
from jaxtyping import Shaped
from torch import Tensor

from regard.attention._common import upcast_half
from regard.attention.normalizers.base import (
    FunctionNormalizer,
    NormalizeFunction,
    Number,
    Scores,
    Weights,
    check_positive,
    is_random,
    store_setting,
)
from regard.attention.normalizers.basic import Sample, first_argmax_one_hot, hardmax, softmax
from regard.errors import ShapeError, UsageError

__all__ = ["Dropout", "GaussianWindow", "NormalizerWrapper", "StraightThrough"]


class NormalizerWrapper(FunctionNormalizer):
    """A normalizer that changes the weights of the wrapped one, ``normalize``.

    Args:
        normalize: the wrapped normalizer

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Example:
        >>> class Halved(NormalizerWrapper):
        ...     def compute_weights(self, scores):
        ...         return self.normalize(scores) / 2
        >>> Halved(softmax)(torch.zeros(1, 2)).tolist()
        [[0.25, 0.25]]
    """

    def __init__(self, normalize: NormalizeFunction) -> None:
        super().__init__(normalize)
        name = type(self).__name__
        if not callable(normalize) or isinstance(normalize, type):
            raise TypeError(f"{name}: normalize must be a callable from scores to weights, not {normalize!r}")
        if isinstance(normalize, Dropout):
            raise UsageError(f"{name} cannot wrap a Dropout, which must be outermost: write Dropout({name}(...), p)")

    def extra_repr(self) -> str:
        return "" if isinstance(self.normalize, torch.nn.Module) else getattr(self.normalize, "__name__", "")


class Dropout(NormalizerWrapper):
    """Drops weights at random in training, and scales the others.

        w_i = normalize(s)_i / (1 - p) with probability 1 - p, else 0

    In `attend`, ``.weights`` are those before dropping; the context uses those that ``drop_weights`` returns.

    Args:
        normalize: the wrapped normalizer
        p: the probability that a weight is dropped

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: Srivastava et al. (2014); on attention weights Vaswani et al. (2017), arXiv 1706.03762.

    Example:
        >>> Dropout(softmax, p=0.5).eval()(torch.zeros(1, 4)).tolist()
        [[0.25, 0.25, 0.25, 0.25]]
    """

    def __init__(self, normalize: NormalizeFunction, p: Number) -> None:
        super().__init__(normalize)
        if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0 <= p <= 1:
            raise UsageError(f"Dropout: p must be a probability from 0 to 1, not {p!r}")
        self.p = float(p)

    @property
    def is_random(self) -> bool:
        return (self.training and self.p > 0) or is_random(self.normalize)

    def forward(self, scores: Scores) -> Weights:
        return self.drop_weights(self.normalize(scores))

    def drop_weights(self, weights: Weights) -> Weights:
        """The weights after dropping; in eval mode the weights."""
        if not self.training or self.p == 0:
            return weights
        # rand and a comparison cost a third of bernoulli_ on a CPU; bfloat16 would round the probability.
        mask = torch.rand(weights.shape, device=weights.device, dtype=torch.float32) >= self.p
        return weights * mask * (1 / (1 - self.p) if self.p < 1 else 0.0)

    def extra_repr(self) -> str:
        return ", ".join(filter(None, [super().extra_repr(), f"p={self.p}"]))


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

    def __init__(self, normalize: NormalizeFunction) -> None:
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


class GaussianWindow(NormalizerWrapper):
    """Weights times a Gaussian around a center, not normalized again.

        w_i = normalize(s)_i exp(-(i - center)^2 / (2 sigma^2))

    Args:
        normalize: the wrapped normalizer
        center: a number, or (*batch, queries) with the leading batch axes of the scores
        sigma: a positive number, or (*batch, queries) with the leading batch axes of the scores

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: Luong, Pham and Manning (2015), arXiv 1508.04025, eq. 10, "local-p".

    Example:
        >>> GaussianWindow(softmax, center=torch.tensor([0.0]), sigma=1.0)(torch.zeros(1, 2))
        tensor([[0.5000, 0.3033]])
    """

    center: Tensor | Number
    sigma: Tensor | Number
    key_positions: Tensor | None

    def __init__(self, normalize: NormalizeFunction, center: Tensor | Number, sigma: Tensor | Number) -> None:
        super().__init__(normalize)
        check_positive("GaussianWindow", "sigma", sigma)
        store_setting(self, "center", center)
        store_setting(self, "sigma", sigma)
        self.key_positions = None

    @property
    def is_positional(self) -> bool:
        return True

    @property
    def sampler(self) -> NormalizeFunction:
        """The wrapped normalizer, which samples the key if there is a choice."""
        return self.normalize

    def with_key_positions(self, key_positions: Shaped[Tensor, "..."]) -> GaussianWindow:
        """A copy for keys at these positions, broadcastable to (*batch, queries, keys), instead of 0..n-1."""
        window = GaussianWindow(self.normalize, self.center, self.sigma)
        window.training = self.training  # train() would also change the wrapped normalizer
        window.key_positions = key_positions
        return window

    def forward(self, scores: Scores) -> Weights:
        wide = upcast_half(scores)
        positions = self.key_positions
        if positions is None:
            positions = torch.arange(scores.shape[-1], device=scores.device)
        distance = positions.to(wide.dtype) - _align_batch_axes("center", self.center, wide)
        window = torch.exp(-0.5 * (distance / _align_batch_axes("sigma", self.sigma, wide)) ** 2)
        return (self.normalize(wide) * window).to(scores.dtype)


def _align_batch_axes(name: str, value: Tensor | Number, scores: Tensor) -> Tensor | Number:
    """(*batch, queries) -> (*batch, 1 ..., queries, 1): batch axes are the leading ones of the scores."""
    if not isinstance(value, Tensor) or value.ndim == 0:
        return value
    missing = scores.ndim - 1 - value.ndim
    if missing < 0:
        raise ShapeError(
            f"GaussianWindow: {name} must have axes (*batch, queries) of the scores {tuple(scores.shape)}, got "
            f"{tuple(value.shape)}"
        )
    return value.reshape(*value.shape[:-1], *[1] * missing, value.shape[-1], 1).to(scores.dtype)
