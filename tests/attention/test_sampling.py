"""Normalizers that sample one key: frequencies, log-probabilities and gradients."""

import copy
import math

import pytest
import torch
from torch.autograd import gradcheck

from regard.attention import Gumbel, Sample, StraightThrough, Temperature, TopK, hardmax, sigmoid, softmax, sparsemax
from tests.attention import reference_loops as loops
from tests.attention.normalizer_cases import INF, scores_for, stable_name


def test_sample_frequencies():
    scores = torch.tensor([[0.0, 1.0, -INF, 2.0, -1.0]])
    draws = 40_000
    counts = Sample(torch.Generator().manual_seed(0))(scores.expand(draws, 5)).sum(0)
    expected = softmax(scores)[0] * draws
    assert counts[2] == 0
    output = expected > 0
    chi_square = ((counts - expected)[output] ** 2 / expected[output]).sum()
    assert chi_square < 16.3  # 3 degrees of freedom: one in a thousand


def test_generators_repeat():
    scores = torch.randn(50, 6)
    for kind in (Sample, lambda generator: Gumbel(1.0, generator)):
        one, two = (kind(torch.Generator().manual_seed(3))(scores) for _ in range(2))
        assert torch.equal(one, two)


def test_log_prob_and_entropy():
    scores = scores_for("sample", 2, 4, 6, dtype=torch.float64).requires_grad_()
    sample = Sample()
    weights = sample(scores)
    assert not weights.requires_grad
    log_prob, entropy = sample.log_prob(scores, weights), sample.entropy(scores)
    assert log_prob.shape == entropy.shape == (2, 4)
    for row, choice, actual, row_entropy in zip(
        scores.flatten(0, 1).tolist(),
        weights.flatten(0, 1).tolist(),
        log_prob.flatten(),
        entropy.flatten(),
        strict=True,
    ):
        if max(row) == -INF:
            assert actual == row_entropy == 0
            continue
        shares = loops.softmax(row)
        assert math.isclose(actual.item(), math.log(shares[choice.index(1.0)]), rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(row_entropy.item(), -sum(p * math.log(p) for p in shares if p), abs_tol=1e-12)
    for value in (log_prob, entropy):
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        assert gradient.isfinite().all()
        assert (gradient[scores == -INF] == 0).all()
    hidden = scores.detach() == -INF
    visible = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: sample.log_prob(s.masked_fill(hidden, -INF), weights), visible)
    assert gradcheck(lambda s: sample.entropy(s.masked_fill(hidden, -INF)), visible)


def test_log_prob_without_keys_and_in_bfloat16():
    empty = torch.zeros(2, 3, 0)
    assert Sample().log_prob(empty, empty).tolist() == Sample().entropy(empty).tolist() == [[0.0] * 3] * 2
    half = torch.tensor([[0.0, 1.0, -INF]], dtype=torch.bfloat16)
    assert Sample().log_prob(half, Sample()(half)).dtype == Sample().entropy(half).dtype == torch.bfloat16


@pytest.mark.parametrize("inner", [softmax, sparsemax, Temperature(0.5), sigmoid, TopK(2)], ids=stable_name)
def test_straight_through_has_the_soft_gradient(inner):
    scores = scores_for("softmax", 2, 4, 6).requires_grad_()
    pull = torch.randn(2, 4, 6)
    hard, soft = StraightThrough(inner)(scores), inner(scores)
    assert set(hard.unique().tolist()) == {0.0, 1.0}
    for row, shares in zip(hard.flatten(0, 1), soft.flatten(0, 1), strict=True):
        assert row.sum() == (shares.max() > 0)
        assert row.max() == 0 or row.argmax() == shares.argmax()
    actual, expected = (torch.autograd.grad((w * pull).sum(), scores)[0] for w in (hard, soft))
    torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("inner", [hardmax, Sample()], ids=stable_name)
def test_straight_through_of_sampling_has_the_gradient_of_softmax(inner):
    scores = scores_for("softmax", 2, 4, 6).requires_grad_()
    pull = torch.randn(2, 4, 6)
    torch.manual_seed(2)
    hard = StraightThrough(inner)(scores)
    torch.manual_seed(2)
    assert torch.equal(hard, inner(scores))
    actual, expected = (torch.autograd.grad((w * pull).sum(), scores)[0] for w in (hard, softmax(scores)))
    torch.testing.assert_close(actual, expected)


def test_straight_through_gumbel_has_its_noisy_gradient():
    scores = torch.randn(3, 5, requires_grad=True)
    torch.manual_seed(2)
    hard = StraightThrough(Gumbel(0.5))(scores)
    torch.manual_seed(2)
    soft = Gumbel(0.5)(scores)
    assert torch.equal(hard.argmax(-1), soft.argmax(-1))
    actual, expected = (torch.autograd.grad(w[:, 0].sum(), scores)[0] for w in (hard, soft))
    torch.testing.assert_close(actual, expected)


def test_straight_through_sample_has_log_prob():
    scores = torch.randn(2, 3, 4)
    straight = copy.deepcopy(StraightThrough(Sample()))
    weights = straight(scores)
    torch.testing.assert_close(straight.log_prob(scores, weights), Sample().log_prob(scores, weights))
    torch.testing.assert_close(straight.entropy(scores), Sample().entropy(scores))
    assert not hasattr(StraightThrough(softmax), "log_prob")
