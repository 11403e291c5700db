"""The algorithms of a Neural Turing Machine by name, with the settings that go with them."""

from __future__ import annotations

from functools import partial
from typing import Any

from regard.recipes._task import Recipe
from regard.recipes.machines import _task as algorithms

remembering = partial(Recipe, task=algorithms.Recalling())

BITS = {
    "watch": "bits",
    "optimizer": "rmsprop",
    "lr": 3e-4,
    "beta2": 0.95,
    "momentum": 0.9,
    "eps": 1e-4,
    "schedule": "constant",
    "warmup": 0,
    "steps": 5000,
    "validate_every": 250,
    "save_every": 250,
}
LONG = {"schedule": "cosine", "average": 5}  # a training that ends with small steps
RARE = {"batch": 32}  # what is hard is rare


def stateless(hidden_dim: int, heads: int) -> dict[str, Any]:
    """The paper's best machines (table 1): without a state of its own, a machine has to use its memory."""
    heads_of_both = {"read_heads": heads, "write_heads": heads}
    return {"controller": "feedforward", "hidden_dim": hidden_dim, **heads_of_both}


RECIPES = (
    remembering(
        "copy",
        "See vectors of bits and say them again (Neural Turing Machine).",
        "读一串比特向量，再原样说出来（神经图灵机）。",
        algorithms.copy,
        {
            **BITS,
            "rows": 32,  # few: who walks the wrong way meets what was written, and learns not to
            "clip": 0.05,  # a rare sequence moves the weights a little, and never throws away what was learned
        },
    ),
    remembering(
        "repeat-copy",
        "See vectors and a number, and say them so often.",
        "读一串向量和一个数字，按该次数重复说出。",
        algorithms.repeat_copy,
        {**BITS, **LONG, **RARE, "steps": 12_000, "longest": 10},
    ),
    remembering(
        "recall",
        "See items, then one of them again, and say the one that followed it.",
        "读若干项，再给出其中一项，说出它后面的那一项。",
        algorithms.recall,
        {
            **BITS,
            **LONG,
            **RARE,  # items that begin alike
            **stateless(hidden_dim=256, heads=4),
            "steps": 8000,
            "shortest": 2,
            "longest": 6,
            "bits": 6,
            "rows": 64,
        },
    ),
    remembering(
        "ngrams",
        "Foretell each bit of a source with a memory of five; the best possible guess is known.",
        "预测每一个比特，信号源依赖前五位；最优预测是已知的。",
        algorithms.ngrams,
        {
            **BITS,
            **LONG,
            "lr": 1e-3,
            "eps": 1e-5,
            "clip": 0.05,
            "state_clip": 10.0,  # as in the paper: over 200 steps a gradient may grow beyond all use
            "steps": 15_000,
            "shortest": 200,
            "longest": 200,
            "bits": 1,
        },
    ),
    remembering(
        "sort",
        "See vectors with priorities, and say them in that order.",
        "读带优先级的向量，按优先级顺序说出来。",
        algorithms.sort,
        {
            **BITS,
            **LONG,
            **RARE,
            **stateless(hidden_dim=512, heads=8),
            "steps": 20_000,
            "shortest": 20,
            "longest": 20,
        },
    ),
)
