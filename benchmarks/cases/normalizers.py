"""Sparse normalizers compared with the entmax package."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import entmax
import torch
from torch import Tensor

from benchmarks.case import Case, Comparison, Growth, Workload
from regard.attention import Entmax, entmax15, sparsemax

Normalizer = Callable[[Tensor], Tensor]


def compare(ours: Normalizer, theirs: Normalizer, rows: int, keys: int) -> Comparison:
    torch.manual_seed(0)
    scores = torch.randn(rows, keys, requires_grad=True)
    return Comparison(Workload(lambda: ours(scores), [scores]), Workload(lambda: theirs(scores), [scores]))


NORMALIZERS: dict[str, tuple[Normalizer, Normalizer, str]] = {
    "sparsemax": (sparsemax, partial(entmax.sparsemax, dim=-1), "entmax.sparsemax"),
    "entmax15": (entmax15, partial(entmax.entmax15, dim=-1), "entmax.entmax15"),
    "Entmax(1.3)": (Entmax(1.3), partial(entmax.entmax_bisect, alpha=1.3), "entmax.entmax_bisect"),
}
CASES: list[Case | Growth] = [
    Case("normalizers", f"{name}, {rows} rows of {keys} keys", against, partial(compare, ours, theirs, rows, keys))
    for name, (ours, theirs, against) in NORMALIZERS.items()
    for rows, keys in ((4096, 128), (1024, 1024))
]
