"""Builders of every normalizer by name, and scores for them."""

import math

import pytest
import torch

from regard.attention import (
    Dropout,
    Entmax,
    GaussianWindow,
    Gumbel,
    Sample,
    SigmoidSum,
    StraightThrough,
    Temperature,
    TopK,
    entmax15,
    hardmax,
    kernel_sum,
    masked_normalizer,
    sigmoid,
    softmax,
    sparsemax,
)

INF = math.inf


def stable_name(normalize: object) -> str:
    """A name for a test that is the same in every process."""
    return getattr(normalize, "__name__", str(normalize))


@masked_normalizer
def _nan_at_hidden_keys(scores):
    """A function with NaN values and NaN gradients at hidden keys."""
    return scores * torch.sigmoid(scores)


SMOOTH = {
    "softmax": lambda: softmax,
    "sigmoid": lambda: sigmoid,
    "sparsemax": lambda: sparsemax,
    "entmax15": lambda: entmax15,
    "temperature": lambda: Temperature(0.7),
    "sigmoid_sum": lambda: SigmoidSum(),
    "entmax_1": lambda: Entmax(1),
    "entmax_1.3": lambda: Entmax(1.3),
    "entmax_3": lambda: Entmax(3.0),
    "gumbel_eval": lambda: Gumbel(0.5).eval(),
    "topk": lambda: TopK(3),
    "bell": lambda: GaussianWindow(softmax, 1.5, 2.0),
    "foreign": lambda: _nan_at_hidden_keys,
}
HARD = {
    "hardmax": lambda: hardmax,
    "sample_eval": lambda: Sample().eval(),
    "straight_softmax": lambda: StraightThrough(softmax),
    "straight_hardmax": lambda: StraightThrough(hardmax),
    "straight_sparsemax": lambda: StraightThrough(sparsemax),
}
RANDOM = {
    "sample": lambda: Sample(),
    "gumbel": lambda: Gumbel(0.5),
    "dropout": lambda: Dropout(softmax, 0.5),
    "straight_sample": lambda: StraightThrough(Sample()),
    "straight_gumbel": lambda: StraightThrough(Gumbel()),
}
KERNEL = {"kernel_sum": lambda: kernel_sum, "bell_kernel": lambda: GaussianWindow(kernel_sum, 1.5, 2.0)}
ALL = SMOOTH | HARD | RANDOM | KERNEL
SUMS_TO_ONE = [
    *(SMOOTH.keys() - {"sigmoid", "bell", "foreign"}),
    *HARD,
    "sample",
    "gumbel",
    "straight_sample",
    "straight_gumbel",
    "kernel_sum",
]

every = pytest.mark.parametrize("name", ALL)


def scores_for(name, *shape, dtype=torch.float32):
    """Scores with some keys hidden, and all of them in the last row."""
    scores = torch.randn(*shape, dtype=dtype)
    if name in KERNEL:
        scores = scores.abs() + 0.1
    scores[torch.rand(shape) < 0.3] = -INF
    scores[..., -1, :] = -INF
    scores[..., 0, 0] = 0.5
    return scores
