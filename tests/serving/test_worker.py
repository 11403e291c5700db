"""The thread that computes: who is computed together, who is sent away, and whose fault is whose."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.errors import RequestError
from regard.serving._limits import Limits
from regard.serving._worker import Worker


def in_a_loop(coroutine):
    """A browser's driver may have a loop in this thread."""
    with ThreadPoolExecutor() as elsewhere:
        return elsewhere.submit(asyncio.run, coroutine).result()


@pytest.fixture
def worked():
    """A worker, the batches it made, and a gate at which it waits."""
    made = []

    def make(**limits):
        worker = Worker(Limits(**{"pause": 0.0, **limits}))
        made.append(worker)
        return worker

    yield make
    for worker in made:
        worker.close()


class Doubling:
    """Work that tells what it was given, and waits at a gate."""

    def __init__(self, gate=None):
        self.batches, self.gate, self.began = [], gate, threading.Event()

    def __call__(self, items):
        self.batches.append(list(items))
        self.began.set()
        if self.gate is not None:
            assert self.gate.wait(20)
        if "bad" in items:
            raise ValueError("bad")
        return [2 * item for item in items]


async def begun(work):
    while not work.began.is_set():
        await asyncio.sleep(0.005)


def test_what_waits_is_computed_together_and_given_back_apart(worked):
    worker, gate = worked(), threading.Event()
    work = Doubling(gate)

    async def ask():
        first = asyncio.create_task(worker.join("a", work, [1]))
        await begun(work)
        rest = [asyncio.create_task(worker.join("a", work, items)) for items in ([2, 3], [4], [5, 6])]
        await asyncio.sleep(0.02)
        gate.set()
        return await asyncio.gather(first, *rest)

    assert in_a_loop(ask()) == [[2], [4, 6], [8], [10, 12]]
    assert work.batches == [[1], [2, 3, 4, 5, 6]]


def test_other_kinds_wait_their_turn_and_batches_have_a_size(worked):
    worker, gate = worked(together=3), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.join("a", work, [0]))]
        await begun(work)
        kinds = [("a", [1, 2]), ("b", [7]), ("a", [3, 4]), ("a", [5]), (None, [8]), (None, [9])]
        tasks += [asyncio.create_task(worker.join(kind, work, items)) for kind, items in kinds]
        await asyncio.sleep(0.02)
        gate.set()
        await asyncio.gather(*tasks)

    in_a_loop(ask())
    assert work.batches == [[0], [1, 2, 5], [7], [3, 4], [8], [9]]


def test_others_are_waited_for_as_long_as_they_come(worked):
    worker, work = worked(pause=0.2), Doubling()

    async def ask():
        tasks = []
        for item in range(4):
            tasks.append(asyncio.create_task(worker.join("a", work, [item])))
            await asyncio.sleep(0.02)
        await asyncio.gather(*tasks)

    in_a_loop(ask())
    assert work.batches == [[0, 1, 2, 3]]


def test_one_bad_request_does_not_spoil_its_neighbors(worked):
    worker, gate = worked(), threading.Event()
    work = Doubling(gate)

    def check(items):
        if "long" in items:
            raise RequestError(413, "too_long", "too long.")

    async def ask():
        tasks = [asyncio.create_task(worker.join("a", work, ["x"], check))]
        await begun(work)
        for item in ("y", "bad", "long", "z"):
            tasks.append(asyncio.create_task(worker.join("a", work, [item], check)))
        await asyncio.sleep(0.02)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = in_a_loop(ask())
    assert [found[i] for i in (0, 1, 4)] == [["xx"], ["yy"], ["zz"]]
    assert isinstance(found[2], ValueError)
    assert found[3].http_status == 413
    assert work.batches == [["x"], ["y", "bad", "z"], ["y"], ["bad"], ["z"]]


def test_who_would_wait_too_long_is_sent_away_and_told_when_to_come_back(worked):
    worker, gate = worked(waiting=3), threading.Event()

    async def ask():
        first = asyncio.create_task(worker.join("a", Doubling(gate), [1, 2, 3, 4]))  # alone, any number
        await asyncio.sleep(0.05)
        assert worker.full
        with pytest.raises(RequestError, match="waiting") as refusal:
            await worker.run(gate.wait)
        assert refusal.value.http_status == 429
        assert int(refusal.value.headers["Retry-After"]) >= 1
        gate.set()
        assert await first == [2, 4, 6, 8]
        await asyncio.sleep(0.05)
        assert worker.waiting == 0
        assert await worker.run(lambda: 3) == 3

    in_a_loop(ask())


def test_nobody_waits_longer_than_the_limit(worked):
    worker, gate = worked(seconds=0.1), threading.Event()
    late = Doubling()

    async def ask():
        with pytest.raises(RequestError, match=r"longer than 0\.1 seconds") as refusal:
            await worker.run(gate.wait)
        assert refusal.value.http_status == 504
        with pytest.raises(RequestError):
            await worker.join("a", late, [1])  # its time is over before its turn comes
        gate.set()
        while worker.waiting:
            await asyncio.sleep(0.01)

    in_a_loop(ask())
    assert late.batches == []


def test_a_closed_worker_finishes_what_came_and_takes_in_nothing(worked):
    worker, gate = worked(), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.join(kind, work, [1])) for kind in "ab"]
        await begun(work)
        closing = asyncio.create_task(asyncio.to_thread(worker.close))
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError) as refusal:
            await worker.run(lambda: 1)
        assert refusal.value.http_status == 503
        gate.set()
        assert await asyncio.gather(*tasks) == [[2], [2]]
        await closing

    in_a_loop(ask())
