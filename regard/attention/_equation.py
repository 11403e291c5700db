"""The whole library in four lines.

    scores  = score(query, key)          how alike?                *batch queries keys
    scores  = hide(scores, mask)         who may be looked at?
    weights = normalize(scores)          how is regard shared out?
    context = weights @ value            what is seen?             *batch queries value_dim

Every mechanism is a value for one of their letters.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.attention._call import Call, checked, made
from regard.attention._over import Over
from regard.attention._result import Attended
from regard.attention._watching import told
from regard.attention.fast.paths import shortcut
from regard.attention.masks import Mask
from regard.attention.scores import ScaledDot
from regard.attention.scores.base import name, precise

ScoreLike = Callable[[Tensor, Tensor], Tensor]
NormalizerLike = Callable[[Tensor], Tensor]


def attend(
    query: Float[Tensor, "*q queries query_dim"] | None,
    key: Float[Tensor, "*k keys key_dim"],
    value: Float[Tensor, "*v keys value_dim"],
    mask: Mask | Bool[Tensor, "..."] | None = None,
    *,
    score: ScoreLike = ScaledDot(),
    normalize: NormalizerLike | None = None,
) -> Attended:
    """Look at the values, each as much as its key answers the query.

        context = normalize(hide(score(query, key), mask)) @ value

    ``normalize`` is softmax unless the score gives kernel values, which take kernel_sum. ``mask`` is a
    named mask or a bool tensor, True where a query may look. The context comes by the fastest exact path;
    weights and scores are computed when they are read, and reading them never changes the context.

    >>> seen = attend(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6))
    >>> seen.context.shape, seen.weights.shape
    (torch.Size([2, 3, 6]), torch.Size([2, 3, 5]))
    """
    return told(None, looked(query, key, value, mask, score, normalize))


def looked(
    query: Tensor | None,
    key: Tensor,
    value: Tensor,
    mask: Mask | Tensor | None,
    score: ScoreLike,
    normalize: NormalizerLike | None,
) -> Attended:
    """`attend`, of which nobody is told: who calls this tells it with its own name."""
    call = checked(query, key, value, mask, score, normalize)
    context = None if call.chance else shortcut(call, see)
    if context is not None:
        return Attended(context, call, look)
    scores, weights, context = define(call)
    return Attended(context, call, look, (scores, weights))


def define(call: Call) -> tuple[Tensor, Tensor, Tensor]:
    """The equation as it reads: scores, weights, context."""
    scores, weights = look(call)
    used = weights if call.drop is None else call.drop.drop(weights)
    return scores, weights, share(used, call.value)


def look(call: Call) -> tuple[Tensor, Tensor]:
    """The first three lines of the equation: scores as the normalizer sees them, and weights."""
    scores = hide(call.score(call.query, call.key), call)
    return scores, call.normalize(scores)


def hide(scores: Float[Tensor, "..."], call: Call) -> Float[Tensor, "..."]:
    """-inf where a query may not look."""
    if call.mask is None:
        return scores
    return torch.where(call.mask.rule(call.grid()), scores, -math.inf)


def share(weights: Tensor, value: Tensor) -> Tensor:
    """The last line, summed in float32 at least."""
    return (weights.to(precise(value).dtype) @ precise(value)).to(value.dtype)


def see(call: Call) -> Tensor:
    """The context alone, by the fastest exact path: what fast paths ask for parts of their work."""
    context = shortcut(call, see)
    return define(call)[2] if context is None else context


class Attention(nn.Module):
    """The equation as a module: a score and a normalizer, to be trained and kept inside a model.

        attention(query, key, value, mask) = attend(query, key, value, mask, score=score, normalize=normalize)

    >>> attention = Attention(ScaledDot())
    >>> attention(torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(2, 5, 6)).context.shape
    torch.Size([2, 3, 6])
    """

    def __init__(self, score: ScoreLike | None = None, normalize: NormalizerLike | None = None):
        super().__init__()
        self.score = ScaledDot() if score is None else made(score, "score")
        self.normalize = None if normalize is None else made(normalize, "normalize")

    def forward(
        self,
        query: Float[Tensor, "*q queries query_dim"] | None,
        key: Float[Tensor, "*k keys key_dim"],
        value: Float[Tensor, "*v keys value_dim"],
        mask: Mask | Bool[Tensor, "..."] | None = None,
    ) -> Attended:
        return self.ask(self.score, query, key, value, mask)

    def ask(
        self, score: ScoreLike, query: Tensor | None, key: Tensor, value: Tensor, mask: Mask | Tensor | None
    ) -> Attended:
        return told(self, looked(query, key, value, mask, score, self.normalize))

    def over(self, key: Tensor, value: Tensor, mask: Mask | Tensor | None = None) -> Over:
        """The same attention with keys and values given once, to be asked again and again."""
        return Over(self, key, value, mask)

    def extra_repr(self) -> str:
        plain = self.normalize is not None and not isinstance(self.normalize, nn.Module)
        return f"normalize={name(self.normalize)}" if plain else ""
