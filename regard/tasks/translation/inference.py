"""Inference beyond a call of the network: other engines, batches in threads."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from functools import cache
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.decoding import DecoderState, DecodingConfig, Hypothesis
from regard.errors import UnsupportedError

__all__ = ["InferenceEngine", "map_in_threads"]


class InferenceEngine(ABC):
    """A model that another program computes; a `Translator` takes it in place of a network.

    It returns complete translations. An engine that also implements `start_decoding` (and sets `takes_steps`) shows
    its search, and one that implements `attention_weights` (and sets `has_attention`) shows alignments.
    """

    name: ClassVar[str]
    device = torch.device("cpu")  # of its input tensors
    has_attention: bool = False
    takes_steps: bool = False

    @abstractmethod
    def search(
        self, sources: Sequence[list[int]], options: DecodingConfig, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, whose tokens end with EOS."""

    def start_decoding(
        self, source: Int[Tensor, "batch src_len"], source_lengths: Int[Tensor, " batch"], /
    ) -> DecoderState:
        """Begin a batch of translations; optional."""
        raise UnsupportedError(f"{self.name} returns complete translations only; use the run it was exported from")

    def attention_weights(
        self,
        source: Int[Tensor, "batch src_len"],
        source_lengths: Int[Tensor, " batch"],
        target: Int[Tensor, "batch tgt_len"],
    ) -> list[Float[Tensor, "batch heads tgt_len-1 src_len"]]:
        """The weights of each layer for given translations; optional."""
        raise UnsupportedError(f"{self.name} returns no attention weights; use the run it was exported from")


ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def map_in_threads(function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """The results for all items in order, as many at a time as PyTorch has threads, each computed by one thread.

    A step of a small model is too short to be distributed over threads; complete batches are not.

    Args:
        function: of one item
        items: the items

    >>> map_in_threads(lambda number: number**2, [1, 2, 3])
    [1, 4, 9]
    """
    items, num_threads = list(items), torch.get_num_threads()
    if (num_workers := min(num_threads, len(items))) < 2:
        return [function(item) for item in items]
    # The context carries the observers of this thread; autocast is local to a thread and is entered again.
    pool, work = _thread_pool(num_workers), _with_autocast(function)
    futures = [pool.submit(copy_context().run, work, item) for item in items]
    try:
        return [future.result() for future in futures]
    finally:
        for future in futures:
            future.cancel()  # after a failure, those that have not begun need not
        torch.set_num_threads(num_threads)  # what a thread sets for itself also holds for threads that start later


def _with_autocast(function: Callable[[ItemT], ResultT]) -> Callable[[ItemT], ResultT]:
    """The same function under the autocast of this thread."""
    devices = [device for device in ("cpu", "cuda", "mps") if torch.is_autocast_enabled(device)]
    dtypes = {device: torch.get_autocast_dtype(device) for device in devices}

    def run(item: ItemT) -> ResultT:
        with ExitStack() as stack:
            for device, dtype in dtypes.items():
                stack.enter_context(torch.autocast(device, dtype))
            return function(item)

    return run if dtypes else function


@cache
def _thread_pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads that are reused: libraries allocate memory for each new thread, and never free it."""
    return ThreadPoolExecutor(num_threads, "regard", initializer=lambda: torch.set_num_threads(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_thread_pool.cache_clear)  # threads do not survive a fork
