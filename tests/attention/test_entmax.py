"""The sparse normalizers against closed forms and the entmax package; Newton against bisection."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import gradcheck, gradgradcheck

from regard.attention import Entmax, entmax15, softmax, sparsemax
from regard.attention.normalizers.entmax import _bisect, _newton

ALPHAS = [1.05, 1.3, 1.5, 1.7, 2.0, 2.5, 4.0, 10.0]


def by_sorting(scores):
    """sparsemax in closed form: the threshold is the largest of those of the k best keys."""
    ranked = scores.sort(-1, descending=True).values
    counts = torch.arange(1, scores.shape[-1] + 1)
    tau = ((ranked.cumsum(-1) - 1) / counts).amax(-1, keepdim=True)
    return (scores - tau).clamp(min=0)


def by_sorting_15(scores):
    """entmax15 in closed form: of the k best keys, with k the largest that keeps its worst key."""
    half = scores / 2
    ranked = half.sort(-1, descending=True).values
    counts = torch.arange(1, scores.shape[-1] + 1)
    mean, square = ranked.cumsum(-1) / counts, ranked.square().cumsum(-1) / counts
    tau = mean - ((1 - counts * (square - mean**2)) / counts).clamp(min=0).sqrt()
    last = (tau <= ranked).sum(-1, keepdim=True) - 1
    return (half - tau.gather(-1, last)).clamp(min=0).square()


@pytest.mark.parametrize("keys", [1, 2, 7, 32, 2000])
@pytest.mark.parametrize("spread", [0.01, 1.0, 10.0])
def test_two_algorithms_agree(keys, spread):
    scores = torch.randn(5, keys, dtype=torch.float64) * spread
    torch.testing.assert_close(sparsemax(scores), by_sorting(scores), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(entmax15(scores), by_sorting_15(scores), rtol=1e-7, atol=1e-9)
    single = scores.float()
    torch.testing.assert_close(sparsemax(single), by_sorting(single.double()).float(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(entmax15(single), by_sorting_15(single.double()).float(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("alpha", [1.5, 2.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_newton_agrees_with_bisection(alpha, dtype):
    """Also where Newton is slow: each group of keys ten times as large as the last, and further away."""
    steps = torch.cat([torch.full((10**k,), -1 + 0.7 * 0.3**k) for k in range(4)])
    hard = torch.stack([steps, -torch.linspace(0, 1, len(steps)), -torch.rand(len(steps))]).to(dtype)
    hard = hard - hard.amax(-1, keepdim=True)
    torch.testing.assert_close(_newton(hard, alpha), _bisect(hard, alpha), rtol=3e-6, atol=0)


@pytest.mark.parametrize("keys", [5, 64, 500])
def test_agrees_with_the_entmax_package(keys):
    entmax = pytest.importorskip("entmax")
    scores = torch.randn(4, keys, dtype=torch.float64, requires_grad=True)
    pull = torch.randn(4, keys, dtype=torch.float64)
    pairs = [(sparsemax, entmax.sparsemax), (entmax15, entmax.entmax15)]
    pairs += [
        (Entmax(a), lambda s, a=a: entmax.entmax_bisect(s, a, n_iter=80)) for a in ALPHAS[:-1]
    ]  # its weights for 10 are inaccurate
    for ours, theirs in pairs:
        weights = ours(scores), theirs(scores)
        torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-9)
        actual, expected = (torch.autograd.grad((w * pull).sum(), scores)[0] for w in weights)
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("alpha", ALPHAS)
@settings(max_examples=40)
@given(row=st.lists(st.floats(-30, 30, width=32), min_size=1, max_size=20))
def test_weights_are_optimal(alpha, row):
    """w maximizes w.s + H(w): where w > 0 the slope s - w^(alpha-1)/(alpha-1) is level, elsewhere lower."""
    scores = torch.tensor([row], dtype=torch.float64)
    weights = Entmax(alpha)(scores)
    assert abs(weights.sum() - 1) < 1e-12
    slope = scores - weights ** (alpha - 1) / (alpha - 1)
    level = slope[weights > 0]
    assert level.max() - level.min() < 1e-9 * max(1, abs(max(row)))
    assert (scores[weights == 0] <= level.max() + 1e-9 * max(1, abs(max(row)))).all()


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradients_and_second_gradients(alpha):
    scores = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    assert gradcheck(Entmax(alpha), scores)
    assert gradgradcheck(Entmax(alpha), scores)


@pytest.mark.parametrize("alpha", ALPHAS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_equal_scores_have_equal_weights(alpha, dtype):
    for keys in (1, 3, 2000):
        weights = Entmax(alpha)(torch.full((2, keys), 7.0, dtype=dtype))
        torch.testing.assert_close(weights, torch.full_like(weights, 1 / keys))


def test_softmax_is_the_limit():
    scores = torch.randn(5, 30) * 3
    assert torch.equal(Entmax(1.0)(scores), softmax(scores))
    torch.testing.assert_close(Entmax(1 + 1e-6)(scores), softmax(scores), rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_float32_is_accurate_to_rounding(alpha):
    scores = torch.randn(50, 300)
    expected = Entmax(alpha)(scores.double())
    torch.testing.assert_close(Entmax(alpha)(scores).double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("alpha", [1.001, 2.5, 3.0, 5.0, 10.0, 1000.0])
def test_steep_weights_and_their_gradients(alpha):
    """A small weight w of the last key means that its distance from the threshold is w^(alpha - 1), as 1e-18."""
    scores, pull = torch.randn(2000, 16) * 2, torch.randn(2000, 16)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaf = scores.to(dtype).requires_grad_()
        weights = Entmax(alpha)(leaf)
        results.append((weights, torch.autograd.grad((weights * pull).sum(), leaf)[0]))
    (weights, gradient), (expected, exact) = results
    torch.testing.assert_close(weights.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(gradient.double(), exact, rtol=1e-4, atol=1e-4)
    # w maximizes w.s + H(w): where w > 0 the slope is level, elsewhere lower.
    slope = scores.double() - expected.detach() ** (alpha - 1) / (alpha - 1)
    level = slope.masked_fill(expected == 0, -math.inf).amax(-1, keepdim=True)
    assert (expected.sum(-1) - 1).abs().max() < 1e-12
    assert (((slope - level).abs() < 1e-9) | (expected == 0)).all()
    assert (scores <= level + 1e-9).masked_fill(expected > 0, True).all()
