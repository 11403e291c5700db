"""What runs an exported model in PyTorch's place.

Batches side by side, one a thread.
"""

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


class InferenceEngine(ABC):
    """A model that another program computes; a `Translator` takes it where it would take a network.

    It must give whole translations. One that can also take single steps (`begin`) shows its search, and one that
    tells where it looked (`looks`, `attends`) shows alignments.
    """

    name: ClassVar[str]
    device = torch.device("cpu")  # where tensors that it is given should be
    has_attention = False

    @abstractmethod
    def search(
        self, sources: Sequence[list[int]], options: DecodingConfig, generator: torch.Generator | None = None
    ) -> list[list[Hypothesis]]:
        """The best translations of each source, whose tokens end with EOS."""

    def start_decoding(
        self, source: Int[Tensor, "rows source"], source_lengths: Int[Tensor, " rows"], /
    ) -> DecoderState:
        raise UnsupportedError(
            f"{self.name} gives whole translations and shows no single steps; use the run it was exported from"
        )

    def attention_weights(
        self,
        source: Int[Tensor, "rows source"],
        source_lengths: Int[Tensor, " rows"],
        target: Int[Tensor, "rows target"],
    ) -> list[Float[Tensor, "rows heads target-1 source"]]:
        raise UnsupportedError(f"{self.name} does not tell where it looked; use the run it was exported from")


ItemT = TypeVar("ItemT")


ResultT = TypeVar("ResultT")


def map_in_threads(function: Callable[[ItemT], ResultT], items: Iterable[ItemT]) -> list[ResultT]:
    """The answers for all items in order, as many at a time as PyTorch has threads, each computed by one.

    A step of a small model is too short to be shared out among threads; whole batches are not.

    >>> map_in_threads(lambda number: number**2, [1, 2, 3])
    [1, 4, 9]
    """
    items, threads = list(items), torch.get_num_threads()
    several = min(threads, len(items))
    if several < 2:
        return [function(item) for item in items]
    # Who watches here is told of what happens there; what is computed in another precision here, is there, too.
    cast = _with_autocast(function)
    waiting = [_thread_pool(several).submit(copy_context().run, cast, item) for item in items]
    try:
        return [one.result() for one in waiting]
    finally:
        for one in waiting:
            one.cancel()  # after a failure, those that have not begun need not
        torch.set_num_threads(threads)  # a thread's own number is also that of threads to come


def _with_autocast(function: Callable[[ItemT], ResultT]) -> Callable[[ItemT], ResultT]:
    """The same work under the autocast of this thread, which others do not see."""
    kinds = [kind for kind in ("cpu", "cuda", "mps") if torch.is_autocast_enabled(kind)]
    types = {kind: torch.get_autocast_dtype(kind) for kind in kinds}

    def cast(item: ItemT) -> ResultT:
        with ExitStack() as stack:
            for kind, dtype in types.items():
                stack.enter_context(torch.autocast(kind, dtype))
            return function(item)

    return cast if types else function


@cache
def _thread_pool(num_threads: int) -> ThreadPoolExecutor:
    """Threads that stay: each new one would have memory of its own from the libraries, which it never gives back."""
    return ThreadPoolExecutor(num_threads, "regard", initializer=lambda: torch.set_num_threads(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        after_in_child=_thread_pool.cache_clear
    )  # a forked process has none of its parent's threads
