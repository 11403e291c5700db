"""Training with several processes (torchrun): process group, gradients, reductions.

Each process computes its shard of every batch; gradients are summed by DistributedDataParallel; the main process
writes the files.
"""

from __future__ import annotations

import gc
import os
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from regard.errors import UnsupportedError

__all__ = [
    "DistributedContext", "all_reduce_sum", "barrier", "broadcast_from_rank0", "destroy_process_group",
    "distributed_context", "init_process_group", "wrap_ddp",
]  # fmt: skip

T = TypeVar("T")

TIMEOUT = timedelta(hours=6)  # other processes wait during a validation; a dead process is noticed at once


@dataclass(frozen=True)
class DistributedContext:
    """Number of processes of a training, and which of them this is.

    Args:
        rank: index of this process
        world_size: number of processes
        local_rank: index of this process on its host
    """

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and prints."""
        return self.rank == 0


def distributed_context() -> DistributedContext:
    """The context that torchrun put into the environment; a single process without torchrun.

    >>> distributed_context()
    DistributedContext(rank=0, world_size=1, local_rank=0)
    """
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        return DistributedContext()
    return DistributedContext(*(int(os.environ.get(name, "0")) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")))


def init_process_group(device: torch.device) -> DistributedContext:
    """Join the other processes, if there are any and it has not happened yet.

    Args:
        device: cuda uses nccl, other devices gloo
    """
    context = distributed_context()
    if context.world_size > 1 and not dist.is_available():
        raise UnsupportedError("this PyTorch was built without torch.distributed, so several processes cannot train")
    if context.world_size > 1 and not _is_initialized():
        from torch.distributed.distributed_c10d import PrefixStore
        from torch.distributed.rendezvous import rendezvous

        backend = "nccl" if device.type == "cuda" else "gloo"
        store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
        # After a restart the store still has the addresses of dead processes; a prefix hides them.
        store = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=TIMEOUT)
    return context


def _is_initialized() -> bool:
    return dist.is_available() and dist.is_initialized()


def barrier() -> None:
    """Wait for all processes."""
    if _is_initialized():
        dist.barrier()


def destroy_process_group() -> None:
    """Leave the other processes."""
    if _is_initialized():
        # Modules that share gradients are collected first. If one of them were the last owner of the group, its end
        # would wait, while holding the GIL, for threads of the group that may wait for the GIL.
        gc.collect()
        dist.destroy_process_group()


def wrap_ddp(objective: nn.Module, device: torch.device) -> nn.Module:
    """The module in DistributedDataParallel, if there are several processes.

    Args:
        objective: a model with its loss
        device: its device
    """
    if not _is_initialized() or not any(p.requires_grad for p in objective.parameters()):
        return objective
    device_ids = [device.index] if device.type == "cuda" else None
    module = DDPModule(objective).to(device)
    return nn.parallel.DistributedDataParallel(module, device_ids=device_ids, find_unused_parameters=True)


class DDPModule(nn.Module):
    """An objective of which some parameters may be unused in a step.

    Which ones may depend on the batch, so DistributedDataParallel searches for them. This also prevents it from
    regrouping the gradients after the first step, which would change the order of sums in a resumed run. It warns if
    it finds none; so there is always an unused parameter.
    """

    def __init__(self, objective: nn.Module):
        super().__init__()
        self.objective = objective
        self.unused = nn.Parameter(torch.zeros(1))

    def forward(self, batch: Any) -> Any:
        return self.objective(batch)


def all_reduce_sum(numbers: list[float], device: torch.device) -> list[float]:
    """Sum numbers over all processes, in float64.

    Args:
        numbers: the numbers of this process
        device: the device of this process

    >>> all_reduce_sum([1.0, 2.0], torch.device("cpu"))
    [1.0, 2.0]
    """
    if not _is_initialized():
        return numbers
    sums = torch.tensor(numbers, dtype=torch.float64, device=device if device.type == "cuda" else "cpu")
    dist.all_reduce(sums)
    return sums.tolist()


def broadcast_from_rank0(value: T) -> T:
    """Send the value of the main process to all processes, so that they need not share a disk.

    Args:
        value: an object that can be pickled; ignored in other processes

    Example:
        >>> broadcast_from_rank0("without other processes, the value itself")
        'without other processes, the value itself'
    """
    if not _is_initialized():
        return value
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]
