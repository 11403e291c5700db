"""The time and memory of one kind of layer at one length, in a process of its own:

    python -m regard.recipes.studies._costs_child "self-attention" 2048

prints one line of JSON. A process that has seen other lengths would not do: what the C library keeps of their freed
memory, and cannot use for larger tensors, counts in the high-water mark.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import torch
from torch import nn

from regard.recipes.studies._costs import DIM, KINDS
from regard.training.memory import keep_memory

ENOUGH, LEAST, TIMES = 0.5, 3, 5  # seconds of measuring at one length; runs at least and at most
WARM = 16  # positions


def step(layer: nn.Module, length: int) -> None:
    """Forwards and backwards once."""
    layer(torch.ones(1, length, DIM, requires_grad=True)).sum().backward()
    layer.zero_grad(set_to_none=True)


def peak() -> float:
    """The high-water mark of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # ru_maxrss is handed down by the parent on Linux, VmHWM is not
        lines = status.read_text(encoding="utf-8").splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
    scale = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20


def seconds(layer: nn.Module, length: int) -> float:
    """Processor time of one step, the least of some: what else runs on the machine does not count."""
    found: list[float] = []
    while len(found) < LEAST or (len(found) < TIMES and sum(found) < ENOUGH):
        began = time.process_time()
        step(layer, length)
        found.append(time.process_time() - began)
    return min(found)


def main(kind: str, length: int) -> None:
    """Memory first; then time."""
    torch.set_num_threads(1)
    layer = KINDS[kind].make()
    for _ in range(2):  # libraries, kernels and the allocator's pools are there before anything is measured
        step(layer, WARM)
    began = peak()
    step(layer, length)
    megabytes = max(peak() - began, 0.1)
    keep_memory()  # as trainings do: what the system takes to clear large pieces anew is no cost of a layer
    sys.stdout.write(json.dumps({"time": seconds(layer, length), "memory": megabytes}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
