"""How wide a kernel should be: such that each point is predicted best from the others.

Attention pooling as an estimator of scikit-learn: what is near is looked at most.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)
from torch import Tensor

from regard.errors import UsageError
from regard.models.kernel_regression.smoothing import KERNELS, KernelSmoother, TrainingPoints, divide_sums

GOLDEN_RATIO = (math.sqrt(5) - 1) / 2


COMMON_STEP, FEATURE_STEP = 1.5, 2.0  # the steps of the first look along a scale, as factors


MAX_WIDTH = 10.0  # standard deviations: as good as an average


MAX_SWEEPS, MIN_GAIN = 4, 1e-3


def learn_bandwidths(kernel: str, points: TrainingPoints) -> Float[Tensor, "features"]:
    """A width for each feature, by golden section on the leave-one-out error.

    First one factor for all standard deviations, from 1/points to 10: the best of a scale, then golden section around
    it. With several features then one width after the other, in at most four rounds, until that gains nothing.
    """
    spread = points.key.std(0, correction=0)
    spread = torch.where(spread > 0, spread, 1.0)
    if kernel == "average" or len(points.key) < 2:
        return spread

    def error(width: Tensor) -> float:
        return leave_one_out_error(kernel, width, points)

    factor, best = _minimize(lambda f: error(f * spread), 1 / len(points.key), MAX_WIDTH, COMMON_STEP)
    width = factor * spread
    for _ in range(MAX_SWEEPS if len(width) > 1 else 0):
        before = best
        for feature in range(len(width)):
            width, best = _improve_feature(error, width, best, feature)
        if before - best <= MIN_GAIN * before:
            break
    return width


def leave_one_out_error(kernel: str, width: Tensor, points: TrainingPoints) -> float:
    """The mean squared error of predicting each point from the others, each output by its variance.

    A point that no other reaches counts as predicted by the average.
    """
    share = (points.weight / points.weight.sum())[:, None]
    y = points.y
    average = (share * y).sum(0)
    variance = (share * (y - average).square()).sum(0)
    found = divide_sums(KernelSmoother(kernel, width, points).leave_one_out())
    found = torch.where(found.isnan(), average, found)
    error = (share * (found - y).square()).sum(0)
    return float((error / torch.where(variance > 0, variance, 1.0)).mean())


def _improve_feature(
    error: Callable[[Tensor], float], width: Tensor, best: float, feature: int
) -> tuple[Tensor, float]:
    """The widths with one of them changed, if that is better."""

    def changed(factor: float) -> Tensor:
        other = width.clone()
        other[feature] *= factor
        return other

    factor, found = _minimize(lambda f: error(changed(f)), 1 / 8, 8.0, FEATURE_STEP, tolerance=0.05)
    return (changed(factor), found) if found < best else (width, best)


def _minimize(
    error: Callable[[float], float], low: float, high: float, step: float, tolerance: float = 1e-3
) -> tuple[float, float]:
    """Where between two factors the error is lowest, and how low.

    The best of a scale, then golden section between its neighbors.
    """
    count = math.ceil(math.log(high / low) / math.log(step))
    scale = [math.log(high) - n * math.log(step) for n in range(count + 1)]
    seen = {at: error(math.exp(at)) for at in scale}
    best = min(seen, key=lambda at: seen[at])
    left, right = best - math.log(step), best + math.log(step)
    while right - left > tolerance:
        inner = right - GOLDEN_RATIO * (right - left), left + GOLDEN_RATIO * (right - left)
        for at in inner:
            if at not in seen:
                seen[at] = error(math.exp(at))
        left, right = (left, inner[1]) if seen[inner[0]] <= seen[inner[1]] else (inner[0], right)
    best = min(seen, key=lambda at: seen[at])
    return math.exp(best), seen[best]


MAX_WEIGHTS = 2**26
"""The most weights that are given at once: half a gigabyte."""


OUT_OF_REACH_CHOICES = ("nan", "nearest")


class OutOfReachWarning(UserWarning):
    """Some queries have no point within the reach of the kernel."""


class KernelRegression(RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """Predict y as the average of all known y, each weighted by how near its x is.

        f(x) = sum_i K(u_i) y_i / sum_j K(u_j)          u_i = |(x - x_i) / width|

        average        K = 1
        gaussian       K = exp(-u^2 / 2)
        boxcar         K = 1 if u <= 1 else 0
        epanechnikov   K = max(0, 1 - u^2)

    The query is x, the keys are the x_i, the values the y_i. Nadaraya (1964), Watson (1964). `width` is a number, one
    for each feature, or "learned": by golden section on the leave-one-out error, one for each feature. A query that no
    point reaches is NaN, or with unreached="nearest" the nearest point. Needs scikit-learn.

    >>> from regard.models.kernel_regression.estimator import KernelRegression
    >>> model = KernelRegression("epanechnikov", width=2.0).fit([[0], [1], [3]], [0, 1, 9])
    >>> model.predict([[1], [2]]).tolist()
    [0.571..., 5.0]
    """

    def __init__(self, kernel: str = "gaussian", width: Any = 1.0, out_of_reach: str = "nan"):
        self.kernel = kernel
        self.width = width
        self.out_of_reach = out_of_reach

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelRegression:
        """Keep the points, and learn the width if it is to be learned; a point of weight 0 is no point."""
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        kept = weight > 0
        if not kept.any():
            raise UsageError("KernelRegression: every sample_weight is 0; at least one point must count")
        self._is_single_output = y.ndim == 1
        values = y.reshape(len(y), -1).astype(np.float64)
        known = TrainingPoints.from_targets(*(torch.tensor(part[kept]) for part in (X, values, weight)))
        width = self._resolve_width(known)
        self._smoother = KernelSmoother(self.kernel, width, known)
        self.width_: NDArray[np.float64] = width.expand(X.shape[1]).numpy().copy()
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """What the points near each row of X have on average; NaN, with one warning, where there are none."""
        query = self._validate_queries(X)
        sums = self._smoother.sums(query)
        return self._to_output(divide_sums(self._fill_out_of_reach(sums, query, None)))

    def leave_one_out(self) -> NDArray[np.float64]:
        """How far off each point is predicted from all others: prediction - y."""
        check_is_fitted(self)
        known = self._smoother.points
        sums = self._fill_out_of_reach(
            self._smoother.leave_one_out(), known.key, torch.arange(len(known.key))
        )
        return self._to_output(divide_sums(sums) - known.y)

    def weights(self, X: Any) -> NDArray[np.float64]:
        """What each point counts for each row of X, (queries, points); a row of 0 where none is in reach."""
        query, points = self._validate_queries(X), len(self._smoother.points.key)
        if len(query) * points > MAX_WEIGHTS:
            raise UsageError(
                f"KernelRegression.weights: {len(query):,} queries x {points:,} points are more than {MAX_WEIGHTS:,} weights; "
                f"ask for at most {max(1, MAX_WEIGHTS // points):,} queries at once"
            )
        weights = self._smoother.weights(query)
        if self.out_of_reach == "nearest":
            none = ~weights.any(-1)
            weights[none] = self._smoother.nearest_weights(query[none])
        return cast("NDArray[np.float64]", weights.numpy())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = self.kernel == "average"  # by nature
        return tags

    def _check_parameters(self) -> None:
        for name, value, known in (
            ("kernel", self.kernel, tuple(KERNELS)),
            ("unreached", self.out_of_reach, OUT_OF_REACH_CHOICES),
        ):
            if value not in known:
                raise UsageError(f"KernelRegression: {name} must be one of {', '.join(known)}; not {value!r}")

    def _resolve_width(self, points: TrainingPoints) -> Tensor:
        if isinstance(self.width, str) and self.width == "learned":
            return learn_bandwidths(self.kernel, points)
        features = points.key.shape[1]
        try:
            width = np.array(self.width, dtype=np.float64)
        except (TypeError, ValueError):
            width = np.array(np.nan)
        if width.shape not in ((), (features,)) or not ((width > 0) & (width < np.inf)).all():
            raise UsageError(
                f"KernelRegression: width must be above 0, a number or one for each of {features} features, or "
                f'"learned"; not {self.width!r}'
            )
        return torch.from_numpy(width)

    def _validate_queries(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return torch.tensor(validate_data(self, X, dtype=np.float64, reset=False))

    def _fill_out_of_reach(self, sums: Tensor, query: Tensor, excluded: Tensor | None) -> Tensor:
        """Where no point is in reach: the nearest one, or a warning."""
        none = ~(sums[:, -1] > 0)
        count = int(none.sum())
        if not count:
            return sums
        if self.out_of_reach == "nearest":
            sums[none] = self._smoother.nearest(query[none], None if excluded is None else excluded[none])
            return sums
        warnings.warn(
            f"{count:,} of {len(query):,} queries have no point within reach and are predicted as NaN; take a larger "
            'width, or unreached="nearest"',
            OutOfReachWarning,
            stacklevel=3,
        )
        return sums

    def _to_output(self, predictions: Tensor) -> NDArray[np.float64]:
        answer = cast("NDArray[np.float64]", predictions.numpy())
        return answer[:, 0] if self._is_single_output else answer
