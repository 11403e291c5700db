"""Masks as rules beside masks written out, at 4096 positions."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.case import FORWARD, MEMORY, TRAIN, Case, Growth, Pair, Side
from benchmarks.cases.dot import tensors
from regard.attention import Mask, attend, causal, padding

BATCH, HEADS, LENGTH = 4, 2, 4096


def masks(kind: str, length: int) -> tuple[Mask, Tensor]:
    """A rule, and how it is written out as people do."""
    lengths = torch.linspace(length // 2, length, BATCH).long()
    place = torch.arange(length)
    filled, past = (place < lengths[:, None])[:, None, None], place <= place[:, None]
    if kind == "padding":
        return padding(lengths), filled
    return (causal(), past) if kind == "causal" else (causal() & padding(lengths), past & filled)


def beside(kind: str, length: int = LENGTH) -> Pair:
    q, k, v = leaves = tensors(BATCH, HEADS, length, length)
    rule, _ = masks(kind, length)

    def theirs() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, masks(kind, length)[1])

    return Pair(Side(lambda: attend(q, k, v, rule).context, leaves), Side(theirs, leaves))


CASES: list[Case | Growth] = [
    Case(
        "masks",
        f"{kind}, {BATCH}x{HEADS}x{LENGTH}x64",
        "SDPA, mask written out",
        partial(beside, kind),
        (FORWARD, TRAIN, MEMORY) if "&" in kind else (TRAIN, MEMORY),
        small=partial(beside, kind, 512),
        slow=(FORWARD, TRAIN, MEMORY),
    )
    for kind in ("causal", "padding", "causal & padding")
]
