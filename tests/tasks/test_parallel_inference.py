"""Batches in threads give the same results as one after the other."""

import threading

import pytest
import torch

from regard.attention.observers import WATCHERS, register_watcher
from regard.tasks.translation.inference import map_in_threads


@pytest.fixture(params=[1, 3])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_results_are_in_order_and_the_number_of_threads_is_restored(threads):
    thread_counts = []

    def work(number):
        thread_counts.append((torch.get_num_threads(), threading.current_thread().name))
        return 10 * number

    assert map_in_threads(work, range(7)) == [0, 10, 20, 30, 40, 50, 60]
    assert torch.get_num_threads() == threads
    assert {count for count, _ in thread_counts} == {1}  # nobody computes with threads of others
    fresh = []
    other = threading.Thread(target=lambda: fresh.append(torch.get_num_threads()))
    other.start()
    other.join()
    assert fresh == [threads]


def test_a_single_item_uses_all_threads(threads):
    assert map_in_threads(lambda _: torch.get_num_threads(), ["one"]) == [threads]


def test_errors_are_raised_and_the_number_of_threads_is_restored(threads):
    def work(number):
        if number == 2:
            raise ValueError("two")

    with pytest.raises(ValueError, match="two"):
        map_in_threads(work, range(4))
    assert torch.get_num_threads() == threads


def test_observers_are_active_in_threads(threads):
    with register_watcher(lambda who, weights: None):
        assert map_in_threads(lambda _: len(WATCHERS.get()), range(3)) == [1, 1, 1]


def test_autocast_is_active_in_threads(threads):
    ones = torch.ones(2, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert map_in_threads(lambda _: (ones @ ones).dtype, range(3)) == [torch.bfloat16] * 3
    assert map_in_threads(lambda _: (ones @ ones).dtype, range(3)) == [torch.float32] * 3
