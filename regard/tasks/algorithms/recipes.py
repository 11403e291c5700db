"""The algorithms of a Neural Turing Machine by name, with the settings that go with them."""

from __future__ import annotations

from functools import partial
from typing import Any

from regard.tasks.algorithms import task as algorithms
from regard.tasks.task import Recipe

algorithm_recipe = partial(Recipe, task=algorithms.AlgorithmTask())


DEFAULTS = {
    "monitor": "bits",
    "optimizer": "rmsprop",
    "lr": 3e-4,
    "beta2": 0.95,
    "momentum": 0.9,
    "eps": 1e-4,
    "schedule": "constant",
    "warmup_steps": 0,
    "steps": 5000,
    "validate_every": 250,
    "save_every": 250,
}


LONG_TRAINING = {"schedule": "cosine", "average_last": 5}  # a training that ends with small steps


LARGE_BATCHES = {"batch_size": 32}  # what is hard is rare


def feedforward_controller(hidden_dim: int, num_heads: int) -> dict[str, Any]:
    """The paper's best machines (table 1): without a state of its own, a machine has to use its memory."""
    heads_of_both = {"num_read_heads": num_heads, "num_write_heads": num_heads}
    return {"controller": "feedforward", "hidden_dim": hidden_dim, **heads_of_both}


RECIPES = (
    algorithm_recipe(
        "copy",
        "See vectors of bits and say them again (Neural Turing Machine).",
        "读一串比特向量，再原样说出来（神经图灵机）。",
        algorithms.copy,
        {
            **DEFAULTS,
            "memory_rows": 32,  # few: who walks the wrong way meets what was written, and learns not to
            "max_grad_norm": 0.05,  # a rare sequence moves the weights a little, and never throws away what was learned
        },
    ),
    algorithm_recipe(
        "repeat-copy",
        "See vectors and a number, and say them so often.",
        "读一串向量和一个数字，按该次数重复说出。",
        algorithms.repeat_copy,
        {**DEFAULTS, **LONG_TRAINING, **LARGE_BATCHES, "steps": 12_000, "max_size": 10},
    ),
    algorithm_recipe(
        "recall",
        "See items, then one of them again, and say the one that followed it.",
        "读若干项，再给出其中一项，说出它后面的那一项。",
        algorithms.recall,
        {
            **DEFAULTS,
            **LONG_TRAINING,
            **LARGE_BATCHES,  # items that begin alike
            **feedforward_controller(hidden_dim=256, num_heads=4),
            "steps": 8000,
            "min_size": 2,
            "max_size": 6,
            "num_bits": 6,
            "memory_rows": 64,
        },
    ),
    algorithm_recipe(
        "ngrams",
        "Foretell each bit of a source with a memory of five; the best possible guess is known.",
        "预测每一个比特，信号源依赖前五位；最优预测是已知的。",
        algorithms.ngrams,
        {
            **DEFAULTS,
            **LONG_TRAINING,
            "lr": 1e-3,
            "eps": 1e-5,
            "max_grad_norm": 0.05,
            "state_grad_clip": 10.0,  # as in the paper: over 200 steps a gradient may grow beyond all use
            "steps": 15_000,
            "min_size": 200,
            "max_size": 200,
            "num_bits": 1,
        },
    ),
    algorithm_recipe(
        "sort",
        "See vectors with priorities, and say them in that order.",
        "读带优先级的向量，按优先级顺序说出来。",
        algorithms.sort,
        {
            **DEFAULTS,
            **LONG_TRAINING,
            **LARGE_BATCHES,
            **feedforward_controller(hidden_dim=512, num_heads=8),
            "steps": 20_000,
            "min_size": 20,
            "max_size": 20,
        },
    ),
)
