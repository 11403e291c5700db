"""Kernel regression: attention pooling as an estimator of scikit-learn, with fast exact sums."""

from regard.models.kernel_regression.estimator import KernelRegression, OutOfReachWarning

__all__ = ["KernelRegression", "OutOfReachWarning"]
