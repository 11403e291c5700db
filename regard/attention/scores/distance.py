"""The Gaussian score as a dot product, for the fused kernel.

    -1/2 |q - k|^2 = q . k - 1/2 |k|^2 - 1/2 |q|^2

The last term is the same for every key, so softmax does not see it; with 1 appended to q and -1/2 |k|^2 to
k the rest is a dot product. Differences of large squares lose their digits, therefore q and k are first
moved by the mean of the visible keys (the score does not change), and data that still spread too far are
computed in float64.

Scores by angle and by distance: cosine, Gaussian, and the kernels of finite reach.
"""

from __future__ import annotations

from contextlib import nullcontext

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention._common import is_autocast_enabled, upcast_half
from regard.attention.fast.addressing import inverse_norm
from regard.attention.masks import Mask, PositionGrid
from regard.attention.scores.base import DotProductFeatures, Score
from regard.attention.scores.dot import Dot, check_equal_dims
from regard.errors import ShapeError, UsageError

MAX_SQUARED_NORM = {torch.float32: 1e3, torch.float64: 1e9}
"""Up to which squared norm the error, about eps times that norm, stays below 1e-4 and 1e-7."""


def gaussian_features(
    query: Tensor, key: Tensor, width: float | Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor] | None:
    """Query and key features whose dot product is the score up to a constant a query; None if inexact."""
    if torch.compiler.is_compiling() or key.shape[-2] == 0:
        return None  # the choice depends on the data; under a compiler the definition is fused anyway
    middle = _visible_mean(query, key, mask)
    query, key = (query - middle) / width, (key - middle) / width
    try:
        spread = max(_max_squared_norm(query), _max_squared_norm(key))
    except RuntimeError:  # torch.func does not let its tensors be looked at
        return None
    if spread > MAX_SQUARED_NORM[query.dtype]:
        if (
            query.dtype == torch.float64
            or query.device.type == "mps"
            or not spread <= MAX_SQUARED_NORM[torch.float64]
        ):
            return None
        query, key = query.double(), key.double()
    ones = query.new_ones(()).expand(*query.shape[:-1], 1)
    half = -0.5 * key.square().sum(-1, keepdim=True)
    return torch.cat([query, ones], -1), torch.cat([key, half], -1)


@torch.no_grad()
def _visible_mean(query: Tensor, key: Tensor, mask: Mask | None) -> Tensor:
    """The mean of the visible keys; of all keys where every query sees others."""
    if mask is None or not mask.is_query_independent:
        return key.mean(-2, keepdim=True)
    batch = max(query.dim() - 2, key.dim() - 2, mask.num_batch_axes())
    seen = mask.rule(PositionGrid.full(1, key.shape[-2], batch, key.device)).to(key.dtype)
    seen = seen.expand(*seen.shape[:-1], key.shape[-2])
    return (seen @ key) / seen.sum(-1, keepdim=True).clamp(min=1)


def _max_squared_norm(vectors: Tensor) -> float:
    return float(vectors.detach().square().sum(-1).max()) if vectors.numel() else 0.0


