"""The time and memory of one kind of layer, in a process of its own:

    python -m regard.recipes.studies._costs_child "self-attention" 512 1024 2048

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

from regard.recipes.studies._costs import DIM, KINDS
from regard.training.memory import keep_memory

ENOUGH, LEAST, TIMES = 0.5, 3, 5  # seconds of measuring at one length; runs at least and at most


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


def main(kind: str, *words: str) -> None:
    """Memory first, from the shortest length to the longest; then time."""
    torch.set_num_threads(1)
    layer, lengths = KINDS[kind].make(), sorted(map(int, words))
    for _ in range(
        2
    ):  # libraries, kernels and the pools of the allocator are there before anything is measured
        step(layer, lengths[0] // 4)
    began, megabytes = peak(), {}
    for length in lengths:
        step(layer, length)
        megabytes[length] = max(peak() - began, 0.1)
    keep_memory()  # as trainings do: what the system takes to clear large pieces anew is no cost of a layer
    times = {length: seconds(layer, length) for length in lengths}
    sys.stdout.write(json.dumps({"seconds": times, "megabytes": megabytes}) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
