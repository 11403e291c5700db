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

PATIENCE = timedelta(hours=6)  # others wait while the first validates; a process that died is noticed at once


@dataclass(frozen=True)
class World:
    """How many processes train together, and which of them this is."""

    rank: int = 0
    size: int = 1
    local_rank: int = 0

    @property
    def first(self) -> bool:
        """Is this the process that writes files and speaks?"""
        return self.rank == 0


def world() -> World:
    """This process among those that torchrun started; alone if it did not.

    >>> world()
    World(rank=0, size=1, local_rank=0)
    """
    get = os.environ.get
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return World()
    return World(int(get("RANK", "0")), int(get("WORLD_SIZE", "1")), int(get("LOCAL_RANK", "0")))


def choose_device(wish: str) -> torch.device:
    """The device that a setting names; "auto" takes the fastest there is."""
    if wish == "auto":
        wish = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        if wish == "mps" and world().size > 1:
            wish = "cpu"  # no way to sum gradients there
    if wish == "cuda" and not torch.cuda.is_available():
        raise UnsupportedError("device=cuda: no CUDA device was found here; take device=auto or device=cpu")
    if wish == "mps" and not torch.backends.mps.is_available():
        raise UnsupportedError("device=mps: no Apple GPU was found here; take device=auto or device=cpu")
    if wish == "cuda":
        device = torch.device("cuda", world().local_rank)
        torch.cuda.set_device(device)
        return device
    return torch.device(wish)


def start(device: torch.device) -> World:
    """Meet the other processes, if there are any and it has not happened yet."""
    me = world()
    if me.size > 1 and not dist.is_initialized():
        backend = "nccl" if device.type == "cuda" else "gloo"
        store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
        # After a restart the store still has the addresses of the processes that died; a prefix hides them.
        store = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    return me


def wait() -> None:
    """Go on when all have come this far."""
    if dist.is_initialized():
        dist.barrier()


def stop() -> None:
    """Part from the other processes."""
    if dist.is_initialized():
        # What still shares gradients goes first. If it were the last to hold the group, its end would wait, with
        # Python's lock, for threads of the group that may be waiting for that lock.
        gc.collect()
        dist.destroy_process_group()


def share(objective: nn.Module, device: torch.device) -> nn.Module:
    """The objective as one of several that train together; itself if alone."""
    if not dist.is_initialized() or not any(p.requires_grad for p in objective.parameters()):
        return objective
    ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(
        Together(objective).to(device), device_ids=ids, find_unused_parameters=True
    )


class Together(nn.Module):
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


def unsynced(objective: object, yes: bool) -> contextlib.AbstractContextManager[Any]:
    """Where gradients are only added up here, because another batch of the same step follows."""
    if yes and isinstance(objective, DistributedDataParallel):
        return objective.no_sync()
    return contextlib.nullcontext()


def summed(numbers: list[float], device: torch.device) -> list[float]:
    """The sums of numbers over all processes.

    >>> summed([1.0, 2.0], torch.device("cpu"))
    [1.0, 2.0]
    """
    if not dist.is_initialized():
        return numbers
    together = torch.tensor(numbers, dtype=torch.float64, device=device if device.type == "cuda" else "cpu")
    dist.all_reduce(together)
    return together.tolist()


def from_first(thing: T) -> T:
    """What the first process has, in all of them; so they need not share a disk."""
    if not dist.is_initialized():
        return thing
    box = [thing]
    dist.broadcast_object_list(box)
    return box[0]
