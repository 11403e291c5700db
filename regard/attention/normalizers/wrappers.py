"""Normalizers that wrap another one, and functions of PyTorch as normalizers."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Shaped
from torch import Tensor, nn

from regard.attention._common import instantiate, part_name, upcast_half
from regard.attention.normalizers import base
from regard.attention.normalizers.base import NormalizeFunction, Normalizer, Number, Scores, Weights
from regard.attention.normalizers.basic import softmax
from regard.errors import ShapeError, UsageError

__all__ = ["Dropout", "GaussianWindow", "NormalizerWrapper", "as_masked_normalizer", "resolve_normalizer"]


TORCH_SOFTMAX = (F.softmax, torch.softmax, Tensor.softmax, torch.special.softmax, nn.Softmax)
TORCH_REPLACEMENTS: dict[Any, str] = {
    F.gumbel_softmax: "Gumbel()",
    F.normalize: "softmax or a function with @masked_normalizer",
    nn.Softmax2d: "softmax",
    **dict.fromkeys((F.softmin, nn.Softmin), "softmax with the negative score, as in score=-Dot()"),
    **dict.fromkeys(
        (F.log_softmax, torch.log_softmax, Tensor.log_softmax, torch.special.log_softmax, nn.LogSoftmax),
        "softmax, as logarithms are no weights",
    ),
}


def resolve_normalizer(normalize: NormalizeFunction) -> NormalizeFunction:
    """The normalizer: an instance of a class, and `softmax` for PyTorch's softmax without ``dim``.

    Args:
        normalize: from scores to weights, or a class without required arguments

    Returns: the normalizer; a function of PyTorch that gives wrong weights is a UsageError

    Example:
        >>> resolve_normalizer(torch.nn.functional.softmax) is softmax
        True
    """
    normalize = instantiate(normalize, "normalize")
    if getattr(normalize, "is_masked", False):
        return normalize
    function: Any = normalize.func if isinstance(normalize, partial) else normalize
    kind = type(function) if isinstance(function, nn.Module) else function
    replacement = next((text for wrong, text in TORCH_REPLACEMENTS.items() if kind is wrong), None)
    if any(kind is known for known in TORCH_SOFTMAX):
        dim = normalize.keywords.get("dim") if isinstance(normalize, partial) else getattr(normalize, "dim", None)
        if dim is None:
            return softmax
        if dim != -1:  # a fast path may add axes, so that no other number is the last axis everywhere
            replacement = f"dim=-1, the axis of the keys, in place of dim={dim}"
    if replacement is not None:
        raise UsageError(f"normalize={part_name(kind)} gives wrong weights; use {replacement}")
    return normalize


class NormalizerWrapper(Normalizer):
    """A normalizer that changes the weights of the wrapped one, ``normalize``, or gives its hidden keys weight 0.

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
        super().__init__()
        name, normalize = type(self).__name__, resolve_normalizer(normalize)
        if isinstance(normalize, Dropout):
            raise UsageError(f"{name} cannot wrap a Dropout, which must be outermost: write Dropout({name}(...), p)")
        self.normalize = normalize

    @property
    def input_kind(self) -> str:
        return base.input_kind(self.normalize)

    @property
    def is_random(self) -> bool:
        return base.is_random(self.normalize)

    @property
    def is_positional(self) -> bool:
        return getattr(self.normalize, "is_positional", False)

    def compute_weights(self, scores: Tensor) -> Tensor:
        return self.normalize(scores)

    def extra_repr(self) -> str:
        return "" if isinstance(self.normalize, nn.Module) else getattr(self.normalize, "__name__", "")


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
        return (self.training and self.p > 0) or base.is_random(self.normalize)

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
        base.store_positive(self, "sigma", sigma)
        base.store_setting(self, "center", center)
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
        return (as_masked_normalizer(self.normalize)(wide) * window).to(scores.dtype)


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


def as_masked_normalizer(normalize: NormalizeFunction) -> NormalizeFunction:
    """The normalizer itself if it gives hidden keys weight 0, otherwise a NormalizerWrapper around it.

    Args:
        normalize: from scores to weights

    Returns: a normalizer that gives hidden keys weight 0

    Example:
        >>> as_masked_normalizer(torch.nn.Softmax(-1))(torch.full((1, 2), -torch.inf))
        tensor([[0., 0.]])
    """
    is_masked = getattr(normalize, "is_masked", False) or hasattr(normalize, "log_prob")
    return normalize if is_masked else NormalizerWrapper(normalize)
