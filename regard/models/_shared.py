"""Rows that share something: it is computed once for all of them."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

FEW = 32  # rows; a product with fewer has its weights to read, and takes as long for one of them


class Shared:
    """Which of the distinct ones each row has; where there is no table, every row has its own.

    >>> numbers, shared = distinct(torch.tensor([7, 3, 7, 7, 5]), few=1)
    >>> numbers.tolist(), shared.spread(numbers).tolist()
    ([3, 5, 7], [7, 3, 7, 7, 5])
    """

    def __init__(self, table: Int[Tensor, " rows"] | None = None, count: int = 0):
        self.table, self.count = table, count

    def spread(self, each: Shaped[Tensor, "distinct *_"]) -> Shaped[Tensor, "rows *_"]:
        """To every row what it has of these."""
        return each if self.table is None else each.index_select(0, self.table)

    def gather(self, rows: Float[Tensor, "rows dim"]) -> Float[Tensor, "distinct dim"]:
        """Of rows that are the same where they share, one each."""
        if self.table is None:
            return rows
        one = self.table.new_empty(self.count)
        one[self.table] = torch.arange(len(self.table))
        return rows.index_select(0, one)


def distinct(numbers: Int[Tensor, " rows"], few: int = FEW) -> tuple[Int[Tensor, " distinct"], Shared]:
    """The numbers that occur, and which each row has; few rows, and those on a GPU, which would wait, keep theirs."""
    if len(numbers) < few or numbers.device.type != "cpu":
        return numbers, Shared()
    found, table = numbers.unique(return_inverse=True)
    return found, Shared(table, len(found))
