"""regard.models.kernel_regression"""

from regard.models.kernel_regression.estimator import KernelRegression, OutOfReachWarning

__all__ = ["KernelRegression", "OutOfReachWarning"]
