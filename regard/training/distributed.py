"""One training in several processes: who I am, and what all of us say together.

torchrun starts the processes and tells each its number in the environment. Each takes its rows of every
batch; the gradients are summed by DistributedDataParallel; the first process writes the files.
"""

from __future__ import annotations

import contextlib
import gc
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from regard.errors import UnsupportedError

T = TypeVar("T")

TIMEOUT = timedelta(hours=6)  # others wait while the first validates; a process that died is noticed at once


@dataclass(frozen=True)
class DistributedContext:
    """How many processes train together, and which of them this is."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Is this the process that writes files and speaks?"""
        return self.rank == 0


def distributed_context() -> DistributedContext:
    """This process among those that torchrun started; alone if it did not.

    >>> distributed_context()
    World(rank=0, image_size=1, local_rank=0)
    """
    get = os.environ.get
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return DistributedContext()
    return DistributedContext(int(get("RANK", "0")), int(get("WORLD_SIZE", "1")), int(get("LOCAL_RANK", "0")))


def resolve_device(name: str) -> torch.device:
    """The device that a setting names; "auto" takes the fastest there is."""
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        if name == "mps" and distributed_context().world_size > 1:
            name = "cpu"  # no way to sum gradients there
    if name == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError("device=cuda: no CUDA device was found here; take device=auto or device=cpu")
    if name == "mps" and not torch.backends.mps.is_available():
        raise UnsupportedError("device=mps: no Apple GPU was found here; take device=auto or device=cpu")
    if name == "cuda":
        device = torch.device("cuda", distributed_context().local_rank)
        torch.cuda.set_device(device)
        return device
    return torch.device(name)


def init_process_group(device: torch.device) -> DistributedContext:
    """Meet the other processes, if there are any and it has not happened yet."""
    me = distributed_context()
    if me.world_size > 1 and not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
        # After a restart the store still has the addresses of the processes that died; a prefix hides them.
        store = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    return me


def barrier() -> None:
    """Go on when all have come this far."""
    if dist.is_initialized():
        dist.barrier()


def destroy_process_group() -> None:
    """Part from the other processes."""
    if dist.is_initialized():
        # What still shares gradients goes first. If it were the last to hold the group, its end would wait, with
        # Python's lock, for threads of the group that may be waiting for that lock.
        gc.collect()
        dist.destroy_process_group()


def wrap_ddp(objective: nn.Module, device: torch.device) -> nn.Module:
    """The objective as one of several that train together; itself if alone."""
    if not dist.is_initialized() or not any(p.requires_grad for p in objective.parameters()):
        return objective
    ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(
        DDPModule(objective).to(device), device_ids=ids, find_unused_parameters=True
    )


class DDPModule(nn.Module):
    """An objective of which some parameters may take no part in a step.

    Which ones may depend on the batch, so DistributedDataParallel is told to look for them. This also keeps
    it from regrouping the gradients after the first step, which would change the order of sums in a resumed
    run. It warns if it looks and finds none; so there is always one.
    """

    def __init__(self, objective: nn.Module):
        super().__init__()
        self.objective = objective
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, batch: Any) -> Any:
        return self.objective(batch)


def no_sync(objective: object, enabled: bool) -> contextlib.AbstractContextManager[Any]:
    """Where gradients are only added up here, because another batch of the same step follows."""
    if enabled and isinstance(objective, DistributedDataParallel):
        return objective.no_sync()
    return contextlib.nullcontext()


def all_reduce_sum(numbers: list[float], device: torch.device) -> list[float]:
    """The sums of numbers over all processes.

    >>> all_reduce_sum([1.0, 2.0], torch.device("cpu"))
    [1.0, 2.0]
    """
    if not dist.is_initialized():
        return numbers
    together = torch.tensor(numbers, dtype=torch.float64, device=device if device.type == "cuda" else "cpu")
    dist.all_reduce(together)
    return together.tolist()


def broadcast_from_rank0(value: T) -> T:
    """What the first process has, in all of them; so they need not share a disk."""
    if not dist.is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]
