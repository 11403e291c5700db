"""ScaledDot through ``attend`` compared with the fused kernel of PyTorch: the overhead of the equation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.case import FORWARD, OVERHEAD, TRAIN, Case, Comparison, Growth, Workload, at_most
from regard.attention import attend, causal, padding

SDPA = F.scaled_dot_product_attention
GROUP = "ScaledDot"


def tensors(batch: int, heads: int, queries: int, keys: int, dim: int = 64) -> list[Tensor]:
    torch.manual_seed(0)
    sizes = (queries, keys, keys)
    return [torch.randn(batch, heads, size, dim).requires_grad_() for size in sizes]


def plain(*shape: int) -> Comparison:
    q, k, v = leaves = tensors(*shape)
    return Comparison(Workload(lambda: attend(q, k, v).context, leaves), Workload(lambda: SDPA(q, k, v), leaves))


def masked_causal(*shape: int) -> Comparison:
    q, k, v = leaves = tensors(*shape)
    mask = causal()
    return Comparison(
        Workload(lambda: attend(q, k, v, mask).context, leaves), Workload(lambda: SDPA(q, k, v, is_causal=True), leaves)
    )


def padded(*shape: int) -> Comparison:
    q, k, v = leaves = tensors(*shape)
    batch, keys = shape[0], shape[3]
    lengths = torch.linspace(keys // 2, keys, batch).long()
    mask, output = padding(lengths), (torch.arange(keys) < lengths[:, None])[:, None, None]
    return Comparison(
        Workload(lambda: attend(q, k, v, mask).context, leaves), Workload(lambda: SDPA(q, k, v, output), leaves)
    )


def reading(theirs: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Comparison:
    """The weights are read, too, and discarded."""
    q, k, v = leaves = tensors(1, 8, 1024, 1024)

    def ours() -> Tensor:
        output = attend(q, k, v)
        _ = output.weights
        return output.context

    return Comparison(Workload(ours, leaves), Workload(lambda: theirs(q, k, v), leaves))


def textbook(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    weights = torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1)
    return weights @ v


LIMIT = {FORWARD: at_most(1.05), TRAIN: at_most(1.05)}
SHAPES = {"1x8x1024x64": (1, 8, 1024, 1024), "4x8x1024x64": (4, 8, 1024, 1024)}
CASES: list[Case | Growth] = []
for text, shape in SHAPES.items():
    CASES += [
        Case(GROUP, text, "SDPA", partial(plain, *shape), targets=LIMIT),
        Case(GROUP, f"{text}, causal", "SDPA is_causal", partial(masked_causal, *shape), targets=LIMIT),
        Case(GROUP, f"{text}, padding", "SDPA bool mask", partial(padded, *shape), targets=LIMIT),
    ]
CASES += [
    Case(GROUP, "one query, 1x8x1 over 1024", "SDPA", partial(plain, 1, 8, 1, 1024), (FORWARD, OVERHEAD)),
    Case(GROUP, "tiny, 1x1x4x4", "SDPA", partial(plain, 1, 1, 4, 4, 4), (FORWARD, OVERHEAD)),
    Case(GROUP, "tiny, causal", "SDPA is_causal", partial(masked_causal, 1, 1, 4, 4, 4), (FORWARD, OVERHEAD)),
    Case(GROUP, "tiny, padding", "SDPA bool mask", partial(padded, 2, 1, 4, 4, 4), (FORWARD, OVERHEAD)),
    Case(GROUP, "weights read, 1x8x1024x64", "SDPA without", partial(reading, SDPA), (FORWARD,)),
    Case(GROUP, "weights read, 1x8x1024x64", "textbook with", partial(reading, textbook), (FORWARD,)),
]
