"""One thread that computes, so that the event loop never waits for a model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from regard.serving._errors import Refusal

T = TypeVar("T")
P = ParamSpec("P")


class Worker:
    """Work is done one after the other, in the order it came; who would have to wait too long is sent away."""

    def __init__(self, waiting: int) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="regard")
        self._waiting, self._most = 0, waiting

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._waiting >= self._most:
            raise Refusal(503, "busy", "Too many requests are waiting for the model; try again in a moment.")
        self._waiting += 1
        future = self._thread.submit(work, *args, **kwargs)
        loop = asyncio.get_running_loop()
        future.add_done_callback(lambda done: self._count_down(loop, done))
        return await asyncio.wrap_future(future)

    def _count_down(self, loop: asyncio.AbstractEventLoop, done: Future[T]) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._leave)

    def _leave(self) -> None:
        self._waiting -= 1

    def close(self) -> None:
        """Finish what has begun; what still waits is dropped."""
        self._thread.shutdown(wait=True, cancel_futures=True)
