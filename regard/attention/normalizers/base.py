"""What every normalizer has in common: the law of hidden keys."""

import math
from collections.abc import Callable
from functools import wraps
from typing import overload

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention._tracing import followed

Normalize = Callable[[Tensor], Tensor]

HALVES = (torch.bfloat16, torch.float16)


def widen(scores: Tensor) -> Tensor:
    """The scores in at least float32, in which everything here is computed."""
    return scores.float() if scores.dtype in HALVES else scores


def where_visible(values: Tensor, scores: Tensor) -> Tensor:
    """The values where the scores are above -inf, exact zeros elsewhere, whatever the values are there."""
    # torch.where(scores > -inf, values, 0) by another name, which PyTorch vectorizes on a CPU: 5-10 times
    # faster.
    return torch.ops.aten.threshold_backward(values, scores.detach(), -math.inf)


def show(scores: Tensor) -> Tensor:
    """The scores, but zeros in a row in which no key is visible: there is nothing to share, but no NaN."""
    top = scores.detach().amax(-1, keepdim=True)
    floor = torch.full_like(top, -math.inf).masked_fill(top == -math.inf, 0.0)
    if followed():  # one operation that is right whichever way it is differentiated, but slow on a CPU
        return torch.where(scores == -math.inf, floor, scores)
    shown = torch.maximum(scores.detach(), floor)
    if not scores.requires_grad:
        return shown
    # The gradient goes by a road that is closed at hidden keys: the bracket is 0, its slope at others 1.
    visible = torch.nn.functional.threshold(scores, -math.inf, 0.0)
    return shown + (visible - visible.detach())


def guard(share: Normalize, scores: Tensor) -> Tensor:
    """`share(scores)` under the law of hidden keys; see `over_visible`."""
    if scores.shape[-1] == 0:
        return scores
    wide = widen(scores)
    return where_visible(share(show(wide)), wide).to(scores.dtype)


@overload
def over_visible(share: Normalize) -> Normalize: ...
@overload
def over_visible(*, takes: str = ..., random: bool = ...) -> Callable[[Normalize], Normalize]: ...
def over_visible(
    share: Normalize | None = None, *, takes: str = "logits", random: bool = False
) -> Normalize | Callable[[Normalize], Normalize]:
    """Make a function of visible scores a normalizer: it need not think about hidden keys.

        normalize(scores) = share(scores) where a key is visible, 0 where it is hidden

    The function sees scores (*batch, queries, keys) with at least one key and in at least float32. Hidden
    keys are -inf in them; a row in which all keys are hidden is shown as zeros. Whatever the function answers
    there, hidden keys get weight 0 and gradient 0, and the weights come back in the dtype of the scores.

    `takes` says what the scores must be ("logits" or "kernel" values), `random` whether random numbers are
    drawn.

    >>> @over_visible
    ... def squared_relu(scores):
    ...     return scores.relu().square()
    >>> squared_relu(torch.tensor([[2.0, -1.0, -torch.inf], [-torch.inf, -torch.inf, -torch.inf]])).tolist()
    [[4.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    if share is None:
        return lambda function: _normalizer(function, takes, random)
    return _normalizer(share, takes, random)


def _normalizer(share: Normalize, takes: str, random: bool) -> Normalize:
    @wraps(share)
    def normalize(scores: Tensor) -> Tensor:
        return guard(share, scores)

    normalize.__dict__.update(takes=takes, random=random, lawful=True)
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
    def takes(self) -> str:
        """What the scores must be: "logits" or "kernel" values."""
        return "logits"

    @property
    def random(self) -> bool:
        """Whether a call draws random numbers now (in training, say)."""
        return False

    def share(self, scores: Tensor) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} must say how it shares: write share(scores)")

    def forward(self, scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
        return guard(self.share, scores)


class Given(Normalizer):
    """A normalizer that somebody wrote as a plain function, put under the law of `over_visible`."""

    def __init__(self, function: Normalize) -> None:
        super().__init__()
        self.function = function

    @property
    def takes(self) -> str:
        return takes(self.function)

    @property
    def random(self) -> bool:
        return is_random(self.function)

    @property
    def positional(self) -> bool:
        return getattr(self.function, "positional", False)

    def share(self, scores: Tensor) -> Tensor:
        return self.function(scores)


def lawful(normalize: Normalize) -> Normalize:
    """A normalizer that keeps the law of hidden keys: as it is if it is one of ours, guarded if it is not.

    >>> lawful(torch.nn.Softmax(-1))(torch.full((1, 2), -torch.inf))
    tensor([[0., 0.]])
    """
    known = isinstance(normalize, Normalizer) or getattr(normalize, "lawful", False)
    return normalize if known or hasattr(normalize, "log_prob") else Given(normalize)


def takes(normalize: Normalize) -> str:
    """What a normalizer takes, "logits" or "kernel" values; logits if it does not say.

    >>> takes(torch.nn.Softmax(-1))
    'logits'
    """
    return getattr(normalize, "takes", "logits")


def is_random(normalize: Normalize) -> bool:
    """Whether a call of the normalizer draws random numbers now; not if it does not say.

    >>> is_random(torch.nn.Softmax(-1))
    False
    """
    return getattr(normalize, "random", False)
