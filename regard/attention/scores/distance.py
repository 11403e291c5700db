"""Scores by angle and by distance: Cosine, Gaussian, and the kernels of finite width."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention._common import is_transformed, upcast_half
from regard.attention.fast.additive import autocast_disabled
from regard.attention.fast.addressing import inverse_norm
from regard.attention.masks import Mask, PositionGrid
from regard.attention.module import Device, Dtype
from regard.attention.scores.base import DotProductFeatures, KeyVectors, QueryVectors, Score, ScoreMatrix
from regard.attention.scores.dot import Dot, check_equal_dims
from regard.errors import ShapeError, UsageError

__all__ = ["Boxcar", "Cosine", "Epanechnikov", "Gaussian"]


def safe_normalize(vector: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch dim"]:
    """The vector divided by its norm; zero with gradient zero if the norm is too small."""
    vector = upcast_half(vector)
    return vector * inverse_norm(vector)


def squared_distance(
    query: Float[Tensor, "..."], key: Float[Tensor, "..."], width: float | Tensor = 1.0
) -> Float[Tensor, "..."]:
    """|(q - k) / width|^2 from the differences, accurate far from the origin, where |q|^2 - 2 q.k + |k|^2 is not."""
    query, key = upcast_half(query), upcast_half(key)
    if is_transformed() and not torch.compiler.is_compiling():  # cdist has no forward-mode derivative
        return ((query.unsqueeze(-2) - key.unsqueeze(-3)) / width).square().sum(-1)
    with autocast_disabled(query):
        distance = torch.cdist(query, key.to(query.dtype), compute_mode="donot_use_mm_for_euclid_dist")
    return (distance / width).square()


class Cosine(Score):
    """The cosine of the angle between query and key, times a strength.

        score(q, k) = strength * q . k / (|q| |k|)          0 where one of them is 0

    Args:
        strength: a number, or a tensor (*batch, queries)
        learned: whether the strength is a parameter
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, dim), key (*batch, keys, dim) -> (*batch, queries, keys)

    Reference: Graves, Wayne and Danihelka (2014), arXiv 1410.5401, eq. 5 and 6.

    Example:
        >>> Cosine(strength=2.0)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
    """

    def __init__(
        self,
        strength: float | Float[Tensor, "*batch queries"] = 1.0,
        learned: bool = False,
        *,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        self.learned = learned
        self._initial_strength = strength if learned else None
        if learned:
            dtype = torch.float if dtype is None else dtype
            strength = nn.Parameter(torch.as_tensor(strength, dtype=dtype, device=device).clone())
        self.strength = strength
        self._dot = Dot()

    def _init_parameters(self) -> None:
        """Set a learned strength to its initial value."""
        if isinstance(self.strength, nn.Parameter):
            with torch.no_grad():
                self.strength.copy_(torch.as_tensor(self._initial_strength))

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
        normalized = safe_normalize(query)
        return normalized * (strength if strength.dim() == 0 else strength[..., None]).to(normalized)

    def project_key(self, key: Tensor) -> Tensor:
        return safe_normalize(key)

    def restrict(self, grid: PositionGrid) -> Score | None:
        """None with a strength for each query; ``pairwise``, whose queries are scaled already, can be restricted."""
        return None if isinstance(self.strength, Tensor) and self.strength.dim() else self

    def extra_repr(self) -> str:
        return f"strength={'learned' if self.learned else self.strength}"


def _is_valid_width(width: Tensor) -> bool:
    has_no_values = torch.compiler.is_compiling() or width.is_meta
    return width.dim() <= 1 and (has_no_values or bool((width > 0).all()))


class _DistanceScore(Score):
    """A score of the distance u = |(q - k) / width|, with one width or one for each feature."""

    is_pointwise = True

    def __init__(
        self,
        width: float | Float[Tensor, "#dim"] = 1.0,
        learned: bool = False,
        *,
        device: Device = None,
        dtype: Dtype = None,
    ):
        super().__init__()
        initial = torch.as_tensor(width, dtype=dtype, device=device)
        initial = initial if initial.is_floating_point() else initial.to(torch.get_default_dtype())
        if not (width > 0 if isinstance(width, (int, float)) else _is_valid_width(initial)):
            raise UsageError(
                f"{type(self).__name__}: width must be above 0, a number or one for each feature, got "
                f"{' '.join(str(width).split())}"
            )
        self.learned = learned
        # The parameter is the logarithm, so that the width stays positive after every step.
        self.log_width = nn.Parameter(initial.log()) if learned else None
        self._width: float | Tensor = initial if initial.dim() else float(width)

    def _init_parameters(self) -> None:
        """Set a learned width to its initial value."""
        if self.log_width is not None:
            with torch.no_grad():
                width = torch.as_tensor(self._width, dtype=self.log_width.dtype, device=self.log_width.device)
                self.log_width.copy_(width.log())

    @property
    def width(self) -> float | Tensor:
        """The width, or the current value of a learned one."""
        return self._width if self.log_width is None else self.log_width.exp()

    def check_dims(self, query: Tensor, key: Tensor) -> None:
        check_equal_dims(self, query, key)
        width = self._width
        if isinstance(width, Tensor) and width.dim() and width.shape[0] not in (1, query.shape[-1]):
            raise ShapeError(
                f"{type(self).__name__}: expected {width.shape[0]} features, one for each width, got query "
                f"{tuple(query.shape)}"
            )

    def squared_distance(self, query: Tensor, key: Tensor) -> Tensor:
        """u^2 = |(q - k) / width|^2, (*batch, queries, keys)."""
        self.check_dims(query, key)
        width = self.width
        if not isinstance(width, Tensor) or width.dim() == 0:
            return squared_distance(query, key, width)
        # Dividing first would round numbers far from the origin, so the median is subtracted before: a few outliers,
        # perhaps hidden, do not change it.
        query, key = upcast_half(query), upcast_half(key)
        median = key.detach().median(-2, keepdim=True).values if key.shape[-2] else 0
        width = width.to(query.device, query.dtype)
        return squared_distance((query - median) / width, (key - median) / width)

    def extra_repr(self) -> str:
        return f"width={'learned' if self.learned else self._width}"


class Gaussian(_DistanceScore):
    """The logarithm of a Gaussian kernel; with softmax it is Nadaraya-Watson kernel regression.

        score(q, k) = -1/2 u^2          u = |(q - k) / width|

    Args:
        width: a positive number, or one for each feature
        learned: whether the width is a parameter
        device: the device of the parameters
        dtype: the dtype of the parameters

    Shape: query (*batch, queries, dim), key (*batch, keys, dim) -> (*batch, queries, keys)

    Reference: Nadaraya (1964), "On Estimating Regression"; Watson (1964), "Smooth Regression Analysis".

    Example:
        >>> Gaussian(width=0.5)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
    """

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        return -0.5 * self.squared_distance(query, key)

    def dot_product_features(self, query: Tensor, key: Tensor, mask: Mask | None) -> DotProductFeatures | None:
        width = self.width
        query, key = upcast_half(query), upcast_half(key)
        if isinstance(width, Tensor):
            width = width.to(query.device, query.dtype)
        features = gaussian_features(query, key, width, mask)
        return None if features is None else DotProductFeatures(*features, full_precision=True)


class _FiniteKernel(_DistanceScore):
    """A kernel value that is 0 beyond a fixed width."""

    output_kind = "kernel"

    def __init__(self, width: float | Float[Tensor, "#dim"] = 1.0):
        super().__init__(width)


class Boxcar(_FiniteKernel):
    """The uniform kernel: 1 for keys within the width, 0 for all others.

        score(q, k) = 1 if u <= 1 else 0          u = |(q - k) / width|; a kernel value

    Args:
        width: a positive number, or one for each feature

    Shape: query (*batch, queries, dim), key (*batch, keys, dim) -> (*batch, queries, keys)

    Reference: Nadaraya (1964) and Watson (1964).

    Example:
        >>> Boxcar(width=0.5)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
    """

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        squared = self.squared_distance(query, key)
        return (squared <= 1).to(squared.dtype).masked_fill(squared.isnan(), torch.nan)


class Epanechnikov(_FiniteKernel):
    """The parabolic kernel: decreasing with the distance, and 0 beyond the width.

        score(q, k) = max(0, 1 - u^2)          u = |(q - k) / width|; a kernel value

    Args:
        width: a positive number, or one for each feature

    Shape: query (*batch, queries, dim), key (*batch, keys, dim) -> (*batch, queries, keys)

    Reference: Epanechnikov (1969); the kernel of least mean squared error.

    Example:
        >>> Epanechnikov(width=0.5)(torch.randn(2, 3, 4), torch.randn(2, 5, 4)).shape
        torch.Size([2, 3, 5])
    """

    def forward(self, query: QueryVectors, key: KeyVectors) -> ScoreMatrix:
        return (1 - self.squared_distance(query, key)).clamp(min=0)


# ---- the Gaussian score as a dot product, for the fused kernel
#
#     -1/2 |q - k|^2 = q . k - 1/2 |k|^2 - 1/2 |q|^2
#
# The last term is the same for every key, so softmax cancels it; with 1 appended to q and -1/2 |k|^2 to k the others
# are a dot product. Differences of large squares lose their digits, therefore the mean of the visible keys is
# subtracted from q and k first (the score does not change), and vectors with large norms are computed in float64.

MAX_SQUARED_NORM = {torch.float32: 1e3, torch.float64: 1e9}
"""The squared norm up to which the error, about eps times the norm, stays below 1e-4 and 1e-7."""


def gaussian_features(
    query: Tensor, key: Tensor, width: float | Tensor, mask: Mask | None
) -> tuple[Tensor, Tensor] | None:
    """Query and key features whose dot product is the score up to a constant per query; None if inaccurate."""
    if torch.compiler.is_compiling() or key.shape[-2] == 0:
        return None  # the choice depends on the data; a compiler fuses the definition anyway
    mean = _visible_mean(query, key, mask)
    query, key = (query - mean) / width, (key - mean) / width
    norms = _max_squared_norm(query), _max_squared_norm(key)
    if not all(norm <= MAX_SQUARED_NORM[query.dtype] for norm in norms):  # NaN is not
        has_float64 = query.dtype != torch.float64 and query.device.type != "mps"
        if not (has_float64 and all(norm <= MAX_SQUARED_NORM[torch.float64] for norm in norms)):
            return None
        query, key = query.double(), key.double()
    ones = query.new_ones(()).expand(*query.shape[:-1], 1)
    half = -0.5 * key.square().sum(-1, keepdim=True)
    return torch.cat([query, ones], -1), torch.cat([key, half], -1)


@torch.no_grad()
def _visible_mean(query: Tensor, key: Tensor, mask: Mask | None) -> Tensor:
    """The mean of the visible keys; of all keys if the mask depends on the query."""
    if mask is None or not mask.is_query_independent:
        return key.mean(-2, keepdim=True)
    batch = max(query.dim() - 2, key.dim() - 2, mask.num_batch_axes())
    visible = mask.rule(PositionGrid.full(1, key.shape[-2], batch, key.device)).to(key.dtype)
    visible = visible.expand(*visible.shape[:-1], key.shape[-2])
    return (visible @ key) / visible.sum(-1, keepdim=True).clamp(min=1)


def _max_squared_norm(vectors: Tensor) -> float:
    return float(vectors.detach().square().sum(-1).max()) if vectors.numel() else 0.0
