"""The same laws where the work is cut into parts: bands, gathered neighborhoods, blocks of queries.

The sizes at which a path begins to pay are made small here, so that every pair can be tried on every path;
tests/attention/test_paths.py tries the paths at their own sizes. Without the shape checks, for speed.
"""

import pytest
import torch

from regard.attention import Additive, Alibi, around, attend, causal, dense, documents, padding, window
from regard.attention.fast import blocked as blocks
from regard.attention.fast import fused
from regard.testing import laws
from regard.testing.inputs import make_inputs
from tests.contract.mechanisms import BATCH, NORMALIZERS, SCORES, cells
from tests.contract.test_grid import look_at, modes

pytestmark = pytest.mark.bare
Q, K = 17, 18
WORLD = make_inputs(Q, K, BATCH)
PAIRS = sorted(
    {*cells(SCORES, ["softmax", "sparsemax", "kernel_sum"]), *cells(["ScaledDot", "Additive", "Boxcar"], NORMALIZERS)}
)
each_pair = pytest.mark.parametrize(("score", "normalize"), PAIRS, ids=[" x ".join(pair) for pair in PAIRS])


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(blocks, "MIN_BLOCK_QUERIES", 4)
    monkeypatch.setattr(blocks, "MAX_SCORES", 16 * 6 * K + 4)  # four queries a block
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 0)


def holes(*shape):
    output = torch.rand(*shape, generator=torch.Generator().manual_seed(5)) < 0.7
    output[..., 1, :] = False
    return dense(output)


LENGTHS = torch.tensor([K, 0, 7])
CENTRES = torch.linspace(-4, K + 4, 3 * Q).reshape(3, Q)
BANDS = {
    "window": window(2, 1),
    "window behind the keys": window(3, 0, offset=6),
    "window, padding, holes": window(1, 1) & padding(LENGTHS) & holes(3, 1, Q, K),
    "causal window of documents": causal() & window(3, 2) & documents(torch.arange(Q) // 5, torch.arange(K) // 5),
    "two windows, partly before the keys": window(0, 0, offset=-5) | window(1, 0, offset=-3),
}
NEIGHBORHOODS = {
    "around": around(CENTRES, 1.5),
    "around one place": around(4.25, 2),
    "around, causal, padding": causal() & around(CENTRES, 2) & padding(LENGTHS),
    "around, holes": holes(2, Q, K) & around(CENTRES[0], 3),
    "twice around": around(CENTRES, 3) & around(CENTRES[0] + 1, 2),
}
LONG = {
    "nothing": None,
    "causal and padding": causal() & padding(LENGTHS),
    "documents with holes": documents(torch.arange(Q) // 6, torch.arange(K) // 5) & holes(2, Q, K),
}


def keep_the_laws(look, mask):
    laws.hidden_keys_have_zero_weight(look, WORLD, mask)
    laws.reading_weights_changes_nothing(look, WORLD, mask)
    if not look.is_dropout_active:
        laws.context_equals_weighted_sum(look, WORLD, mask)


@each_pair
def test_bands(score, normalize, small):
    for look in modes(look_at(score, normalize)):
        for mask in BANDS.values():
            keep_the_laws(look, mask)


@each_pair
def test_neighborhoods(score, normalize, small):
    for look in modes(look_at(score, normalize)):
        for mask in NEIGHBORHOODS.values():
            keep_the_laws(look, mask)


@each_pair
def test_blocks(score, normalize, small):
    for look in modes(look_at(score, normalize)):
        for mask in LONG.values():
            keep_the_laws(look, mask)


def served(masks, normalize, used_paths, path):
    """The scores that the path serves under every one of the masks."""
    found = set()
    for score in SCORES:
        look = laws.AttentionUnderTest(SCORES[score](), normalize)
        per_mask = []
        for mask in masks:
            used_paths.clear()
            look(*WORLD, mask)
            per_mask.append(path in used_paths)
        if all(per_mask):
            found.add(score)
    return found


WHOLE = {  # scores that cannot tell what they would give for a part of the positions
    "Location",
    "Location, few keys",
    "a parameter * Location, few keys",
    "- Location, few keys",
    "a parameter for each head * ",
    "Rotary ScaledDot + RelativeBias",
    "a function",
}
BIASED = {name for name in SCORES if "Alibi" in name or "RelativeBias" in name}


def test_scores_that_use_bands(used_paths, small):
    assert served(BANDS.values(), None, used_paths, "banded") == SCORES.keys() - WHOLE


def test_scores_that_use_neighborhoods(used_paths, small):
    masks = [NEIGHBORHOODS["around one place"], around(CENTRES[0], 3) & padding(LENGTHS)]
    assert served(masks, None, used_paths, "gathered") == SCORES.keys() - WHOLE
    # With centers of its own for each batch entry a bias has no one table of positions to look up.
    assert served(NEIGHBORHOODS.values(), None, used_paths, "gathered") == SCORES.keys() - WHOLE - BIASED


def test_scores_that_use_blocks(used_paths, small):
    every = served([LONG["causal and padding"], LONG["documents with holes"]], None, used_paths, "blocked")
    assert every >= SCORES.keys() - WHOLE - {"Constant"}


@pytest.mark.parametrize("score", ["ScaledDot", "Additive", "Rotary"])
def test_few_queries_over_many_keys(score, used_paths):
    """Keys are gathered first and projected then; what depends on their place must not notice."""
    w = make_inputs(2, 60, BATCH)
    look = laws.AttentionUnderTest(SCORES[score]())
    laws.context_equals_weighted_sum(look, w, around(torch.tensor([20.5, 41.0]), 2))
    laws.context_equals_weighted_sum(look, w, padding(torch.tensor([60, 30, 3])) & around(25.0, 2))
    assert "gathered" in used_paths


def test_the_selection_of_the_path_computes_no_matrix_of_biases(monkeypatch, small):
    """Whether a score can be cut is asked about a few positions, not about all queries x keys."""
    asked = []
    bias = Alibi.bias

    def spy(self, grid):
        asked.append(grid.query_positions.numel() * grid.key_positions.numel())
        return bias(self, grid)

    monkeypatch.setattr(Alibi, "bias", spy)
    attend(*WORLD.to(torch.float32), causal(), score=Additive(4, 4, 5) + Alibi(2))
    assert max(asked) < Q * K
