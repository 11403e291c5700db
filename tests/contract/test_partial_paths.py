"""The laws on the paths that split the work: bands, gathered neighborhoods, blocks of queries.

The size limits of the paths are lowered, so that every pair runs on every path; tests/attention/test_paths.py tests
the paths at their own limits. These tests run without the shape checks, for speed.
"""

import pytest
import torch

from regard.attention import Additive, Alibi, around, attend, causal, dense, documents, padding, window
from regard.attention.fast import blocked as blocks
from regard.attention.fast import fused
from regard.testing import laws
from regard.testing.checks import make_inputs
from tests.contract.mechanisms import BATCH, NORMALIZERS, SCORES, matching_pairs
from tests.contract.test_grid import both_modes, build_attention

pytestmark = pytest.mark.bare
Q, K = 17, 18
SAMPLE = make_inputs(Q, K, BATCH)
PAIRS = sorted(
    {
        *matching_pairs(SCORES, ["softmax", "sparsemax", "kernel_sum"]),
        *matching_pairs(["ScaledDot", "Additive", "Boxcar"], NORMALIZERS),
    }
)
each_pair = pytest.mark.parametrize(("score", "normalize"), PAIRS, ids=[" x ".join(pair) for pair in PAIRS])


@pytest.fixture
def small_limits(monkeypatch):
    monkeypatch.setattr(blocks, "MIN_BLOCK_QUERIES", 4)
    monkeypatch.setattr(blocks, "MAX_SCORES", 16 * 6 * K + 4)  # four queries a block
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 0)


def holes(*shape):
    visible = torch.rand(*shape, generator=torch.Generator().manual_seed(5)) < 0.7
    visible[..., 1, :] = False
    return dense(visible)


LENGTHS = torch.tensor([K, 0, 7])
CENTERS = torch.linspace(-4, K + 4, 3 * Q).reshape(3, Q)
BANDS = {
    "window": window(2, 1),
    "window behind the keys": window(3, 0, offset=6),
    "window, padding, holes": window(1, 1) & padding(LENGTHS) & holes(3, 1, Q, K),
    "causal window of documents": causal() & window(3, 2) & documents(torch.arange(Q) // 5, torch.arange(K) // 5),
    "two windows, partly before the keys": window(0, 0, offset=-5) | window(1, 0, offset=-3),
}
NEIGHBORHOODS = {
    "around": around(CENTERS, 1.5),
    "around one position": around(4.25, 2),
    "around, causal, padding": causal() & around(CENTERS, 2) & padding(LENGTHS),
    "around, holes": holes(2, Q, K) & around(CENTERS[0], 3),
    "twice around": around(CENTERS, 3) & around(CENTERS[0] + 1, 2),
}
LONG = {
    "none": None,
    "causal and padding": causal() & padding(LENGTHS),
    "documents with holes": documents(torch.arange(Q) // 6, torch.arange(K) // 5) & holes(2, Q, K),
}


def check_laws(attention, mask):
    laws.hidden_keys_have_zero_weight(attention, SAMPLE, mask)
    laws.reading_weights_changes_nothing(attention, SAMPLE, mask)
    if not attention.is_dropout_active:
        laws.context_equals_weighted_sum(attention, SAMPLE, mask)


@each_pair
def test_bands(score, normalize, small_limits):
    for attention in both_modes(build_attention(score, normalize)):
        for mask in BANDS.values():
            check_laws(attention, mask)


@each_pair
def test_neighborhoods(score, normalize, small_limits):
    for attention in both_modes(build_attention(score, normalize)):
        for mask in NEIGHBORHOODS.values():
            check_laws(attention, mask)


@each_pair
def test_blocks(score, normalize, small_limits):
    for attention in both_modes(build_attention(score, normalize)):
        for mask in LONG.values():
            check_laws(attention, mask)


def scores_on_path(masks, normalize, used_paths, path):
    """The scores that are computed on the path for each of the masks."""
    names = set()
    for score in SCORES:
        attention = laws.AttentionUnderTest(SCORES[score](), normalize)
        per_mask = []
        for mask in masks:
            used_paths.clear()
            attention(*SAMPLE, mask)
            per_mask.append(path in used_paths)
        if all(per_mask):
            names.add(score)
    return names


FULL_ONLY = {  # scores that cannot be restricted to a part of the positions
    "Location",
    "Location, few keys",
    "a parameter * Location, few keys",
    "- Location, few keys",
    "SoftCap of Location, few keys",
    "a parameter for each head * ",
    "Rotary ScaledDot + RelativeBias",
    "a function",
}
BIASED = {name for name in SCORES if "Alibi" in name or "RelativeBias" in name}


def test_scores_that_use_bands(used_paths, small_limits):
    assert scores_on_path(BANDS.values(), None, used_paths, "banded") == SCORES.keys() - FULL_ONLY


def test_scores_that_use_neighborhoods(used_paths, small_limits):
    masks = [NEIGHBORHOODS["around one position"], around(CENTERS[0], 3) & padding(LENGTHS)]
    assert scores_on_path(masks, None, used_paths, "gathered") == SCORES.keys() - FULL_ONLY
    # With centers of its own for each batch entry a bias has no single table for all positions.
    assert scores_on_path(NEIGHBORHOODS.values(), None, used_paths, "gathered") == SCORES.keys() - FULL_ONLY - BIASED


def test_scores_that_use_blocks(used_paths, small_limits):
    every = scores_on_path([LONG["causal and padding"], LONG["documents with holes"]], None, used_paths, "blocked")
    assert every >= SCORES.keys() - FULL_ONLY - {"Constant"}


@pytest.mark.parametrize("score", ["ScaledDot", "Additive", "Rotary"])
def test_few_queries_over_many_keys(score, used_paths):
    """Keys are gathered before they are projected; scores that depend on positions must give the same result."""
    sample = make_inputs(2, 60, BATCH)
    attention = laws.AttentionUnderTest(SCORES[score]())
    laws.context_equals_weighted_sum(attention, sample, around(torch.tensor([20.5, 41.0]), 2))
    laws.context_equals_weighted_sum(attention, sample, padding(torch.tensor([60, 30, 3])) & around(25.0, 2))
    assert "gathered" in used_paths


def test_the_selection_of_the_path_computes_no_matrix_of_biases(monkeypatch, small_limits):
    """Whether a score can be restricted is determined with a few positions, not with all queries x keys."""
    sizes = []
    bias = Alibi.bias

    def spy(self, grid):
        sizes.append(grid.query_positions.numel() * grid.key_positions.numel())
        return bias(self, grid)

    monkeypatch.setattr(Alibi, "bias", spy)
    attend(*SAMPLE.to(torch.float32), causal(), score=Additive(4, 4, 5) + Alibi(2))
    assert max(sizes) < Q * K
