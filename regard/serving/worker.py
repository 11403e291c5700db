"""One thread computes, so that the event loop never waits for a model; similar requests are computed as one batch."""

from __future__ import annotations

import asyncio
import bisect
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from regard.errors import InputError, RequestError

__all__ = ["BatchingWorker", "Job", "Limits", "current_client", "shutdown_error", "stopped_error"]

T = TypeVar("T")
P = ParamSpec("P")
Item = TypeVar("Item")
current_client: ContextVar[str] = ContextVar("current_client", default="")  # the address that a request comes from
MAX_DELAYS = 10  # the longest wait of a batch for further requests, in units of `batch_delay`


@dataclass(frozen=True)
class Limits:
    """Limits of requests; a model has limits of its own, such as its maximum length.

    Args:
        max_body_bytes: bytes of a request
        max_characters: characters of a text
        max_pixels: pixels of an image
        max_inputs: inputs of a request
        max_candidates: candidates of an input, such as the hypotheses of a beam search
        max_points: queries, and keys, of the playground
        max_queued: inputs of all requests that wait for the model; above it, 429 to the client that sent the most
        max_requests: requests that are accepted and wait for their response; above it, 429
        timeout: seconds from a request to its response; after it, 504
        max_batch_size: inputs of several requests that are computed as one batch
        batch_delay: seconds that a batch waits for one more request
        max_explanations: explanations that are kept for further requests
        max_explanation_bytes: their bytes
        max_total_body_bytes: bytes of all open requests; above it, 429
        max_total_pixels: pixels of the images of all open requests; above it, 429, or 413 for a single request

    Example:
        >>> Limits(max_inputs=8).timeout
        60.0
    """

    max_body_bytes: int = 1_000_000
    max_characters: int = 20_000
    max_pixels: int = 20_000_000
    max_inputs: int = 64
    max_candidates: int = 16
    max_points: int = 64
    max_queued: int = 256
    max_requests: int = 512
    timeout: float = 60.0
    max_batch_size: int = 64
    batch_delay: float = 0.005
    max_explanations: int = 32
    max_explanation_bytes: int = 512_000_000
    max_total_body_bytes: int = 64_000_000
    max_total_pixels: int = 100_000_000


@dataclass(eq=False)
class Job:
    """The inputs of a request and the future of their results.

    Args:
        batch_key: jobs of equal keys can be computed together; None: alone
        work: returns a result for each item
        items: the inputs
        result: of all items
        turn: its place in the queue; a client's next job comes as many turns later as this one has items
        client: who sent it
        arrived_at: time of `time.monotonic`
    """

    batch_key: Hashable
    work: Callable[[Any], Sequence[Any]]
    items: Sequence[Any]
    result: asyncio.Future[Any]
    turn: int
    client: str = field(default_factory=current_client.get)
    arrived_at: float = field(default_factory=time.monotonic)

    def resolve(self, outcome: Any) -> None:
        """Set the results or the error, unless nobody waits any more."""
        if not self.result.done():
            is_error = isinstance(outcome, Exception)
            (self.result.set_exception if is_error else self.result.set_result)(outcome)


