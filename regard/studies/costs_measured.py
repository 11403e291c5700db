"""The time and memory of one kind of layer, in a process of its own:

    python -m regard.studies.costs_measured "self-attention" 512 1024 2048

prints one line of JSON. Lengths come in order, so that the high-water mark of the process is that of the last one.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import torch
from torch import nn

from regard.studies.costs import DIM, LAYER_KINDS
from regard.training.weights import retain_freed_memory

MIN_SECONDS, MIN_RUNS, MAX_RUNS = 0.5, 3, 5  # seconds of measuring at one length; runs at least and at most


def run_step(layer: nn.Module, length: int) -> None:
    """Forwards and backwards once."""
    layer(torch.ones(1, length, DIM, requires_grad=True)).sum().backward()
    layer.zero_grad(set_to_none=True)


def peak_memory_mb() -> float:
    """The high-water mark of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss is handed down by the parent on Linux, VmHWM is not
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
    scale = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20


def measure_seconds(layer: nn.Module, length: int) -> float:
    """Processor time of one step, the least of some: what else runs on the machine does not count."""
    found: list[float] = []
    while len(found) < MIN_RUNS or (len(found) < MAX_RUNS and sum(found) < MIN_SECONDS):
        began = time.process_time()
        run_step(layer, length)
        found.append(time.process_time() - began)
    return min(found)


def main(kind: str, *length_texts: str) -> None:
    """Memory first, from the shortest length to the longest; then time."""
    torch.set_num_threads(1)
    layer, lengths = LAYER_KINDS[kind].build(), sorted(map(int, length_texts))
    for _ in range(2):  # libraries, kernels and the pools of the allocator are there before anything is measured
        run_step(layer, lengths[0] // 4)
    began, megabytes = peak_memory_mb(), {}
    for length in lengths:
        run_step(layer, length)
        megabytes[length] = max(peak_memory_mb() - began, 0.1)
    retain_freed_memory()  # as trainings do: what the system takes to clear large pieces anew is no cost of a layer
    times = {length: measure_seconds(layer, length) for length in lengths}
    sys.stdout.write(json.dumps({"seconds": times, "megabytes": megabytes}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
