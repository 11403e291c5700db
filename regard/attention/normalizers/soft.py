"""Normalizers that look at every visible key a little, and those that rank keys first."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention._tracing import followed
from regard.attention.normalizers.base import Normalizer, over_visible, where_visible
from regard.attention.normalizers.checks import Number, check_positive, keep
from regard.errors import UsageError


@over_visible
def softmax(scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """Share regard in proportion to the exponential of the score.

        w_i = exp(s_i) / sum_j exp(s_j)

    Bridle (1990), "Probabilistic Interpretation of Feedforward Classification Network Outputs".

    >>> softmax(torch.tensor([[0.0, 0.0, -torch.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    return torch.softmax(scores, -1)


@over_visible
def sigmoid(scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """Open a gate for each key on its own; the weights of a query need not sum to 1.

        w_i = 1 / (1 + exp(-s_i))

    >>> sigmoid(torch.tensor([[0.0, 0.0, -torch.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """
    return torch.sigmoid(scores)


@over_visible(takes="kernel")
def kernel_sum(scores: Float[Tensor, "*batch queries keys"]) -> Float[Tensor, "*batch queries keys"]:
    """Share regard in proportion to kernel values, which are 0 or more; where all are 0 all weights are 0.

        w_i = s_i / sum_j s_j

    Nadaraya (1964) and Watson (1964): kernel regression.

    >>> kernel_sum(torch.tensor([[1.0, 3.0, -torch.inf], [0.0, 0.0, 0.0]])).tolist()
    [[0.25, 0.75, 0.0], [0.0, 0.0, 0.0]]
    """
    values = where_visible(scores, scores)
    total = values.sum(-1, keepdim=True)
    # Below the smallest normal number 1 / total overflows, so such a sum counts as 0.
    nothing = total < torch.finfo(scores.dtype).tiny
    return values / total.masked_fill(nothing, 1.0) * ~nothing


def cooled(scores: Tensor, t: Tensor | Number) -> Tensor:
    """scores / t; a learned t gets no gradient from hidden keys, where it would be 0 x inf."""
    if not isinstance(t, Tensor) or not (t.requires_grad or followed()):
        return scores / t
    hidden = scores == -torch.inf
    return (scores.masked_fill(hidden, 0.0) / t).masked_fill(hidden, -torch.inf)


class Temperature(Normalizer):
    """Share regard evenly when hot, jealously when cold.

        w = softmax(s / t)

    `t` is a positive number, or a tensor of them: a scalar, or broadcastable to (*batch, queries, 1). A
    parameter is learned. Hinton, Vinyals and Dean (2015), arXiv 1503.02531.

    >>> Temperature(0.001)(torch.tensor([[1.0, 2.0, -torch.inf]])).tolist()
    [[0.0, 1.0, 0.0]]
    """

    t: Tensor | Number

    def __init__(self, t: Tensor | Number) -> None:
        super().__init__()
        check_positive("Temperature", "t", t)
        keep(self, "t", t)

    def share(self, scores: Tensor) -> Tensor:
        return torch.softmax(cooled(scores, self.t), -1)

    def extra_repr(self) -> str:
        return f"t={self.t}"


class SigmoidSum(Normalizer):
    """Open a gate for each key, then share regard in proportion to the gates.

        w_i = sigmoid(s_i) / sum_j sigmoid(s_j) = softmax(log sigmoid(s))_i

    A key is never worth more than a fully open gate: very good keys share evenly.

    >>> SigmoidSum()(torch.tensor([[50.0, 99.0, -torch.inf]])).tolist()
    [[0.5, 0.5, 0.0]]
    """

    def share(self, scores: Tensor) -> Tensor:
        return torch.softmax(torch.nn.functional.logsigmoid(scores), -1)


class TopK(Normalizer):
    """Share regard among the k best visible keys only; of equally good ones the first.

        w = softmax(s) over the k largest s, 0 elsewhere

    >>> TopK(2)(torch.tensor([[0.0, 1.0, 1.0, 1.0]])).tolist()
    [[0.0, 0.5, 0.5, 0.0]]
    """

    def __init__(self, k: int) -> None:
        super().__init__()
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise UsageError(f"TopK: k must be a whole number of keys, 1 or more, not {k!r}")
        self.k = k

    def share(self, scores: Tensor) -> Tensor:
        k = min(self.k, scores.shape[-1])
        # topk does not say which of several equal scores it takes, so only its k-th value is used.
        last = scores.detach().topk(k, -1, sorted=True).values[..., -1:]
        better = scores > last
        level = scores == last
        seats = k - better.sum(-1, keepdim=True)
        chosen = better | (level & (level.cumsum(-1) <= seats))
        return torch.softmax(scores.masked_fill(~chosen, -torch.inf), -1)

    def extra_repr(self) -> str:
        return f"k={self.k}"