class BatchingWorker:
    """Computes jobs in one thread: those of all clients in turn, and jobs of equal keys in batches.

    A job that would have to wait too long is refused at once, and none waits longer than `limits.timeout`. In a full
    queue, the job of a client with few inputs replaces the last job of one with many. Jobs whose clients are gone are
    dropped.

    Args:
        limits: of waiting and of batches
        on_batch: called with the number of items of every batch

    Attributes:
        num_queued: items that arrived and are not computed
    """

    def __init__(self, limits: Limits, on_batch: Callable[[int], None] = lambda size: None) -> None:
        self._limits, self._on_batch = limits, on_batch
        self._queue: list[Job] = []  # by turn
        self._running: list[Job] = []
        self._turn, self._next_turns = 0, dict[str, int]()  # of the last batch, and of the next job of each client
        self._changed = threading.Condition()
        self.num_queued, self._seconds_per_item = 0, 0.0
        self._last_arrival = self._last_finish = 0.0
        self._is_closed = False
        self._thread = threading.Thread(target=self._loop, name="regard", daemon=True)
        self._thread.start()

    @property
    def is_full(self) -> bool:
        """Whether even one more item of the current client would be refused."""
        return self.num_queued >= self._limits.max_queued and not self._is_before_last(self._next_turn())

    @property
    def is_alive(self) -> bool:
        """Whether jobs are computed."""
        return self._thread.is_alive()

    async def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a call in the computing thread."""
        (result,) = await self.submit_items(None, lambda items: [work(*args, **kwargs)], [None])
        return result

    async def submit_items(
        self, batch_key: Hashable, work: Callable[[Sequence[Item]], Sequence[T]], items: Sequence[Item]
    ) -> Sequence[T]:
        """The result of each item.

        If a batch fails with an InputError that names a row, the job of that row is computed alone and gets its own
        error; the others are computed again as one batch.

        Args:
            batch_key: jobs of equal keys can be computed together; None: alone
            work: returns a result for each item; its items may be those of several jobs
            items: of this job
        """
        job = Job(batch_key, work, items, asyncio.get_running_loop().create_future(), self._next_turn())
        self._enqueue(job)
        try:
            return await asyncio.wait_for(job.result, self._limits.timeout)
        except asyncio.TimeoutError:
            message = f"The response took longer than {self._limits.timeout:g} seconds; send fewer inputs at once"
            raise RequestError(504, "timeout", message) from None
        finally:
            with self._changed:
                if job in self._queue:  # the client is gone, or the time is over
                    self._drop(job)

    def check_abandoned(self) -> None:
        """Stop the running batch, by an error, if nobody waits for it. Called in the computing thread."""
        if all(job.result.done() for job in self._running):
            raise RequestError(499, "abandoned", "The clients of this batch are gone")

    def busy_error(self) -> RequestError:
        """The refusal of a request that would wait too long."""
        seconds = min(max(1, math.ceil(self.num_queued * self._seconds_per_item)), 60)
        message = f"Too many inputs are waiting for the model; try again in {seconds} s"
        return RequestError(429, "busy", message, {"Retry-After": str(seconds)})

    def close(self) -> None:
        """Finish all jobs, then end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _next_turn(self) -> int:
        return max(self._turn, self._next_turns.get(current_client.get(), 0))

    def _is_before_last(self, turn: int) -> bool:
        return bool(self._queue) and turn < self._queue[-1].turn

    def _enqueue(self, job: Job) -> None:
        with self._changed:
            if self._is_closed:
                raise shutdown_error()
            if not self.is_alive:
                raise stopped_error()
            while self.num_queued and self.num_queued + len(job.items) > self._limits.max_queued:
                if not self._is_before_last(job.turn):
                    raise self.busy_error()
                last = self._queue[-1]
                self._drop(last)
                _resolve_all([last], [self.busy_error()])
            self.num_queued += len(job.items)
            self._next_turns[job.client] = job.turn + len(job.items)
            self._last_arrival = job.arrived_at
            bisect.insort(self._queue, job, key=lambda one: one.turn)
            self._changed.notify()

    def _drop(self, job: Job) -> None:
        self._queue.remove(job)
        self.num_queued -= len(job.items)

    def _loop(self) -> None:
        try:
            while jobs := self._wait_for_batch():
                started_at = time.monotonic()
                self._running = [job for job in jobs if not job.result.done()]
                if self._running:
                    _resolve_all(self._running, _compute(self._running))
                    self._on_batch(sum(len(job.items) for job in self._running))
                self._finish(jobs, started_at)
                jobs.clear()  # free the inputs while nothing is computed
                self._running = []
        finally:  # jobs remain only if the thread ends by a fault
            _resolve_all([*self._running, *self._queue], [stopped_error()] * (len(self._running) + len(self._queue)))

    def _finish(self, jobs: list[Job], started_at: float) -> None:
        with self._changed:
            count = sum(len(job.items) for job in jobs)
            self.num_queued -= count
            self._last_finish = time.monotonic()
            self._seconds_per_item += 0.2 * ((self._last_finish - started_at) / count - self._seconds_per_item)
            self._next_turns = {client: turn for client, turn in self._next_turns.items() if turn > self._turn}

    def _wait_for_batch(self) -> list[Job]:
        """The next job and those of its key; none if the worker is closed and all is computed."""
        with self._changed:
            while not self._is_closed and (delay := self._remaining_delay()) != 0:
                self._changed.wait(delay)
            return self._pop_batch()

    def _remaining_delay(self) -> float | None:
        """How long to wait for further jobs. Clients that just got a response ask again, so it counts from then."""
        if not self._queue:
            return None
        first, now = self._queue[0], time.monotonic()
        count = sum(len(job.items) for job in self._queue if job.batch_key == first.batch_key)
        if first.batch_key is None or count >= self._limits.max_batch_size:
            return 0.0
        delay = self._limits.batch_delay
        quiet = now - max(self._last_arrival, self._last_finish)
        waited = now - max(first.arrived_at, self._last_finish)
        return max(0.0, min(delay - quiet, MAX_DELAYS * delay - waited))

    def _pop_batch(self) -> list[Job]:
        batch: list[Job] = []
        count = 0
        for job in list(self._queue):
            is_same = batch and job.batch_key is not None and job.batch_key == batch[0].batch_key
            if not batch or (is_same and count + len(job.items) <= self._limits.max_batch_size):
                batch.append(job)
                count += len(job.items)
                self._queue.remove(job)
        self._turn = batch[0].turn if batch else self._turn
        return batch


def shutdown_error() -> RequestError:
    """The refusal while the server stops."""
    return RequestError(503, "stopping", "The server is stopping; ask another, or later", {"Retry-After": "5"})


def stopped_error() -> RequestError:
    """The refusal after the computing thread has ended by a fault."""
    return RequestError(503, "model_stopped", "The model has stopped; restart the server, its log says why")


def _compute(jobs: list[Job]) -> list[Any]:
    """The results of each job, or its error: a batch that fails is computed again without the job at fault."""
    items = [item for job in jobs for item in job.items]
    try:
        outputs = iter(jobs[0].work(items))
        return [[next(outputs) for _ in job.items] for job in jobs]
    except BaseException as fault:  # extensions of tokenizers raise panics that are no Exception
        error = fault if isinstance(fault, Exception) else RuntimeError(repr(fault)).with_traceback(fault.__traceback__)
        if len(jobs) == 1 or all(job.result.done() for job in jobs):
            return [error] * len(jobs)
        index = _find_job(jobs, error)
        if index is None:
            return [result for job in jobs for result in _compute([job])]
        results = _compute([*jobs[:index], *jobs[index + 1 :]])
        return [*results[:index], *_compute([jobs[index]]), *results[index:]]


def _find_job(jobs: list[Job], error: Exception) -> int | None:
    """The index of the job with the row that an error names."""
    if not isinstance(error, InputError) or error.row is None:
        return None
    job_of_row = [index for index, job in enumerate(jobs) for _ in job.items]
    return job_of_row[error.row] if error.row < len(job_of_row) else None


def _resolve_all(jobs: list[Job], results: list[Any]) -> None:
    for job, result in zip(jobs, results, strict=True):
        with suppress(RuntimeError):  # the loop of a client that is gone may be closed
            job.result.get_loop().call_soon_threadsafe(job.resolve, result)
