"""Additive compared with the textbook formula, which allocates the queries x keys x hidden tensor."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.case import FORWARD, MEMORY, TRAIN, Case, Comparison, Growth, Workload, times_less
from regard.attention import Additive, attend

DIM = HIDDEN = 256


def textbook(score: Additive, query: Tensor, key: Tensor) -> Tensor:
    """v . tanh(W q + U k) by broadcasting."""
    assert score.query_proj is not None
    return torch.tanh(score.query_proj(query)[:, :, None] + score.key_proj(key)[:, None]) @ score.energy


def compare_pairs(batch: int, queries: int, keys: int) -> Comparison:
    """The pairs alone: the scores of projected queries and keys."""
    torch.manual_seed(0)
    score = Additive(DIM, DIM, HIDDEN)
    a, b = (torch.randn(batch, n, HIDDEN, requires_grad=True) for n in (queries, keys))
    return Comparison(
        Workload(lambda: score.pairwise(a, b), [a, b, score.energy]),
        Workload(lambda: torch.tanh(a[:, :, None] + b[:, None]) @ score.energy, [a, b, score.energy]),
    )


def compare_scores(batch: int, queries: int, keys: int) -> Comparison:
    """The scores, projections included."""
    torch.manual_seed(0)
    score = Additive(DIM, DIM, HIDDEN)
    q, k = (torch.randn(batch, n, DIM, requires_grad=True) for n in (queries, keys))
    leaves = [q, k, *score.parameters()]
    return Comparison(Workload(lambda: score(q, k), leaves), Workload(lambda: textbook(score, q, k), leaves))


def compare_attention(batch: int, queries: int, keys: int) -> Comparison:
    """Scores, softmax and context, projections included."""
    torch.manual_seed(0)
    score = Additive(DIM, DIM, HIDDEN)
    q, k, v = (torch.randn(batch, n, DIM, requires_grad=True) for n in (queries, keys, keys))
    leaves = [q, k, v, *score.parameters()]
    return Comparison(
        Workload(lambda: attend(q, k, v, score=score).context, leaves),
        Workload(lambda: torch.softmax(textbook(score, q, k), -1) @ v, leaves),
    )


GROUP, COMPILED, EAGER = "Additive", "textbook", "textbook (no compiler)"
SMALL_SIZE, MIDDLE_SIZE, LARGE_SIZE = (64, 30, 30), (16, 128, 128), (4, 512, 512)
SMALLEST_COMPILED = (4, 64, 64)  # just enough work for the compiled kernels


BUILDERS = {"attend": compare_attention, "score": compare_scores, "pairs": compare_pairs}


def case(name: str, size: tuple[int, int, int], times: float | None = None, compiled: bool = True) -> Case:
    """``attend`` is the equation with its projections, ``score`` its first line, ``pairs`` the sum alone."""
    passes: tuple[str, ...] = (FORWARD, TRAIN) if compiled else (TRAIN,)
    targets = {TRAIN: times_less(times)} if times else {}
    if name == "attend" and size == LARGE_SIZE:
        passes, targets = (*passes, MEMORY), {**targets, MEMORY: times_less(20)}
    slow = (FORWARD,) if compiled and name == "attend" else passes if size != SMALL_SIZE else ()
    return Case(
        GROUP,
        f"{name}, {'x'.join(map(str, size))}, hidden {HIDDEN}",
        COMPILED if compiled else EAGER,
        partial(BUILDERS[name], *size),
        passes,
        targets,
        small=partial(BUILDERS[name], *SMALLEST_COMPILED),
        compiled=compiled,
        slow=slow,
    )


FIRST_USE = case("attend", SMALL_SIZE, 7)
CASES: list[Case | Growth] = [
    FIRST_USE,
    case("attend", MIDDLE_SIZE),
    case("attend", LARGE_SIZE, 15),
    case("score", SMALL_SIZE),
    case("score", MIDDLE_SIZE),
    case("pairs", SMALL_SIZE, 7),
    case("pairs", MIDDLE_SIZE),
    case("pairs", LARGE_SIZE, 15),
    *(case("attend", size, 1.5, compiled=False) for size in (SMALL_SIZE, MIDDLE_SIZE, LARGE_SIZE)),
]
