"""The memory step with its backward written out: the same as the definition, forwards and backwards."""

import pytest
import torch

from regard.attention import addressing
from regard.attention.fast.addressing import Addressed, Written

SHAPES = [(1, 6, 4, 3), (3, 7, 5, 5), (2, 5, 3, 1), (1, 3, 2, 3)]  # heads, rows, width, offsets


def said(heads, rows, width, offsets, batch=2):
    given = [
        torch.randn(batch, heads, width),
        3 * torch.rand(batch, heads),
        torch.rand(batch, heads),
        torch.randn(batch, heads, offsets).softmax(-1),
        1 + 3 * torch.rand(batch, heads),
        torch.randn(batch, rows, width),
        torch.randn(batch, heads, rows).softmax(-1),
    ]
    return [tensor.double().requires_grad_() for tensor in given]


def edited(heads, rows, width, batch=2):
    given = [
        torch.randn(batch, rows, width),
        torch.rand(batch, heads, rows),
        torch.rand(batch, heads, width),
        torch.randn(batch, heads, width),
    ]
    return [tensor.double().requires_grad_() for tensor in given]


@pytest.mark.parametrize("shape", SHAPES)
def test_address_is_the_definition(shape):
    given = said(*shape)
    with torch.no_grad():  # no gradient is wanted, so the definition runs
        plain = addressing.address(*given)
    torch.testing.assert_close(Addressed.apply(*given), plain)
    assert torch.autograd.gradcheck(Addressed.apply, given)


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_write_is_the_definition(heads):
    given = edited(heads, 6, 4)
    with torch.no_grad():
        plain = addressing.write(*given)
    torch.testing.assert_close(Written.apply(*given), plain)
    assert torch.autograd.gradcheck(Written.apply, given)


def test_the_gradients_are_those_of_the_four_parts():
    given = said(2, 6, 4, 3)
    key, strength, gate, offsets, sharpness, memory, previous = given
    weights = addressing.interpolate(addressing.content(key, memory, strength), previous, gate)
    weights = addressing.sharpen(addressing.shift(weights, offsets), sharpness)
    toward = torch.randn_like(weights)
    plain = torch.autograd.grad((weights * toward).sum(), given)
    fast = torch.autograd.grad((addressing.address(*given) * toward).sum(), given)
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other)


def test_a_head_that_erases_all_leaves_finite_gradients():
    memory, weights, erase, add = edited(2, 3, 2)
    weights, erase = torch.ones_like(weights).requires_grad_(), torch.ones_like(erase).requires_grad_()
    addressing.write(memory, weights, erase, add).sum().backward()
    for tensor in (memory, weights, erase, add):
        assert torch.isfinite(tensor.grad).all()
    assert not memory.grad.any()  # nothing of it is left


@pytest.mark.parametrize("strength", [0.0, 1e4])
@pytest.mark.parametrize("sharpness", [1.0, 1e3])
@pytest.mark.parametrize("memory", ["zero", "equal", "huge"])
def test_extremes_stay_finite(strength, sharpness, memory):
    rows = {"zero": torch.zeros(1, 5, 3), "equal": torch.ones(1, 5, 3), "huge": torch.full((1, 5, 3), 1e15)}
    focus = torch.eye(5)[None, :1]
    given = [
        torch.zeros(1, 1, 3),
        torch.full((1, 1), strength),
        torch.full((1, 1), 0.5),
        torch.tensor([[[0.0, 0.0, 1.0]]]),
        torch.full((1, 1), sharpness),
        rows[memory],
        focus,
    ]
    given = [tensor.clone().requires_grad_() for tensor in given]
    weights = addressing.address(*given)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1))
    weights[..., 1].sum().backward()
    for tensor in given:
        assert torch.isfinite(tensor.grad).all()


def test_bfloat16_comes_back_as_bfloat16():
    given = [tensor.detach().bfloat16().requires_grad_() for tensor in said(1, 6, 4, 3)]
    weights = addressing.address(*given)
    assert weights.dtype == torch.bfloat16
    weights.sum().backward()
    assert all(tensor.grad.dtype == torch.bfloat16 for tensor in given)


def test_torch_func_gets_the_definition():
    given = [tensor.detach() for tensor in said(1, 6, 4, 3, batch=1)]
    grad = torch.func.grad(lambda key: addressing.address(key, *given[1:]).square().sum())(given[0])
    given[0].requires_grad_()
    addressing.address(*given).square().sum().backward()
    torch.testing.assert_close(grad, given[0].grad)
