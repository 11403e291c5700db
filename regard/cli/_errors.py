"""Which errors a user caused: those are told in one sentence; the others are ours, and keep their traceback."""

from __future__ import annotations

import dis
import sys
from types import TracebackType

FULL = ("can't allocate memory", "out of memory")  # what PyTorch says of a processor's, and of a GPU's
TOLD = (ValueError, LookupError, RuntimeError, OSError, ArithmeticError, ImportError)


def in_words(error: Exception) -> tuple[str, int] | None:
    """The sentence to print and the exit code: 2 for what was asked wrongly, 1 for what went wrong on the way.

    A sentence is what regard itself raises, on purpose; what Python or torch raise is a bug of ours, except a
    file that cannot be opened.

    >>> in_words(FileNotFoundError(2, "No such file or directory", "a.txt"))
    ('a.txt: no such file or directory', 2)
    >>> in_words(KeyError("a bug")) is None
    True
    """
    if isinstance(error, MemoryError | RuntimeError) and any(words in str(error) for words in FULL):
        return (
            "there is not enough memory for this; a smaller dim, layers, batch_tokens or beam needs less",
            1,
        )
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror.lower()}", 2
    if isinstance(error, TOLD) and _on_purpose(error.__traceback__):
        return str(error), 1 if _on_the_way(error) else 2
    return None


def _on_the_way(error: Exception) -> bool:
    training = sys.modules.get("regard.training")  # not imported: whoever raised these has it already
    return training is not None and isinstance(error, (training.Diverged, training.CannotWrite))


def _on_purpose(trace: TracebackType | None) -> bool:
    """Did a `raise` of regard's own begin it? A call into Python or torch that failed is none."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    module = str(trace.tb_frame.f_globals.get("__name__", ""))
    instruction = trace.tb_frame.f_code.co_code[trace.tb_lasti]
    return module.partition(".")[0] == "regard" and dis.opname[instruction] == "RAISE_VARARGS"
