"""What is held out of the training documents, where nobody names others to choose the best weights by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from regard.data.report import counted
from regard.errors import DataError

EVERY = 20  # one of so many documents is held out
One = TypeVar("One")


def without_held(documents: Iterable[One]) -> list[One]:
    """The documents to train on: all but every twentieth."""
    return [one for place, one in enumerate(documents, 1) if place % EVERY]


def held_out(documents: Iterable[One]) -> list[One]:
    """The documents to choose by: every twentieth.

    >>> held_out(range(1, 50)), len(without_held(range(1, 50)))
    ([20, 40], 47)
    """
    every = list(documents)
    if len(every) < EVERY:
        has = f"{documents} has {counted(len(every), 'document')}"
        raise DataError(f"{has}, too few to hold one of {EVERY} out; name others to choose by: --valid FILE")
    return every[EVERY - 1 :: EVERY]


def told(reports: Mapping[str, object], held: bool, what: str = "document") -> list[str]:
    """What was read, a line for each part; that the last one was held out is said."""
    lines = [f"{name}: {report}" for name, report in reports.items()]
    return [*lines[:-1], f"{lines[-1]} Every twentieth {what} was held out for it."] if held else lines
