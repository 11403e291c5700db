"""Training: an engine that knows nothing of attention, text or models.

    fit(objective, data, settings, run)      objective(batch) -> Loss, data.batches(position) -> batches

A run can be killed at any moment and goes on to the same weights, bit for bit.
"""

from regard.training.engine import Outcome, Source, fit
from regard.training.loss import Loss
from regard.training.losses import word_loss
from regard.training.run import Run
from regard.training.settings import Settings
from regard.training.weights import average, fill, load_weights, save_weights

__all__ = [
    "Loss",
    "Outcome",
    "Run",
    "Settings",
    "Source",
    "average",
    "fill",
    "fit",
    "load_weights",
    "save_weights",
    "word_loss",
]
