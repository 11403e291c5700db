"""The scores in the catalogue.

In each line `a` is the module `regard.attention`, imported when the example is built; the costs are for m
queries, n keys, vectors of size d and a hidden layer of size h.
"""

from __future__ import annotations

from regard.catalogue._entry import BY_POSITION, Entry

FUSED = "one call of PyTorch's fused scaled_dot_product_attention"

SCORES = (
    Entry(
        "Constant",
        "score",
        zh="每个键一样好：注意力就是普通的平均。",
        cost="n d additions for all queries together",
        fast="The mean of the visible values; no queries x keys matrix is made.",
        aliases=("average", "mean", "average pooling"),
        build=lambda a: a.Constant(),
    ),
    Entry(
        "Dot",
        "score",
        zh="键在查询的方向上走了多远。",
        cost="m n d multiplications",
        fast=f"It is {FUSED} with scale 1.",
        aliases=("luong dot", "dot product"),
        build=lambda a: a.Dot(),
    ),
    Entry(
        "ScaledDot",
        "score",
        zh="点积除以维度的平方根，使其离散程度不随向量变长而增大。",
        cost="m n d multiplications",
        fast=f"It is {FUSED}.",
        aliases=("scaled dot product", "transformer", "vaswani"),
        build=lambda a: a.ScaledDot(),
    ),
    Entry(
        "Bilinear",
        "score",
        zh="先把其中一方旋转、拉伸，再作点积。",
        cost="m d^2 + m n d multiplications",
        fast=f"Each query is projected once, then {FUSED}.",
        aliases=("general", "luong general", "multiplicative"),
        build=lambda a: a.Bilinear(query_dim=4, key_dim=4),
    ),
    Entry(
        "Additive",
        "score",
        zh="由一个小网络判断键与查询有多相配。",
        cost="m n h tanh",
        fast="tanh(a + b) from exponentials computed once a query and once a key: one multiply-add and one division "
        "a pair.",
        aliases=("bahdanau", "mlp", "hierarchical", "han"),
        build=lambda a: a.Additive(query_dim=4, key_dim=4, hidden_dim=8),
    ),
    Entry(
        "Concat",
        "score",
        zh="把键与查询拼在一起，由一个网络来判断。",
        cost="m n h tanh, and m n h^2 multiplications for each layer beyond the first",
        fast="At depth 1 that of Additive; deeper ones go pair by pair.",
        aliases=("luong concat",),
        build=lambda a: a.Concat(query_dim=4, key_dim=4, hidden_dim=8),
    ),
    Entry(
        "Cosine",
        "score",
        zh="查询与键夹角的余弦，乘以强度。",
        cost="m n d multiplications",
        fast=f"Queries and keys are brought to length one, then {FUSED}.",
        aliases=("cosine similarity",),
        build=lambda a: a.Cosine(strength=8.0),
    ),
    Entry(
        "Gaussian",
        "score",
        zh="键越近越好；与 softmax 合用就是 Nadaraya-Watson 核回归。",
        cost="m n d multiplications",
        fast="-|q - k|^2 / 2 as a dot product of centred vectors, in float64 where they spread far, fused.",
        aliases=("nadaraya-watson", "kernel regression", "rbf"),
        build=lambda a: a.Gaussian(width=1.0),
    ),
    Entry(
        "Boxcar",
        "score",
        zh="够得着的键一视同仁，其余的完全不算。",
        cost="m n d multiplications",
        fast="None needed: distances, one comparison, one product with the values.",
        aliases=("uniform kernel",),
        exceptions="Gives kernel values, so it goes with kernel_sum only; its gradient is 0.",
        build=lambda a: a.Boxcar(width=2.0),
    ),
    Entry(
        "Epanechnikov",
        "score",
        zh="键越远分量越轻，超出宽度就完全不算。",
        cost="m n d multiplications",
        fast="None needed: distances, one product with the values.",
        aliases=("parabolic kernel",),
        exceptions="Gives kernel values, so it goes with kernel_sum only.",
        build=lambda a: a.Epanechnikov(width=3.0),
    ),
    Entry(
        "Location",
        "score",
        zh="只由查询说出想看哪些位置，不看键。",
        cost="m n d multiplications",
        fast="One linear layer.",
        aliases=("luong location",),
        exceptions=BY_POSITION + " Keys beyond max_keys are hidden.",
        build=lambda a: a.Location(query_dim=4, max_keys=64),
    ),
    Entry(
        "Energy",
        "score",
        zh="双线性能量，查询与键（各与其上下文相连）越相配越低。",
        cost="m d^2 + m n d multiplications",
        fast=f"Each query is projected once, then {FUSED}.",
        aliases=("position attention",),
        build=lambda a: a.Energy(query_dim=4, key_dim=4),
    ),
)
