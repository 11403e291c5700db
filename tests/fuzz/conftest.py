"""How much is tried: a little by default, all of it with REGARD_FUZZ=full (`make fuzz`)."""

import os
import signal
from contextlib import contextmanager

import pytest

FULL = os.environ.get("REGARD_FUZZ", "small") == "full"


def tries(small: int, full: int) -> int:
    return full if FULL else small


@pytest.fixture
def in_time():
    """Something that takes longer than so many seconds hangs, and is a failure."""

    @contextmanager
    def limit(seconds: int = 20):
        def late(number, frame):
            raise AssertionError(f"it took longer than {seconds} s")

        before = signal.signal(signal.SIGALRM, late)
        signal.alarm(seconds)
        try:
            yield
        finally:
            signal.alarm(0)
            signal.signal(signal.SIGALRM, before)

    return limit
