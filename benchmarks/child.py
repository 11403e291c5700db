"""Measurements in a separate process: peak memory, runs without compiled kernels, the cost of compilation.

    python -m benchmarks.child memory "additive | ... | textbook" ours
    python -m benchmarks.child time "additive | ... | textbook" forward+backward 7 0.05 1.5 wall

prints one line of JSON. `ask` starts such a process and reads it.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.case import MEMORY, OVERHEAD, TRAIN, Case, Growth
from benchmarks.timing import Effort, interleaved, step

ROOT = Path(__file__).resolve().parent.parent


def ask(*words: object, **environment: str) -> Any:
    """The result of a measurement in a new process."""
    command = [sys.executable, "-m", "benchmarks.child", *map(str, words)]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def environment(case: Case | Growth) -> dict[str, str]:
    return {} if getattr(case, "compiled", True) else {"REGARD_COMPILE": "0"}


def timed(case: Case, what: str, effort: Effort) -> list[list[float]]:
    """Seconds per run of ours and of theirs, for each round."""
    pair = case.make()
    return interleaved([step(side, what) for side in pair], effort)


def peak() -> float:
    """The peak memory of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():  # on Linux ru_maxrss is inherited from the parent, VmHWM is not
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**10
    scale = 1 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20


def forget() -> None:
    """Return freed memory and reset the peak, where the system supports it."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def memory(case: Case | Growth, which: str) -> float:
    """Peak MB of one pass without its inputs; libraries and kernels are loaded before."""
    what = [name for name in case.passes if name not in (MEMORY, OVERHEAD)][-1]
    if isinstance(case, Growth):
        warm, side = case.make(min(case.lengths) // 2), case.make(int(which))
    else:
        assert case.small is not None, "memory is measured after a small run of the same kind"
        warm, side = (getattr(make(), which) for make in (case.small, case.make))
    step(warm, what)()
    del warm
    forget()
    before = peak()
    if what == TRAIN:
        out = side.call()
        torch.autograd.grad(out, side.leaves, torch.ones_like(out))
    else:
        step(side, what)()
    return max(peak() - before, 0.1)


def first_use(case: Case) -> dict[str, float]:
    """The cost of compilation: seconds and MB of the first pass, seconds of the second."""
    side = (case.small or case.make)().ours
    forget()
    before, start = peak(), time.perf_counter()
    run = step(side, TRAIN)  # forward once
    run()
    first, grown = time.perf_counter() - start, peak() - before
    start = time.perf_counter()
    run()
    return {"seconds": first - (time.perf_counter() - start), "megabytes": grown}


def main(kind: str, key: str, *more: str) -> None:
    from benchmarks.cases import find

    case = find(key)
    if kind == "memory":
        answer: Any = memory(case, more[0])
    elif kind == "time":
        assert isinstance(case, Case)
        answer = timed(case, more[0], Effort(int(more[1]), float(more[2]), float(more[3]), more[4]))
    else:
        assert isinstance(case, Case)
        answer = first_use(case)
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
