"""linear_cross_entropy against the cross entropy of PyTorch over the full matrix."""

import pytest
import torch
import torch.nn.functional as F

from regard.training import linear_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("chunk_size", [1, 3, 7, 100])
def test_value_and_gradients_are_those_of_cross_entropy(smoothing, with_bias, chunk_size):
    torch.manual_seed(0)
    inputs = [torch.randn(7, 4), torch.randn(11, 4), torch.randn(11) if with_bias else None]
    inputs = [None if x is None else x.double().requires_grad_() for x in inputs]
    target = torch.randint(0, 11, (7,))
    smoothed, plain = linear_cross_entropy(*inputs, target, smoothing, chunk_size)
    hidden, weight, bias = inputs
    logits = F.linear(hidden, weight, bias)
    expected = F.cross_entropy(logits, target, label_smoothing=smoothing, reduction="sum")
    torch.testing.assert_close(smoothed, expected)
    torch.testing.assert_close(plain, F.cross_entropy(logits, target, reduction="none"))
    variables = [x for x in inputs if x is not None]
    ours, theirs = (torch.autograd.grad(3 * loss, variables) for loss in (smoothed, expected))
    torch.testing.assert_close(ours, theirs)


def test_without_gradient_it_is_the_same_number():
    hidden, weight, target = torch.randn(9, 4), torch.randn(6, 4), torch.randint(0, 6, (9,))
    without_gradient = linear_cross_entropy(hidden, weight, None, target, 0.1)
    with_gradient = linear_cross_entropy(hidden, weight.clone().requires_grad_(), None, target, 0.1)
    assert torch.equal(without_gradient[0], with_gradient[0].detach())
    assert torch.equal(without_gradient[1], with_gradient[1])


def test_large_logits_stay_finite():
    hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    smoothed, plain = linear_cross_entropy(hidden, torch.tensor([[1.0], [-1.0]]), None, torch.tensor([1, 1]), 0.1)
    smoothed.backward()
    assert plain.tolist() == [2e4, 0]
    assert torch.isfinite(smoothed)
    assert torch.isfinite(hidden.grad).all()


def test_no_rows_no_loss():
    weight = torch.randn(5, 3, requires_grad=True)
    smoothed, _ = linear_cross_entropy(torch.zeros(0, 3), weight, None, torch.zeros(0, dtype=torch.long), 0.1)
    smoothed.backward()
    assert smoothed.item() == 0
    assert torch.equal(weight.grad, torch.zeros_like(weight))


# small logits, and logits that must be shifted first: of about 80, which bfloat16 rounds to halves
@pytest.mark.parametrize(("scale", "within"), [(0.1, 0.01), (20.0, 0.1)])
@pytest.mark.parametrize("bias", [False, True])
def test_under_autocast_its_products_are_in_bfloat16(scale, within, bias):
    torch.manual_seed(0)
    hidden = torch.randn(70, 16, requires_grad=True)
    weight = (scale * torch.randn(900, 16)).requires_grad_()
    shift = torch.randn(900, requires_grad=True) if bias else None
    target, results = torch.randint(0, 900, (70,)), []
    for cast in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=cast):
            smoothed, plain = linear_cross_entropy(hidden, weight, shift, target, 0.1, chunk_size=32)
        parts = [part for part in (hidden, weight, shift) if part is not None]
        grads = torch.autograd.grad(smoothed, parts)
        assert all(grad.dtype == torch.float32 for grad in grads)
        results.append((smoothed.detach(), plain, *grads))
    assert not torch.equal(results[0][2], results[1][2])
    for exact, near in zip(*results, strict=True):
        assert float((near - exact).norm() / exact.norm()) < within


# distance of the target logit to the others: 1 - p(target) is down to 1e-4
@pytest.mark.parametrize("above", [10, 13, 16, 20])
def test_gradients_of_confident_predictions_are_accurate_in_bfloat16(above):
    torch.manual_seed(0)
    weight = (4 * F.normalize(torch.randn(3000, 64), dim=-1)).requires_grad_()
    target = torch.randint(0, 3000, (400,))
    hidden = (above / 16 * weight[target] + 0.02 * torch.randn(400, 64)).detach().requires_grad_()
    expected = F.cross_entropy(hidden @ weight.T, target, reduction="sum")
    exact = torch.autograd.grad(expected, (hidden, weight))
    with torch.autocast("cpu", torch.bfloat16):
        total, plain = linear_cross_entropy(hidden, weight, None, target)
    assert float(plain.min()) >= -1e-5
    assert total.item() == pytest.approx(expected.item(), rel=0.05)
    for ours, theirs in zip(torch.autograd.grad(total, (hidden, weight)), exact, strict=True):
        assert float((ours - theirs).norm() / theirs.norm()) < 0.06


def test_under_autocast_to_float16_it_is_computed_in_float32():
    hidden = torch.randn(6, 4, dtype=torch.float16, requires_grad=True)
    weight, target = 9 * torch.randn(9, 4, requires_grad=True), torch.randint(0, 9, (6,))
    with torch.autocast("cpu", torch.float16):
        smoothed, _ = linear_cross_entropy(hidden, weight, None, target, 0.1)
    smoothed.backward()
    expected = F.cross_entropy(hidden.float() @ weight.T, target, label_smoothing=0.1, reduction="sum")
    torch.testing.assert_close(smoothed, expected)
    assert hidden.grad.dtype == torch.float16
    with torch.autocast("cpu", torch.float16), torch.no_grad():
        without_gradient, _ = linear_cross_entropy(hidden, weight, None, target, 0.1)
    torch.testing.assert_close(without_gradient, smoothed)


@pytest.mark.bare
def test_a_missing_target_is_an_error():
    with pytest.raises(ValueError, match="expected one target for each row, not 2 targets for 3 rows"):
        linear_cross_entropy(torch.randn(3, 2), torch.randn(5, 2), None, torch.zeros(2, dtype=torch.long))
