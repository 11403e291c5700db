"""Which path serves a call at real sizes, and that each path is an identity."""

import math

import pytest
import torch

from regard.attention import (
    Additive,
    Alibi,
    Bilinear,
    Boxcar,
    Constant,
    Cosine,
    Dot,
    Dropout,
    Gaussian,
    GaussianWindow,
    Rotary,
    Sample,
    ScaledDot,
    Score,
    StraightThrough,
    Temperature,
    around,
    attend,
    causal,
    dense,
    documents,
    entmax15,
    padding,
    sigmoid,
    softmax,
    sparsemax,
    window,
)
from regard.attention.fast import blocked as blocks
from regard.attention.fast import fused
from regard.testing import laws
from regard.testing.checks import make_inputs


def which(used_paths, *args, **options):
    used_paths.clear()
    attend(*args, **options)
    return list(used_paths)


def test_the_selected_path(used_paths):
    small, long = make_inputs(5, 6, (2,)), make_inputs(320, 330, (2,))
    assert which(used_paths, *small) == ["fused"]
    assert which(used_paths, *small, causal()) == ["fused"]
    assert which(used_paths, *small, padding([6, 2]), score=Gaussian()) == ["fused"]
    assert which(used_paths, *small, score=Bilinear(4, 4).double()) == ["fused"]
    assert which(used_paths, *small, score=Dot() + Cosine()) == ["fused"]
    assert which(used_paths, *small, score=Rotary(ScaledDot())) == ["fused"]
    assert which(used_paths, *small, normalize=Temperature(0.5)) == ["fused"]
    assert which(used_paths, *small, score=Constant()) == ["mean"]
    assert which(used_paths, *small, padding([6, 0]), score=Constant()) == ["mean"]
    assert which(used_paths, *small, causal(), score=Constant()) == []
    assert which(used_paths, *small, normalize=sparsemax) == []
    assert which(used_paths, *small, score=Additive(4, 4, 5).double()) == []
    assert which(used_paths, *small, normalize=Sample()) == []
    assert which(used_paths, *small, normalize=Dropout(softmax, 0.5)) == []
    assert which(used_paths, *small, normalize=Dropout(softmax, 0.5).eval()) == ["fused"]
    assert which(used_paths, *long, window(3, 3)) == ["fused", "banded"]
    assert which(used_paths, *long, window(3, 3) & padding([330, 5])) == ["fused", "banded"]
    assert which(used_paths, *long, window(3, 3), normalize=sparsemax) == ["banded"]
    assert which(used_paths, *long, causal() & window(3, 3), score=Boxcar(1.0)) == ["banded"]
    assert which(used_paths, *long, window(200, 200)) == ["fused"]
    assert which(used_paths, *long, around(17.0, 3)) == ["fused", "gathered"]
    assert which(used_paths, *long, around(torch.zeros(2, 320), 3), normalize=entmax15) == ["gathered"]


