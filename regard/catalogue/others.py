"""The masks in the catalogue.

In each line `a` is the module `regard.attention`, imported when the example is built; the costs are for m
queries, n keys, vectors of size d and a hidden layer of size h.

Scopes, heads, positions and the addressing of a memory in the catalogue.

In each line `a` is the module `regard.attention`, imported when the example is built; the costs are for m
queries, n keys, vectors of size d and a hidden layer of size h.
"""

from __future__ import annotations

from regard.catalogue.mechanism import (
    POSITIONAL,
    Mechanism,
    eye,
    fixed_focus,
    half_circle,
    import_torch,
    similarity_weights,
)

MASKS = (
    Mechanism(
        "padding",
        "mask",
        summary_zh="每个序列只有前若干个键是真的，后面是填充。",
        cost="n comparisons",
        fast_path="One row for all queries; never a queries x keys matrix.",
        aliases=("lengths",),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.padding_ratio(12),
    ),
    Mechanism(
        "causal",
        "mask",
        summary_zh="只能看到自己以及之前的键。",
        cost="half of the full matrix",
        fast_path="The fused kernel skips what is hidden; one cached query needs no mask at all.",
        aliases=("autoregressive", "masked", "future"),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.causal(),
    ),
    Mechanism(
        "window",
        "mask",
        summary_zh="只能看到自己位置附近的键。",
        cost="n (left + right + 1) scores",
        fast_path="Blocks of queries with their stretch of keys: linear in length.",
        aliases=("sliding window", "band"),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.window(2, 2),
    ),
    Mechanism(
        "around",
        "mask",
        summary_zh="只能看到各自中心附近的键。",
        cost="m (2 radius + 2) scores",
        fast_path="Only the near keys are gathered; cost does not grow with the number of keys.",
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.around(8.0, 3),
    ),
    Mechanism(
        "documents",
        "mask",
        summary_zh="几篇文档拼成一个序列时，只看自己那一篇。",
        cost="m n comparisons",
        fast_path="Asked block by block where the whole would be large.",
        aliases=("packed", "packing"),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.documents(import_torch().arange(16) // 6),
    ),
    Mechanism(
        "dense",
        "mask",
        summary_zh="由布尔张量给出：为真处可以看。",
        cost="m n bits",
        fast_path="Given to the fused kernel as it is.",
        aliases=("bool",),
        example_factory=lambda a: a.dense(import_torch().arange(16) % 3 != 1),
    ),
)


SCOPES = (
    Mechanism(
        "LocalM",
        "scope",
        summary_zh="看查询自身位置周围的键，好像两个序列并排前进。",
        cost="m (2 radius + 2) scores",
        fast_path="Only the near keys are gathered.",
        aliases=("local-m", "monotonic"),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.LocalM(a.ScaledDot(), radius=2),
    ),
    Mechanism(
        "LocalP",
        "scope",
        summary_zh="由查询预测一个位置，看它周围，越远越轻。",
        cost="m (2 radius + 2) scores",
        fast_path="Only the near keys are gathered.",
        aliases=("local-p", "predictive"),
        law_exceptions=POSITIONAL + " The weights are not renormalized.",
        example_factory=lambda a: a.LocalP(a.ScaledDot(), query_dim=4, hidden_dim=8, radius=3),
    ),
)


HEADS = (
    Mechanism(
        "MultiHead",
        "heads",
        summary_zh="几个注意力并排，各在自己的投影上。",
        cost="4 projections of n d^2, and m n d multiplications",
        fast_path="That of its score; keys shared by a group are read once.",
        aliases=("multi-head", "grouped-query", "multi-query", "gqa", "mqa"),
        example_factory=lambda a: a.MultiHead(embed_dim=4, num_heads=2),
    ),
)


POSITIONS = (
    Mechanism(
        "Sinusoidal",
        "position",
        summary_zh="给每个位置加上不同频率的正弦和余弦。",
        cost="n d sines",
        fast_path="None needed.",
        aliases=("positional encoding",),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.Sinusoidal(embed_dim=4),
        picture_factory=lambda a: similarity_weights(a.Sinusoidal(embed_dim=16).encoding(16)),
    ),
    Mechanism(
        "Learned",
        "position",
        summary_zh="给每个位置加上一个学来的向量。",
        cost="n d additions",
        fast_path="None needed.",
        aliases=("positional embedding",),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.Learned(max_positions=64, embed_dim=4),
        picture_factory=lambda a: similarity_weights(50 * a.Learned(max_positions=16, embed_dim=16).table),
    ),
    Mechanism(
        "Rotary",
        "position",
        summary_zh="按位置旋转查询与键，得分只感到它们的距离。",
        cost="(m + n) d multiplications",
        fast_path="Turned once, then that of the score inside.",
        aliases=("rope",),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.Rotary(a.ScaledDot()),
        picture_factory=lambda a: (
            a.attend(*[import_torch().ones(16, 8) * 2] * 3, score=a.Rotary(a.Dot())).weights
        ),
    ),
    Mechanism(
        "Alibi",
        "position",
        summary_zh="越远的键分量越轻，每个头有自己的快慢。",
        cost="m n additions a head",
        fast_path="A bias of the fused kernel; in a window only near the diagonal.",
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.Alibi(num_heads=2),
        picture_factory=lambda a: (
            a.attend(*[import_torch().zeros(8, 16, 4)] * 3, score=a.ScaledDot() + a.Alibi(8)).weights
        ),
    ),
    Mechanism(
        "RelativeBias",
        "position",
        summary_zh="为每个头、每段距离学一个数，近的分开，远的合并。",
        cost="m n additions a head",
        fast_path="A bias of the fused kernel, trained through it.",
        aliases=("t5",),
        law_exceptions=POSITIONAL,
        example_factory=lambda a: a.RelativeBias(num_heads=2),
        picture_factory=lambda a: (
            a.attend(
                *[import_torch().zeros(1, 16, 4)] * 3, score=a.ScaledDot() + 100 * a.RelativeBias(1)
            ).weights
        ),
    ),
)


ADDRESSING = (
    Mechanism(
        "content",
        "addressing",
        summary_zh="找与键相像的存储行；强度越大，越只找最像的。",
        cost="rows x width multiplications a head",
        fast_path="It is attend() with Cosine.",
        aliases=("content addressing", "ntm", "neural turing machine"),
        picture_factory=lambda a: a.addressing.content(
            half_circle(8), half_circle(16), 8 * import_torch().ones(8)
        ),
    ),
    Mechanism(
        "interpolate",
        "addressing",
        summary_zh="把新的权重与上一步的权重按门混合。",
        cost="one multiply-add a weight",
        fast_path="None needed.",
        aliases=("gate",),
        law_exceptions=POSITIONAL,
        picture_factory=lambda a: a.addressing.interpolate(
            fixed_focus(16, 2), fixed_focus(16, 11), import_torch().linspace(0, 1, 16)
        ),
    ),
    Mechanism(
        "shift",
        "addressing",
        summary_zh="把焦点沿存储行循环移动。",
        cost="2 r + 1 multiplications a weight",
        fast_path="Rolled copies for few offsets, windows for many; whole batch at once.",
        aliases=("circular convolution",),
        law_exceptions=POSITIONAL,
        picture_factory=lambda a: a.addressing.max_shift(
            eye(8, 16), import_torch().tensor([0.1, 0.2, 0.7]).expand(8, 3)
        ),
    ),
    Mechanism(
        "sharpen",
        "addressing",
        summary_zh="把变模糊的权重重新聚拢。",
        cost="one logarithm and one exponential a weight",
        fast_path="In log space, so never 0 / 0.",
        picture_factory=lambda a: a.addressing.sharpen(
            a.addressing.content(half_circle(16)[:1], half_circle(16), import_torch().ones(1)).expand(8, 16),
            import_torch().linspace(1, 20, 8),
        ),
    ),
    Mechanism(
        "read",
        "addressing",
        summary_zh="按权重读出存储行之和。",
        cost="rows x width multiplications a head",
        fast_path="One matrix product.",
        law_exceptions="Its picture shows what was read, not weights.",
        picture_factory=lambda a: a.addressing.read(eye(8, 16), half_circle(16).softmax(-1)),
    ),
    Mechanism(
        "write",
        "addressing",
        summary_zh="先按权重擦除，再按权重添加。",
        cost="rows x width multiplications a head",
        fast_path="All erasures before all additions, whatever the number of heads.",
        aliases=("erase", "add"),
        law_exceptions="Its picture shows the memory after writing, not weights.",
        picture_factory=lambda a: a.addressing.write(
            import_torch().full((8, 16), 0.5),
            eye(1, 8) + eye(1, 8).roll(4, -1),
            import_torch().ones(1, 16),
            import_torch().linspace(0, 1, 16)[None],
        ),
    ),
    Mechanism(
        "address",
        "addressing",
        summary_zh="依次作内容寻址、插值、移位、聚拢，得到读写用的权重。",
        cost="that of its four steps",
        fast_path="That of its four steps.",
        aliases=("addressing",),
        law_exceptions=POSITIONAL,
        picture_factory=lambda a: a.addressing.address(
            half_circle(8),
            8 * import_torch().ones(8),
            import_torch().ones(8),
            import_torch().tensor([0.0, 0.0, 1.0]).expand(8, 3),
            2 * import_torch().ones(8),
            half_circle(16),
            fixed_focus(16, 0)[:8],
        ),
    ),
)
