"""What all normalizers have in common: a hidden key gets weight 0. And normalizers that wrap another one."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import overload

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from regard.attention._common import is_transformed, upcast_half
from regard.attention.module import ResettableModule
from regard.errors import ShapeError, UsageError

__all__ = [
    "Dropout", "GaussianWindow", "NormalizeFunction", "Normalizer", "NormalizerWrapper", "as_masked_normalizer",
    "input_kind", "is_random", "masked_normalizer",
]  # fmt: skip

NormalizeFunction = Callable[[Tensor], Tensor]
Scores = Float[Tensor, "*batch queries keys"]
Weights = Float[Tensor, "*batch queries keys"]
Number = int | float


def store_setting(module: nn.Module, name: str, value: object) -> None:
    """Set a number, tensor or parameter as an attribute; a tensor moves with the module, but is not saved."""
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        module.register_buffer(name, value, persistent=False)
    else:
        setattr(module, name, value)


def store_positive(module: nn.Module, name: str, value: object) -> None:
    """`store_setting` of a positive number. Tensors are not read: that would stall a GPU and break a graph."""
    owner = type(module).__name__
    if not isinstance(value, Tensor):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(f"{owner}: {name} must be a positive number or a tensor, not {value!r}")
        if not 0 < value < float("inf"):
            raise UsageError(f"{owner}: {name} must be a positive number, not {value!r}")
    store_setting(module, name, value)


def zero_hidden(values: Tensor, scores: Tensor) -> Tensor:
    """The values where the scores are above -inf, and exact zeros elsewhere, even if the values are NaN there."""
    # The same as torch.where(scores > -inf, values, 0), but vectorized on a CPU: 5-10 times faster.
    return torch.ops.aten.threshold_backward(values, scores.detach(), -math.inf)


def fill_empty_rows(scores: Tensor) -> Tensor:
    """The scores, with zeros in rows without a visible key, which would give NaN."""
    top = scores.detach().amax(-1, keepdim=True)
    floor = torch.full_like(top, -math.inf).masked_fill(top == -math.inf, 0.0)
    if is_transformed():  # one operation with correct derivatives of every kind, but slow on a CPU
        return torch.where(scores == -math.inf, floor, scores)
    filled = torch.maximum(scores.detach(), floor)
    if not scores.requires_grad:
        return filled
    # The difference is 0; its derivative is 1 at visible keys and 0 at hidden ones.
    visible = torch.nn.functional.threshold(scores, -math.inf, 0.0)
    return filled + (visible - visible.detach())


def apply_masked(normalize: NormalizeFunction, scores: Tensor) -> Tensor:
    """``normalize(scores)`` with weight 0 for hidden keys; see `masked_normalizer`."""
    if scores.shape[-1] == 0:
        return scores
    wide = upcast_half(scores)
    return zero_hidden(normalize(fill_empty_rows(wide)), wide).to(scores.dtype)


@overload
def masked_normalizer(
    function: NormalizeFunction, *, input_kind: str = ..., is_random: bool = ...
) -> NormalizeFunction: ...
@overload
def masked_normalizer(
    *, input_kind: str = ..., is_random: bool = ...
) -> Callable[[NormalizeFunction], NormalizeFunction]: ...
def masked_normalizer(
    function: NormalizeFunction | None = None, *, input_kind: str = "logits", is_random: bool = False
) -> NormalizeFunction | Callable[[NormalizeFunction], NormalizeFunction]:
    """Decorates a function of scores as a normalizer that gives hidden keys weight 0.

        normalize(scores) = function(scores) where a key is visible, 0 where it is hidden

    The function gets scores (*batch, queries, keys) with at least one key, in float32 or wider. Hidden keys are -inf;
    a row without a visible key is all zeros. Whatever it returns for them, hidden keys get weight 0 and gradient 0,
    and the weights are returned in the dtype of the scores.

    Args:
        function: from scores to weights
        input_kind: what the scores are, "logits" or "kernel" (kernel values)
        is_random: whether the function draws random numbers

    Returns: the normalizer; with keyword arguments only, a decorator

    Example:
        >>> @masked_normalizer
        ... def squared_relu(scores):
        ...     return scores.relu().square()
        >>> squared_relu(torch.tensor([[2.0, -1.0, -torch.inf], [-torch.inf, -torch.inf, -torch.inf]])).tolist()
        [[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if function is None:
        return lambda decorated: masked_normalizer(decorated, input_kind=input_kind, is_random=is_random)

    @wraps(function)
    def normalize(scores: Tensor) -> Tensor:
        return apply_masked(function, scores)

    normalize.__dict__.update(input_kind=input_kind, is_random=is_random, is_masked=True)
    return normalize


class Normalizer(ResettableModule):
    """A normalizer with settings, as a module; hidden keys get weight 0.

        forward(scores) = compute_weights(scores) where a key is visible, 0 where it is hidden

    A subclass implements ``compute_weights``, with the scores that `masked_normalizer` describes.

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Example:
        >>> class Power(Normalizer):
        ...     def compute_weights(self, scores):
        ...         return scores.relu() ** 3
        >>> Power()(torch.tensor([[2.0, 1.0, -torch.inf]])).tolist()
        [[8.0, 1.0, 0.0]]
    """

    @property
    def input_kind(self) -> str:
        """What the scores must be, "logits" or "kernel" (kernel values)."""
        return "logits"

    @property
    def is_random(self) -> bool:
        """Whether a call draws random numbers in the current mode."""
        return False

    @property
    def is_positional(self) -> bool:
        """Whether the weights depend on the positions of the keys."""
        return False

    def compute_weights(self, scores: Tensor) -> Tensor:
        """The weights; those of hidden keys are ignored."""
        raise NotImplementedError(f"{type(self).__name__} must implement compute_weights(scores)")

    def forward(self, scores: Scores) -> Weights:
        return apply_masked(self.compute_weights, scores)


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
        name = type(self).__name__
        if not callable(normalize) or isinstance(normalize, type):
            raise TypeError(f"{name}: normalize must be a callable from scores to weights, not {normalize!r}")
        if isinstance(normalize, Dropout):
            raise UsageError(f"{name} cannot wrap a Dropout, which must be outermost: write Dropout({name}(...), p)")
        self.normalize = normalize

    @property
    def input_kind(self) -> str:
        return input_kind(self.normalize)

    @property
    def is_random(self) -> bool:
        return is_random(self.normalize)

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
        store_positive(self, "sigma", sigma)
        store_setting(self, "center", center)
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


def as_masked_normalizer(normalize: NormalizeFunction) -> NormalizeFunction:
    """The normalizer itself if it gives hidden keys weight 0, otherwise a NormalizerWrapper around it.

    Args:
        normalize: from scores to weights

    Returns: a normalizer that gives hidden keys weight 0

    Example:
        >>> as_masked_normalizer(torch.nn.Softmax(-1))(torch.full((1, 2), -torch.inf))
        tensor([[0., 0.]])
    """
    is_masked = isinstance(normalize, Normalizer) or getattr(normalize, "is_masked", False)
    return normalize if is_masked or hasattr(normalize, "log_prob") else NormalizerWrapper(normalize)


def input_kind(normalize: NormalizeFunction) -> str:
    """What scores a normalizer expects, "logits" or "kernel" (kernel values); logits by default.

    Args:
        normalize: from scores to weights

    Returns: "logits" or "kernel"

    Example:
        >>> input_kind(torch.nn.Softmax(-1))
        'logits'
    """
    return getattr(normalize, "input_kind", "logits")


def is_random(normalize: NormalizeFunction) -> bool:
    """Whether a call of the normalizer draws random numbers in the current mode; False by default.

    Args:
        normalize: from scores to weights

    Returns: its ``is_random``

    Example:
        >>> is_random(torch.nn.Softmax(-1))
        False
    """
    return getattr(normalize, "is_random", False)
