"""A training under way: all that the loop of the engine moves, and how it is kept."""

from __future__ import annotations

import contextlib
import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from regard.errors import ConfigError
from regard.training import checkpoint, distributed
from regard.training.checkpoint import average_weights, load_into, save_weights
from regard.training.config import TrainingConfig
from regard.training.logging import MetricsLogger, NullLogger
from regard.training.optim import optimizer_tensors
from regard.training.progress import Progress, step_seed
from regard.training.run import RunFolder

ValidateFn = Callable[[], dict[str, float]]


MIN_RELATIVE_GAIN = (
    0.02  # by so much of itself: the best of many scores had luck, too, and that of an average has not
)


@dataclass
class Trainer:
    """What `fit` works with. All processes hold one and agree; only the first writes."""

    objective: nn.Module  # bare: its names are those in the files
    parallel_objective: Callable[[Any], Any]  # the same, perhaps compiled and among several processes
    optimizer: Optimizer
    config: TrainingConfig
    run: RunFolder
    progress: Progress
    logger: MetricsLogger | NullLogger
    validate_fn: ValidateFn | None
    device: torch.device
    dist_context: distributed.DistributedContext
    last_saved: tuple[int, int] | None = (
        None  # the step and the last validation that the newest checkpoint knows
    )
    interrupted: bool = False
    start_time: float = field(default_factory=time.perf_counter)

    def seed(self, salt: int = 0) -> None:
        """Chance for the step to come, the same in a resumed run."""
        seed = step_seed(self.config.seed + salt, self.progress.step, self.dist_context.rank)
        random.seed(seed)
        # not torch.manual_seed: where there is no GPU it keeps a note of every call, in case one appears
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        elif self.device.type == "mps":
            torch.mps.manual_seed(seed)

    def backward(self, batches: list[Any]) -> tuple[dict[str, float], int]:
        """Add up the gradients of this process's rows; the sums of the losses, and their count."""
        sums: dict[str, Any] = {}
        count = 0
        for index, batch in enumerate(batches, 1):
            rows, weight = self._shard(batch)
            with distributed.no_sync(self.parallel_objective, index < len(batches)):
                with self._autocast():
                    loss = self.parallel_objective(rows.to(self.device))
                (loss.total * weight).backward()
            count += int(loss.count) * weight
            for name, value in {"loss": loss.total.detach(), **loss.metrics}.items():
                sums[name] = sums.get(name, 0.0) + value * weight
        return {name: float(value) for name, value in sums.items()}, count

    def reduce_sums(
        self, sums: dict[str, float], count: int, stop_requested: bool
    ) -> tuple[dict[str, float], int]:
        """The sums over all processes; the time, and whether somebody wishes to stop, come along."""
        names, now = sorted(sums), self.elapsed_seconds() if self.dist_context.is_main else 0.0
        numbers = [*(sums[name] for name in names), float(count), float(stop_requested), now]
        *values, total, stops, self.progress.seconds = distributed.all_reduce_sum(numbers, self.device)
        self.interrupted = stops > 0
        return dict(zip(names, values, strict=True)), int(total)

    def elapsed_seconds(self) -> float:
        """Seconds of training, those before a resume included."""
        return time.perf_counter() - self.start_time

    def validate(self) -> None:
        """Measure, and keep the weights if they are the best so far."""
        if self.validate_fn is None:
            return
        self.logger.flush_point()
        began = time.perf_counter()
        scores = distributed.broadcast_from_rank0(
            self._run_validation(self.validate_fn) if self.dist_context.is_main else {}
        )
        better = self.progress.record_validation(scores, self.config)
        if self.dist_context.is_main:
            if better:
                save_weights(self.objective.state_dict(), self.run.best)
            if self.config.average_last:
                path = self.run.recent / f"step-{self.progress.step:08d}.safetensors"
                save_weights(self.objective.state_dict(), path)
        self.logger.log_validation(scores, better, time.perf_counter() - began)

    def _run_validation(self, validate_fn: ValidateFn) -> dict[str, float]:
        self.seed(salt=1)
        self.objective.eval()
        with torch.no_grad(), self._autocast():
            scores = {name: float(value) for name, value in validate_fn().items()}
        self.objective.train()
        if self.config.monitor not in scores:
            names = ", ".join(scores) or "nothing"
            raise ConfigError(
                f"monitor={self.config.monitor}: the validation does not measure that, but {names}"
            )
        return scores

    def save(self) -> None:
        """Write a checkpoint, unless the newest knows all that there is to know."""
        now = (self.progress.step, self.progress.last_validated_step)
        if self.last_saved == now:
            return
        if self.dist_context.is_main:
            self._write_checkpoint()
        self.last_saved = now

    def _write_checkpoint(self) -> None:
        state = {
            **self.progress.to_json(),
            "seconds": self.elapsed_seconds(),
            "seed": self.config.seed,
            "processes": self.dist_context.world_size,
            "threads": torch.get_num_threads(),
            "metrics_bytes": self.logger.sync_metrics(),
            "optimizer": self.config.optimizer,
        }
        tensors = optimizer_tensors(self.optimizer, self.objective)
        checkpoint.save(
            self.run.checkpoints, self.objective.state_dict(), tensors, state, self.config.keep_checkpoints
        )
        self.run.average.unlink(missing_ok=True)  # an average of older weights would be taken for the newest
        self._prune_recent_weights()

    def finish(self, stop_reason: str) -> None:
        """Leave the run folder complete, or ready to be resumed."""
        if not stop_reason:
            self.logger.flush_point()
            self.save()
            self.logger.log_line(
                f"stopped at step {self.progress.step:,}; go on with: regard resume {self.run.folder}"
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
        """Average the weights of the last validations, and keep that for use unless the best are clearly better."""
        assert self.validate_fn is not None  # there are no weights of validations without one
        watch, best = self.config.monitor, self.progress.best
        mean = average_weights(paths)
        now = {name: value.clone() for name, value in self.objective.state_dict().items()}
        load_into(self.objective, mean, "the average")
        score = self._run_validation(self.validate_fn)[watch]
        load_into(self.objective, now, "the last step")
        last = f"last {len(paths)} validations" if len(paths) > 1 else "last validation"
        found = f"the average of the weights of the {last} has {watch} {score:.5g}"
        if best is not None and (
            math.isnan(score) or self.config.is_better(best, score, min_relative_gain=MIN_RELATIVE_GAIN)
        ):
            step = f"of step {self.progress.best_step:,}"
            self.logger.log_line(f"{found}; the best ones, {step} with {best:.5g}, are kept for use instead")
            self.run.average.unlink(missing_ok=True)
            return
        save_weights(mean, self.run.average)
        self.logger.log_line(f"{found}; it is kept for use")

    def _shard(self, batch: Any) -> tuple[Any, int]:
        """This process's rows, and 1; or, where there are none, the first's and 0.

        Gradients are summed over processes while they are computed, so all have to compute some.
        """
        if self.dist_context.world_size == 1:
            return batch, 1
        rows = batch.part(self.dist_context.rank, self.dist_context.world_size)
        return (rows, 1) if rows.tokens else (batch.part(0, self.dist_context.world_size), 0)

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _weights_to_average(self, step: int) -> list[Path]:
        """The weights to average if training ended at this step."""
        if not self.config.average_last:
            return []
        paths = [
            path for path in sorted(self.run.recent.glob("step-*.safetensors")) if _parse_step(path) <= step
        ]
        return paths[-self.config.average_last :]

    def discard_later_weights(self) -> None:
        """Remove the weights of validations that this run has not come to again."""
        for path in self.run.recent.glob("step-*.safetensors"):
            if self.dist_context.is_main and _parse_step(path) > self.progress.step:
                path.unlink()

    def _prune_recent_weights(self) -> None:
        """Remove the weights that will not be averaged, not even by a run resumed from the oldest checkpoint."""
        needed = self._weights_to_average(min(checkpoint.list_steps(self.run.checkpoints)))
        for path in self.run.recent.glob("step-*.safetensors"):
            if needed and _parse_step(path) < _parse_step(needed[0]):
                path.unlink()


def _parse_step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))
