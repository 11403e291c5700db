"""The computing thread: batches, refusals, timeouts, and errors that reach only the request at fault."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from regard.errors import InputError, RequestError
from regard.serving.worker import BatchingWorker, Limits, current_client


def run_in_thread(coroutine):
    """Run a coroutine in another thread, as the driver of the browser tests may have a loop in this one."""
    with ThreadPoolExecutor() as executor:
        return executor.submit(asyncio.run, coroutine).result()


@pytest.fixture
def make_worker():
    """A function that makes workers, which are closed at the end."""
    workers = []

    def make(**limits):
        worker = BatchingWorker(Limits(**{"batch_delay": 0.0, **limits}))
        workers.append(worker)
        return worker

    yield make
    for worker in workers:
        worker.close()


class Doubling:
    """Work that records its items and waits for an event."""

    def __init__(self, gate=None):
        self.batches, self.gate, self.started = [], gate, threading.Event()

    def __call__(self, items):
        self.batches.append(list(items))
        self.started.set()
        if self.gate is not None:
            assert self.gate.wait(20)
        if "bad" in items:
            raise ValueError("bad")
        if "long" in items:
            row = items.index("long")
            raise InputError(f"input {row + 1} is too long", row=row)
        return [2 * item for item in items]


async def wait_for_start(work):
    while not work.started.is_set():
        await asyncio.sleep(0.005)


def test_waiting_jobs_are_one_batch_with_separate_results(make_worker):
    worker, gate = make_worker(), threading.Event()
    work = Doubling(gate)

    async def ask():
        first = asyncio.create_task(worker.submit_items("a", work, [1]))
        await wait_for_start(work)
        rest = [asyncio.create_task(worker.submit_items("a", work, items)) for items in ([2, 3], [4], [5, 6])]
        await asyncio.sleep(0.02)
        gate.set()
        return await asyncio.gather(first, *rest)

    assert run_in_thread(ask()) == [[2], [4, 6], [8], [10, 12]]
    assert work.batches == [[1], [2, 3, 4, 5, 6]]


def test_batches_have_one_key_and_a_maximum_size(make_worker):
    worker, gate = make_worker(max_batch_size=3), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.submit_items("a", work, [0]))]
        await wait_for_start(work)
        kinds = [("a", [1, 2]), ("b", [7]), ("a", [3, 4]), ("a", [5]), (None, [8]), (None, [9])]
        tasks += [asyncio.create_task(worker.submit_items(kind, work, items)) for kind, items in kinds]
        await asyncio.sleep(0.02)
        gate.set()
        await asyncio.gather(*tasks)

    run_in_thread(ask())
    assert work.batches == [[0], [1, 2, 5], [7], [3, 4], [8], [9]]


def test_a_batch_waits_while_jobs_arrive(make_worker):
    worker, work = make_worker(batch_delay=0.2), Doubling()

    async def ask():
        tasks = []
        for item in range(4):
            tasks.append(asyncio.create_task(worker.submit_items("a", work, [item])))
            await asyncio.sleep(0.02)
        await asyncio.gather(*tasks)

    run_in_thread(ask())
    assert work.batches == [[0, 1, 2, 3]]


def test_one_invalid_job_does_not_fail_its_batch(make_worker):
    worker, gate = make_worker(), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.submit_items("a", work, ["x"]))]
        await wait_for_start(work)
        for items in (["y"], ["bad"], ["z", "long"], ["z"]):
            tasks.append(asyncio.create_task(worker.submit_items("a", work, items)))
        await asyncio.sleep(0.02)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = run_in_thread(ask())
    assert [results[i] for i in (0, 1, 4)] == [["xx"], ["yy"], ["zz"]]
    assert isinstance(results[2], ValueError)
    assert isinstance(results[3], InputError)
    assert work.batches == [["x"], ["y", "bad", "z", "long", "z"], ["y"], ["bad"], ["z", "long"], ["z"]]


def test_the_rest_of_a_failed_batch_stays_one_batch(make_worker):
    worker, gate = make_worker(), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.submit_items("a", work, ["x"]))]
        await wait_for_start(work)
        for items in (["u"], ["v", "long"], ["w"]):
            tasks.append(asyncio.create_task(worker.submit_items("a", work, items)))
        await asyncio.sleep(0.02)
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = run_in_thread(ask())
    assert results[:2] + results[3:] == [["xx"], ["uu"], ["ww"]]
    assert (str(results[2]), results[2].row) == ("input 2 is too long", 1)  # counted in its own request
    assert work.batches == [["x"], ["u", "v", "long", "w"], ["u", "w"], ["v", "long"]]


def test_a_full_queue_refuses_jobs_with_retry_after(make_worker):
    worker, gate = make_worker(max_queued=3), threading.Event()

    async def ask():
        first = asyncio.create_task(
            worker.submit_items("a", Doubling(gate), [1, 2, 3, 4])
        )  # one job may have any number of items
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

    run_in_thread(ask())


def test_jobs_time_out(make_worker):
    worker, gate = make_worker(timeout=0.1), threading.Event()
    late = Doubling()

    async def ask():
        with pytest.raises(RequestError, match=r"longer than 0\.1 seconds") as refusal:
            await worker.submit(gate.wait)
        assert refusal.value.http_status == 504
        with pytest.raises(RequestError):
            await worker.submit_items("a", late, [1])  # times out in the queue
        gate.set()
        while worker.num_queued:
            await asyncio.sleep(0.01)

    run_in_thread(ask())
    assert late.batches == []


def test_a_closed_worker_finishes_its_jobs_and_refuses_new_ones(make_worker):
    worker, gate = make_worker(), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [asyncio.create_task(worker.submit_items(kind, work, [1])) for kind in "ab"]
        await wait_for_start(work)
        closing = asyncio.create_task(asyncio.to_thread(worker.close))
        await asyncio.sleep(0.05)
        with pytest.raises(RequestError) as refusal:
            await worker.submit(lambda: 1)
        assert refusal.value.http_status == 503
        gate.set()
        assert await asyncio.gather(*tasks) == [[2], [2]]
        await closing

    run_in_thread(ask())


def ask_as(client, worker, *arguments):
    """A task that submits items in the name of a client."""

    async def submit():
        current_client.set(client)
        return await worker.submit_items(*arguments)

    return asyncio.create_task(submit())


def test_clients_are_served_in_turn(make_worker):
    worker, gate = make_worker(max_batch_size=2), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [ask_as("greedy", worker, None, work, [0])]
        await wait_for_start(work)
        tasks += [ask_as("greedy", worker, None, work, [item]) for item in (1, 2, 3)]
        await asyncio.sleep(0.02)
        tasks += [ask_as("polite", worker, None, work, [item]) for item in (11, 12)]
        await asyncio.sleep(0.02)
        gate.set()
        await asyncio.gather(*tasks)

    run_in_thread(ask())
    assert [item for (item,) in work.batches] == [0, 11, 1, 12, 2, 3]


def test_a_full_queue_takes_from_the_client_with_the_most_inputs(make_worker):
    worker, gate = make_worker(max_queued=6), threading.Event()
    work = Doubling(gate)

    async def ask():
        tasks = [ask_as("greedy", worker, None, work, [0])]
        await wait_for_start(work)
        tasks += [ask_as("greedy", worker, None, work, [item]) for item in (1, 2, 3, 4, 5)]
        await asyncio.sleep(0.02)
        assert not worker.is_full  # another client could take the place of the last job
        current_client.set("greedy")
        assert worker.is_full
        tasks.append(ask_as("greedy", worker, None, work, [6]))
        tasks.append(ask_as("polite", worker, None, work, [11, 12]))
        await asyncio.sleep(0.02)
        assert worker.num_queued == 6
        gate.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    results = run_in_thread(ask())
    assert [getattr(one, "http_status", one) for one in results] == [[0], [2], [4], [6], 429, 429, 429, [22, 24]]


def test_a_job_that_is_canceled_leaves_the_queue(make_worker):
    worker, gate = make_worker(batch_delay=0.05), threading.Event()
    work = Doubling(gate)

    async def ask():
        first = asyncio.create_task(worker.submit_items("a", work, [1]))
        await asyncio.sleep(0.01)
        first.cancel()  # while its batch waits for more
        await asyncio.sleep(0.1)
        assert worker.num_queued == 0
        gate.set()
        return await worker.submit_items("a", work, [2])

    assert run_in_thread(ask()) == [4]
    assert work.batches == [[2]]
