"""Each normalizer against a plain loop, and those around another one."""

import math

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck

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
    sigmoid,
    softmax,
    sparsemax,
)
from regard.attention.normalizers.base import input_kind
from tests.attention import reference_loops as loops
from tests.attention.normalizer_cases import INF, stable_name


def _gate(s):
    return 1 / (1 + math.exp(-s)) if s > -INF else 0.0


def _sparsemax_row(row):
    ranked = sorted(row, reverse=True)
    taus = [(sum(ranked[:k]) - 1) / k for k in range(1, len(row) + 1)]
    return [max(s - max(taus), 0) for s in row]


def _entmax15_row(row):
    low, high = max(row) / 2 - 1, max(row) / 2
    for _ in range(80):
        tau = (low + high) / 2
        low, high = (tau, high) if sum(max(s / 2 - tau, 0) ** 2 for s in row) > 1 else (low, tau)
    return [max(s / 2 - low, 0) ** 2 for s in row]


def _topk_row(row, k):
    best = sorted(range(len(row)), key=lambda i: -row[i])[:k]
    shares = loops.softmax([row[i] for i in best])
    return [shares[best.index(i)] if i in best else 0.0 for i in range(len(row))]


def _over(row, numbers):
    total = sum(numbers)
    return [number / total if total else 0.0 for number in numbers]


ORACLES = {
    softmax: loops.softmax,
    sigmoid: lambda row: [_gate(s) for s in row],
    sparsemax: _sparsemax_row,
    entmax15: _entmax15_row,
    hardmax: lambda row: [float(i == row.index(max(row))) for i in range(len(row))],
    kernel_sum: lambda row: _over(row, [max(s, 0.0) for s in row]),
    Temperature(2.5): lambda row: loops.softmax([s / 2.5 for s in row]),
    SigmoidSum(): lambda row: _over(row, [_gate(s) for s in row]),
    Entmax(2.0): _sparsemax_row,
    Entmax(1.0): loops.softmax,
    Entmax(1.5): _entmax15_row,
    TopK(1): lambda row: _topk_row(row, 1),
    TopK(3): lambda row: _topk_row(row, 3),
    TopK(99): loops.softmax,
    Gumbel(2.0).eval(): lambda row: loops.softmax([s / 2 for s in row]),
    Sample().eval(): lambda row: [float(i == row.index(max(row))) for i in range(len(row))],
    StraightThrough(sparsemax): lambda row: [float(i == row.index(max(row))) for i in range(len(row))],
    Dropout(softmax, 0.3).eval(): loops.softmax,
    GaussianWindow(softmax, 2.0, 1.5): lambda row: [
        w * math.exp(-((i - 2.0) ** 2) / (2 * 1.5**2)) for i, w in enumerate(loops.softmax(row))
    ],
}


@pytest.mark.parametrize("normalize", ORACLES, ids=stable_name)
def test_plain_loop(normalize):
    scores = torch.randn(40, 7, dtype=torch.float64).mul(2).round(decimals=1)  # with ties
    scores = scores.abs() if input_kind(normalize) == "kernel" else scores
    scores[torch.rand(40, 7) < 0.3] = -INF
    scores[:, 3] = 0.0  # each row has a visible key
    expected = torch.tensor([ORACLES[normalize](row) for row in scores.tolist()], dtype=torch.float64)
    torch.testing.assert_close(normalize(scores), expected)


def test_kernel_sum_of_zeros():
    scores = torch.tensor([[0.0, 0.0, -INF], [1e-40, 0.0, 0.0], [1.0, 0.0, 0.0]], requires_grad=True)
    weights = kernel_sum(scores)
    assert weights.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    (gradient,) = torch.autograd.grad(weights[:, 0].sum(), scores)
    assert gradient.isfinite().all()
    assert (gradient[:2] == 0).all()


