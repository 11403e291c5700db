"""Training: an engine that knows nothing of attention, text or models.

    fit(objective, data, settings, run)      objective(batch) -> Loss, data.batches(position) -> batches

A run can be killed at any moment and goes on to the same weights, bit for bit.
"""

from regard.training.checkpoint import average_weights, load_into, load_weights, save_weights
from regard.training.config import TrainingConfig
from regard.training.engine import BatchSource, TrainingResult, fit
from regard.training.loss import Loss, linear_cross_entropy
from regard.training.run import RunFolder

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
