"""A bias that is added to scores: against plain scores, on every path, and in attention with heads."""

import math

import pytest
import torch
from torch import nn

from regard.attention import (
    Additive,
    Alibi,
    Bias,
    MultiHead,
    ScaledDot,
    around,
    attend,
    causal,
    padding,
    sparsemax,
    window,
)
from regard.attention.fast import blocked, fused
from regard.errors import DtypeError, ShapeError

SHAPES = [(6, 9), (1, 9), (6, 1), (9,), (2, 6, 9), (3, 1, 6, 9), (3, 2, 6, 9), (2, 1, 1)]


def inputs(dtype=torch.float64, requires_grad=False):
    query, key, value = torch.randn(3, 2, 6, 4), torch.randn(3, 2, 9, 4), torch.randn(3, 2, 9, 5)
    return [t.to(dtype).requires_grad_(requires_grad) for t in (query, key, value)]


def by_definition(query, key, value, bias, visible=True):
    scores = query @ key.mT / 2 + bias
    weights = torch.where(torch.as_tensor(visible), scores, -math.inf).softmax(-1).nan_to_num(0.0)
    return weights @ value, weights


@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_added_to_the_scores(shape, used_paths):
    query, key, value = inputs()
    bias = torch.randn(shape, dtype=torch.float64)
    output = attend(query, key, value, score=ScaledDot() + bias)
    context, weights = by_definition(query, key, value, bias)
    torch.testing.assert_close(output.context, context)
    torch.testing.assert_close(output.weights, weights)
    assert used_paths == ["fused"]


def test_tensor_plus_score_is_score_plus_tensor():
    query, key, value = inputs()
    bias = torch.randn(6, 9, dtype=torch.float64)
    left = attend(query, key, value, score=bias + ScaledDot()).context
    assert torch.equal(left, attend(query, key, value, score=ScaledDot() + Bias(bias)).context)


@pytest.mark.parametrize("mask", [causal(), padding([9, 4, 0]), causal() & padding([9, 4, 0])], ids=str)
def test_with_a_mask_and_infinite_entries(mask):
    query, key, value = inputs(requires_grad=True)
    bias = torch.randn(3, 1, 6, 9, dtype=torch.float64)
    bias[0, :, 2] = -math.inf  # a query without a visible key
    bias[1, :, :, 3] = -math.inf
    output = attend(query, key, value, mask, score=ScaledDot() + bias)
    context, weights = by_definition(query, key, value, bias, mask.materialize(6, 9, 2))
    torch.testing.assert_close(output.context, context)
    torch.testing.assert_close(output.weights, weights)
    assert not output.context[0, :, 2].any()
    for gradient in torch.autograd.grad(output.context.square().sum(), (query, key, value)):
        assert gradient.isfinite().all()


@pytest.mark.parametrize("mask", [None, window(2, 1), around(3.0, 1.5), padding([9, 4, 0])], ids=str)
@pytest.mark.parametrize("shape", [(6, 9), (3, 2, 6, 9), (9,)])
def test_paths_that_take_a_part_of_the_positions(monkeypatch, mask, shape):
    monkeypatch.setattr(blocked, "MAX_SCORES", 64)
    query, key, value = inputs(requires_grad=True)
    bias = nn.Parameter(torch.randn(shape, dtype=torch.float64))
    visible = True if mask is None else mask.materialize(6, 9, 2)
    for score in (ScaledDot() + bias, Additive(4, 4, 8).double() + bias):
        output = attend(query, key, value, mask, score=score)
        weights = torch.where(torch.as_tensor(visible), score(query, key), -math.inf).softmax(-1).nan_to_num(0.0)
        torch.testing.assert_close(output.context, weights @ value)
        actual = torch.autograd.grad(output.context.square().sum(), (query, bias))
        expected = torch.autograd.grad((weights @ value).square().sum(), (query, bias))
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("factor", [-1.0, 0.0, 0.5, torch.tensor(-2.0)], ids=str)
def test_a_scaled_bias_still_hides(factor):
    """-inf hides a key whatever it is multiplied with."""
    query, key, value = inputs()
    bias = torch.randn(6, 9, dtype=torch.float64)
    bias[:, 4] = -math.inf
    for score in (factor * (ScaledDot() + bias), ScaledDot() + factor * Bias(bias), ScaledDot() - bias):
        output = attend(query, key, value, score=score)
        torch.testing.assert_close(output.context, output.weights @ value)
        assert not output.weights[..., 4].any()


def test_a_large_bias_is_not_computed_in_blocks(monkeypatch, used_paths):
    """It is in memory already, unlike that of Alibi."""
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 16)
    query, key, value = inputs()
    attend(query, key, value, score=ScaledDot() + torch.zeros(6, 9, dtype=torch.float64))
    assert used_paths == ["fused"]
    attend(query, key, value, score=ScaledDot() + Alibi(2))
    assert used_paths == ["fused"]  # declined: the definition


def test_heads_that_share_keys():
    x, bias = torch.randn(2, 5, 16), torch.randn(4, 5, 5)
    grouped = MultiHead(16, 4, 2, score=ScaledDot() + bias)
    full = MultiHead(16, 4, score=ScaledDot() + bias)
    full.load_state_dict(
        {
            name: tensor.unflatten(0, (2, 4)).repeat_interleave(2, 0).flatten(0, 1)
            if "k_" in name or "v_" in name
            else tensor
            for name, tensor in grouped.state_dict().items()
        }
    )
    torch.testing.assert_close(grouped(x).context, full(x).context)
    torch.testing.assert_close(grouped(x).weights, full(x).weights)


def test_a_parameter_is_trained_and_other_normalizers_see_the_bias():
    query, key, value = inputs(torch.float32)
    bias = nn.Parameter(torch.zeros(6, 9))
    module = MultiHead(4, 2, score=ScaledDot() + bias)
    assert any(parameter is bias for parameter in module.parameters())
    attend(query, key, value, score=ScaledDot() + bias, normalize=sparsemax).context.square().sum().backward()
    assert bias.grad.abs().sum() > 0


@pytest.mark.parametrize("shape", [(6, 8), (5, 9), (4, 6, 9), (3, 3, 6, 9), (1, 3, 2, 6, 9)])
def test_a_bias_that_does_not_fit_is_refused(shape):
    with pytest.raises(ShapeError, match=r"Bias: the bias .* does not broadcast"):
        attend(*inputs(torch.float32), score=ScaledDot() + torch.zeros(shape))


def test_a_mask_is_no_bias():
    with pytest.raises(DtypeError, match="a bool tensor of visible keys is a mask"):
        ScaledDot() + torch.ones(6, 9, dtype=torch.bool)
