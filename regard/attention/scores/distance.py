"""Scores by angle and by distance: cosine, Gaussian, and the kernels of finite reach."""

from __future__ import annotations

from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.fast.addressing import over_length
from regard.attention.fast.gaussian import gaussian_features
from regard.attention.masks import Grid, Mask
from regard.attention.scores.base import Features, Score, autocasting, precise
from regard.attention.scores.dot import Dot, same_size
from regard.errors import ShapeError, UsageError


def direction(vector: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """The vector at length one; what is too short to have a direction, as zero is, becomes zero with gradient zero."""
    vector = precise(vector)
    return vector * over_length(vector)


def distance(query: Float[Tensor, "..."], key: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """|q - k| from the differences themselves: exact far from zero, where |q|^2 - 2 q.k + |k|^2 is not."""
    query, key = precise(query), precise(key)
    device = query.device.type
    with torch.autocast(device, enabled=False) if autocasting(device) else nullcontext():
        return torch.cdist(query, key.to(query.dtype), compute_mode="donot_use_mm_for_euclid_dist")


class Cosine(Score):
    """The cosine of the angle between query and key, times a strength.

        score(q, k) = strength * q . k / (|q| |k|)          0 where one of them is 0

    Graves, Wayne and Danihelka (2014), arXiv 1410.5401, eq. 5 and 6. ``strength`` may be a tensor (*batch,
    queries).

    >>> Cosine(strength=2.0)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    def __init__(self, strength: float | Float[Tensor, "*batch queries"] = 1.0, learned: bool = False):
        super().__init__()
        self.strength = nn.Parameter(torch.as_tensor(strength, dtype=torch.float)) if learned else strength
        self.learned = learned
        self._dot = Dot()

    def check(self, query: Tensor, key: Tensor) -> None:
        same_size(self, query, key)
        strength = self.strength
        if isinstance(strength, Tensor) and strength.dim() and strength.shape[-1] not in (1, query.shape[-2]):
            raise ShapeError(
                f"Cosine: a strength tensor is (*batch, queries), got {tuple(strength.shape)} for query "
                f"{tuple(query.shape)}"
            )

    @property
    def inner(self) -> Score:
        return self._dot

    def project_query(self, query: Tensor, keys: int) -> Tensor:
        strength = self.strength
        if not isinstance(strength, Tensor):
            return direction(query) * strength
        turned = direction(query)
        return turned * (strength if strength.dim() == 0 else strength[..., None]).to(turned)

    def project_key(self, key: Tensor) -> Tensor:
        return direction(key)

    def at(self, grid: Grid) -> Score | None:
        """Not by itself with a strength for each query; through ``inner`` the query has it already."""
        return None if isinstance(self.strength, Tensor) and self.strength.dim() else self

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        self.check(query, key)
        return self.inner(self.project_query(query, key.shape[-2]), self.project_key(key))

    def extra_repr(self) -> str:
        return f"strength={'learned' if self.learned else self.strength}"


def _is_width(width: Tensor) -> bool:
    unseen = torch.compiler.is_compiling() or width.is_meta  # then there are no numbers to look at
    return width.dim() <= 1 and (unseen or bool((width > 0).all()))


class _Width(Score):
    """A score of the distance u = |(q - k) / width|, the width a number or one for each feature."""

    def __init__(self, width: float | Float[Tensor, "#dim"] = 1.0, learned: bool = False):
        super().__init__()
        start = torch.as_tensor(width)
        start = start if start.is_floating_point() else start.to(torch.get_default_dtype())
        if not (width > 0 if isinstance(width, (int, float)) else _is_width(start)):
            raise UsageError(
                f"{type(self).__name__}: width must be above 0, a number or one for each feature, got "
                f"{' '.join(str(width).split())}"
            )
        self.learned = learned
        # The logarithm is what is learned: a width stays above zero whatever the step.
        self.log_width = nn.Parameter(start.log()) if learned else None
        self._width: float | Tensor = start if start.dim() else float(width)

    @property
    def width(self) -> float | Tensor:
        return self._width if self.log_width is None else self.log_width.exp()

    def check(self, query: Tensor, key: Tensor) -> None:
        same_size(self, query, key)
        width = self._width
        if isinstance(width, Tensor) and width.dim() and width.shape[0] not in (1, query.shape[-1]):
            raise ShapeError(
                f"{type(self).__name__} has a width for each of {width.shape[0]} features, got query "
                f"{tuple(query.shape)}"
            )

    def u(self, query: Tensor, key: Tensor) -> Tensor:
        self.check(query, key)
        width = self.width
        if not isinstance(width, Tensor) or width.dim() == 0:
            return distance(query, key) / width
        # Dividing first would round numbers far from zero, so they are moved near it first: by the median,
        # which a few wild (perhaps hidden) keys cannot pull away.
        query, key = precise(query), precise(key)
        middle = key.detach().median(-2, keepdim=True).values if key.shape[-2] else 0
        width = width.to(query.device, query.dtype)
        return distance((query - middle) / width, (key - middle) / width)

    def extra_repr(self) -> str:
        return f"width={'learned' if self.learned else self._width}"


class Gaussian(_Width):
    """The closer a key, the better; with softmax it is Nadaraya-Watson kernel regression.

        score(q, k) = -1/2 u^2          u = |(q - k) / width|

    Nadaraya (1964), "On Estimating Regression"; Watson (1964), "Smooth Regression Analysis". With
    ``learned=True`` the width is a parameter.

    >>> Gaussian(width=0.5)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        return -0.5 * self.u(query, key).square()

    def features(self, query: Tensor, key: Tensor, mask: Mask | None) -> Features | None:
        width = self.width
        query, key = precise(query), precise(key)
        if isinstance(width, Tensor):
            width = width.to(query.device, query.dtype)
        found = gaussian_features(query, key, width, mask)
        return None if found is None else Features(*found, exact=True)


class Boxcar(_Width):
    """Every key within reach counts the same, every other not at all.

        score(q, k) = 1 if u <= 1 else 0          u = |(q - k) / width|; a kernel value

    The uniform kernel of the estimator of Nadaraya (1964) and Watson (1964).

    >>> Boxcar(width=0.5)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    gives = "kernel"

    def __init__(self, width: float | Float[Tensor, "#dim"] = 1.0):
        super().__init__(width)

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        u = self.u(query, key)
        return (u <= 1).to(u.dtype)


class Epanechnikov(_Width):
    """Keys count less the further away they are, and beyond the width not at all.

        score(q, k) = max(0, 1 - u^2)          u = |(q - k) / width|; a kernel value

    Epanechnikov (1969); the kernel of least mean squared error.

    >>> Epanechnikov(width=0.5)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    gives = "kernel"

    def __init__(self, width: float | Float[Tensor, "#dim"] = 1.0):
        super().__init__(width)

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        return (1 - self.u(query, key).square()).clamp(min=0)
