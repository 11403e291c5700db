"""What every normalizer has in common: the law of hidden keys.

Words for wrong arguments, and a place for the right ones.
"""

import math
from collections.abc import Callable
from functools import wraps
from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention._common import is_transformed
from regard.errors import UsageError

NormalizeFunction = Callable[[Tensor], Tensor]


HALF_DTYPES = (torch.bfloat16, torch.float16)


def upcast_half(tensor: Tensor) -> Tensor:
    """The scores in at least float32, in which everything here is computed."""
    return tensor.float() if tensor.dtype in HALF_DTYPES else tensor


def zero_hidden(values: Tensor, scores: Tensor) -> Tensor:
    """The values where the scores are above -inf, exact zeros elsewhere, whatever the values are there."""
    # torch.where(scores > -inf, values, 0) by another name, which PyTorch vectorizes on a CPU: 5-10 times
    # faster.
    return torch.ops.aten.threshold_backward(values, scores.detach(), -math.inf)


def fill_empty_rows(scores: Tensor) -> Tensor:
    """The scores, but zeros in a row in which no key is visible: there is nothing to share, but no NaN."""
    top = scores.detach().amax(-1, keepdim=True)
    floor = torch.full_like(top, -math.inf).masked_fill(top == -math.inf, 0.0)
    if is_transformed():  # one operation that is right whichever way it is differentiated, but slow on a CPU
        return torch.where(scores == -math.inf, floor, scores)
    shown = torch.maximum(scores.detach(), floor)
    if not scores.requires_grad:
        return shown
    # The gradient goes by a road that is closed at hidden keys: the bracket is 0, its slope at others 1.
    visible = torch.nn.functional.threshold(scores, -math.inf, 0.0)
    return shown + (visible - visible.detach())


def apply_masked(normalize: NormalizeFunction, scores: Tensor) -> Tensor:
    """`share(scores)` under the law of hidden keys; see `over_visible`."""
    if scores.shape[-1] == 0:
        return scores
    wide = upcast_half(scores)
    return zero_hidden(normalize(fill_empty_rows(wide)), wide).to(scores.dtype)


@overload
def masked_normalizer(function: NormalizeFunction) -> NormalizeFunction: ...


@overload
def masked_normalizer(
    *, input_kind: str = ..., is_random: bool = ...
) -> Callable[[NormalizeFunction], NormalizeFunction]: ...


def masked_normalizer(
    function: NormalizeFunction | None = None, *, input_kind: str = "logits", is_random: bool = False
) -> NormalizeFunction | Callable[[NormalizeFunction], NormalizeFunction]:
    """Make a function of visible scores a normalizer: it need not think about hidden keys.

        normalize(scores) = share(scores) where a key is visible, 0 where it is hidden

    The function sees scores (*batch, queries, keys) with at least one key and in at least float32. Hidden
    keys are -inf in them; a row in which all keys are hidden is shown as zeros. Whatever the function answers
    there, hidden keys get weight 0 and gradient 0, and the weights come back in the dtype of the scores.

    `takes` says what the scores must be ("logits" or "kernel" values), `random` whether random numbers are
    drawn.

    >>> @masked_normalizer
    ... def squared_relu(scores):
    ...     return scores.relu().square()
    >>> squared_relu(torch.tensor([[2.0, -1.0, -torch.inf], [-torch.inf, -torch.inf, -torch.inf]])).tolist()
    [[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if function is None:
        return lambda function: _build_masked_normalizer(function, input_kind, is_random)
    return _build_masked_normalizer(function, input_kind, is_random)


def _build_masked_normalizer(
    function: NormalizeFunction, input_kind: str, is_random: bool
) -> NormalizeFunction:
    @wraps(function)
    def normalize(scores: Tensor) -> Tensor:
        return apply_masked(function, scores)

    normalize.__dict__.update(input_kind=input_kind, is_random=is_random, is_masked=True)
    return normalize


class Normalizer(nn.Module):
    """A normalizer with settings: write `share(scores)`, and `forward` puts it under the law of
    `over_visible`.

        forward(scores) = share(scores) where a key is visible, 0 where it is hidden

    >>> class Power(Normalizer):
    ...     def share(self, scores):
    ...         return scores.relu() ** 3
    >>> Power()(torch.tensor([[2.0, 1.0, -torch.inf]])).tolist()
    [[8.0, 1.0, 0.0]]
    """

    @property
    def input_kind(self) -> str:
        """What the scores must be: "logits" or "kernel" values."""
        return "logits"

    @property
    def is_random(self) -> bool:
        """Whether a call draws random numbers now (in training, say)."""
        return False

    def compute_weights(self, scores: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must say how it shares: write share(scores)")

    def forward(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
        return apply_masked(self.compute_weights, scores)


class FunctionNormalizer(Normalizer):
    """A normalizer that somebody wrote as a plain function, put under the law of `over_visible`."""

    def __init__(self, function: NormalizeFunction) -> None:
        super().__init__()
        self.function = function

    @property
    def input_kind(self) -> str:
        return input_kind(self.function)

    @property
    def is_random(self) -> bool:
        return is_random(self.function)

    @property
    def is_positional(self) -> bool:
        return getattr(self.function, "is_positional", False)

    def compute_weights(self, scores: Tensor) -> Tensor:
        return self.function(scores)


def as_masked_normalizer(normalize: NormalizeFunction) -> NormalizeFunction:
    """A normalizer that keeps the law of hidden keys: as it is if it is one of ours, guarded if it is not.

    >>> as_masked_normalizer(torch.nn.Softmax(-1))(torch.full((1, 2), -torch.inf))
    tensor([[0., 0.]])
    """
    known = isinstance(normalize, Normalizer) or getattr(normalize, "is_masked", False)
    return normalize if known or hasattr(normalize, "log_prob") else FunctionNormalizer(normalize)


def input_kind(normalize: NormalizeFunction) -> str:
    """What a normalizer takes, "logits" or "kernel" values; logits if it does not say.

    >>> input_kind(torch.nn.Softmax(-1))
    'logits'
    """
    return getattr(normalize, "input_kind", "logits")


def is_random(normalize: NormalizeFunction) -> bool:
    """Whether a call of the normalizer draws random numbers now; not if it does not say.

    >>> is_random(torch.nn.Softmax(-1))
    False
    """
    return getattr(normalize, "is_random", False)


Number = int | float


def check_positive(owner: str, name: str, value: object) -> None:
    """Refuse numbers that are not positive. Tensors pass: reading them would stop a GPU and a compiler."""
    if isinstance(value, Tensor):
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{owner}: {name} must be a positive number or a tensor, not {value!r}")
    if not 0 < value < float("inf"):
        raise UsageError(f"{owner}: {name} must be a positive number, not {value!r}")


def require_callable(owner: str, normalize: object) -> None:
    """Refuse what cannot be called on scores."""
    if not callable(normalize) or isinstance(normalize, type):
        raise TypeError(f"{owner}: normalize must be a callable from scores to weights, not {normalize!r}")


def store_setting(module: nn.Module, name: str, value: object) -> None:
    """Make a number, tensor or parameter an attribute; a tensor moves with the module, but is not saved."""
    if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
        module.register_buffer(name, value, persistent=False)
    else:
        setattr(module, name, value)
