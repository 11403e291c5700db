"""Normalizers over all visible keys (softmax and others) or over the best keys (TopK)."""

from __future__ import annotations

import torch
from torch import Tensor

from regard.attention._common import is_transformed
from regard.attention.normalizers import base
from regard.attention.normalizers.base import Normalizer, Number, Scores, Weights, masked_normalizer
from regard.errors import UsageError

__all__ = ["SigmoidSum", "Temperature", "TopK", "kernel_sum", "sigmoid", "softmax"]


@masked_normalizer(zeroes_hidden=True)
def softmax(scores: Scores) -> Weights:
    """Positive weights that sum to 1, proportional to the exponential of the score.

        w_i = exp(s_i) / sum_j exp(s_j)

    Args:
        scores: the masked scores

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Returns: the weights

    Reference: Bridle (1990), "Probabilistic Interpretation of Feedforward Classification Network Outputs".

    Example:
        >>> softmax(torch.tensor([[0.0, 0.0, -torch.inf]])).tolist()
        [[0.5, 0.5, 0.0]]
    """
    return torch.softmax(scores, -1)


@masked_normalizer
def sigmoid(scores: Scores) -> Weights:
    """An independent gate for each key; the weights of a query need not sum to 1.

        w_i = 1 / (1 + exp(-s_i))

    Args:
        scores: the masked scores

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Returns: the weights

    Example:
        >>> sigmoid(torch.tensor([[0.0, 0.0, -torch.inf]])).tolist()
        [[0.5, 0.5, 0.0]]
    """
    return torch.sigmoid(scores)


@masked_normalizer(input_kind="kernel")
def kernel_sum(scores: Scores) -> Weights:
    """Kernel values divided by their sum; where all are 0 all weights are 0.

        w_i = s_i / sum_j s_j

    Args:
        scores: kernel values, 0 or more

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Returns: the weights

    Reference: Nadaraya (1964) and Watson (1964): kernel regression.

    Example:
        >>> kernel_sum(torch.tensor([[1.0, 3.0, -torch.inf], [0.0, 0.0, 0.0]])).tolist()
        [[0.25, 0.75, 0.0], [0.0, 0.0, 0.0]]
    """
    values = base.zero_hidden(scores, scores)
    total = values.sum(-1, keepdim=True)
    # Below the smallest normal number 1 / total overflows, so such a sum counts as 0.
    is_zero = total < torch.finfo(scores.dtype).tiny
    return values / total.masked_fill(is_zero, 1.0) * ~is_zero


def divide_by_temperature(scores: Tensor, temperature: Tensor | Number) -> Tensor:
    """scores / temperature; a learned temperature gets no gradient from hidden keys, where it would be 0 x inf."""
    if not isinstance(temperature, Tensor) or not (temperature.requires_grad or is_transformed()):
        return scores / temperature
    hidden = scores == -torch.inf
    return (scores.masked_fill(hidden, 0.0) / temperature).masked_fill(hidden, -torch.inf)


class Temperature(Normalizer):
    """Softmax with a temperature: uniform at high temperatures, one key at low ones.

        w = softmax(s / temperature)

    Args:
        temperature: a positive number, or a tensor that broadcasts to (*batch, queries, 1); a Parameter is learned

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Reference: Hinton, Vinyals and Dean (2015), arXiv 1503.02531.

    Example:
        >>> Temperature(0.001)(torch.tensor([[1.0, 2.0, -torch.inf]])).tolist()
        [[0.0, 1.0, 0.0]]
    """

    repr_settings = ("temperature",)

    temperature: Tensor | Number

    def __init__(self, temperature: Tensor | Number) -> None:
        super().__init__()
        base.store_temperature(self, temperature)

    def compute_weights(self, scores: Tensor) -> Tensor:
        return torch.softmax(divide_by_temperature(scores, self.temperature), -1)


class SigmoidSum(Normalizer):
    """A gate for each key, divided by the sum of the gates.

        w_i = sigmoid(s_i) / sum_j sigmoid(s_j) = softmax(log sigmoid(s))_i

    A gate is at most 1, so keys with very high scores get equal weights.

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Example:
        >>> SigmoidSum()(torch.tensor([[50.0, 99.0, -torch.inf]])).tolist()
        [[0.5, 0.5, 0.0]]
    """

    def compute_weights(self, scores: Tensor) -> Tensor:
        return torch.softmax(torch.nn.functional.logsigmoid(scores), -1)


class TopK(Normalizer):
    """Softmax over the k best visible keys; ties go to the first keys.

        w = softmax(s) over the k largest s, 0 elsewhere

    Args:
        k: the number of keys

    Shape: scores (*batch, queries, keys), -inf for hidden keys -> weights of the same shape

    Example:
        >>> TopK(2)(torch.tensor([[0.0, 1.0, 1.0, 1.0]])).tolist()
        [[0.0, 0.5, 0.5, 0.0]]
    """

    repr_settings = ("k",)

    def __init__(self, k: int) -> None:
        super().__init__()
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise UsageError(f"TopK: k must be a whole number of keys, 1 or more, not {k!r}")
        self.k = k

    def compute_weights(self, scores: Tensor) -> Tensor:
        k = min(self.k, scores.shape[-1])
        # The order of equal scores in topk is undefined, so only its k-th value is used.
        threshold = scores.detach().topk(k, -1, sorted=True).values[..., -1:]
        above = (scores > threshold) | scores.isnan()
        tied = scores == threshold
        remaining = k - above.sum(-1, keepdim=True)
        selected = above | (tied & (tied.cumsum(-1) <= remaining))
        return torch.softmax(scores.masked_fill(~selected, -torch.inf), -1)
