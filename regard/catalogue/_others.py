"""Scopes, heads, positions and the addressing of a memory in the catalogue.

In each line `a` is the module `regard.attention`, imported when the example is built; the costs are for m
queries, n keys, vectors of size d and a hidden layer of size h.
"""

from __future__ import annotations

from regard.catalogue._entry import BY_POSITION, Entry
from regard.catalogue._things import alike, eye, spots, torch, walk

SCOPES = (
    Entry(
        "LocalM",
        "scope",
        zh="看查询自身位置周围的键，好像两个序列并排前进。",
        cost="m (2 radius + 2) scores",
        fast="Only the near keys are gathered.",
        aliases=("local-m", "monotonic"),
        exceptions=BY_POSITION,
        build=lambda a: a.LocalM(a.ScaledDot(), radius=2),
    ),
    Entry(
        "LocalP",
        "scope",
        zh="由查询预测一个位置，看它周围，越远越轻。",
        cost="m (2 radius + 2) scores",
        fast="Only the near keys are gathered.",
        aliases=("local-p", "predictive"),
        exceptions=BY_POSITION + " The weights are not renormalized.",
        build=lambda a: a.LocalP(a.ScaledDot(), query_dim=4, hidden_dim=8, radius=3),
    ),
)

HEADS = (
    Entry(
        "MultiHead",
        "heads",
        zh="几个注意力并排，各在自己的投影上。",
        cost="4 projections of n d^2, and m n d multiplications",
        fast="That of its score; keys shared by a group are read once.",
        aliases=("multi-head", "grouped-query", "multi-query", "gqa", "mqa"),
        build=lambda a: a.MultiHead(dim=4, heads=2),
    ),
)

POSITIONS = (
    Entry(
        "Sinusoidal",
        "position",
        zh="给每个位置加上不同频率的正弦和余弦。",
        cost="n d sines",
        fast="None needed.",
        aliases=("positional encoding",),
        exceptions=BY_POSITION,
        build=lambda a: a.Sinusoidal(dim=4),
        paint=lambda a: alike(a.Sinusoidal(dim=16).encoding(16)),
    ),
    Entry(
        "Learned",
        "position",
        zh="给每个位置加上一个学来的向量。",
        cost="n d additions",
        fast="None needed.",
        aliases=("positional embedding",),
        exceptions=BY_POSITION,
        build=lambda a: a.Learned(max_positions=64, dim=4),
        paint=lambda a: alike(50 * a.Learned(max_positions=16, dim=16).table),
    ),
    Entry(
        "Rotary",
        "position",
        zh="按位置旋转查询与键，得分只感到它们的距离。",
        cost="(m + n) d multiplications",
        fast="Turned once, then that of the score inside.",
        aliases=("rope",),
        exceptions=BY_POSITION,
        build=lambda a: a.Rotary(a.ScaledDot()),
        paint=lambda a: a.attend(*[torch().ones(16, 8) * 2] * 3, score=a.Rotary(a.Dot())).weights,
    ),
    Entry(
        "Alibi",
        "position",
        zh="越远的键分量越轻，每个头有自己的快慢。",
        cost="m n additions a head",
        fast="A bias of the fused kernel; in a window only near the diagonal.",
        exceptions=BY_POSITION,
        build=lambda a: a.Alibi(heads=2),
        paint=lambda a: a.attend(*[torch().zeros(8, 16, 4)] * 3, score=a.ScaledDot() + a.Alibi(8)).weights,
    ),
    Entry(
        "RelativeBias",
        "position",
        zh="为每个头、每段距离学一个数，近的分开，远的合并。",
        cost="m n additions a head",
        fast="A bias of the fused kernel, trained through it.",
        aliases=("t5",),
        exceptions=BY_POSITION,
        build=lambda a: a.RelativeBias(heads=2),
        paint=lambda a: (
            a.attend(*[torch().zeros(1, 16, 4)] * 3, score=a.ScaledDot() + 100 * a.RelativeBias(1)).weights
        ),
    ),
)

ADDRESSING = (
    Entry(
        "content",
        "addressing",
        zh="找与键相像的存储行；强度越大，越只找最像的。",
        cost="rows x width multiplications a head",
        fast="It is attend() with Cosine.",
        aliases=("content addressing", "ntm", "neural turing machine"),
        paint=lambda a: a.addressing.content(walk(8), walk(16), 8 * torch().ones(8)),
    ),
    Entry(
        "interpolate",
        "addressing",
        zh="把新的权重与上一步的权重按门混合。",
        cost="one multiply-add a weight",
        fast="None needed.",
        aliases=("gate",),
        exceptions=BY_POSITION,
        paint=lambda a: a.addressing.interpolate(spots(16, 2), spots(16, 11), torch().linspace(0, 1, 16)),
    ),
    Entry(
        "shift",
        "addressing",
        zh="把焦点沿存储行循环移动。",
        cost="2 r + 1 multiplications a weight",
        fast="Rolled copies for few offsets, windows for many; whole batch at once.",
        aliases=("circular convolution",),
        exceptions=BY_POSITION,
        paint=lambda a: a.addressing.shift(eye(8, 16), torch().tensor([0.1, 0.2, 0.7]).expand(8, 3)),
    ),
    Entry(
        "sharpen",
        "addressing",
        zh="把变模糊的权重重新聚拢。",
        cost="one logarithm and one exponential a weight",
        fast="In log space, so never 0 / 0.",
        paint=lambda a: a.addressing.sharpen(
            a.addressing.content(walk(16)[:1], walk(16), torch().ones(1)).expand(8, 16),
            torch().linspace(1, 20, 8),
        ),
    ),
    Entry(
        "read",
        "addressing",
        zh="按权重读出存储行之和。",
        cost="rows x width multiplications a head",
        fast="One matrix product.",
        exceptions="Its picture shows what was read, not weights.",
        paint=lambda a: a.addressing.read(eye(8, 16), walk(16).softmax(-1)),
    ),
    Entry(
        "write",
        "addressing",
        zh="先按权重擦除，再按权重添加。",
        cost="rows x width multiplications a head",
        fast="All erasures before all additions, whatever the number of heads.",
        aliases=("erase", "add"),
        exceptions="Its picture shows the memory after writing, not weights.",
        paint=lambda a: a.addressing.write(
            torch().full((8, 16), 0.5),
            eye(1, 8) + eye(1, 8).roll(4, -1),
            torch().ones(1, 16),
            torch().linspace(0, 1, 16)[None],
        ),
    ),
    Entry(
        "address",
        "addressing",
        zh="依次作内容寻址、插值、移位、聚拢，得到读写用的权重。",
        cost="that of its four steps",
        fast="That of its four steps.",
        aliases=("addressing",),
        exceptions=BY_POSITION,
        paint=lambda a: a.addressing.address(
            walk(8),
            8 * torch().ones(8),
            torch().ones(8),
            torch().tensor([0.0, 0.0, 1.0]).expand(8, 3),
            2 * torch().ones(8),
            walk(16),
            spots(16, 0)[:8],
        ),
    ),
)
