"""The growth of the cost with the length, for full attention, causal attention, a window, and an additive score."""

from __future__ import annotations

from functools import partial

import torch

from benchmarks.case import FORWARD, TRAIN, Case, Growth, Workload
from benchmarks.cases.dot import tensors
from regard.attention import Additive, attend, causal, window

LENGTHS = (512, 1024, 2048, 4096)
MASKS = {"full": None, "causal": causal(), "window(64, 64)": window(64, 64)}


def scaled_dot(kind: str, length: int) -> Workload:
    q, k, v = leaves = tensors(1, 2, length, length)
    return Workload(lambda: attend(q, k, v, MASKS[kind]).context, leaves)


def additive(length: int) -> Workload:
    torch.manual_seed(0)
    score = Additive(64, 64, 64)
    q, k, v = leaves = tensors(1, 1, length, length)
    return Workload(lambda: attend(q, k, v, score=score).context, [*leaves, *score.parameters()])


CASES: list[Case | Growth] = [
    Growth(
        "growth", f"ScaledDot, {kind}, 1x2xNx64", LENGTHS, partial(scaled_dot, kind), (FORWARD, TRAIN), slow=(TRAIN,)
    )
    for kind in MASKS
]
CASES.append(Growth("growth", "Additive, hidden 64, 1x1xNx64", LENGTHS, additive, (FORWARD, TRAIN), slow=(TRAIN,)))
