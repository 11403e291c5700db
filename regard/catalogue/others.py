"""The masks, local attention, multi-head attention, positions and memory addressing of the catalogue.

In each entry `a` is the module `regard.attention`; it and torch are imported when the example is made. The costs are
for m queries, n keys and vectors of size d.
"""

from __future__ import annotations

from functools import partial

from regard.catalogue.mechanism import POSITIONAL, Argument, Mechanism, fixed_focus, half_circle, similarity_weights

__all__ = ["ADDRESSING", "HEADS", "MASKS", "POSITIONS", "SCOPES"]

mask = partial(Mechanism, kind="mask", law_exceptions=POSITIONAL)
scope = partial(Mechanism, kind="scope", cost="m (2 radius + 2) scores", law_exceptions=POSITIONAL)
position = partial(Mechanism, kind="position", law_exceptions=POSITIONAL)
addressing = partial(Mechanism, kind="addressing")

MASKS = (
    mask(
        "padding",
        arguments=(Argument("length", 4, 0, 64, step=1),),
        cost="n comparisons",
        fast_path="One row for all queries; never a queries x keys matrix.",
        aliases=("lengths",),
        example_factory=lambda a, torch: a.padding(12),
    ),
    mask(
        "prefix",
        cost="m n comparisons",
        fast_path="Evaluated block by block where the full mask would be large.",
        aliases=("lengths of each query", "cumulative"),
        example_factory=lambda a, torch: a.prefix(torch.arange(16)),
    ),
    mask(
        "causal",
        cost="half of the full matrix",
        fast_path="The fused kernel skips hidden keys; a single query with a cache needs no mask.",
        aliases=("autoregressive", "masked", "future"),
        example_factory=lambda a, torch: a.causal(),
    ),
    mask(
        "window",
        arguments=(Argument("left", 1, 0, 16, step=1), Argument("right", 1, 0, 16, step=1)),
        cost="n (left + right + 1) scores",
        fast_path="Blocks of queries with their keys: linear in length.",
        aliases=("sliding window", "band"),
        example_factory=lambda a, torch: a.window(2, 2),
    ),
    mask(
        "around",
        arguments=(Argument("center", 2.0, 0.0, 16.0, step=0.5), Argument("radius", 1.0, 0.0, 16.0, step=0.5)),
        cost="m (2 radius + 2) scores",
        fast_path="Only the near keys are gathered; cost does not grow with the number of keys.",
        example_factory=lambda a, torch: a.around(8.0, 3),
    ),
    mask(
        "documents",
        cost="m n comparisons",
        fast_path="Evaluated block by block where the full mask would be large.",
        aliases=("packed", "packing"),
        example_factory=lambda a, torch: a.documents(torch.arange(16) // 6),
    ),
    mask(
        "dense",
        cost="m n bits",
        fast_path="Passed to the fused kernel unchanged.",
        law_exceptions="",
        aliases=("bool",),
        example_factory=lambda a, torch: a.dense(torch.arange(16) % 3 != 1),
    ),
)


SCOPES = (
    scope(
        "LocalM",
        fast_path="Only the near keys are gathered.",
        aliases=("local-m", "monotonic"),
        example_factory=lambda a, torch: a.LocalM(a.ScaledDot(), radius=2),
    ),
    scope(
        "LocalP",
        fast_path="Only the near keys are gathered.",
        aliases=("local-p", "predictive"),
        law_exceptions=POSITIONAL + " The weights are not renormalized.",
    ),
)


HEADS = (
    Mechanism(
        "MultiHead",
        "heads",
        cost="4 projections of n d^2, and m n d multiplications",
        fast_path="That of its score; keys that a group of heads shares are not copied.",
        aliases=("multi-head", "grouped-query", "multi-query", "gqa", "mqa"),
    ),
)


POSITIONS = (
    position(
        "Sinusoidal",
        cost="n d sines",
        aliases=("positional encoding",),
        picture_factory=lambda a, torch: similarity_weights(a.Sinusoidal(embed_dim=16).encoding(16)),
    ),
    position(
        "Learned",
        cost="n d additions",
        aliases=("positional embedding",),
        picture_factory=lambda a, torch: similarity_weights(50 * a.Learned(max_positions=16, embed_dim=16).table),
    ),
    position(
        "Rotary",
        cost="(m + n) d multiplications",
        fast_path="Rotated once, then that of the wrapped score.",
        aliases=("rope",),
        picture_factory=lambda a, torch: a.attend(*[torch.ones(16, 8) * 2] * 3, score=a.Rotary(a.Dot())).weights,
    ),
    position(
        "Alibi",
        cost="m n additions a head",
        fast_path="A bias of the fused kernel; in a window only near the diagonal.",
        picture_factory=lambda a, torch: a.attend(*[torch.zeros(8, 16, 4)] * 3, score=a.Alibi(8)).weights,
    ),
    position(
        "RelativeBias",
        cost="m n additions a head",
        fast_path="A bias of the fused kernel, trained through it.",
        aliases=("t5",),
        picture_factory=lambda a, torch: a.attend(*[torch.zeros(1, 16, 4)] * 3, score=100 * a.RelativeBias(1)).weights,
    ),
)


ADDRESSING = (
    addressing(
        "content",
        cost="rows x width multiplications a head",
        fast_path="It is attend() with Cosine.",
        aliases=("content addressing", "ntm", "neural turing machine"),
        picture_factory=lambda a, torch: a.addressing.content(half_circle(8), half_circle(16), 8 * torch.ones(8)),
    ),
    addressing(
        "interpolate",
        cost="one multiply-add a weight",
        aliases=("gate",),
        law_exceptions=POSITIONAL,
        picture_factory=lambda a, torch: a.addressing.interpolate(
            fixed_focus(16, 2), fixed_focus(16, 11), torch.linspace(0, 1, 16)
        ),
    ),
    addressing(
        "shift",
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
        cost="one logarithm and one exponential a weight",
        fast_path="In log space, which avoids 0 / 0.",
        picture_factory=lambda a, torch: a.addressing.sharpen(
            a.addressing.content(half_circle(16)[:1], half_circle(16), torch.ones(1)).expand(8, 16),
            torch.linspace(1, 20, 8),
        ),
    ),
    addressing(
        "read",
        cost="rows x width multiplications a head",
        fast_path="One matrix product.",
        law_exceptions="Its picture shows the vectors that are read, not weights.",
        picture_factory=lambda a, torch: a.addressing.read(torch.eye(8, 16), half_circle(16).softmax(-1)),
    ),
    addressing(
        "write",
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
