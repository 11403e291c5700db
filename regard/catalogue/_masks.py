"""The masks in the catalogue.

In each line `a` is the module `regard.attention`, imported when the example is built; the costs are for m
queries, n keys, vectors of size d and a hidden layer of size h.
"""

from __future__ import annotations

from regard.catalogue._entry import BY_POSITION, Entry
from regard.catalogue._things import torch

MASKS = (
    Entry(
        "padding",
        "mask",
        zh="每个序列只有前若干个键是真的，后面是填充。",
        cost="n comparisons",
        fast="One row for all queries; never a queries x keys matrix.",
        aliases=("lengths",),
        exceptions=BY_POSITION,
        build=lambda a: a.padding(12),
    ),
    Entry(
        "causal",
        "mask",
        zh="只能看到自己以及之前的键。",
        cost="half of the full matrix",
        fast="The fused kernel skips what is hidden; one cached query needs no mask at all.",
        aliases=("autoregressive", "masked", "future"),
        exceptions=BY_POSITION,
        build=lambda a: a.causal(),
    ),
    Entry(
        "window",
        "mask",
        zh="只能看到自己位置附近的键。",
        cost="n (left + right + 1) scores",
        fast="Blocks of queries with their stretch of keys: linear in length.",
        aliases=("sliding window", "band"),
        exceptions=BY_POSITION,
        build=lambda a: a.window(2, 2),
    ),
    Entry(
        "around",
        "mask",
        zh="只能看到各自中心附近的键。",
        cost="m (2 radius + 2) scores",
        fast="Only the near keys are gathered; cost does not grow with the number of keys.",
        exceptions=BY_POSITION,
        build=lambda a: a.around(8.0, 3),
    ),
    Entry(
        "documents",
        "mask",
        zh="几篇文档拼成一个序列时，只看自己那一篇。",
        cost="m n comparisons",
        fast="Asked block by block where the whole would be large.",
        aliases=("packed", "packing"),
        exceptions=BY_POSITION,
        build=lambda a: a.documents(torch().arange(16) // 6),
    ),
    Entry(
        "dense",
        "mask",
        zh="由布尔张量给出：为真处可以看。",
        cost="m n bits",
        fast="Given to the fused kernel as it is.",
        aliases=("bool",),
        build=lambda a: a.dense(torch().arange(16) % 3 != 1),
    ),
)