def test_temperature_per_query_and_learned():
    scores = torch.randn(2, 3, 4)
    t = torch.tensor([[0.5], [1.0], [2.0]])
    torch.testing.assert_close(Temperature(t)(scores), torch.softmax(scores / t, -1))
    learned = Temperature(nn.Parameter(torch.tensor(2.0)))
    learned(scores)[..., 0].sum().backward()
    assert list(learned.state_dict()) == ["temperature"]
    assert learned.temperature.grad != 0
    assert Temperature(t).to(torch.float64).temperature.dtype == torch.float64


def test_dropout_keeps_the_mean():
    drop = Dropout(softmax, 0.25)
    weights = drop(torch.zeros(1, 40_000))
    retained = weights > 0
    assert abs(retained.float().mean() - 0.75) < 0.01
    torch.testing.assert_close(weights[retained], torch.full_like(weights[retained], 1 / 40_000 / 0.75))
    assert (Dropout(softmax, 1)(torch.zeros(2, 3)) == 0).all()
    assert torch.equal(Dropout(softmax, 0.0)(torch.zeros(2, 3)), softmax(torch.zeros(2, 3)))
    assert drop.normalize is softmax
    assert drop.drop_weights(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_gaussian_window_has_leading_batch_axes():
    scores = torch.randn(2, 2, 2, 5)  # batch == heads == queries: nothing but the rule says which axis is which
    center = torch.tensor([[0.0, 1.0], [2.0, 3.0]], requires_grad=True)
    sigma = torch.tensor([[0.5, 1.0], [1.5, 2.0]])
    weights = GaussianWindow(softmax, center, sigma)(scores)
    shares = softmax(scores)
    for b in range(2):
        for h in range(2):
            for q in range(2):
                distance = torch.arange(5) - center[b, q]
                expected = shares[b, h, q] * torch.exp(-(distance**2) / (2 * sigma[b, q] ** 2))
                torch.testing.assert_close(weights[b, h, q], expected)
    assert (torch.autograd.grad(weights.sum(), center)[0] != 0).all()
    full = center.detach()[:, None, :].expand(2, 2, 2)
    torch.testing.assert_close(GaussianWindow(softmax, full, 1.0)(scores), GaussianWindow(softmax, center, 1.0)(scores))
    torch.testing.assert_close(
        GaussianWindow(softmax, torch.tensor(1.0), 1.0)(scores), GaussianWindow(softmax, 1.0, 1.0)(scores)
    )


def test_gaussian_window_gradient_of_the_center():
    scores = torch.randn(2, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    center = torch.rand(2, 2, dtype=torch.float64, requires_grad=True)
    sigma = (torch.rand(2, 2, dtype=torch.float64) + 0.5).requires_grad_()
    assert gradcheck(lambda s, c, w: GaussianWindow(softmax, c, w)(s), (scores, center, sigma))


def test_gaussian_window_with_key_positions():
    scores = torch.randn(2, 3, 4)
    bell = GaussianWindow(softmax, torch.rand(2, 3), 2.0).eval()
    there = bell.with_key_positions(torch.arange(4) + 10)
    assert not there.training
    torch.testing.assert_close(there(scores), GaussianWindow(softmax, bell.center - 10, 2.0)(scores))
    per_query = torch.randint(0, 9, (2, 3, 4))
    expected = softmax(scores) * torch.exp(-((per_query - bell.center[..., None]) ** 2) / 8)
    torch.testing.assert_close(bell.with_key_positions(per_query)(scores), expected)


def test_gaussian_window_positions_beyond_the_integers_of_bfloat16():
    scores = torch.zeros(1, 1000, dtype=torch.bfloat16)
    weights = GaussianWindow(sigmoid, 999.0, 1.0)(scores)
    torch.testing.assert_close(
        weights[0, 997:].float(), 0.5 * torch.exp(-torch.tensor([2.0, 0.5, 0.0])), rtol=0.01, atol=0
    )
