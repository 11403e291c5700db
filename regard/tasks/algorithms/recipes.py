"""Recipes of the algorithms of Graves et al. (2014)."""

from __future__ import annotations

from functools import partial
from typing import Any

from regard.tasks.algorithms import task as algorithms
from regard.tasks.legacy import Recipe

__all__ = ["RECIPES"]

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


LONG_TRAINING = {"schedule": "cosine", "average_last": 5}


LARGE_BATCHES = {"batch_size": 32}  # difficult sequences are rare


def feedforward_controller(hidden_dim: int, num_heads: int) -> dict[str, Any]:
    """The best networks of table 1: without a recurrent state, the controller has to use the memory."""
    head_options = {"num_read_heads": num_heads, "num_write_heads": num_heads}
    return {"controller": "feedforward", "hidden_dim": hidden_dim, **head_options}


RECIPES = (
    algorithm_recipe(
        "copy",
        "Read vectors of bits and output them again (Neural Turing Machine).",
        "读入一串比特向量，再原样输出（神经图灵机）。",
        algorithms.copy,
        {
            **DEFAULTS,
            "memory_rows": 32,  # few rows: a head that moves the wrong way overwrites data and learns not to
            "max_grad_norm": 0.05,  # a rare sequence changes the weights only a little
        },
    ),
    algorithm_recipe(
        "repeat-copy",
        "Read vectors and a number n, and output the vectors n times.",
        "读入一串向量和一个数字，按该次数重复输出。",
        algorithms.repeat_copy,
        {**DEFAULTS, **LONG_TRAINING, **LARGE_BATCHES, "steps": 12_000, "max_size": 10},
    ),
    algorithm_recipe(
        "recall",
        "Read items, then one of them again, and output the item that followed it.",
        "读入若干项，再给出其中一项，输出它后面的那一项。",
        algorithms.recall,
        {
            **DEFAULTS,
            **LONG_TRAINING,
            **LARGE_BATCHES,
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
        "Predict each bit of a source that depends on its last five bits; the optimal prediction is known.",
        "预测信号源的每一个比特，它依赖前五个比特；最优预测已知。",
        algorithms.ngrams,
        {
            **DEFAULTS,
            **LONG_TRAINING,
            "lr": 1e-3,
            "eps": 1e-5,
            "max_grad_norm": 0.05,
            "state_grad_clip": 10.0,  # as in the paper: over 200 steps, gradients may explode
            "steps": 15_000,
            "min_size": 200,
            "max_size": 200,
            "num_bits": 1,
        },
    ),
    algorithm_recipe(
        "sort",
        "Read vectors with priorities and output them in that order.",
        "读入带优先级的向量，按优先级顺序输出。",
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
