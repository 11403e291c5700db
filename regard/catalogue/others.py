"""The masks, local attention, multi-head attention, positions and memory addressing of the catalogue.

In each entry `a` is the module `regard.attention`, imported when the example is made; the costs are for m queries, n
keys and vectors of size d.
"""

from __future__ import annotations

from functools import partial

from regard.catalogue.mechanism import POSITIONAL, Mechanism, fixed_focus, half_circle, import_torch, similarity_weights

__all__ = ["ADDRESSING", "HEADS", "MASKS", "POSITIONS", "SCOPES"]

mask = partial(Mechanism, kind="mask", law_exceptions=POSITIONAL)
scope = partial(Mechanism, kind="scope", cost="m (2 radius + 2) scores", law_exceptions=POSITIONAL)
position = partial(Mechanism, kind="position", law_exceptions=POSITIONAL)
addressing = partial(Mechanism, kind="addressing")

MASKS = (
    mask(
        "padding",
        summary_zh="每个序列的前若干个键有效，其余为填充。",
        cost="n comparisons",
        fast_path="One row for all queries; never a queries x keys matrix.",
        aliases=("lengths",),
        example_factory=lambda a: a.padding(12),
    ),
    mask(
        "causal",
        summary_zh="每个查询只关注自身位置及之前的键。",
        cost="half of the full matrix",
        fast_path="The fused kernel skips hidden keys; a single query with a cache needs no mask.",
        aliases=("autoregressive", "masked", "future"),
        example_factory=lambda a: a.causal(),
    ),
    mask(
        "window",
        summary_zh="每个查询只关注自身位置附近的键。",
        cost="n (left + right + 1) scores",
        fast_path="Blocks of queries with their keys: linear in length.",
        aliases=("sliding window", "band"),
        example_factory=lambda a: a.window(2, 2),
    ),
    mask(
        "around",
        summary_zh="每个查询只关注各自中心附近的键。",
        cost="m (2 radius + 2) scores",
        fast_path="Only the near keys are gathered; cost does not grow with the number of keys.",
        example_factory=lambda a: a.around(8.0, 3),
    ),
    mask(
        "documents",
        summary_zh="多篇文档拼接为一个序列时，查询只关注同一篇文档的键。",
        cost="m n comparisons",
        fast_path="Evaluated block by block where the full mask would be large.",
        aliases=("packed", "packing"),
        example_factory=lambda a: a.documents(import_torch().arange(16) // 6),
    ),
    mask(
        "dense",
        summary_zh="由布尔张量给出的掩码，True 表示键可见。",
        cost="m n bits",
        fast_path="Passed to the fused kernel unchanged.",
        law_exceptions="",
        aliases=("bool",),
        example_factory=lambda a: a.dense(import_torch().arange(16) % 3 != 1),
    ),
)


SCOPES = (
    scope(
        "LocalM",
        summary_zh="只关注查询自身位置附近的键，假设两个序列按位置对齐。",
        fast_path="Only the near keys are gathered.",
        aliases=("local-m", "monotonic"),
        example_factory=lambda a: a.LocalM(a.ScaledDot(), radius=2),
    ),
    scope(
        "LocalP",
        summary_zh="由查询预测一个位置，关注其附近的键，权重随距离减小。",
        fast_path="Only the near keys are gathered.",
        aliases=("local-p", "predictive"),
        law_exceptions=POSITIONAL + " The weights are not renormalized.",
    ),
)


HEADS = (
    Mechanism(
        "MultiHead",
        "heads",
        summary_zh="多头注意力：投影，分成多个头，分别计算注意力，拼接后再投影。",
        cost="4 projections of n d^2, and m n d multiplications",
        fast_path="That of its score; keys that a group of heads shares are not copied.",
        aliases=("multi-head", "grouped-query", "multi-query", "gqa", "mqa"),
    ),
)


POSITIONS = (
    position(
        "Sinusoidal",
        summary_zh="为每个位置加上不同频率的正弦和余弦。",
        cost="n d sines",
        aliases=("positional encoding",),
        picture_factory=lambda a, torch: similarity_weights(a.Sinusoidal(embed_dim=16).encoding(16)),
    ),
    position(
        "Learned",
        summary_zh="为每个位置加上一个可学习的向量。",
        cost="n d additions",
        aliases=("positional embedding",),
        picture_factory=lambda a, torch: similarity_weights(50 * a.Learned(max_positions=16, embed_dim=16).table),
    ),
    position(
        "Rotary",
        summary_zh="按位置旋转查询与键，使得分取决于二者的距离。",
        cost="(m + n) d multiplications",
        fast_path="Rotated once, then that of the wrapped score.",
        aliases=("rope",),
        picture_factory=lambda a, torch: a.attend(*[torch.ones(16, 8) * 2] * 3, score=a.Rotary(a.Dot())).weights,
    ),
    position(
        "Alibi",
        summary_zh="对距离的线性惩罚，每个头有各自的斜率。",
        cost="m n additions a head",
        fast_path="A bias of the fused kernel; in a window only near the diagonal.",
        picture_factory=lambda a, torch: a.attend(*[torch.zeros(8, 16, 4)] * 3, score=a.Alibi(8)).weights,
    ),
    position(
        "RelativeBias",
        summary_zh="为每个头和每段距离学习一个偏置，近处逐一区分，远处合并。",
        cost="m n additions a head",
        fast_path="A bias of the fused kernel, trained through it.",
        aliases=("t5",),
        picture_factory=lambda a, torch: a.attend(*[torch.zeros(1, 16, 4)] * 3, score=100 * a.RelativeBias(1)).weights,
    ),
)


ADDRESSING = (
    addressing(
        "content",
        summary_zh="内容寻址：按与键的相似度给出存储行的权重。",
        cost="rows x width multiplications a head",
        fast_path="It is attend() with Cosine.",
        aliases=("content addressing", "ntm", "neural turing machine"),
        picture_factory=lambda a, torch: a.addressing.content(half_circle(8), half_circle(16), 8 * torch.ones(8)),
    ),
    addressing(
        "interpolate",
        summary_zh="按门控值在新的权重与上一步的权重之间插值。",
        cost="one multiply-add a weight",
        aliases=("gate",),
        law_exceptions=POSITIONAL,
        picture_factory=lambda a, torch: a.addressing.interpolate(
            fixed_focus(16, 2), fixed_focus(16, 11), torch.linspace(0, 1, 16)
        ),
    ),
    addressing(
        "shift",
        summary_zh="按偏移的分布沿存储行循环移动权重。",
        cost="2 r + 1 multiplications a weight",
        fast_path="Rolled copies for few offsets, windows for many; whole batch at once.",
        aliases=("circular convolution",),
        law_exceptions=POSITIONAL,
        picture_factory=lambda a, torch: a.addressing.shift(
            torch.eye(8, 16), torch.tensor([0.1, 0.2, 0.7]).expand(8, 3)
        ),
    ),
    addressing(
        "sharpen",
        summary_zh="将移位后变模糊的权重重新锐化。",
        cost="one logarithm and one exponential a weight",
        fast_path="In log space, which avoids 0 / 0.",
        picture_factory=lambda a, torch: a.addressing.sharpen(
            a.addressing.content(half_circle(16)[:1], half_circle(16), torch.ones(1)).expand(8, 16),
            torch.linspace(1, 20, 8),
        ),
    ),
    addressing(
        "read",
        summary_zh="读出存储行的加权和。",
        cost="rows x width multiplications a head",
        fast_path="One matrix product.",
        law_exceptions="Its picture shows the vectors that are read, not weights.",
        picture_factory=lambda a, torch: a.addressing.read(torch.eye(8, 16), half_circle(16).softmax(-1)),
    ),
    addressing(
        "write",
        summary_zh="所有头先按权重擦除，再按权重写入。",
        cost="rows x width multiplications a head",
        fast_path="All erasures before all additions, for any number of heads.",
        aliases=("erase", "add"),
        law_exceptions="Its picture shows the memory after writing, not weights.",
        picture_factory=lambda a, torch: a.addressing.write(
            torch.full((8, 16), 0.5),
            torch.eye(1, 8) + torch.eye(1, 8).roll(4, -1),
            torch.ones(1, 16),
            torch.linspace(0, 1, 16)[None],
        ),
    ),
    addressing(
        "address",
        summary_zh="依次进行内容寻址、插值、移位和锐化，得到读写权重。",
        cost="that of its four steps",
        fast_path="That of its four steps.",
        aliases=("addressing",),
        law_exceptions=POSITIONAL,
        picture_factory=lambda a, torch: a.addressing.address(
            half_circle(8),
            8 * torch.ones(8),
            torch.ones(8),
            torch.tensor([0.0, 0.0, 1.0]).expand(8, 3),
            2 * torch.ones(8),
            half_circle(16),
            fixed_focus(16, 0)[:8],
        ),
    ),
)
