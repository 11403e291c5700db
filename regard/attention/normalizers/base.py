"""What all normalizers have in common: a hidden key gets weight 0."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial, wraps
from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention._common import check_result, is_transformed, upcast_half
from regard.attention.module import ResettableModule
from regard.errors import ShapeError, UsageError

__all__ = ["NormalizeFunction", "Normalizer", "input_kind", "is_random", "masked_normalizer"]

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


def store_temperature(module: nn.Module, temperature: object) -> None:
    """`store_positive` of a temperature for all keys of a query."""
    if isinstance(temperature, Tensor) and temperature.dim() and temperature.shape[-1] != 1:
        raise ShapeError(
            f"{type(module).__name__}: temperature must be a number or (*batch, queries, 1), got "
            f"{tuple(temperature.shape)}; write temperature[..., None] for one of each query"
        )
    store_positive(module, "temperature", temperature)


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


def has_only_ordinary_rows(scores: Tensor) -> bool:
    """Whether every query has a visible key, and no NaN; False where that cannot be read at once."""
    return scores.is_cpu and not is_transformed() and bool((scores.detach().amax(-1) > -math.inf).all())


def apply_masked(normalize: NormalizeFunction, scores: Tensor, zeroes_hidden: bool = False) -> Tensor:
    """``normalize(scores)`` with weight 0 for hidden keys; see `masked_normalizer`."""
    if scores.shape[-1] == 0:
        return scores
    wide = upcast_half(scores)
    if zeroes_hidden and has_only_ordinary_rows(wide):
        return normalize(wide).to(scores.dtype)
    weights = normalize(fill_empty_rows(wide))
    check_result("normalize", weights, tuple(wide.shape))
    return zero_hidden(weights, wide).to(scores.dtype)


@overload
def masked_normalizer(
    function: NormalizeFunction, *, input_kind: str = ..., is_random: bool = ..., zeroes_hidden: bool = ...
) -> NormalizeFunction: ...
@overload
def masked_normalizer(
    *, input_kind: str = ..., is_random: bool = ..., zeroes_hidden: bool = ...
) -> Callable[[NormalizeFunction], NormalizeFunction]: ...
def masked_normalizer(
    function: NormalizeFunction | None = None,
    *,
    input_kind: str = "logits",
    is_random: bool = False,
    zeroes_hidden: bool = False,
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
        zeroes_hidden: whether the function itself gives a score of -inf weight 0 and gradient 0 in a row that has other
            scores, as softmax does; such rows are then passed to it as they are, which is faster

    Returns: the normalizer; with keyword arguments only, a decorator

    Example:
        >>> @masked_normalizer
        ... def squared_relu(scores):
        ...     return scores.relu().square()
        >>> squared_relu(torch.tensor([[2.0, -1.0, -torch.inf], [-torch.inf, -torch.inf, -torch.inf]])).tolist()
        [[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if function is None:
        return partial(masked_normalizer, input_kind=input_kind, is_random=is_random, zeroes_hidden=zeroes_hidden)

    @wraps(function)
    def normalize(scores: Tensor) -> Tensor:
        return apply_masked(function, scores, zeroes_hidden)

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

    is_masked = True

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
