"""Memory that is kept, instead of being given back and fetched again in every step."""

from __future__ import annotations

import ctypes
import sys

# From malloc.h of the GNU C library.
TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8


def keep_memory() -> bool:
    """Ask the C library to keep freed memory for the next step; says whether it will.

    A training step frees matrices of megabytes and asks for the same again. The GNU C library hands such pieces
    back to the system, which clears every page before it gives it out anew: a third of the time of a
    small model's element-wise work. Other C libraries are left alone.
    """
    if not sys.platform.startswith("linux"):
        return False
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    # The largest threshold that the library takes: above it, matrices still go back at once. And one arena for all
    # threads: each of their own would keep what it once had, and a server that starts threads would grow.
    wishes = {MMAP_THRESHOLD: 1 << 30, TRIM_THRESHOLD: (1 << 31) - 1, ARENA_MAX: 1}
    return all(mallopt(name, value) for name, value in wishes.items())
