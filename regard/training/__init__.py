"""Training: a loop for any model, loss function and batches.

    fit(model, loss_fn, batches, config, run)      loss_fn(model, batch) -> Loss

A run can be killed at any moment and resumed to the same weights, bit for bit. Importing the package does not import
torch: a name is imported when it is first used.
"""

from typing import TYPE_CHECKING

from regard._imports import lazy_names

if TYPE_CHECKING:
    from regard.training.callbacks import Callback, TrainingState
    from regard.training.config import TrainingConfig
    from regard.training.engine import BatchSource, TrainingResult, fit
    from regard.training.loss import Loss, linear_cross_entropy
    from regard.training.run import RunFolder
    from regard.training.weights import average_weights, load_into, load_weights, save_weights

__all__ = [
    "BatchSource", "Callback", "Loss", "RunFolder", "TrainingConfig", "TrainingResult", "TrainingState",
    "average_weights", "fit", "linear_cross_entropy", "load_into", "load_weights", "save_weights",
]  # fmt: skip

__getattr__ = lazy_names(
    __name__,
    {
        "callbacks": ("Callback", "TrainingState"),
        "config": ("TrainingConfig",),
        "engine": ("BatchSource", "TrainingResult", "fit"),
        "loss": ("Loss", "linear_cross_entropy"),
        "run": ("RunFolder",),
        "weights": ("average_weights", "load_into", "load_weights", "save_weights"),
    },
)


def __dir__() -> list[str]:
    return list(__all__)
