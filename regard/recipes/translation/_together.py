"""Batches side by side, one a thread."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from functools import cache
from typing import TypeVar

import torch

Item = TypeVar("Item")
Answer = TypeVar("Answer")


def side_by_side(work: Callable[[Item], Answer], items: Iterable[Item]) -> list[Answer]:
    """The answers for all items in order, as many at a time as PyTorch has threads, each computed by one.

    A step of a small model is too short to be shared out among threads; whole batches are not.

    >>> side_by_side(lambda number: number**2, [1, 2, 3])
    [1, 4, 9]
    """
    items, threads = list(items), torch.get_num_threads()
    several = min(threads, len(items))
    if several < 2:
        return [work(item) for item in items]
    # Who watches here is told of what happens there; what is computed in another precision here, is there, too.
    cast = _casting(work)
    waiting = [_pool(several).submit(copy_context().run, cast, item) for item in items]
    try:
        return [one.result() for one in waiting]
    finally:
        for one in waiting:
            one.cancel()  # after a failure, those that have not begun need not
        torch.set_num_threads(threads)  # a thread's own number is also that of threads to come


def _casting(work: Callable[[Item], Answer]) -> Callable[[Item], Answer]:
    """The same work under the autocast of this thread, which others do not see."""
    kinds = [kind for kind in ("cpu", "cuda", "mps") if torch.is_autocast_enabled(kind)]
    types = {kind: torch.get_autocast_dtype(kind) for kind in kinds}

    def cast(item: Item) -> Answer:
        with ExitStack() as stack:
            for kind, dtype in types.items():
                stack.enter_context(torch.autocast(kind, dtype))
            return work(item)

    return cast if types else work


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    """Threads that stay: each new one would have memory of its own from the libraries, which it never gives back."""
    return ThreadPoolExecutor(threads, "regard", initializer=lambda: torch.set_num_threads(1))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # a forked process has none of its parent's threads
