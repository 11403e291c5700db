"""The state of a running training: what the loop of `fit` moves, and how it is saved."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from regard.errors import ConfigError, DivergedError, DtypeError, RegardError, StorageError, as_out_of_memory
from regard.files import DISK_FULL_ERRNOS
from regard.training import checkpoint, distributed, optim, weights
from regard.training.callbacks import CallbackList
from regard.training.checkpoint import Checkpoint
from regard.training.config import TrainingConfig
from regard.training.distributed import move_to_device, seed_generators, take_shard
from regard.training.loaders import encode_state
from regard.training.logging import LogFn, MetricsLogger, NullLogger
from regard.training.loss import Loss
from regard.training.run import Progress, RunFolder, is_better, step_seed

__all__ = ["CompileMode", "LossFn", "Objective", "Trainer", "ValidateFn"]

CompileMode = Literal["whole", "step", "off"]
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
        loss_parameters = self.loss_fn.named_parameters() if isinstance(self.loss_fn, nn.Module) else ()
        names: dict[Tensor, str] = {parameter: f"loss/{name}" for name, parameter in loss_parameters}
        return names | {parameter: name for name, parameter in self.model.named_parameters()}


class Trainer:
    """What `fit` works with. Every process has one, with the same state; only the main process writes files.

    Args:
        objective: the model with its loss
        config: options of the training
        run: the folder of the run
        validate_fn: returns metrics by name
        lower_is_better: whether smaller values of the monitored metric are better
        callbacks: called after validations
        is_sharded: whether each process reads batches of its own

    Attributes:
        device: device of the model
        dist_context: the processes of the training
        last_saved: step and last validated step of the latest checkpoint
        interrupted: whether a process has received a signal to stop

    The rest exists inside `open`: `optimizer`, of all trainable parameters; `parallel_objective`, possibly compiled and
    in DistributedDataParallel; `progress`; `logger`; `start_time` of the clock, minus the seconds trained before.
    """

    def __init__(
        self,
        objective: Objective,
        config: TrainingConfig,
        run: RunFolder,
        validate_fn: ValidateFn | None,
        lower_is_better: bool,
        callbacks: CallbackList,
        is_sharded: bool,
    ):
        weights.retain_freed_memory()
        self.objective, self.config, self.run = objective, config, run
        self.validate_fn, self.lower_is_better = validate_fn, lower_is_better
        self.callbacks, self.is_sharded = callbacks, is_sharded
        self.device = weights.resolve_device(config.device)
        self.dist_context = distributed.init_process_group(self.device)
        self.last_saved: tuple[int, int] | None = None
        self.interrupted = False

    @contextlib.contextmanager
    def open(self, log: LogFn | None, compile_mode: CompileMode) -> Iterator[None]:
        """Lock the run, load its latest checkpoint, and make everything ready for the next step.

        Args:
            log, compile_mode: as for `fit`
        """
        config, run, is_main, notes = self.config, self.run, self.dist_context.is_main, list[str]()
        with contextlib.ExitStack() as stack:
            latest: Checkpoint | None = None
            if is_main:
                stack.enter_context(run.lock())
                checkpoint.remove_unfinished(run.checkpoints)
                latest = checkpoint.load_latest(run.checkpoints, notes.append)
            latest = distributed.broadcast_from_rank0(latest)
            # With another number of threads, sums differ in their last bits.
            state = latest.state if latest else {}
            threads = config.num_threads or state.get("num_threads")
            if threads is not None and threads != torch.get_num_threads():
                torch.set_num_threads(threads)
            self.objective.to(self.device).train()
            self.optimizer = optim.make_optimizer(self.objective, config)
            self.progress = Progress.from_json(state)
            self.logger: MetricsLogger | NullLogger = NullLogger()
            if is_main:
                self.logger = MetricsLogger(run, config, self.progress, int(state.get("metrics_bytes", 0)), log)
            stack.callback(self.logger.close)
            for note in notes:
                self.logger.log_line(note)
            if latest is not None:
                self.restore(latest)
            compiled = self._compile(compile_mode) if config.compile else self.objective
            self.parallel_objective = distributed.wrap_ddp(compiled, self.device)
            self.start_time = time.perf_counter() - self.progress.seconds
            with self._log_failures():
                if latest is None:
                    self.save()  # so that initial weights survive a crash as well
                yield

    def _compile(self, compile_mode: CompileMode) -> nn.Module:
        """The compiled objective, or the objective and a line that says why it is not compiled."""
        if compile_mode == "off":  # a loop over time steps would be compiled for each length, for minutes
            self.logger.log_line("compile=on: this model runs step by step over its inputs, which is not compiled")
            return self.objective
        try:  # without a compiler the first use fails; better here than in a step
            torch.compile(torch.nn.functional.gelu)(torch.zeros(8, device=self.device))
        except Exception:
            self.logger.log_line("compile=on: there is no working compiler, so the model is not compiled")
            return self.objective
        if compile_mode == "step":
            cast(Any, self.objective.model).compile_step()
            return self.objective
        return cast(nn.Module, torch.compile(self.objective, dynamic=True))

    @contextlib.contextmanager
    def _log_failures(self) -> Iterator[None]:
        """Write a failure to the log, and add to it what remains and how to resume."""
        try:
            yield
        except StorageError as error:
            step, saved = self.progress.step, self.last_saved
            intact = f"; the checkpoint of step {saved[0]:,} is intact" if saved else ""
            advice = "free some space" if error.errno in DISK_FULL_ERRNOS else "make it writable"
            message = f"step {step:,}: {error}{intact}; {advice}, then: regard resume {self.run.folder}"
            raise StorageError(message, errno=error.errno) from error
        except Exception as error:
            with contextlib.suppress(OSError):
                self.logger.log_to_file(f"failed: {error}")
            if not isinstance(error, RegardError) and (memory_error := as_out_of_memory(error)) is not None:
                raise memory_error from error
            raise

    def seed(self, offset: int = 0) -> None:
        """Seed all random numbers of the next step, equal in a resumed run.

        Args:
            offset: added to the seed of the config
        """
        seed = step_seed(self.config.seed + offset, self.progress.step, self.dist_context.rank)
        seed_generators(seed)
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
            shard, weight = (batch, 1) if self.is_sharded else take_shard(batch, self.dist_context)
            # Another batch of the same step follows: its gradients are summed over processes with those of this one.
            no_sync = getattr(self.parallel_objective, "no_sync", contextlib.nullcontext)
            with no_sync() if index < len(batches) else contextlib.nullcontext():
                with self._autocast():
                    loss = self.parallel_objective(move_to_device(shard, self.device))
                if not isinstance(loss, Loss):
                    expected = "Loss(total, count), the sum over a batch and its divisor"
                    raise DtypeError(f"loss_fn returned a {type(loss).__name__}; it must return {expected}")
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
        numbers = [*(sums[name] for name in names), float(count), float(stop_requested)]
        numbers += [float(bool(self.callbacks.requested)), seconds]
        *values, total, signals, stops, self.progress.seconds = distributed.all_reduce_sum(numbers, self.device)
        self.interrupted = signals > 0
        if stops:
            self.callbacks.stop_reason = self.callbacks.requested or "a callback of another process requested it"
        return dict(zip(names, values, strict=True)), int(total)

    def elapsed_seconds(self) -> float:
        """Seconds of training, including those before a resume."""
        return time.perf_counter() - self.start_time

    def diverged_error(self, step: int, what: str) -> DivergedError:
        """The error for numbers that are not finite.

        Args:
            step: where they were found
            what: what they are
        """
        config, saved = self.config, self.last_saved
        advice = [f"lr below {config.lr:g}", f"warmup_steps above {config.warmup_steps}"]
        advice += ["max_grad_norm=1.0"] if config.max_grad_norm is None else []
        advice += ["precision=float32"] if config.precision == "bfloat16" else []
        latest = f"the checkpoint of step {saved[0]:,} is kept" if saved else "there is no checkpoint yet"
        return DivergedError(f"step {step:,}: {what}; {latest}; try {', '.join(advice)}")

    def _check_weights(self) -> None:
        """Raise DivergedError rather than save weights that are not finite."""
        for parameter, name in self.objective.parameter_names().items():
            if not parameter.isfinite().all():
                raise self.diverged_error(self.progress.step, f"{name} is not finite")

    def validate(self) -> None:
        """Compute the metrics, and save the weights if they are the best so far."""
        if self.validate_fn is None:
            return
        self._check_weights()
        self.logger.flush_point()
        start = time.perf_counter()
        scores = self._run_validation(self.validate_fn) if self.dist_context.is_main else {}
        scores = distributed.broadcast_from_rank0(scores)
        is_best = self.progress.record_validation(scores, self.config.monitor, self.lower_is_better)
        if self.dist_context.is_main:
            if is_best:
                weights.save_weights(self.objective.model.state_dict(), self.run.best)
            if self.config.average_last:
                path = self.run.recent / f"step-{self.progress.step:08d}.safetensors"
                weights.save_weights(self.objective.model.state_dict(), path)
        self.logger.log_validation(scores, is_best, time.perf_counter() - start)
        self.callbacks.call("on_validation", self.progress.step, scores, self.optimizer)

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
        self._check_weights()
        if self.dist_context.is_main:
            self._write_checkpoint()
        self.last_saved = state

    def _write_checkpoint(self) -> None:
        state = {
            **self.progress.to_json(),
            "data_position": encode_state(self.progress.data_position),
            "seconds": self.elapsed_seconds(),
            "seed": self.config.seed,
            "processes": self.dist_context.world_size,
            "num_threads": torch.get_num_threads(),
            "metrics_bytes": self.logger.sync_metrics(),
            "optimizer": self.config.optimizer,
        }
        optimizer = optim.optimizer_tensors(self.optimizer, self.objective.parameter_names())
        tensors = {f"optimizer/{name}": tensor for name, tensor in optimizer.items()}
        tensors |= {f"loss/{name}": tensor for name, tensor in self.objective.loss_state().items()}
        model = self.objective.model.state_dict()
        checkpoint.save(self.run.checkpoints, model, tensors, state, self.config.keep_checkpoints)
        self.run.average.unlink(missing_ok=True)  # an average of older weights would be taken for the newest
        # Weights that will not be averaged, even if the run is resumed from its oldest checkpoint.
        needed = self._weights_to_average(min(checkpoint.list_steps(self.run.checkpoints)))
        for step, path in checkpoint.list_steps(self.run.recent).items():
            if needed and step < min(needed):
                path.unlink()

    def restore(self, latest: Checkpoint) -> None:
        """Load a checkpoint."""
        self.logger.log_line(f"resumed from step {self.progress.step:,}")
        weights.load_into(self.objective.model, latest.model, str(latest.path))
        if isinstance(self.objective.loss_fn, nn.Module):
            loss_state = weights.select_prefix(latest.training, "loss/")
            weights.load_into(self.objective.loss_fn, loss_state, str(latest.path))
        tensors = weights.select_prefix(latest.training, "optimizer/")
        optim.restore_optimizer(self.optimizer, self.objective.parameter_names(), tensors)
        self.last_saved = (self.progress.step, self.progress.last_validated_step)
        before, now = latest.state.get("processes"), self.dist_context.world_size
        if before not in (None, now):
            change = f"the training had {before} processes and has {now} now"
            self.logger.log_line(f"{change}, so its weights will not be those of an uninterrupted one")
        for step, path in checkpoint.list_steps(self.run.recent).items():
            if self.dist_context.is_main and step > self.progress.step:  # that validation will be computed again
                path.unlink()

    def finish(self, stop_reason: str) -> None:
        """Complete the folder of the run, or leave it ready to be resumed.

        Args:
            stop_reason: "" if the training was interrupted
        """
        if stop_reason and self.progress.last_validated_step != self.progress.step:
            self.validate()
        self.logger.flush_point()
        self.save()
        if not stop_reason:
            command = f"regard resume {self.run.folder}"
            self.logger.log_line(f"stopped at step {self.progress.step:,}; resume with: {command}")
            return
        if self.dist_context.is_main and (paths := self._weights_to_average(self.progress.step)):
            self._average(list(paths.values()))
        self.logger.plot()
        self.logger.log_line(f"done: {stop_reason}")

    def _average(self, paths: Sequence[Path]) -> None:
        """Average the weights of the last validations; use the average unless the best weights are clearly better."""
        assert self.validate_fn is not None  # without validations there are no weights to average
        model, monitor, best = self.objective.model, self.config.monitor, self.progress.best
        mean = weights.average_weights(paths)
        last_weights = {name: value.clone() for name, value in model.state_dict().items()}
        weights.load_into(model, mean, "the average")
        score = self._run_validation(self.validate_fn)[monitor]
        weights.load_into(model, last_weights, "the last step")
        validations = f"last {len(paths)} validations" if len(paths) > 1 else "last validation"
        result = f"the average of the weights of the {validations} has {monitor} {score:.5g}"
        if best is not None and (math.isnan(score) or is_better(best, score, self.lower_is_better, MIN_RELATIVE_GAIN)):
            step = f"of step {self.progress.best_step:,}"
            self.logger.log_line(f"{result}; the best weights, {step} with {best:.5g}, are used instead")
            self.run.average.unlink(missing_ok=True)
            return
        weights.save_weights(mean, self.run.average)
        self.logger.log_line(f"{result}; it is used")

    def _autocast(self) -> contextlib.AbstractContextManager[Any]:
        if self.config.precision == "float32":
            return contextlib.nullcontext()
        return torch.autocast(self.device.type, dtype=torch.bfloat16)

    def _weights_to_average(self, step: int) -> dict[int, Path]:
        """The weights to average if the training ended at this step, by the step of their validation."""
        recent = checkpoint.list_steps(self.run.recent)
        chosen = [number for number in recent if number <= step][-self.config.average_last :]
        return {number: recent[number] for number in chosen} if self.config.average_last else {}
