"""What a score is, and the algebra of scores: ``a + b``, ``2 * a``, ``tensor * a``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.masks import Grid, Mask
from regard.errors import UsageError


class Features(NamedTuple):
    """A score written as a dot product, up to a constant a query (which softmax does not see).

    score(q, k) = scale * query . key + bias

    ``exact`` asks for the precision of the features themselves, also under autocast.
    """

    query: Tensor | None
    key: Tensor | None
    scale: float = 1.0
    bias: Tensor | None = None
    exact: bool = False


class Score(nn.Module):
    """How alike are a query and a key?

        score(query, key): (*batch, queries, dim), (*batch, keys, dim) -> (*batch, queries, keys)

    Subclass it and write ``forward``; that is all a new score needs. Everything else here tells the fast
    paths what they may do with it, and has a safe default.
    """

    gives = "logits"
    """``"logits"``, to be shared out by softmax and its kin, or ``"kernel"`` values, by kernel_sum."""
    positional = False
    """Whether the score goes by the place of a key, so that permuting keys is not free."""
    random = False
    """Whether the score draws random numbers, so that it must be computed once and kept."""

    def check(self, query: Tensor, key: Tensor) -> None:
        """Raise one sentence if query and key cannot be compared by this score."""

    @property
    def inner(self) -> Score:
        """The plain score left when queries and keys are projected first, each on its own.

        score(q, k) = inner(project_query(q), project_key(k))
        """
        return self

    def project_query(self, query: Tensor, keys: int) -> Tensor:
        return query

    def project_key(self, key: Tensor) -> Tensor:
        return key

    def features(self, query: Tensor, key: Tensor, mask: Mask | None) -> Features | None:
        """The score as a dot product, for fused kernels; None if it is not one."""
        inner = self.inner
        if inner is self or type(inner).features is Score.features:
            return None  # before anything is projected
        return inner.features(self.project_query(query, key.shape[-2]), self.project_key(key), mask)

    def at(self, grid: Grid) -> Score | None:
        """The same score for a part of the positions; None if it cannot tell parts apart."""
        return None if self.positional else self

    def __add__(self, other: object) -> Score:
        return Sum(self, other) if isinstance(other, Score) else NotImplemented

    def __radd__(self, other: object) -> Score:  # so that sum([a, b]) works, which starts at 0
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __truediv__(self, divisor: object) -> Score:
        return Scaled(self, 1 / divisor) if isinstance(divisor, (int, float, Tensor)) else NotImplemented

    def __mul__(self, factor: object) -> Score:
        return Scaled(self, factor) if isinstance(factor, (int, float, Tensor)) else NotImplemented

    __rmul__ = __mul__

    def __neg__(self) -> Score:
        return Scaled(self, -1.0)

    def __sub__(self, other: object) -> Score:
        return Sum(self, -other) if isinstance(other, Score) else NotImplemented


class Sum(Score):
    """Two similarities combined into one.

        score(q, k) = a(q, k) + b(q, k)

    >>> (Dot() + 2 * Dot())(torch.ones(2, 3), torch.ones(4, 3))[0, 0]
    tensor(9.)
    """

    def __init__(self, left: Score, right: Score):
        super().__init__()
        if left.gives != right.gives:
            raise UsageError(
                f"{name(left)} gives {left.gives} and {name(right)} gives {right.gives}; "
                "logits and kernel values cannot be added"
            )
        self.left, self.right = left, right
        self.gives = left.gives
        self.positional = left.positional or right.positional
        self.random = left.random or right.random

    def check(self, query: Tensor, key: Tensor) -> None:
        self.left.check(query, key)
        self.right.check(query, key)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.left(query, key) + self.right(query, key)

    def features(self, query: Tensor, key: Tensor, mask: Mask | None) -> Features | None:
        left = self.left.features(query, key, mask)
        right = None if left is None else self.right.features(query, key, mask)
        return None if left is None or right is None else _joined(left, right)

    def at(self, grid: Grid) -> Score | None:
        left, right = self.left.at(grid), self.right.at(grid)
        return None if left is None or right is None else Sum(left, right)

    def extra_repr(self) -> str:
        return "left + right"


class Scaled(Score):
    """A similarity taken more or less seriously.

        score(q, k) = factor * a(q, k)

    The factor is a number or a tensor that broadcasts to the scores; a Parameter is trained.

    >>> (0.5 * Dot())(torch.ones(2, 4), torch.ones(3, 4))[0, 0]
    tensor(2.)
    """

    def __init__(self, score: Score, factor: float | Tensor):
        super().__init__()
        self.score, self.factor = score, factor
        self.gives, self.random = score.gives, score.random
        self.positional = score.positional or not self._per_query
        if score.gives == "kernel" and not isinstance(factor, Tensor) and not factor >= 0:
            raise UsageError(f"kernel values are at least 0, so {name(score)} cannot be scaled by {factor}")

    @property
    def _per_query(self) -> bool:
        factor = self.factor
        return not isinstance(factor, Tensor) or factor.dim() == 0 or factor.shape[-1] == 1

    def check(self, query: Tensor, key: Tensor) -> None:
        self.score.check(query, key)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        scores = self.score(query, key)
        factor = self.factor.to(scores) if isinstance(self.factor, Tensor) else self.factor
        hidden = scores == -math.inf  # by the score itself; -inf times a factor would be +inf or NaN
        return (scores.masked_fill(hidden, 0.0) * factor).masked_fill(hidden, -math.inf)

    def features(self, query: Tensor, key: Tensor, mask: Mask | None) -> Features | None:
        found = self.score.features(query, key, mask) if self._per_query else None
        if found is None:
            return None
        factor = self.factor.to(query.device) if isinstance(self.factor, Tensor) else self.factor
        bias = None if found.bias is None else found.bias * factor
        if found.query is None:
            return found._replace(bias=bias)
        if not isinstance(factor, Tensor):
            return found._replace(scale=found.scale * factor, bias=bias)
        query = precise(found.query)
        return found._replace(query=query * factor.to(query), bias=bias)

    def at(self, grid: Grid) -> Score | None:
        score = self.score.at(grid)
        plain = not isinstance(self.factor, Tensor) or self.factor.dim() == 0
        return Scaled(score, self.factor) if plain and score is not None else None

    def extra_repr(self) -> str:
        return "factor=tensor" if isinstance(self.factor, Tensor) else f"factor={self.factor}"


class Given(Score):
    """A score that somebody wrote as a plain function, of which nothing more is known: no shortcuts."""

    positional = True

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]):
        super().__init__()
        self.function = function
        self.gives = getattr(function, "gives", "logits")
        self.random = getattr(function, "random", False)

    def forward(self, query: Tensor, key: Tensor) -> Tensor:
        return self.function(query, key)


def _joined(left: Features, right: Features) -> Features:
    """Two dot products added are one dot product of the joined features."""
    biases = [part.bias for part in (left, right) if part.bias is not None]
    bias = None if not biases else biases[0] if len(biases) == 1 else biases[0] + biases[1]
    if left.query is None or right.query is None:
        return (right if left.query is None else left)._replace(bias=bias)
    batch = torch.broadcast_shapes(left.query.shape[:-1], right.query.shape[:-1])
    query = [part.query.expand(*batch, -1) * part.scale for part in (left, right)]  # type: ignore[union-attr]
    batch = torch.broadcast_shapes(left.key.shape[:-1], right.key.shape[:-1])  # type: ignore[union-attr]
    key = [part.key.expand(*batch, -1) for part in (left, right)]  # type: ignore[union-attr]
    return Features(torch.cat(query, -1), torch.cat(key, -1), 1.0, bias, left.exact or right.exact)


def name(part: object) -> str:
    """What a part is called in a message."""
    return getattr(part, "__name__", type(part).__name__)


def precise(tensor: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Half-width floats as float32, in which sums over many keys are still sums."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def autocasting(device: str) -> bool:
    """Whether autocast is on for a kind of device; some, like meta, do not know it."""
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)
