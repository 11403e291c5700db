"""Small functions as fused loops: torch.compile, asked for once and never relied upon.

`run` runs a function of a few tensors as compiled loops, or returns None where that cannot be had (no C++
compiler, switched off, a forked process); the caller then computes the same in blocks. Each kernel is
compiled on a small made-up example with every size different and none of them 1, so that one compilation
serves all shapes and does not depend on which shape came first. (A batch of one has a kernel of its own.)

    REGARD_COMPILE=0             switches compilation off for a process
    with compiling(False): ...   switches it off for a block
"""

import logging
import os
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

__all__ = ["compiling", "only_compiled", "run"]

log = logging.getLogger("regard")

_enabled = ContextVar("regard_compiling", default=os.environ.get("REGARD_COMPILE", "1") != "0")
_lock = threading.Lock()
_kernels: dict[tuple[Any, ...], Callable[..., Any]] = {}
_broken = False  # after one failure no other kernel is tried: the reason is the machine, not the kernel


@contextmanager
def compiling(enabled: bool) -> Iterator[None]:
    """Within this block, large work is (or is not) done by compiled kernels."""
    token = _enabled.set(enabled)
    try:
        yield
    finally:
        _enabled.reset(token)


def only_compiled() -> None:
    """Say no when a kernel runs uncompiled: it would build the very tensor that it exists to avoid.

    torch.compile can decide to run a function as it is (its own switches, its limit on recompilations).
    """
    if not torch.compiler.is_compiling():
        raise RuntimeError("torch.compile ran a kernel of regard uncompiled")


def run(name: str, function: Callable[..., Any], example: Callable[..., list[Tensor]], *args: Tensor) -> Any:
    """function(*args) in compiled loops, or None where they cannot be had; `name` tells functions apart."""
    if not _enabled.get() or _broken:
        return None
    # What torch.compile would recompile for, on the shapes of that moment, gets a kernel of its own instead.
    like, threads = args[0], torch.get_num_threads()
    batch = _example_batch(like.shape[0] == 1, threads)
    key = (name, like.dtype, like.device, batch, threads, torch.is_inference_mode_enabled())
    try:
        kernel = _kernels.get(key) or _compile(key, function, example(like, batch))
        return kernel(*args)
    except Exception as error:  # whatever a missing or broken toolchain raises
        _give_up(error)
        return None


def _compile(key: tuple[Any, ...], function: Callable[..., Any], example: list[Tensor]) -> Callable[..., Any]:
    with _lock:
        if key not in _kernels:
            if not _kernels:
                log.info("compiling kernels, once per process, for seconds (REGARD_COMPILE=0 turns it off)")
            start = time.perf_counter()
            kernel = torch.compile(_own_code(function, len(_kernels)), fullgraph=True, dynamic=True)
            with warnings.catch_warnings():  # torch's own, on first use; made errors they would stop it
                warnings.simplefilter("ignore")
                kernel(*example)
            log.debug("compiled %s in %.1f s", key[0], time.perf_counter() - start)
            _kernels[key] = kernel
    return _kernels[key]


def _own_code(function: Callable[..., Any], number: int) -> Callable[..., Any]:
    """The function with a code object of its own: torch.compile limits how often it compiles one."""
    assert isinstance(function, types.FunctionType)
    code = function.__code__.replace(co_name=f"{function.__name__}_{number}")
    return types.FunctionType(code, function.__globals__, closure=function.__closure__)


def _example_batch(single: bool, threads: int) -> int:
    """A batch too small to occupy all threads well, so that the queries are shared out among them too."""
    return 1 if single else max(2 * threads - 1, 3)


def _give_up(error: Exception) -> None:
    global _broken
    _broken = True
    log.info("no compiled kernels here, computing in blocks instead (%s)", type(error).__name__)
    log.debug("the reason", exc_info=error)


def _after_fork() -> None:
    """Compilers and their threads do not survive a fork; a lock may have been held in the middle of it."""
    global _lock, _broken
    _lock, _broken = threading.Lock(), True


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
