"""The time and memory of one kind of layer, measured in a process of its own.

    python -m regard.studies.costs_measured "self-attention" 512 1024 2048

prints one line of JSON. Lengths are sorted, so that the peak memory of the process is that of the last one.
"""

from __future__ import annotations

import json
import sys
import time

import torch
from torch import nn

from regard.errors import UnsupportedError
from regard.studies.costs import DIM, LAYER_KINDS
from regard.tasks.benchmark import STATUS, read_peak_memory_mb
from regard.training.weights import retain_freed_memory

__all__ = ["main", "measure_seconds", "peak_memory_mb", "run_step"]

MIN_SECONDS, MIN_RUNS, MAX_RUNS = 0.5, 3, 5  # at each length


def run_step(layer: nn.Module, length: int) -> None:
    """Run one forward and backward pass.

    Args:
        layer: the layer
        length: number of positions
    """
    layer(torch.ones(1, length, DIM, requires_grad=True)).sum().backward()
    layer.zero_grad(set_to_none=True)


def peak_memory_mb() -> float:
    """The peak memory of this process in MB.

    Raises:
        UnsupportedError: the system does not tell it
    """
    if STATUS.exists():  # on Linux a process inherits ru_maxrss, but not VmHWM
        return read_peak_memory_mb()
    try:
        import resource
    except ImportError:
        raise UnsupportedError("the memory of a process is measured on Linux and macOS only; run it there") from None
    scale = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20


def measure_seconds(layer: nn.Module, length: int) -> float:
    """Processor time of one step: the minimum of several, so that other programs have little influence.

    Args:
        layer: the layer
        length: number of positions
    """
    times: list[float] = []
    while len(times) < MIN_RUNS or (len(times) < MAX_RUNS and sum(times) < MIN_SECONDS):
        start = time.process_time()
        run_step(layer, length)
        times.append(time.process_time() - start)
    return min(times)


def main(kind: str, *length_texts: str) -> None:
    """Measure memory, from the shortest length to the longest, then time, and print both.

    Args:
        kind: a name of `LAYER_KINDS`
        length_texts: numbers of positions
    """
    torch.set_num_threads(1)
    layer, lengths = LAYER_KINDS[kind].build(), sorted(map(int, length_texts))
    for _ in range(2):  # loads libraries and fills the pools of the allocator
        run_step(layer, lengths[0] // 4)
    baseline, megabytes = peak_memory_mb(), {}
    for length in lengths:
        run_step(layer, length)
        megabytes[length] = max(peak_memory_mb() - baseline, 0.1)
    retain_freed_memory()  # as in training: clearing new pages is no cost of a layer
    times = {length: measure_seconds(layer, length) for length in lengths}
    sys.stdout.write(json.dumps({"time": times, "memory": megabytes}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
