"""The number of trials: few by default, all with REGARD_FUZZ=full (`make fuzz`)."""

import os
import signal
from contextlib import contextmanager

import pytest

FULL = os.environ.get("REGARD_FUZZ", "small") == "full"


def num_trials(small: int, full: int) -> int:
    return full if FULL else small


@pytest.fixture
def time_limit():
    """A context that fails after a number of seconds."""

    @contextmanager
    def limit(seconds: int = 20):
        def fail(number, frame):
            raise AssertionError(f"it took longer than {seconds} s")

        before = signal.signal(signal.SIGALRM, fail)
        signal.alarm(seconds)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    return limit
