"""Local attention: its cost must depend on the number of visible keys, not on the number of keys."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F

from benchmarks.case import FORWARD, MEMORY, TRAIN, Case, Comparison, Growth, Workload, times_less, within
from benchmarks.cases.dot import tensors
from regard.attention import Additive, LocalP, ScaledDot, Score, attend, padding, window

LENGTH = 16_384
DIM = HIDDEN = 256
QUERIES, BATCH, RADIUS = 64, 4, 10


def window_side(heads: int, length: int) -> Workload:
    q, k, v = leaves = tensors(1, heads, length, length)
    mask = window(64, 64)
    return Workload(lambda: attend(q, k, v, mask).context, leaves)


def compare_with_full(length: int = LENGTH) -> Comparison:
    q, k, v = leaves = tensors(1, 4, length, length)
    return Comparison(window_side(4, length), Workload(lambda: F.scaled_dot_product_attention(q, k, v), leaves))


def local_p_side(additive: bool, padded: bool, keys: int) -> Workload:
    """LocalP with precomputed keys: one call of a decoder with 64 queries."""
    torch.manual_seed(0)
    score: Score = Additive(DIM, DIM, HIDDEN) if additive else ScaledDot()
    local = LocalP(score, query_dim=DIM, hidden_dim=DIM, radius=RADIUS)
    q, k, v = (torch.randn(BATCH, n, DIM) for n in (QUERIES, keys, keys))
    mask = padding(torch.linspace(keys // 2, keys, BATCH).long()) if padded else None
    with torch.no_grad():
        memory = local.precompute(k, v, mask)
    return Workload(lambda: memory(q).context)


GROUP, LINEAR, FLAT = "local", within(0.8, 1.2), within(-0.15, 0.15)
KEYS = (1024, 4096, 16_384, 65_536)
CASES: list[Case | Growth] = [
    Case(
        GROUP,
        "window(64, 64), 1x4x16384x64",
        "SDPA, all keys",
        compare_with_full,
        (FORWARD, TRAIN, MEMORY),
        {FORWARD: times_less(20), TRAIN: times_less(20)},
        small=partial(compare_with_full, 1024),
        tolerance=None,
        slow=(TRAIN, MEMORY),
    ),
    Growth(
        GROUP,
        "window(64, 64), 1x4xNx64",
        (2048, 4096, 8192, 16_384, 32_768),
        partial(window_side, 4),
        (FORWARD, TRAIN, MEMORY),
        {FORWARD: LINEAR, TRAIN: LINEAR, MEMORY: LINEAR},
        slow=(TRAIN, MEMORY),
    ),
]
for score in ("ScaledDot", "Additive"):
    for padded in (False, True):
        name = f"LocalP({score}), 4x64 queries over N keys{', padding' if padded else ''}"
        build = partial(local_p_side, score == "Additive", padded)
        CASES.append(Growth(GROUP, name, KEYS, build, targets={FORWARD: FLAT}))