def safe_normalize(vector: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """The vector at length one; what is too short to have a direction, as zero is, becomes zero with gradient zero."""
    vector = upcast_half(vector)
    return vector * inverse_norm(vector)


def euclidean_distance(query: Float[Tensor, "..."], key: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """|q - k| from the differences themselves: exact far from zero, where |q|^2 - 2 q.k + |k|^2 is not."""
    query, key = upcast_half(query), upcast_half(key)
    device = query.device.type
    with torch.autocast(device, enabled=False) if is_autocast_enabled(device) else nullcontext():
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

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_equal_dims(self, query, key)
        strength = self.strength
        if isinstance(strength, Tensor) and strength.dim() and strength.shape[-1] not in (1, query.shape[-2]):
            raise ShapeError(
                f"Cosine: a strength tensor is (*batch, queries), got {tuple(strength.shape)} for query "
                f"{tuple(query.shape)}"
            )

    @property
    def pairwise(self) -> Score:
        return self._dot

    def project_query(self, query: Tensor, num_keys: int) -> Tensor:
        strength = self.strength
        if not isinstance(strength, Tensor):
            return safe_normalize(query) * strength
        turned = safe_normalize(query)
        return turned * (strength if strength.dim() == 0 else strength[..., None]).to(turned)

    def project_key(self, key: Tensor) -> Tensor:
        return safe_normalize(key)

    def restrict(self, grid: PositionGrid) -> Score | None:
        """Not by itself with a strength for each query; through ``inner`` the query has it already."""
        return None if isinstance(self.strength, Tensor) and self.strength.dim() else self

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        self.check_dims(query, key)
        return self.pairwise(self.project_query(query, key.shape[-2]), self.project_key(key))

    def extra_repr(self) -> str:
        return f"strength={'learned' if self.learned else self.strength}"


def _is_valid_width(width: Tensor) -> bool:
    unseen = torch.compiler.is_compiling() or width.is_meta  # then there are no numbers to look at
    return width.dim() <= 1 and (unseen or bool((width > 0).all()))


class _DistanceScore(Score):
    """A score of the distance u = |(q - k) / width|, the width a number or one for each feature."""

    def __init__(self, width: float | Float[Tensor, "#dim"] = 1.0, learned: bool = False):
        super().__init__()
        start = torch.as_tensor(width)
        start = start if start.is_floating_point() else start.to(torch.get_default_dtype())
        if not (width > 0 if isinstance(width, (int, float)) else _is_valid_width(start)):
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

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_equal_dims(self, query, key)
        width = self._width
        if isinstance(width, Tensor) and width.dim() and width.shape[0] not in (1, query.shape[-1]):
            raise ShapeError(
                f"{type(self).__name__} has a width for each of {width.shape[0]} features, got query "
                f"{tuple(query.shape)}"
            )

    def scaled_distance(self, query: Tensor, key: Tensor) -> Tensor:
        self.check_dims(query, key)
        width = self.width
        if not isinstance(width, Tensor) or width.dim() == 0:
            return euclidean_distance(query, key) / width
        # Dividing first would round numbers far from zero, so they are moved near it first: by the median,
        # which a few wild (perhaps hidden) keys cannot pull away.
        query, key = upcast_half(query), upcast_half(key)
        middle = key.detach().median(-2, keepdim=True).values if key.shape[-2] else 0
        width = width.to(query.device, query.dtype)
        return euclidean_distance((query - middle) / width, (key - middle) / width)

    def extra_repr(self) -> str:
        return f"width={'learned' if self.learned else self._width}"


class Gaussian(_DistanceScore):
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
        return -0.5 * self.scaled_distance(query, key).square()

    def dot_product_features(
        self, query: Tensor, key: Tensor, mask: Mask | None
    ) -> DotProductFeatures | None:
        width = self.width
        query, key = upcast_half(query), upcast_half(key)
        if isinstance(width, Tensor):
            width = width.to(query.device, query.dtype)
        found = gaussian_features(query, key, width, mask)
        return None if found is None else DotProductFeatures(*found, full_precision=True)


class Boxcar(_DistanceScore):
    """Every key within reach counts the same, every other not at all.

        score(q, k) = 1 if u <= 1 else 0          u = |(q - k) / width|; a kernel value

    The uniform kernel of the estimator of Nadaraya (1964) and Watson (1964).

    >>> Boxcar(width=0.5)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    output_kind = "kernel"

    def __init__(self, width: float | Float[Tensor, "#dim"] = 1.0):
        super().__init__(width)

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        u = self.scaled_distance(query, key)
        return (u <= 1).to(u.dtype)


class Epanechnikov(_DistanceScore):
    """Keys count less the further away they are, and beyond the width not at all.

        score(q, k) = max(0, 1 - u^2)          u = |(q - k) / width|; a kernel value

    Epanechnikov (1969); the kernel of least mean squared error.

    >>> Epanechnikov(width=0.5)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
    torch.Size([2, 3, 5])
    """

    output_kind = "kernel"

    def __init__(self, width: float | Float[Tensor, "#dim"] = 1.0):
        super().__init__(width)

    def forward(
        self, query: Float[Tensor, "*batch queries dim"], key: Float[Tensor, "*other keys size"]
    ) -> Float[Tensor, "..."]:
        return (1 - self.scaled_distance(query, key).square()).clamp(min=0)
