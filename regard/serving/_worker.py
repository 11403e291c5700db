"""One thread that computes, so that the event loop never waits for a model; what is alike is computed together."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from regard.errors import RequestError
from regard.serving._limits import Limits

T = TypeVar("T")
P = ParamSpec("P")
Item = TypeVar("Item")
PAUSES = 10  # so often a batch waits for one more, at most: a stream of late ones cannot hold it up


@dataclass(eq=False)
class Job:
    """Some texts of one request, and who waits for what becomes of them."""

    kind: Hashable  # jobs of a kind can be done together; None is for one that cannot
    work: Callable[[Any], Sequence[Any]]
    items: Sequence[Any]
    check: Callable[[Any], None] | None
    answer: asyncio.Future[Any]
    came: float = field(default_factory=time.monotonic)

    def tell(self, found: Any) -> None:
        """Hand over what was found, or what went wrong; whoever has stopped waiting hears nothing."""
        if self.answer.done():
            return
        if isinstance(found, Exception):
            self.answer.set_exception(found)
        else:
            self.answer.set_result(found)


class Worker:
    """Work is done in the order it came, but for what can join the batch of an earlier request.

    Who would have to wait too long is sent away at once, and nobody waits longer than `limits.seconds`.
    """

    def __init__(self, limits: Limits, batched: Callable[[int], None] = lambda size: None) -> None:
        self._limits, self._batched = limits, batched
        self._queue: deque[Job] = deque()
        self._changed = threading.Condition()
        self._waiting, self._pace = 0, 0.0  # texts that came and are not done; seconds that one took of late
        self._came = self._done = 0.0
        self._closed = False
        self._thread = threading.Thread(target=self._go, name="regard", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The texts that came and are not done."""
        return self._waiting

    @property
    def full(self) -> bool:
        """Whether even one text more would have to be sent away."""
        return self._waiting >= self._limits.waiting

    @property
    def alive(self) -> bool:
        return self._thread.is_alive() and not self._closed

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """What the work gives, done alone."""
        (found,) = await self.join(None, lambda items: [work(*args, **kwargs)], [None])
        return found

    async def join(
        self,
        kind: Hashable,
        work: Callable[[Sequence[Item]], Sequence[T]],
        items: Sequence[Item],
        check: Callable[[Sequence[Item]], None] | None = None,
    ) -> Sequence[T]:
        """What the work gives for each item; it may be given those of other jobs of the same kind, too.

        `check` sees the items of this job alone, in the thread that computes: what it raises concerns nobody else.
        """
        job = Job(kind, work, items, check, asyncio.get_running_loop().create_future())
        self._take_in(job)
        try:
            return await asyncio.wait_for(job.answer, self._limits.seconds)
        except asyncio.TimeoutError:
            late = f"The answer took longer than {self._limits.seconds:g} seconds; ask for less at once."
            raise RequestError(504, "too_slow", late) from None

    def busy(self) -> RequestError:
        """What to tell somebody who cannot wait here any more."""
        seconds = min(max(1, math.ceil(self._waiting * self._pace)), 60)
        told = f"Too many texts are waiting for the model; try again in {seconds} s."
        return RequestError(429, "busy", told, {"Retry-After": str(seconds)})

    def close(self) -> None:
        """Finish what has come, then end."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _take_in(self, job: Job) -> None:
        with self._changed:
            if self._closed:
                raise stopping()
            if self._waiting and self._waiting + len(job.items) > self._limits.waiting:
                raise self.busy()
            self._waiting += len(job.items)
            self._came = job.came
            self._queue.append(job)
            self._changed.notify()

    def _go(self) -> None:
        while jobs := self._next():
            began = time.monotonic()
            checked = [(job, _checked(job)) for job in jobs if not job.answer.done()]
            wrong = [(job, error) for job, error in checked if error is not None]
            going = [job for job, error in checked if error is None]
            _tell(wrong)
            if going:
                _tell(list(zip(going, _answers(going), strict=True)))
                self._batched(sum(len(job.items) for job in going))
            self._leave(jobs, began)

    def _leave(self, jobs: list[Job], began: float) -> None:
        with self._changed:
            count = sum(len(job.items) for job in jobs)
            self._waiting -= count
            self._done = time.monotonic()
            self._pace += 0.2 * ((self._done - began) / count - self._pace)

    def _next(self) -> list[Job]:
        """The oldest job and those that can be done with it; none when all is done and the door closed."""
        with self._changed:
            while not self._queue and not self._closed:
                self._changed.wait()
            while self._queue and not self._closed and (left := self._patience()) > 0:
                self._changed.wait(left)
            return self._joined()

    def _patience(self) -> float:
        """How long to wait for others. Answers just given bring new questions, so it counts from them, too."""
        first, now = self._queue[0], time.monotonic()
        here = sum(len(job.items) for job in self._queue if job.kind == first.kind)
        if first.kind is None or here >= self._limits.together:
            return 0.0
        pause = self._limits.pause
        quiet, whole = now - max(self._came, self._done), now - max(first.came, self._done)
        return min(pause - quiet, PAUSES * pause - whole)

    def _joined(self) -> list[Job]:
        taken: list[Job] = []
        count = 0
        for job in list(self._queue):
            alike = not taken or (job.kind is not None and job.kind == taken[0].kind)
            if alike and (not taken or count + len(job.items) <= self._limits.together):
                taken.append(job)
                count += len(job.items)
                self._queue.remove(job)
        return taken


def stopping() -> RequestError:
    return RequestError(503, "stopping", "The server is stopping; ask another, or later.", {"Retry-After": "5"})


def _checked(job: Job) -> Exception | None:
    try:
        if job.check is not None:
            job.check(job.items)
    except Exception as error:
        return error
    return None


def _answers(jobs: list[Job]) -> list[Any]:
    """What each job gets. If a batch fails, each is tried alone, so that only the guilty one fails."""
    items = [item for job in jobs for item in job.items]
    try:
        found = iter(jobs[0].work(items))
        return [[next(found) for _ in job.items] for job in jobs]
    except Exception as error:
        return [error] if len(jobs) == 1 else [one for job in jobs for one in _answers([job])]


def _tell(found: list[tuple[Job, Any]]) -> None:
    for job, answer in found:
        with suppress(RuntimeError):  # its loop has been closed: nobody waits there
            job.answer.get_loop().call_soon_threadsafe(job.tell, answer)
