"""Attention pooling as an estimator of scikit-learn: what is near is looked at most."""

from __future__ import annotations

import warnings
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin  # type: ignore[import-untyped]
from sklearn.utils.validation import (  # type: ignore[import-untyped]
    _check_sample_weight,
    check_is_fitted,
    validate_data,
)
from torch import Tensor

from regard.errors import UsageError
from regard.models._kernels import KERNELS, Smoother, quotient
from regard.models._parts import Known
from regard.models._widths import learned

MOST = 2**26
"""The most weights that are given at once: half a gigabyte."""
UNREACHED = ("nan", "nearest")


class OutOfReach(UserWarning):
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

    >>> from regard.models.regression import KernelRegression
    >>> model = KernelRegression("epanechnikov", width=2.0).fit([[0], [1], [3]], [0, 1, 9])
    >>> model.predict([[1], [2]]).tolist()
    [0.571..., 5.0]
    """

    def __init__(self, kernel: str = "gaussian", width: Any = 1.0, unreached: str = "nan"):
        self.kernel = kernel
        self.width = width
        self.unreached = unreached

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> KernelRegression:
        """Keep the points, and learn the width if it is to be learned; a point of weight 0 is no point."""
        self._check()
        X, y = validate_data(self, X, y, dtype=np.float64, multi_output=True, y_numeric=True)
        weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        kept = weight > 0
        if not kept.any():
            raise UsageError("KernelRegression: every sample_weight is 0; at least one point must count")
        self._one = y.ndim == 1
        values = y.reshape(len(y), -1).astype(np.float64)
        known = Known.of(*(torch.tensor(part[kept]) for part in (X, values, weight)))
        width = self._width(known)
        self._smoother = Smoother(self.kernel, width, known)
        self.width_: NDArray[np.float64] = width.expand(X.shape[1]).numpy().copy()
        return self

    def predict(self, X: Any) -> NDArray[np.float64]:
        """What the points near each row of X have on average; NaN, with one warning, where there are none."""
        query = self._queries(X)
        sums = self._smoother.sums(query)
        return self._answer(quotient(self._completed(sums, query, None)))

    def leave_one_out(self) -> NDArray[np.float64]:
        """How far off each point is predicted from all others: prediction - y."""
        check_is_fitted(self)
        known = self._smoother.known
        sums = self._completed(self._smoother.left_out(), known.key, torch.arange(len(known.key)))
        return self._answer(quotient(sums) - known.y)

    def weights(self, X: Any) -> NDArray[np.float64]:
        """What each point counts for each row of X, (queries, points); a row of 0 where none is in reach."""
        query, points = self._queries(X), len(self._smoother.known.key)
        if len(query) * points > MOST:
            raise UsageError(
                f"KernelRegression.weights: {len(query):,} queries x {points:,} points are more than {MOST:,} weights; "
                f"ask for at most {max(1, MOST // points):,} queries at once"
            )
        weights = self._smoother.weights(query)
        if self.unreached == "nearest":
            none = ~weights.any(-1)
            weights[none] = self._smoother.choices(query[none])
        return cast("NDArray[np.float64]", weights.numpy())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        tags.regressor_tags.poor_score = self.kernel == "average"  # by nature
        return tags

    def _check(self) -> None:
        for name, value, known in (
            ("kernel", self.kernel, tuple(KERNELS)),
            ("unreached", self.unreached, UNREACHED),
        ):
            if value not in known:
                raise UsageError(f"KernelRegression: {name} must be one of {', '.join(known)}; not {value!r}")

    def _width(self, known: Known) -> Tensor:
        if isinstance(self.width, str) and self.width == "learned":
            return learned(self.kernel, known)
        features = known.key.shape[1]
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

    def _queries(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self)
        return torch.tensor(validate_data(self, X, dtype=np.float64, reset=False))

    def _completed(self, sums: Tensor, query: Tensor, itself: Tensor | None) -> Tensor:
        """Where no point is in reach: the nearest one, or a warning."""
        none = ~(sums[:, -1] > 0)
        count = int(none.sum())
        if not count:
            return sums
        if self.unreached == "nearest":
            sums[none] = self._smoother.nearest(query[none], None if itself is None else itself[none])
            return sums
        warnings.warn(
            f"{count:,} of {len(query):,} queries have no point within reach and are predicted as NaN; take a larger "
            'width, or unreached="nearest"',
            OutOfReach,
            stacklevel=3,
        )
        return sums

    def _answer(self, found: Tensor) -> NDArray[np.float64]:
        answer = cast("NDArray[np.float64]", found.numpy())
        return answer[:, 0] if self._one else answer