LONG = {
    "window": window(5, 2),
    "window and padding": window(5, 2) & padding([330, 100]),
    "window of documents": window(9, 0) & documents(torch.arange(320) // 50, torch.arange(330) // 50),
    "around": around(torch.linspace(-9, 340, 640).reshape(2, 320), 4),
    "around and causal": causal() & around(torch.linspace(-9, 340, 320), 6.5),
}
SCORES = {
    "ScaledDot": lambda: ScaledDot(),
    "Additive": lambda: Additive(4, 4, 6),
    "Gaussian": lambda: Gaussian(0.7),
    "Cosine by query": lambda: Cosine(torch.linspace(0.5, 3, 320)),
    "Cosine by query, summed": lambda: Cosine(torch.linspace(0.5, 3, 320)) + Dot(),
    "by query *": lambda: torch.linspace(0.5, 3, 320)[:, None] * Dot(),
    "Rotary": lambda: Rotary(Bilinear(4, 4)),
    "Alibi": lambda: ScaledDot() + Alibi(1),
    "Boxcar": lambda: Boxcar(1.5),
}


@pytest.mark.parametrize("mask", LONG)
@pytest.mark.parametrize("score", SCORES)
def test_long_sequences_keep_the_laws(score, mask, used_paths):
    attention, sample = laws.AttentionUnderTest(SCORES[score]()), make_inputs(320, 330, (2,))
    laws.hidden_keys_have_zero_weight(attention, sample, LONG[mask])
    laws.reading_weights_changes_nothing(attention, sample, LONG[mask])
    laws.context_equals_weighted_sum(attention, sample, LONG[mask])
    if score not in ("by query *", "Cosine by query, summed"):
        assert {"banded", "gathered"} & set(used_paths) or score == "Alibi"


CENTERS = torch.linspace(0, 330, 320)
NORMALIZERS = {
    "sigmoid": lambda: sigmoid,
    "Temperature by query": lambda: Temperature(torch.linspace(0.2, 2, 320)[:, None]),
    "Temperature by query, learned": lambda: Temperature(torch.nn.Parameter(torch.linspace(0.2, 2, 320)[:, None])),
    "window": lambda: GaussianWindow(softmax, 100.0, 30.0),
    "window by query": lambda: GaussianWindow(sparsemax, CENTERS, torch.linspace(5, 20, 320)),
    "StraightThrough of a window": lambda: StraightThrough(GaussianWindow(softmax, CENTERS, 3.0)),
    "window of a window": lambda: GaussianWindow(GaussianWindow(softmax, 100.0, 30.0), CENTERS, 9.0),
    "Dropout of a window": lambda: Dropout(GaussianWindow(softmax, 100.0, 30.0), 0.5).eval(),
}


@pytest.mark.parametrize("mask", LONG)
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_settings_by_position_or_query_in_partial_paths(normalize, mask):
    attention, sample = laws.AttentionUnderTest(ScaledDot(), NORMALIZERS[normalize]()), make_inputs(320, 330, (2,))
    laws.context_equals_weighted_sum(attention.train(False), sample, LONG[mask])


@pytest.mark.parametrize("normalize", ["Temperature by query", "window by query", "StraightThrough of a window"])
def test_settings_by_query_in_blocks(normalize, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_SCORES", 2**15)
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 0)
    attention, sample = laws.AttentionUnderTest(ScaledDot(), NORMALIZERS[normalize]()), make_inputs(320, 330, (2,))
    laws.context_equals_weighted_sum(attention, sample, causal() & padding([330, 7]))


@pytest.mark.parametrize("normalize", [None, sparsemax], ids=["softmax", "sparsemax"])
@pytest.mark.parametrize(
    "score", [Additive(4, 4, 6), ScaledDot() + Alibi(2), Rotary(Additive(4, 4, 6))], ids=["additive", "bias", "rotary"]
)
def test_blocks_of_queries(score, normalize, used_paths, monkeypatch):
    monkeypatch.setattr(blocks, "MAX_SCORES", 2**15)
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 2**13)
    attention, sample = laws.AttentionUnderTest(score, normalize), make_inputs(120, 130, (3, 2))
    for mask in (None, causal(), causal() & padding([130, 0, 9]), window(400, 0), dense(torch.rand(120, 130) < 0.5)):
        used_paths.clear()
        laws.hidden_keys_have_zero_weight(attention, sample, mask)
        laws.context_equals_weighted_sum(attention, sample, mask)
        assert "blocked" in used_paths


def test_rotated_vectors_are_fused_at_any_size(used_paths, monkeypatch):
    """They have no bias that could be too large."""
    monkeypatch.setattr(blocks, "MAX_SCORES", 2**15)
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 2**13)
    attention, sample = laws.AttentionUnderTest(Rotary(ScaledDot()), None), make_inputs(120, 130, (3, 2))
    laws.context_equals_weighted_sum(attention, sample, None)
    assert set(used_paths) == {"fused"}


