"""Training with one or several processes (torchrun): process group, gradients, reductions, shards, seeds.

Each process computes its shard of every batch; gradients are summed by DistributedDataParallel; the main process
writes the files.
"""

from __future__ import annotations

import gc
import os
import random
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.utils import _pytree as pytree

from regard.errors import UnsupportedError, UsageError

__all__ = [
    "DistributedContext", "all_reduce_sum", "barrier", "broadcast_from_rank0", "destroy_process_group",
    "distributed_context", "init_process_group", "move_to_device", "seed_generators", "take_shard", "wrap_ddp",
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


def move_to_device(batch: Any, device: torch.device) -> Any:
    """A batch on a device: by its own method `to`, else all tensors in lists, tuples and dicts.

    Args:
        batch: of any form; what is no tensor stays as it is
        device: the device

    Example:
        >>> move_to_device({"x": torch.ones(2), "names": ["a", "b"]}, torch.device("meta"))
        {'x': tensor(..., device='meta', size=(2,)), 'names': ['a', 'b']}
    """
    if hasattr(batch, "to"):
        return batch.to(device)
    return pytree.tree_map(lambda leaf: leaf.to(device) if hasattr(leaf, "to") else leaf, batch)


def take_shard(batch: Any, context: DistributedContext) -> tuple[Any, int]:
    """Take the rows of this process.

    Gradients are summed over processes during the backward pass, so every process has to compute some.

    Args:
        batch: has a method `shard`, if there are several processes
        context: the processes of the training

    Returns:
        The shard of this process and weight 1; or, if it is empty, the first shard and weight 0.

    Raises:
        UsageError: the batch cannot be divided

    Example:
        >>> take_shard(["any", "form"], DistributedContext())
        (['any', 'form'], 1)
    """
    if context.world_size == 1:
        return batch, 1
    if not hasattr(batch, "shard"):
        problem = f"a {type(batch).__name__} cannot be divided among {context.world_size} processes"
        raise UsageError(f"{problem}; give the DataLoader a DistributedSampler, or batches a method shard")
    shard = batch.shard(context.rank, context.world_size)
    return (shard, 1) if shard.num_tokens else (batch.shard(0, context.world_size), 0)


def seed_generators(seed: int) -> None:
    """Seed `random`, NumPy's global generator, and torch's of the CPU; it takes about 0.01 milliseconds.

    Args:
        seed: below 2^32

    Example:
        >>> seed_generators(3)
        >>> first = random.random(), np.random.rand(), torch.rand(1).item()
        >>> seed_generators(3)
        >>> first == (random.random(), np.random.rand(), torch.rand(1).item())
        True
    """
    random.seed(seed)
    np.random.seed(seed)
    # not torch.manual_seed: without a GPU it stores a note of every call, in case a GPU is initialized later
    torch.default_generator.manual_seed(seed)
