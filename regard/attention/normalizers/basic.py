"""Normalizers over all visible keys (softmax and others), the best keys (TopK), and one key (hardmax, Sample)."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention._common import is_transformed, upcast_half
from regard.attention.normalizers.base import (
    Normalizer,
    Number,
    Scores,
    Weights,
    check_positive,
    fill_empty_rows,
    masked_normalizer,
    store_setting,
    zero_hidden,
)
from regard.errors import UsageError

__all__ = ["Gumbel", "Sample", "SigmoidSum", "Temperature", "TopK", "hardmax", "kernel_sum", "sigmoid", "softmax"]


@masked_normalizer
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
    values = zero_hidden(scores, scores)
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
        check_positive("Temperature", "temperature", temperature)
        store_setting(self, "temperature", temperature)

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
        above = scores > threshold
        tied = scores == threshold
        remaining = k - above.sum(-1, keepdim=True)
        selected = above | (tied & (tied.cumsum(-1) <= remaining))
        return torch.softmax(scores.masked_fill(~selected, -torch.inf), -1)


def first_argmax_one_hot(scores: Tensor) -> Tensor:
    """1 at the first largest score of each row, 0 elsewhere; no gradient passes."""
    best = scores.argmax(-1, keepdim=True)
    return torch.zeros_like(scores).scatter(-1, best, 1.0)


def sample_gumbel_noise(scores: Tensor, generator: torch.Generator | None) -> Tensor:
    """-log(-log u), u uniform in (0, 1): always finite, so that a hidden key stays at -inf."""
    if generator is None:  # torch.rand(..., generator=None) does not compile with dynamic shapes
        uniform = torch.rand_like(scores)
    else:
        uniform = torch.rand(scores.shape, generator=generator, dtype=scores.dtype, device=scores.device)
    limits = torch.finfo(scores.dtype)
    return -torch.log(-torch.log(uniform.clamp(limits.tiny, 1 - limits.eps / 2)))


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


class Sample(Normalizer):
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

    def __init__(self, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.generator = generator

    @property
    def is_random(self) -> bool:
        return self.training

    def compute_weights(self, scores: Tensor) -> Tensor:
        # The key with the largest noisy score is a sample from softmax (the Gumbel-max trick).
        return first_argmax_one_hot(scores + sample_gumbel_noise(scores, self.generator) if self.training else scores)

    def log_prob(self, scores: Scores, weights: Weights) -> Float[Tensor, "*batch queries"]:
        """The log-probability of the keys sampled in ``weights``; 0 for a query without visible keys."""
        if scores.shape[-1] == 0:
            return scores.sum(-1)
        wide = upcast_half(scores)
        log_probs = torch.log_softmax(fill_empty_rows(wide), -1)
        sampled = log_probs.gather(-1, weights.argmax(-1, keepdim=True))
        return zero_hidden(sampled, wide.detach().amax(-1, keepdim=True)).squeeze(-1).to(scores.dtype)

    def entropy(self, scores: Scores) -> Float[Tensor, "*batch queries"]:
        """The entropy, -sum_i w_i log w_i with w = softmax(s); 0 for a query without visible keys."""
        if scores.shape[-1] == 0:
            return scores.sum(-1)
        wide = upcast_half(scores)
        log_probs = torch.log_softmax(fill_empty_rows(wide), -1)
        # 0 log 0 = 0: for a hidden key it would be 0 * -inf.
        return -(log_probs.exp() * zero_hidden(log_probs, wide)).sum(-1).to(scores.dtype)


class Gumbel(Normalizer):
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
        super().__init__()
        check_positive("Gumbel", "temperature", temperature)
        store_setting(self, "temperature", temperature)
        self.generator = generator

    @property
    def is_random(self) -> bool:
        return self.training

    def compute_weights(self, scores: Tensor) -> Tensor:
        noisy = scores + sample_gumbel_noise(scores, self.generator) if self.training else scores
        return torch.softmax(divide_by_temperature(noisy, self.temperature), -1)