class Widest(Score):
    """Records the number of scores of each call."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def forward(self, query, key):
        scores = query @ key.mT
        self.sizes.append(scores.numel())
        return scores


@pytest.mark.parametrize("length", [512, 2048])
def test_the_cost_of_a_window_is_linear(length):
    score = Widest()
    sample = make_inputs(length, length, ())
    attend(*sample, window(8, 8), score=score)
    assert sum(score.sizes) <= length * (64 + 16)


def test_a_long_causal_call_never_builds_the_full_matrix(monkeypatch):
    monkeypatch.setattr(blocks, "MAX_SCORES", 2**16)
    score = Widest()
    sample = make_inputs(1000, 1000, ())
    attend(*sample, causal(), score=score)
    assert max(score.sizes) <= 2**16
    assert sum(score.sizes) < 0.6 * 1000 * 1000  # what lies behind a block is not computed


def test_weights_after_a_fast_path_are_the_full_matrix():
    sample = make_inputs(320, 330, (2,))
    output = attend(*sample, window(3, 3))
    assert output.weights.shape == (2, 320, 330)
    assert (output.weights.sum(-1) - 1).abs().max() < 1e-12


# ---- the Gaussian shortcut


def exact(query, key, value, width, mask=None):
    """The definition in float64, from differences."""
    query, key, value = query.double(), key.double(), value.double()
    scores = -0.5 * ((query[..., :, None, :] - key[..., None, :, :]) / width).square().sum(-1)
    if mask is not None:
        scores = torch.where(mask, scores, -math.inf)
    return softmax(scores) @ value


@pytest.mark.parametrize("center", [0.0, 1000.0, -5e4])
@pytest.mark.parametrize("width", [0.1, 1.0, torch.tensor([0.1])], ids=str)
def test_gaussian_far_from_zero(center, width):
    """x = 1000 +- 0.5 and width 0.1: without centering the data the context is wrong by 0.28."""
    key = center + torch.rand(2, 40, 1) - 0.5
    query = center + torch.rand(2, 9, 1) - 0.5
    value = torch.randn(2, 40, 3)
    score = Gaussian(width)
    expected = exact(query, key, value, torch.as_tensor(width).double())
    tolerance = 5e-4 if abs(center) < 1e4 else 2e-3
    for normalize in (None, Temperature(1.0)):
        output = attend(query, key, value, score=score, normalize=normalize)
        torch.testing.assert_close(output.context.double(), expected, rtol=0, atol=tolerance)
        torch.testing.assert_close((output.weights @ value).double(), expected, rtol=0, atol=tolerance)


def test_gaussian_of_widely_spread_data():
    """Where centering does not help, more digits do."""
    key = 1e3 * torch.randn(2, 40, 3)
    query = key[:, :9] + 0.3 * torch.randn(2, 9, 3)
    value = torch.randn(2, 40, 3)
    for width in (0.5, 5.0):
        output = attend(query, key, value, score=Gaussian(width))
        torch.testing.assert_close(output.context.double(), exact(query, key, value, width), rtol=0, atol=2e-3)


def test_gaussian_ignores_hidden_keys():
    key = 1000 + torch.rand(2, 40, 1)
    key[:, 30:] = -1e6
    query, value = 1000 + torch.rand(2, 9, 1), torch.randn(2, 40, 3)
    mask = (torch.arange(40) < 30).expand(2, 9, 40)
    expected = exact(query, key, value, 0.1, mask)
    for equivalent in (padding([30, 30]), mask, padding([30, 30]) & causal(offset=50)):
        output = attend(query, key, value, equivalent, score=Gaussian(0.1))
        torch.testing.assert_close(output.context.double(), expected, rtol=0, atol=2e-3)


def test_gaussian_gradients_far_from_zero():
    key = (1000 + torch.rand(2, 40, 1)).requires_grad_()
    query, value = (1000 + torch.rand(2, 9, 1)).requires_grad_(), torch.randn(2, 40, 3)
    score = Gaussian(0.1, learned=True)
    inputs = [query, key, score.log_width]
    actual = torch.autograd.grad(attend(query, key, value, score=score).context.square().sum(), inputs)
    q, k = query.detach().double().requires_grad_(), key.detach().double().requires_grad_()
    log_width = score.log_width.detach().double().requires_grad_()
    expected = torch.autograd.grad(exact(q, k, value, log_width.exp()).square().sum(), [q, k, log_width])
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a.double(), b, rtol=5e-3, atol=5e-3)
