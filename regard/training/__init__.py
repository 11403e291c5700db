"""Training: a loop for any model, loss function and batches.

    fit(model, loss_fn, batches, config, run)      loss_fn(model, batch) -> Loss

A run can be killed at any moment and resumed to the same weights, bit for bit. Importing the package does not import
torch: a name is imported when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from regard.training.config import TrainingConfig
    from regard.training.engine import BatchSource, TrainingResult, fit
    from regard.training.loss import Loss, linear_cross_entropy
    from regard.training.run import RunFolder
    from regard.training.weights import average_weights, load_into, load_weights, save_weights

__all__ = [
    "BatchSource",
    "Loss",
    "RunFolder",
    "TrainingConfig",
    "TrainingResult",
    "average_weights",
    "fit",
    "linear_cross_entropy",
    "load_into",
    "load_weights",
    "save_weights",
]

_LAZY_NAMES = {
    "BatchSource": "engine",
    "Loss": "loss",
    "RunFolder": "run",
    "TrainingConfig": "config",
    "TrainingResult": "engine",
    "average_weights": "weights",
    "fit": "engine",
    "linear_cross_entropy": "loss",
    "load_into": "weights",
    "load_weights": "weights",
    "save_weights": "weights",
}


def __getattr__(name: str) -> object:
    if name not in _LAZY_NAMES:
        raise AttributeError(f"module 'regard.training' has no attribute {name!r}")
    value = getattr(import_module(f"regard.training.{_LAZY_NAMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
