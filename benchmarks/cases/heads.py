"""MultiHead compared with the modules of PyTorch and x-transformers; the weights are not read."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from x_transformers.x_transformers import Attention

from benchmarks.case import FORWARD, TRAIN, Case, Comparison, Growth, Workload, at_most
from regard.attention import MultiHead

BATCH, TOKENS, DIM, HEADS = 32, 128, 512, 8


def pytorch(train: bool) -> Comparison:
    """In eval mode without gradients PyTorch uses a path in C++."""
    torch.manual_seed(0)
    theirs = nn.MultiheadAttention(DIM, HEADS, batch_first=True).train(train)
    ours = MultiHead.from_torch(theirs)
    x = torch.randn(BATCH, TOKENS, DIM, requires_grad=train)
    return Comparison(
        Workload(lambda: ours(x).context, [x, *ours.parameters()]),
        Workload(lambda: theirs(x, x, x, need_weights=False)[0], [x, *theirs.parameters()]),
    )


def x_transformers(train: bool) -> Comparison:
    """Its fused path; its projections have no bias, so neither have ours."""
    torch.manual_seed(0)
    theirs = Attention(dim=DIM, heads=HEADS, dim_head=DIM // HEADS, flash=True).train(train)
    ours = MultiHead(DIM, HEADS, bias=False).train(train)
    layers = ((ours.q_proj, theirs.to_q), (ours.k_proj, theirs.to_k), (ours.v_proj, theirs.to_v))
    with torch.no_grad():
        for layer, other in (*layers, (ours.out_proj, theirs.to_out)):
            layer.weight.copy_(other.weight)
    x = torch.randn(BATCH, TOKENS, DIM, requires_grad=train)
    return Comparison(
        Workload(lambda: ours(x).context, [x, *ours.parameters()]),
        Workload(lambda: theirs(x), [x, *theirs.parameters()]),
    )


GROUP, SIZE, LIMIT = "MultiHead", f"{BATCH}x{TOKENS}x{DIM}, {HEADS} heads", at_most(1.05)
CASES: list[Case | Growth] = [
    Case(GROUP, f"{SIZE}, eval", "nn.MultiheadAttention", partial(pytorch, False), (FORWARD,), {FORWARD: LIMIT}),
    Case(GROUP, f"{SIZE}, train", "nn.MultiheadAttention", partial(pytorch, True), (TRAIN,), {TRAIN: LIMIT}),
    Case(GROUP, f"{SIZE}, eval", "x-transformers (flash)", partial(x_transformers, False), (FORWARD,)),
    Case(GROUP, f"{SIZE}, train", "x-transformers (flash)", partial(x_transformers, True), (TRAIN,)),
]
