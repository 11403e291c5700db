"""How fast a predictor is: inputs and tokens per second, the time of one call, and memory."""

from __future__ import annotations

import gc
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.errors import UsageError
from regard.tasks.predictor import Predictor

__all__ = ["STATUS", "Throughput", "measure_throughput", "read_peak_memory_mb"]

NUM_WARMUP = 8  # inputs predicted before the clock runs: caches, allocators and kernels are ready then
RESET, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")  # Linux only


@dataclass(frozen=True)
class Throughput:
    """How long a predictor took for some inputs.

    Args:
        engine: what computed the model
        batch_size: inputs of a call; 0: all, grouped by the predictor
        num_inputs, num_tokens: of all calls; tokens are those generated, the ends of sequences included
        seconds: of all calls
        latency: seconds of one call: 50th, 95th and 99th percentile
        peak_memory_mb: the most that the process held, in megabytes; None where the system does not tell
    """

    engine: str
    batch_size: int
    num_inputs: int
    num_tokens: int
    seconds: float
    latency: tuple[float, float, float]
    peak_memory_mb: float | None

    @property
    def inputs_per_second(self) -> float:
        """Inputs per second."""
        return self.num_inputs / self.seconds

    @property
    def tokens_per_second(self) -> float:
        """Generated tokens per second."""
        return self.num_tokens / self.seconds


def measure_throughput(
    predictor: Predictor[Any, Any, Any], inputs: Sequence[Any], batch_size: int = 0, options: Any = None
) -> Throughput:
    """Predict all inputs once, after a few to warm up; empty texts are left out.

    Args:
        predictor: the model
        inputs: of the model; texts of similar length share a batch
        batch_size: inputs of a call; 1: in their order, as they would arrive; 0: all, grouped by the predictor
        options: of `Predictor.predict`

    Returns:
        Times, tokens and memory.
    """
    inputs = [one for one in inputs if not (isinstance(one, str) and not one.strip())]
    if not inputs:
        raise UsageError("there is nothing to measure with: expected at least one text that is not empty")
    if batch_size < 0:
        raise UsageError(f"invalid batch size {batch_size}: must be at least 0, which is all inputs")
    predictor.predict(inputs[:NUM_WARMUP], options)
    if batch_size > 1 and all(isinstance(one, str) for one in inputs):
        inputs.sort(key=len, reverse=True)
    size = batch_size or len(inputs)
    seconds: list[float] = []
    num_tokens = 0
    has_peak_memory = _reset_peak_memory()
    gc.collect()
    gc.disable()  # no collection during the measurement
    try:
        for first in range(0, len(inputs), size):
            start = time.perf_counter()
            predictions = predictor.predict(inputs[first : first + size], options)
            seconds.append(time.perf_counter() - start)
            num_tokens += sum(one.token_counts.get("output", 0) for one in predictions)
    finally:
        gc.enable()
    latency: Any = tuple(np.percentile(seconds, (50, 95, 99)).round(9).tolist())
    peak_memory = read_peak_memory_mb() if has_peak_memory else None
    return Throughput(predictor.engine, batch_size, len(inputs), num_tokens, sum(seconds), latency, peak_memory)


def _reset_peak_memory() -> bool:
    """Begin a new peak with what the process holds now; False where the system does not tell it."""
    try:
        RESET.write_text("5", encoding="ascii")
    except OSError:
        return False
    return True


def read_peak_memory_mb() -> float:
    """The peak memory of this process in megabytes, on Linux."""
    line = next(line for line in STATUS.read_text(encoding="utf-8").splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1024
