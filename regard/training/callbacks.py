"""Callbacks: what `fit` calls after steps, after validations and at the end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.optim import Optimizer

from regard.errors import UsageError
from regard.training.distributed import distributed_context
from regard.training.run import RunFolder

__all__ = ["Callback", "CallbackList", "TrainingState"]


@dataclass
class TrainingState:
    """What a callback receives.

    Args:
        step: number of optimizer steps so far
        loss: mean loss of the last step, as it is trained on; NaN if no step was made since the training was resumed
        metrics: after a step, the means of the other sums of the loss function; after a validation and at the end, the
            metrics of the last validation
        model: the model; after a step its parameters still have the gradients of that step, clipped
        optimizer: its optimizer
        run: the folder of the run
        stop_reason: why training ends, "" while it goes on; set by `request_stop`

    Example:
        >>> from torch import nn
        >>> model = nn.Linear(2, 1)
        >>> state = TrainingState(3, 0.5, {}, model, torch.optim.SGD(model.parameters()), RunFolder("runs/first"))
        >>> state.request_stop("the loss is low enough")
        >>> state.stop_reason
        'the loss is low enough'
    """

    step: int
    loss: float
    metrics: Mapping[str, float]
    model: nn.Module
    optimizer: Optimizer
    run: RunFolder
    stop_reason: str = ""

    def request_stop(self, reason: str = "a callback requested it") -> None:
        """End the training after this step, with a last validation and a checkpoint.

        Args:
            reason: what the log and the result of `fit` say; an empty one is the default
        """
        self.stop_reason = reason or "a callback requested it"


class Callback:
    """Base class of callbacks; every method does nothing until it is overridden.

    Under torchrun, the callbacks of every process are called. An exception ends the training; the latest checkpoint is
    kept. Random numbers that a callback draws do not change the training.

    Example:
        >>> class StopBelow(Callback):
        ...     def on_step(self, state):
        ...         if state.loss < 0.1:
        ...             state.request_stop("the loss is below 0.1")
    """

    def on_step(self, state: TrainingState) -> None:
        """Called after each optimizer step."""

    def on_validation(self, state: TrainingState) -> None:
        """Called after each validation."""

    def on_end(self, state: TrainingState) -> None:
        """Called once, after the last checkpoint; not after an exception."""


class CallbackList:
    """The callbacks of a training; remembers whether one of them requested to stop.

    With several processes, `requested` becomes `stop_reason` when all processes know it, one step later.

    Args:
        callbacks: called in this order; one or more
        model: what is trained
        run: the folder of the run

    Raises:
        UsageError: one is not a `Callback`

    Example:
        >>> CallbackList([Callback()], nn.Linear(2, 1), RunFolder("runs/first")).stop_reason
        ''
    """

    def __init__(self, callbacks: Iterable[Callback] | Callback, model: nn.Module, run: RunFolder):
        self.callbacks: list[Any] = list(callbacks) if isinstance(callbacks, Iterable) else [callbacks]
        for one in self.callbacks:
            if not isinstance(one, Callback):
                what = f"the class {one.__name__}" if isinstance(one, type) else f"a {type(one).__name__}"
                raise UsageError(f"callbacks has {what}; each must be an object of a subclass of Callback")
        self.model, self.run, self.loss = model, run, float("nan")
        self.requested = self.stop_reason = ""

    def call(self, event: str, step: int, metrics: Mapping[str, Any], optimizer: Optimizer) -> None:
        """Call a method of all callbacks.

        Args:
            event: its name
            step: number of steps
            metrics: for the callbacks
            optimizer: of the training
        """
        if not self.callbacks:
            return
        state = TrainingState(
            step, self.loss, metrics, self.model, optimizer, self.run, self.stop_reason or self.requested
        )
        is_training = self.model.training
        for one in self.callbacks:
            getattr(one, event)(state)
        if self.model.training != is_training:
            self.model.train(is_training)
        self.requested = state.stop_reason
        if distributed_context().world_size == 1:
            self.stop_reason = self.requested
