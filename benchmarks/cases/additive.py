"""Additive beside the textbook, which makes the queries x keys x hidden tensor."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from benchmarks.case import FORWARD, MEMORY, TRAIN, Case, Growth, Pair, Side, times_less
from regard.attention import Additive, attend

DIM = HIDDEN = 256


def textbook(score: Additive, query: Tensor, key: Tensor) -> Tensor:
    """v . tanh(W q + U k) by broadcasting."""
    assert score.W is not None
    return torch.tanh(score.W(query)[:, :, None] + score.U(key)[:, None]) @ score.v


def scored(batch: int, queries: int, keys: int) -> Pair:
    """The scores alone."""
    torch.manual_seed(0)
    score = Additive(DIM, DIM, HIDDEN)
    q, k = torch.randn(batch, queries, DIM), torch.randn(batch, keys, DIM)
    leaves = [q.requires_grad_(), k.requires_grad_(), *score.parameters()]
    return Pair(Side(lambda: score(q, k), leaves), Side(lambda: textbook(score, q, k), leaves))


def attended(batch: int, queries: int, keys: int) -> Pair:
    """Scores, softmax, context; both from the same projections."""
    torch.manual_seed(0)
    score = Additive(DIM, DIM, HIDDEN)
    q, k, v = (torch.randn(batch, n, DIM, requires_grad=True) for n in (queries, keys, keys))
    leaves = [q, k, v, *score.parameters()]
    return Pair(
        Side(lambda: attend(q, k, v, score=score).context, leaves),
        Side(lambda: torch.softmax(textbook(score, q, k), -1) @ v, leaves),
    )


GROUP, COMPILED, EAGER = "Additive", "textbook", "textbook (no compiler)"
SMALL, MIDDLE, LARGE = (64, 30, 30), (16, 128, 128), (4, 512, 512)
SOME = (4, 64, 64)  # just enough work for the compiled kernels


def case(what: str, size: tuple[int, int, int], times: float | None = None, compiled: bool = True) -> Case:
    make = attended if what == "attend" else scored
    memory = size == LARGE and what == "attend"
    targets = {TRAIN: times_less(times)} if times else {}
    return Case(
        GROUP,
        f"{what}, {'x'.join(map(str, size))}, hidden {HIDDEN}",
        COMPILED if compiled else EAGER,
        partial(make, *size),
        ((FORWARD,) if compiled else ()) + (TRAIN,) + ((MEMORY,) if memory else ()),
        targets | ({MEMORY: times_less(20)} if memory else {}),
        small=partial(make, *SOME),
        compiled=compiled,
        slow=what == "score" and size != SMALL,
    )


FIRST_USE = case("attend", SMALL, 7)
CASES: list[Case | Growth] = [
    FIRST_USE,
    case("attend", MIDDLE),
    case("attend", LARGE, 15),
    case("score", SMALL),
    case("score", MIDDLE),
    case("score", LARGE),
    case("attend", SMALL, 1.5, compiled=False),
    case("attend", MIDDLE, 1.5, compiled=False),
    case("attend", LARGE, 1.5, compiled=False),
]
