"""The other scores compared with their textbook formulas."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.case import FORWARD, MEMORY, TRAIN, Case, Comparison, Growth, Targets, Workload, times_less
from regard.attention import Bilinear, Constant, Cosine, Gaussian, Score, attend

KEYS, DIM = 1024, 64
Formula = Callable[[Tensor, Tensor], Tensor]


def compare(score: Score, formula: Formula, batch: int, keys: int = KEYS, offset: float = 0.0) -> Comparison:
    """attend with the score compared with softmax(formula) @ value."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(batch, keys, DIM) for _ in range(3))
    if offset:
        q, k = (offset + torch.rand(batch, keys, DIM) - 0.5 for _ in range(2))
    leaves = [t.requires_grad_() for t in (q, k, v)] + list(score.parameters())
    return Comparison(
        Workload(lambda: attend(q, k, v, score=score).context, leaves),
        Workload(lambda: torch.softmax(formula(q, k), -1) @ v, leaves),
    )


def squares(width: float, q: Tensor, k: Tensor) -> Tensor:
    """The Gaussian by broadcasting."""
    return -0.5 * ((q[..., :, None, :] - k[..., None, :, :]) / width).square().sum(-1)


def expanded(width: float, q: Tensor, k: Tensor) -> Tensor:
    """The Gaussian by |q|^2 - 2 q.k + |k|^2 without centering, which is inaccurate far from the origin."""
    norms = q.square().sum(-1)[..., :, None] + k.square().sum(-1)[..., None, :]
    return -0.5 * (norms - 2 * q @ k.mT) / width**2


def gaussian(width: float, offset: float = 0.0, keys: int = KEYS) -> Comparison:
    return compare(Gaussian(width), partial(squares, width), 1, keys, offset)


def cosine(formula: Formula, batch: int) -> Comparison:
    return compare(Cosine(), formula, batch)


def bilinear() -> Comparison:
    score = Bilinear(DIM, DIM)
    (weight,) = score.parameters()
    return compare(score, lambda q, k: torch.einsum("bqi,ij,bkj->bqk", q, weight, k), 8)


def constant() -> Comparison:
    torch.manual_seed(0)
    q, k, v = (torch.randn(8, KEYS, DIM, requires_grad=True) for _ in range(3))
    return Comparison(
        Workload(lambda: attend(q, k, v, score=Constant()).context, [v]),
        Workload(lambda: v.mean(-2, keepdim=True).expand_as(v), [v]),
    )


def directions(q: Tensor, k: Tensor) -> Tensor:
    return F.normalize(q, dim=-1) @ F.normalize(k, dim=-1).mT


def angles(q: Tensor, k: Tensor) -> Tensor:
    return F.cosine_similarity(q[:, :, None], k[:, None], dim=-1)


def gaussian_errors(features: int) -> tuple[float, float]:
    """The largest error at x = 1000 +- 0.5, width 0.1: ours, and that of the plain expansion."""
    torch.manual_seed(0)
    q, k = (1000 + torch.rand(KEYS, features) - 0.5 for _ in range(2))
    v, width = torch.randn(KEYS, DIM), 0.1
    exact = torch.stack([torch.softmax(squares(width, row[None], k.double()), -1)[0] for row in q.double()])
    oracle = exact @ v.double()
    ours = attend(q, k, v, score=Gaussian(width)).context
    naive = torch.softmax(expanded(width, q, k), -1) @ v
    return float((ours - oracle).abs().max()), float((naive - oracle).abs().max())


GROUP, BOTH = "scores", (FORWARD, TRAIN)
THREE: Targets = {FORWARD: times_less(3), TRAIN: times_less(3)}
SIZE = f"{KEYS} keys, {DIM} features"
CASES: list[Case | Growth] = [
    Case(
        GROUP,
        f"Gaussian, {SIZE}",
        "broadcast",
        partial(gaussian, 8.0),
        (*BOTH, MEMORY),
        THREE,
        small=partial(gaussian, 8.0, keys=64),
        slow=(MEMORY,),
    ),
    Case(
        GROUP,
        f"Gaussian at 1000 +- 0.5, width 0.1, {SIZE}",
        "broadcast",
        partial(gaussian, 0.1, 1000.0),
        BOTH,
        THREE,
        tolerance=1e-3,
        slow=(TRAIN,),
    ),
    Case(GROUP, f"Cosine, 8x{SIZE}", "normalize and matmul", partial(cosine, directions, 8), BOTH),
    Case(GROUP, f"Cosine, 1x{SIZE}", "F.cosine_similarity", partial(cosine, angles, 1), BOTH, slow=(TRAIN,)),
    Case(GROUP, f"Bilinear, 8x{SIZE}", "einsum", bilinear, BOTH),
    Case(GROUP, f"Constant, 8x{SIZE}", "mean", constant, BOTH),
]
