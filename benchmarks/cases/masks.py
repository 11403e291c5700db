"""Masks as rules compared with materialized masks, at 4096 positions."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.case import FORWARD, MEMORY, TRAIN, Case, Comparison, Growth, Workload
from benchmarks.cases.dot import tensors
from regard.attention import Mask, attend, causal, padding

BATCH, HEADS, LENGTH = 4, 2, 4096


def build_masks(kind: str, length: int) -> tuple[Mask, Tensor]:
    """A rule, and its materialized form as it is usually written."""
    lengths = torch.linspace(length // 2, length, BATCH).long()
    position = torch.arange(length)
    unpadded, past = (position < lengths[:, None])[:, None, None], position <= position[:, None]
    if kind == "padding":
        return padding(lengths), unpadded
    return (causal(), past) if kind == "causal" else (causal() & padding(lengths), past & unpadded)


def compare(kind: str, length: int = LENGTH) -> Comparison:
    q, k, v = leaves = tensors(BATCH, HEADS, length, length)
    rule, _ = build_masks(kind, length)

    def materialized() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, build_masks(kind, length)[1])

    return Comparison(Workload(lambda: attend(q, k, v, rule).context, leaves), Workload(materialized, leaves))


CASES: list[Case | Growth] = [
    Case(
        "masks",
        f"{kind}, {BATCH}x{HEADS}x{LENGTH}x64",
        "SDPA, mask written out",
        partial(compare, kind),
        (FORWARD, TRAIN, MEMORY) if "&" in kind else (TRAIN, MEMORY),
        small=partial(compare, kind, 512),
        slow=(FORWARD, TRAIN, MEMORY),
    )
    for kind in ("causal", "padding", "causal & padding")
]
