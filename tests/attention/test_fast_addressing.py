"""The memory step with its backward written out: the same as the definition, forwards and backwards."""

import pytest
import torch

from regard.attention import addressing
from regard.attention.fast.addressing import AddressFunction, WriteFunction

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
    key, strength, gate, offsets, sharpness, memory, previous = given
    plain = addressing.interpolate(addressing.content(key, memory, strength), previous, gate)
    plain = addressing.sharpen(addressing.shift(plain, offsets), sharpness)
    torch.testing.assert_close(AddressFunction.apply(*given), plain)
    with torch.no_grad():
        torch.testing.assert_close(addressing.address(*given), plain.detach())
    assert torch.autograd.gradcheck(AddressFunction.apply, given)
    assert torch.autograd.gradgradcheck(AddressFunction.apply, given)


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_write_is_the_definition(heads):
    given = edited(heads, 6, 4)
    memory, weights, erase, add = given
    left = torch.prod(1 - weights[..., None] * erase[..., None, :], -3)
    plain = memory * left + torch.einsum("...hr,...hw->...rw", weights, add)
    torch.testing.assert_close(WriteFunction.apply(*given), plain)
    with torch.no_grad():
        torch.testing.assert_close(addressing.write(*given), plain.detach())
    assert torch.autograd.gradcheck(WriteFunction.apply, given)
    assert torch.autograd.gradgradcheck(WriteFunction.apply, given)


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


def test_gradients_are_finite_when_a_head_erases_everything():
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


def test_bfloat16_is_preserved():
    given = [tensor.detach().bfloat16().requires_grad_() for tensor in said(1, 6, 4, 3)]
    weights = addressing.address(*given)
    assert weights.dtype == torch.bfloat16
    weights.sum().backward()
    assert all(tensor.grad.dtype == torch.bfloat16 for tensor in given)


def test_torch_func_uses_the_definition():
    given = [tensor.detach() for tensor in said(1, 6, 4, 3, batch=1)]
    grad = torch.func.grad(lambda key: addressing.address(key, *given[1:]).square().sum())(given[0])
    given[0].requires_grad_()
    addressing.address(*given).square().sum().backward()
    torch.testing.assert_close(grad, given[0].grad)


def test_forward_mode_uses_the_definition():
    given = tuple(tensor.detach() for tensor in said(1, 4, 3, 3, batch=1))
    places = tuple(range(len(given)))
    forwards = torch.func.jacfwd(addressing.address, places)(*given)
    torch.testing.assert_close(forwards, torch.autograd.functional.jacobian(addressing.address, given))


@pytest.mark.parametrize("size", [1e-13, 1e-15, 1e-17, 1e-20, 1e-23, 1e-30, 0.0])
@pytest.mark.parametrize("tiny", ["key", "memory"])
@pytest.mark.parametrize("function", ["content", "address"])
def test_rows_and_keys_of_tiny_norm_have_finite_gradients(function, tiny, size):
    key, _, gate, offsets, sharpness, memory, previous = (part.detach().float() for part in said(1, 6, 4, 3))
    strength, short = torch.full((2, 1), 5.0), key if tiny == "key" else memory
    short.mul_(size).requires_grad_()
    if function == "content":
        weights = addressing.content(key, memory, strength)
    else:
        weights = addressing.address(key, strength, gate, offsets, sharpness, memory, previous)
    (grad,) = torch.autograd.grad(weights[..., 0].sum(), short)
    assert grad.isfinite().all()
    assert grad.any() == (size >= 1e-15)  # shorter ones have no direction
    if function == "content" and size < 1e-15:
        torch.testing.assert_close(weights, torch.full_like(weights, 1 / 6))


@pytest.mark.parametrize("function", ["content", "address", "read", "write"])
def test_autocast_changes_nothing(function):
    key, strength, gate, offsets, sharpness, memory, previous = (part.detach().float() for part in said(2, 6, 4, 3))
    given = {
        "content": (key, memory, strength),
        "address": (key, strength, gate, offsets, sharpness, memory, previous),
        "read": (previous, memory),
        "write": (memory, previous, key.sigmoid(), key),
    }[function]
    exact = getattr(addressing, function)(*given)
    for part in given:
        part.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = getattr(addressing, function)(*given)
    grads = torch.autograd.grad(found.square().sum(), given)
    torch.testing.assert_close(found.detach(), exact)
    expected = torch.autograd.grad(getattr(addressing, function)(*given).square().sum(), given)
    torch.testing.assert_close(grads, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("grad", [True, False])
def test_fake_tensors_do_not_enter_the_cache(grad):
    given, fake = said(1, 11 + grad, 4, 3), torch._subclasses.FakeTensorMode()
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            with fake:
                weights = addressing.address(*(fake.from_tensor(part) for part in given))
            assert weights.shape == (2, 1, 11 + grad)
            assert type(addressing.address(*given)) is torch.Tensor


def test_tensors_cached_in_inference_mode_work_with_gradients():
    given = said(1, 13, 4, 3)
    with torch.inference_mode():
        addressing.address(*given)
    (grad,) = torch.autograd.grad(addressing.address(*given).square().sum(), given[0], create_graph=True)
    assert torch.autograd.grad(grad.square().sum(), given[0])[0].isfinite().all()
