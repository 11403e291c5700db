"""Kernel regression: attention pooling as an estimator of scikit-learn, with bandwidths learned by leave-one-out."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data  # type: ignore[import-untyped]
from torch import Tensor

from regard.attention import Boxcar, Constant, Epanechnikov, Gaussian, Score, attend, hardmax
from regard.errors import UsageError, require_choice
from regard.models.kernel_sums import ExcludedPoint, Queries, Sums, TrainingPoints, build_fast_sums, smooth_in_chunks

__all__ = [
    "KernelRegression", "KernelSmoother", "OutOfReachWarning", "divide_sums", "learn_bandwidths", "leave_one_out_error",
]  # fmt: skip

MAX_WEIGHTS = 2**26  # returned by one call of `weights`: half a gigabyte

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2
COMMON_STEP, FEATURE_STEP = 1.5, 2.0  # factors between the widths of a first grid: of all features, of one
MAX_WIDTH = 10.0  # standard deviations: practically the average
MAX_SWEEPS, MIN_GAIN = 4, 1e-3

Width = Float[Tensor, ""] | Float[Tensor, "features"]
KERNELS: dict[str, Callable[[Tensor | float], Score]] = {
    "average": lambda width: Constant(),
    "gaussian": Gaussian,
    "boxcar": Boxcar,
    "epanechnikov": Epanechnikov,
}


class OutOfReachWarning(UserWarning):
    """Some queries have no point within the reach of the kernel.

    Example:
        >>> import warnings
        >>> with warnings.catch_warnings(record=True) as caught:
        ...     warnings.simplefilter("always")
        ...     prediction = KernelRegression("boxcar", width=1.0).fit([[0], [1]], [0, 1]).predict([[9]])
        >>> prediction.tolist(), caught[0].category.__name__
        ([nan], 'OutOfReachWarning')
    """


class KernelRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Nadaraya-Watson kernel regression: the mean of all known y, weighted by the distance of their x.

        f(x) = sum_i K(u_i) y_i / sum_j K(u_j)          u_i = |(x - x_i) / width|

        average        K = 1
        gaussian       K = exp(-u^2 / 2)
        boxcar         K = 1 if u <= 1 else 0
        epanechnikov   K = max(0, 1 - u^2)

    As attention, x is the query, the x_i are the keys and the y_i the values. Needs scikit-learn.

    Args:
        kernel: "average", "gaussian", "boxcar" or "epanechnikov"
        width: a number, one per feature, or "learned": one per feature, by golden-section search on the leave-one-out
            error
        out_of_reach: prediction of a query that no point reaches: "nan", or "nearest" for the nearest point

    Shape: X (samples, features), y (samples,) or (samples, outputs)

    Example:
        >>> model = KernelRegression("epanechnikov", width=2.0).fit([[0], [1], [3]], [0, 1, 9])
        >>> model.predict([[1], [2]]).tolist()
        [0.571..., 5.0]

    Reference: Nadaraya (1964); Watson (1964).
    """

    def __init__(self, kernel: str = "gaussian", width: Any = 1.0, out_of_reach: str = "nan"):
        self.kernel = kernel
        self.width = width
        self.out_of_reach = out_of_reach

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelRegression:
        """Store the points and learn the width if requested; points of weight 0 are dropped."""
        require_choice("kernel", self.kernel, KERNELS, "KernelRegression")
        require_choice("out_of_reach", self.out_of_reach, ("nan", "nearest"), "KernelRegression")
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        is_kept = weight > 0
        if not is_kept.any():
            raise UsageError("KernelRegression: at least one sample_weight must be above 0")
        self._is_single_output, values = y.ndim == 1, y.reshape(len(y), -1).astype(np.float64)
        points = TrainingPoints.from_targets(*(torch.tensor(part[is_kept]) for part in (X, values, weight)))
        width = self._resolve_width(points)
        self._smoother = KernelSmoother(self.kernel, width, points)
        self.width_: NDArray[np.float64] = width.expand(X.shape[1]).numpy().copy()
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """The prediction of each row of X; NaN, with one warning, where no point is within reach."""
        query = self._validate_queries(X)
        sums = self._smoother.sums(query)
        return self._to_output(divide_sums(self._fill_out_of_reach(sums, query, None)))

    def leave_one_out(self) -> NDArray[np.float64]:
        """The error of each point predicted from all others: prediction - y."""
        check_is_fitted(self)
        points = self._smoother.points
        sums = self._fill_out_of_reach(self._smoother.leave_one_out(), points.key, torch.arange(len(points.key)))
        return self._to_output(divide_sums(sums) - points.y)

    def weights(self, X: Any) -> NDArray[np.float64]:
        """The weight of each point for each row of X, (queries, points); a row of 0 where no point is within reach."""
        query, num_points = self._validate_queries(X), len(self._smoother.points.key)
        if len(query) * num_points > MAX_WEIGHTS:
            raise UsageError(
                f"KernelRegression.weights: {len(query):,} queries x {num_points:,} points are more than"
                f" {MAX_WEIGHTS:,} weights; pass at most {max(1, MAX_WEIGHTS // num_points):,} queries"
            )
        weights = self._smoother.weights(query)
        if self.out_of_reach == "nearest":
            is_empty = ~weights.any(-1)
            score, points = self._smoother.nearest_score, self._smoother.points
            weights[is_empty] = attend(query[is_empty], *points, score=score, normalize=hardmax).weights
        return cast("NDArray[np.float64]", weights.numpy())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = self.kernel == "average"  # a constant
        return tags

    def _resolve_width(self, points: TrainingPoints) -> Tensor:
        if isinstance(self.width, str) and self.width == "learned":
            return learn_bandwidths(self.kernel, points)
        num_features = points.key.shape[1]
        try:
            width = np.array(self.width, dtype=np.float64)
        except (TypeError, ValueError):
            width = np.array(np.nan)
        if width.shape not in ((), (num_features,)) or not ((width > 0) & (width < np.inf)).all():
            raise UsageError(
                f"KernelRegression: invalid value {self.width!r} for width: must be above 0, a number or one for each"
                f' of {num_features} features, or "learned"'
            )
        return torch.from_numpy(width)

    def _validate_queries(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return torch.tensor(validate_data(self, X, dtype=np.float64, reset=False))

    def _fill_out_of_reach(self, sums: Tensor, query: Tensor, excluded: Tensor | None) -> Tensor:
        """Where no point is within reach: the sums of the nearest one, or a warning."""
        is_empty = ~(sums[:, -1] > 0)
        if bool(is_empty.any()) and self.out_of_reach == "nearest":
            left_out = None if excluded is None else excluded[is_empty]
            score, points = self._smoother.nearest_score, self._smoother.points
            sums[is_empty] = smooth_in_chunks(query[is_empty], points, score, left_out, hardmax)
        elif bool(is_empty.any()):
            problem = f"{int(is_empty.sum()):,} of {len(query):,} queries have no point within reach"
            advice = 'take a larger width, or out_of_reach="nearest"'
            warnings.warn(f"{problem} and are predicted as NaN; {advice}", OutOfReachWarning, stacklevel=3)
        return sums

    def _to_output(self, predictions: Tensor) -> NDArray[np.float64]:
        output = cast("NDArray[np.float64]", predictions.numpy())
        return output[:, 0] if self._is_single_output else output


class KernelSmoother:
    """A kernel of a given width over training points.

        f(q) = sum_i K(q, x_i) w_i y_i / sum_i K(q, x_i) w_i

    Both sums are one attention over values [w y, w], whose normalization cancels. They are 0 where no point is within
    reach.

    Args:
        kernel: a name in `KERNELS`
        width: one width, or one per feature
        points: the training points

    Example:
        >>> x, y, weight = torch.rand(9, 1).double(), torch.rand(9, 1).double(), torch.ones(9).double()
        >>> points = TrainingPoints.from_targets(x, y, weight)
        >>> KernelSmoother("gaussian", torch.tensor(0.1), points).sums(torch.rand(3, 1).double()).shape
        torch.Size([3, 2])
    """

    def __init__(self, kernel: str, width: Width, points: TrainingPoints):
        self.points = points
        # A NumPy float64: a Python float would be converted to float32 and rounded.
        score_width = width if width.numel() > 1 else np.float64(width.item())
        self.score, self.nearest_score = KERNELS[kernel](score_width), Gaussian(score_width)
        self.fast_sums = build_fast_sums(kernel, width, points, self.score)

    def sums(self, query: Queries, excluded: ExcludedPoint | None = None) -> Sums:
        """Numerators and, as the last column, the denominator; `excluded` is a point to leave out per query."""
        if self.fast_sums is None or not len(query):
            return smooth_in_chunks(query, self.points, self.score, excluded)
        sums, is_inexact = self.fast_sums.sums(query, excluded)
        if bool(is_inexact.any()):
            left_out = None if excluded is None else excluded[is_inexact]
            sums[is_inexact] = smooth_in_chunks(query[is_inexact], self.points, self.score, left_out)
        return sums

    def leave_one_out(self) -> Sums:
        """The sums at every point over all other points."""
        return self.sums(self.points.key, torch.arange(len(self.points.key)))

    def weights(self, query: Queries) -> Float[Tensor, "queries points"]:
        """The weight of each point for each query; rows of 0 where no point is within reach."""
        weights = attend(query, *self.points, score=self.score).weights * self.points.weight
        total = weights.sum(-1, keepdim=True)
        return torch.where(total > 0, weights / total, 0.0)


def divide_sums(sums: Sums) -> Float[Tensor, "queries outputs"]:
    """Predictions from sums: NaN where no point is within reach.

    Args:
        sums: numerators and, as the last column, the denominator

    Returns:
        the predictions

    Example:
        >>> divide_sums(torch.tensor([[3.0, 2.0], [0.0, 0.0]])).tolist()
        [[1.5], [nan]]
    """
    return torch.where(sums[:, -1:] > 0, sums[:, :-1] / sums[:, -1:], math.nan)


def learn_bandwidths(kernel: str, points: TrainingPoints) -> Float[Tensor, "features"]:
    """A width for each feature, by golden-section search on the leave-one-out error.

    First one factor for the standard deviations of all features, from 1 / points to 10: the best of a grid, then golden
    section around it. With several features then one width after another, in at most four sweeps, until the error no
    longer falls.

    Args:
        kernel: name of the kernel
        points: the training points

    Returns:
        the widths

    Example:
        >>> from regard.models.kernel_sums import TrainingPoints
        >>> x, y, weight = torch.rand(9, 1).double(), torch.rand(9, 1).double(), torch.ones(9).double()
        >>> points = TrainingPoints.from_targets(x, y, weight)
        >>> learn_bandwidths("gaussian", points).shape
        torch.Size([1])
    """
    spread = points.key.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    if kernel == "average" or len(points.key) < 2:
        return spread

    def error(width: Tensor, is_scaled: Tensor, factor: float) -> float:
        return leave_one_out_error(kernel, torch.where(is_scaled, width * factor, width), points)

    factor, best = _minimize(partial(error, spread, torch.tensor(True)), 1 / len(points.key), MAX_WIDTH, COMMON_STEP)
    width = factor * spread
    for _ in range(MAX_SWEEPS if len(width) > 1 else 0):
        before = best
        for is_scaled in torch.eye(len(width), dtype=torch.bool):
            factor, lowest = _minimize(partial(error, width, is_scaled), 1 / 8, 8.0, FEATURE_STEP, tolerance=0.05)
            if lowest < best:
                width, best = torch.where(is_scaled, width * factor, width), lowest
        if before - best <= MIN_GAIN * before:
            break
    return width


def leave_one_out_error(kernel: str, width: Tensor, points: TrainingPoints) -> float:
    """Mean squared error of predicting each point from the others, each output divided by its variance.

    The prediction of a point that no other reaches is the average.

    Args:
        kernel: name of the kernel
        width: one width, or one per feature
        points: the training points

    Shape: width () or (features,)

    Returns:
        the error, averaged over the outputs

    Example:
        >>> from regard.models.kernel_sums import TrainingPoints
        >>> x, y, weight = torch.rand(9, 1).double(), torch.rand(9, 1).double(), torch.ones(9).double()
        >>> points = TrainingPoints.from_targets(x, y, weight)
        >>> leave_one_out_error("average", torch.tensor(1.0), points)  # (n / (n - 1))^2
        1.265...
    """
    fraction = (points.weight / points.weight.sum())[:, None]
    y = points.y
    average = (fraction * y).sum(0)
    variance = (fraction * (y - average).square()).sum(0)
    predictions = divide_sums(KernelSmoother(kernel, width, points).leave_one_out())
    predictions = torch.where(predictions.isnan(), average, predictions)
    error = (fraction * (predictions - y).square()).sum(0)
    return float((error / torch.where(variance > 0, variance, 1.0)).mean())


def _minimize(
    error: Callable[[float], float], low: float, high: float, step: float, tolerance: float = 1e-3
) -> tuple[float, float]:
    """The factor between `low` and `high` with the lowest error, and this error.

    The best of a geometric grid, then golden-section search between its neighbors.
    """
    count = math.ceil(math.log(high / low) / math.log(step))
    grid = [math.log(high) - n * math.log(step) for n in range(count + 1)]
    errors = {x: error(math.exp(x)) for x in grid}
    best = min(errors, key=lambda x: errors[x])
    left, right = best - math.log(step), best + math.log(step)
    while right - left > tolerance:
        inner = right - GOLDEN_RATIO * (right - left), left + GOLDEN_RATIO * (right - left)
        for x in inner:
            if x not in errors:
                errors[x] = error(math.exp(x))
        left, right = (left, inner[1]) if errors[inner[0]] <= errors[inner[1]] else (inner[0], right)
    best = min(errors, key=lambda x: errors[x])
    return math.exp(best), errors[best]
