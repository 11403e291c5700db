"""The computing thread: batches, refusals, timeouts, and errors that reach only the request at fault."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.errors import InputError, RequestError
from regard.serving.worker import BatchingWorker, Limits


def in_a_loop(coroutine):
    """A browser's driver may have a loop in this thread."""
    with ThreadPoolExecutor() as elsewhere:
        return elsewhere.submit(asyncio.run, coroutine).result()


@pytest.fixture
def worked():
    """A worker, the batches it made, and a gate at which it waits."""
    made = []

    def make(**limits):
        worker = BatchingWorker(Limits(**{"batch_delay": 0.0, **limits}))
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
        if "long" in items:
            row = items.index("long")
            raise InputError(f"input {row + 1} is too long", row=row)
        return [2 * item for item in items]


async def begun(work):
    while not work.began.is_set():
        await asyncio.sleep(0.005)


def test_what_waits_is_computed_together_and_given_back_apart(worked):
    worker, gate = worked(), threading.Event()
    work = Doubling(gate)

    async def ask():
        first = asyncio.create_task(worker.submit_items("a", work, [1]))
        await begun(work)
        rest = [asyncio.create_task(worker.submit_items("a", work, items)) for items in ([2, 3], [4], [5, 6])]
        await asyncio.sleep(0.02)
        gate.set()
        return await asyncio.gather(first, *rest)

    assert in_a_loop(ask()) == [[2], [4, 6], [8], [10, 12]]
    assert work.batches == [[1], [2, 3, 4, 5, 6]]


def test_other_kinds_wait_their_turn_and_batches_have_a_size(worked):
    worker, gate = worked(max_batch_size=3), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.submit_items("a", work, [0]))]
        await begun(work)
        kinds = [("a", [1, 2]), ("b", [7]), ("a", [3, 4]), ("a", [5]), (None, [8]), (None, [9])]
        tasks += [asyncio.create_task(worker.submit_items(kind, work, items)) for kind, items in kinds]
        await asyncio.sleep(0.02)
        gate.set()
        await asyncio.gather(*tasks)

    in_a_loop(ask())
    assert work.batches == [[0], [1, 2, 5], [7], [3, 4], [8], [9]]


def test_others_are_waited_for_as_long_as_they_come(worked):
    worker, work = worked(batch_delay=0.2), Doubling()

    async def ask():
        tasks = []
        for item in range(4):
            tasks.append(asyncio.create_task(worker.submit_items("a", work, [item])))
            await asyncio.sleep(0.02)
        await asyncio.gather(*tasks)

    in_a_loop(ask())
    assert work.batches == [[0, 1, 2, 3]]


def test_one_bad_request_does_not_spoil_its_neighbors(worked):
    worker, gate = worked(), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.submit_items("a", work, ["x"]))]
        await begun(work)
        for items in (["y"], ["bad"], ["z", "long"], ["z"]):
            tasks.append(asyncio.create_task(worker.submit_items("a", work, items)))
        await asyncio.sleep(0.02)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = in_a_loop(ask())
    assert [found[i] for i in (0, 1, 4)] == [["xx"], ["yy"], ["zz"]]
    assert isinstance(found[2], ValueError)
    assert isinstance(found[3], InputError)
    assert work.batches == [["x"], ["y", "bad", "z", "long", "z"], ["y"], ["bad"], ["z", "long"], ["z"]]


def test_the_others_of_a_batch_with_a_bad_input_stay_a_batch(worked):
    worker, gate = worked(), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.submit_items("a", work, ["x"]))]
        await begun(work)
        for items in (["u"], ["v", "long"], ["w"]):
            tasks.append(asyncio.create_task(worker.submit_items("a", work, items)))
        await asyncio.sleep(0.02)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    found = in_a_loop(ask())
    assert found[:2] + found[3:] == [["xx"], ["uu"], ["ww"]]
    assert (str(found[2]), found[2].row) == ("input 2 is too long", 1)  # counted in its own request
    assert work.batches == [["x"], ["u", "v", "long", "w"], ["u", "w"], ["v", "long"]]


def test_who_would_wait_too_long_is_sent_away_and_told_when_to_come_back(worked):
    worker, gate = worked(max_queued=3), threading.Event()

    async def ask():
        first = asyncio.create_task(worker.submit_items("a", Doubling(gate), [1, 2, 3, 4]))  # alone, any number
        await asyncio.sleep(0.05)
        assert worker.is_full
        with pytest.raises(RequestError, match="waiting") as refusal:
            await worker.submit(gate.wait)
        assert refusal.value.http_status == 429
        assert int(refusal.value.headers["Retry-After"]) >= 1
        gate.set()
        assert await first == [2, 4, 6, 8]
        await asyncio.sleep(0.05)
        assert worker.num_queued == 0
        assert await worker.submit(lambda: 3) == 3

    in_a_loop(ask())


def test_nobody_waits_longer_than_the_limit(worked):
    worker, gate = worked(timeout=0.1), threading.Event()
    late = Doubling()

    async def ask():
        with pytest.raises(RequestError, match=r"longer than 0\.1 seconds") as refusal:
            await worker.submit(gate.wait)
        assert refusal.value.http_status == 504
        with pytest.raises(RequestError):
            await worker.submit_items("a", late, [1])  # its time is over before its turn comes
        gate.set()
        while worker.num_queued:
            await asyncio.sleep(0.01)

    in_a_loop(ask())
    assert late.batches == []


def test_a_closed_worker_finishes_what_came_and_takes_in_nothing(worked):
    worker, gate = worked(), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.submit_items(kind, work, [1])) for kind in "ab"]
        await begun(work)
        closing = asyncio.create_task(asyncio.to_thread(worker.close))
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError) as refusal:
            await worker.submit(lambda: 1)
        assert refusal.value.http_status == 503
        gate.set()
        assert await asyncio.gather(*tasks) == [[2], [2]]
        await closing

    in_a_loop(ask())
