"""The state of a running training: what the loop of `fit` moves, and how it is saved."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.errors import ConfigError
from regard.training import checkpoint, distributed
from regard.training.checkpoint import Checkpoint
from regard.training.config import TrainingConfig
from regard.training.logging import MetricsLogger, NullLogger
from regard.training.loss import Loss
from regard.training.optim import optimizer_tensors, restore_optimizer
from regard.training.progress import Progress, is_better, step_seed
from regard.training.run import RunFolder
from regard.training.weights import average_weights, load_into, resolve_device, retain_freed_memory, save_weights

__all__ = ["LossFn", "Objective", "Trainer", "ValidateFn"]

LossFn = Callable[[nn.Module, Any], Loss]
ValidateFn = Callable[[], dict[str, float]]
MIN_RELATIVE_GAIN = 0.02  # the best of several noisy values overestimates the quality; that of an average does not


class Objective(nn.Module):
    """A model with its loss function, as one module for DistributedDataParallel and torch.compile.

    Args:
        model: what is trained; weights are its state dict
        loss_fn: called with (model, batch); the state of an nn.Module is part of checkpoints, not of weights
    """

    def __init__(self, model: nn.Module, loss_fn: LossFn):
        super().__init__()
        self.model = model
        self.loss_fn = loss_fn

    def forward(self, batch: Any) -> Loss:
        return self.loss_fn(self.model, batch)

    def loss_state(self) -> dict[str, Tensor]:
        """The state dict of the loss function, empty for a plain function."""
        return self.loss_fn.state_dict() if isinstance(self.loss_fn, nn.Module) else {}

    def parameter_names(self) -> dict[Tensor, str]:
        """The name of each parameter, in checkpoints: those of the loss function begin with `loss/`."""
        names: dict[Tensor, str] = {}
        if isinstance(self.loss_fn, nn.Module):
            names = {parameter: f"loss/{name}" for name, parameter in self.loss_fn.named_parameters()}
        return names | {parameter: name for name, parameter in self.model.named_parameters()}


@dataclass
class Trainer:
    """What `fit` works with. Every process has one, with the same state; only the main process writes files.

    Args:
        objective: the model with its loss
        config: options of the training
        run: the folder of the run
        validate_fn: returns metrics by name
        lower_is_better: whether smaller values of the monitored metric are better
        device: device of the model
        dist_context: the processes of the training
        optimizer: of all trainable parameters
        parallel_objective: the objective, possibly compiled and in DistributedDataParallel
        progress: how far the training has come
        logger: writes metrics and log
        last_saved: step and last validated step of the latest checkpoint
        interrupted: whether a process has received a signal to stop
        start_time: of the clock, minus the seconds trained before
    """

    objective: Objective
    config: TrainingConfig
    run: RunFolder
    validate_fn: ValidateFn | None
    lower_is_better: bool
    device: torch.device = field(init=False)
    dist_context: distributed.DistributedContext = field(init=False)
    optimizer: Optimizer = field(init=False)
    parallel_objective: Callable[[Any], Any] = field(init=False)
    progress: Progress = field(init=False)
    logger: MetricsLogger | NullLogger = field(init=False)
    last_saved: tuple[int, int] | None = None
    interrupted: bool = False
    start_time: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        retain_freed_memory()
        self.device = resolve_device(self.config.device)
        self.dist_context = distributed.init_process_group(self.device)

    def seed(self, offset: int = 0) -> None:
        """Seed all random numbers of the next step, equal in a resumed run.

        Args:
            offset: added to the seed of the config
        """
        seed = step_seed(self.config.seed + offset, self.progress.step, self.dist_context.rank)
        random.seed(seed)
        # not torch.manual_seed: without a GPU it stores a note of every call, in case a GPU is initialized later
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def backward(self, batches: list[Any]) -> tuple[dict[str, float], int]:
        """Accumulate the gradients of this process's shards.

        Returns:
            Sums of the loss and of the other metrics, and the number of tokens.
        """
        sums: dict[str, Any] = {}
        count = 0
        for index, batch in enumerate(batches, 1):
            shard, weight = self._shard(batch)
            with distributed.no_sync(self.parallel_objective, index < len(batches)):
                with self._autocast():
                    loss = self.parallel_objective(shard.to(self.device))
                (loss.total * weight).backward()
            count += int(loss.count) * weight
            for name, value in {"loss": loss.total.detach(), **loss.metrics}.items():
                sums[name] = sums.get(name, 0.0) + value * weight
        return {name: float(value) for name, value in sums.items()}, count

    def reduce_sums(self, sums: dict[str, float], count: int, stop_requested: bool) -> tuple[dict[str, float], int]:
        """Sum over all processes; the time and requests to stop are exchanged as well.

        Args:
            sums, count: as returned by `backward`
            stop_requested: whether this process has received a signal
        """
        names, seconds = sorted(sums), self.elapsed_seconds() if self.dist_context.is_main else 0.0
        numbers = [*(sums[name] for name in names), float(count), float(stop_requested), seconds]
        *values, total, stops, self.progress.seconds = distributed.all_reduce_sum(numbers, self.device)
        self.interrupted = stops > 0
        return dict(zip(names, values, strict=True)), int(total)

    def elapsed_seconds(self) -> float:
        """Seconds of training, including those before a resume."""
        return time.perf_counter() - self.start_time

    def validate(self) -> None:
        """Compute the metrics, and save the weights if they are the best so far."""
        if self.validate_fn is None:
            return
        self.logger.flush_point()
        start = time.perf_counter()
        scores = self._run_validation(self.validate_fn) if self.dist_context.is_main else {}
        scores = distributed.broadcast_from_rank0(scores)
        is_best = self.progress.record_validation(scores, self.config.monitor, self.lower_is_better)
        if self.dist_context.is_main:
            if is_best:
                save_weights(self.objective.model.state_dict(), self.run.best)
            if self.config.average_last:
                path = self.run.recent / f"step-{self.progress.step:08d}.safetensors"
                save_weights(self.objective.model.state_dict(), path)
        self.logger.log_validation(scores, is_best, time.perf_counter() - start)

    def _run_validation(self, validate_fn: ValidateFn) -> dict[str, float]:
        self.seed(offset=1)
        self.objective.eval()
        with torch.no_grad(), self._autocast():
            scores = {name: float(value) for name, value in validate_fn().items()}
        self.objective.train()
        if self.config.monitor not in scores:
            names = ", ".join(scores) or "none"
            problem = f"invalid value '{self.config.monitor}' for monitor"
            raise ConfigError(f"{problem}: the metrics of the validation are {names}")
        return scores

    def save(self) -> None:
        """Write a checkpoint, unless the latest one has the same state."""
        state = (self.progress.step, self.progress.last_validated_step)
        if self.last_saved == state:
            return
        if self.dist_context.is_main:
            self._write_checkpoint()
        self.last_saved = state

    def _write_checkpoint(self) -> None:
        state = {
            **self.progress.to_json(),
            "seconds": self.elapsed_seconds(),
            "seed": self.config.seed,
            "processes": self.dist_context.world_size,
            "num_threads": torch.get_num_threads(),
            "metrics_bytes": self.logger.sync_metrics(),
            "optimizer": self.config.optimizer,
        }
        optimizer = optimizer_tensors(self.optimizer, self.objective.parameter_names())
        tensors = {f"optimizer/{name}": tensor for name, tensor in optimizer.items()}
        tensors |= {f"loss/{name}": tensor for name, tensor in self.objective.loss_state().items()}
        weights = self.objective.model.state_dict()
        checkpoint.save(self.run.checkpoints, weights, tensors, state, self.config.keep_checkpoints)
        self.run.average.unlink(missing_ok=True)  # an average of older weights would be taken for the newest
        self._prune_recent_weights()

    def restore(self, latest: Checkpoint) -> None:
        """Load a checkpoint."""
        load_into(self.objective.model, latest.model, str(latest.path))
        if isinstance(self.objective.loss_fn, nn.Module):
            load_into(self.objective.loss_fn, _below(latest.training, "loss/"), str(latest.path))
        tensors = _below(latest.training, "optimizer/")
        restore_optimizer(self.optimizer, self.objective.parameter_names(), tensors)
        self.last_saved = (self.progress.step, self.progress.last_validated_step)
        self.discard_later_weights()

    def finish(self, stop_reason: str) -> None:
        """Complete the folder of the run, or leave it ready to be resumed.

        Args:
            stop_reason: "" if the training was interrupted
        """
        if not stop_reason:
            self.logger.flush_point()
            self.save()
            self.logger.log_line(
                f"stopped at step {self.progress.step:,}; resume with: regard resume {self.run.folder}"
            )
            return
        if self.progress.last_validated_step != self.progress.step:
            self.validate()
        self.logger.flush_point()
        self.save()
        if self.dist_context.is_main and (paths := self._weights_to_average(self.progress.step)):
            self._average(paths)
        self.logger.plot()
        self.logger.log_line(f"done: {stop_reason}")

    def _average(self, paths: Sequence[Path]) -> None:
        """Average the weights of the last validations; use the average unless the best weights are clearly better."""
        assert self.validate_fn is not None  # without validations there are no weights to average
        model, monitor, best = self.objective.model, self.config.monitor, self.progress.best
        mean = average_weights(paths)
        last_weights = {name: value.clone() for name, value in model.state_dict().items()}
        load_into(model, mean, "the average")
        score = self._run_validation(self.validate_fn)[monitor]
        load_into(model, last_weights, "the last step")
        validations = f"last {len(paths)} validations" if len(paths) > 1 else "last validation"
        result = f"the average of the weights of the {validations} has {monitor} {score:.5g}"
        if best is not None and (math.isnan(score) or is_better(best, score, self.lower_is_better, MIN_RELATIVE_GAIN)):
            step = f"of step {self.progress.best_step:,}"
            self.logger.log_line(f"{result}; the best weights, {step} with {best:.5g}, are used instead")
            self.run.average.unlink(missing_ok=True)
            return
        save_weights(mean, self.run.average)
        self.logger.log_line(f"{result}; it is used")

    def _shard(self, batch: Any) -> tuple[Any, int]:
        """The shard of this process and weight 1; or, if it is empty, the first shard and weight 0.

        Gradients are summed over processes during the backward pass, so every process has to compute some.
        """
        if self.dist_context.world_size == 1:
            return batch, 1
        shard = batch.shard(self.dist_context.rank, self.dist_context.world_size)
        return (shard, 1) if shard.num_tokens else (batch.shard(0, self.dist_context.world_size), 0)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _weights_to_average(self, step: int) -> list[Path]:
        """The weights to average if the training ended at this step."""
        if not self.config.average_last:
            return []
        paths = [path for path in sorted(self.run.recent.glob("step-*.safetensors")) if _parse_step(path) <= step]
        return paths[-self.config.average_last :]

    def discard_later_weights(self) -> None:
        """Remove the weights of validations after the current step, which will be computed again."""
        for path in self.run.recent.glob("step-*.safetensors"):
            if self.dist_context.is_main and _parse_step(path) > self.progress.step:
                path.unlink()

    def _prune_recent_weights(self) -> None:
        """Remove weights that will not be averaged, even if the run is resumed from its oldest checkpoint."""
        needed = self._weights_to_average(min(checkpoint.list_steps(self.run.checkpoints)))
        for path in self.run.recent.glob("step-*.safetensors"):
            if needed and _parse_step(path) < _parse_step(needed[0]):
                path.unlink()


def _parse_step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def _below(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix, without it."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
