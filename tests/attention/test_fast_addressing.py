"""The explicit forward and backward passes of addressing and writing against the definition."""

import pytest
import torch

from regard.attention import addressing
from regard.attention.fast.addressing import address_fast, write_fast

SHAPES = [(1, 6, 4, 3), (3, 7, 5, 5), (2, 5, 3, 1), (1, 3, 2, 3)]  # heads, rows, width, offsets


def address_inputs(heads, rows, width, offsets, batch=2):
    inputs = [
        torch.randn(batch, heads, width),
        3 * torch.rand(batch, heads),
        torch.rand(batch, heads),
        torch.randn(batch, heads, offsets).softmax(-1),
        1 + 3 * torch.rand(batch, heads),
        torch.randn(batch, rows, width),
        torch.randn(batch, heads, rows).softmax(-1),
    ]
    return [tensor.double().requires_grad_() for tensor in inputs]


def write_inputs(heads, rows, width, batch=2):
    inputs = [
        torch.randn(batch, rows, width),
        torch.rand(batch, heads, rows),
        torch.rand(batch, heads, width),
        torch.randn(batch, heads, width),
    ]
    return [tensor.double().requires_grad_() for tensor in inputs]


@pytest.mark.parametrize("shape", SHAPES)
def test_address_equals_the_definition(shape):
    inputs = address_inputs(*shape)
    key, strength, gate, offsets, sharpness, memory, previous = inputs
    plain = addressing.interpolate(addressing.content(key, memory, strength), previous, gate)
    plain = addressing.sharpen(addressing.shift(plain, offsets), sharpness)
    torch.testing.assert_close(address_fast(*inputs), plain)
    with torch.no_grad():
        torch.testing.assert_close(addressing.address(*inputs), plain.detach())
    assert torch.autograd.gradcheck(address_fast, inputs)
    assert torch.autograd.gradgradcheck(address_fast, inputs)


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_write_equals_the_definition(heads):
    inputs = write_inputs(heads, 6, 4)
    memory, weights, erase, add = inputs
    left = torch.prod(1 - weights[..., None] * erase[..., None, :], -3)
    plain = memory * left + torch.einsum("...hr,...hw->...rw", weights, add)
    torch.testing.assert_close(write_fast(*inputs), plain)
    with torch.no_grad():
        torch.testing.assert_close(addressing.write(*inputs), plain.detach())
    assert torch.autograd.gradcheck(write_fast, inputs)
    assert torch.autograd.gradgradcheck(write_fast, inputs)


def test_the_gradients_are_those_of_the_four_parts():
    inputs = address_inputs(2, 6, 4, 3)
    key, strength, gate, offsets, sharpness, memory, previous = inputs
    weights = addressing.interpolate(addressing.content(key, memory, strength), previous, gate)
    weights = addressing.sharpen(addressing.shift(weights, offsets), sharpness)
    factors = torch.randn_like(weights)
    plain = torch.autograd.grad((weights * factors).sum(), inputs)
    fast = torch.autograd.grad((addressing.address(*inputs) * factors).sum(), inputs)
    torch.testing.assert_close(fast, plain)


def test_gradients_are_finite_when_a_head_erases_everything():
    memory, weights, erase, add = write_inputs(2, 3, 2)
    weights, erase = torch.ones_like(weights).requires_grad_(), torch.ones_like(erase).requires_grad_()
    addressing.write(memory, weights, erase, add).sum().backward()
    for tensor in (memory, weights, erase, add):
        assert torch.isfinite(tensor.grad).all()
    assert not memory.grad.any()  # everything is erased


@pytest.mark.parametrize("strength", [0.0, 1e4])
@pytest.mark.parametrize("sharpness", [1.0, 1e3])
@pytest.mark.parametrize("memory", ["zero", "equal", "huge"])
def test_extremes_stay_finite(strength, sharpness, memory):
    rows = {"zero": torch.zeros(1, 5, 3), "equal": torch.ones(1, 5, 3), "huge": torch.full((1, 5, 3), 1e15)}
    focus = torch.eye(5)[None, :1]
    inputs = [
        torch.zeros(1, 1, 3),
        torch.full((1, 1), strength),
        torch.full((1, 1), 0.5),
        torch.tensor([[[0.0, 0.0, 1.0]]]),
        torch.full((1, 1), sharpness),
        rows[memory],
        focus,
    ]
    inputs = [tensor.clone().requires_grad_() for tensor in inputs]
    weights = addressing.address(*inputs)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 1))
    weights[..., 1].sum().backward()
    for tensor in inputs:
        assert torch.isfinite(tensor.grad).all()


def test_bfloat16_is_preserved():
    inputs = [tensor.detach().bfloat16().requires_grad_() for tensor in address_inputs(1, 6, 4, 3)]
    weights = addressing.address(*inputs)
    assert weights.dtype == torch.bfloat16
    weights.sum().backward()
    assert all(tensor.grad.dtype == torch.bfloat16 for tensor in inputs)


def test_torch_func_uses_the_definition():
    inputs = [tensor.detach() for tensor in address_inputs(1, 6, 4, 3, batch=1)]
    grad = torch.func.grad(lambda key: addressing.address(key, *inputs[1:]).square().sum())(inputs[0])
    inputs[0].requires_grad_()
    addressing.address(*inputs).square().sum().backward()
    torch.testing.assert_close(grad, inputs[0].grad)


def test_forward_mode_uses_the_definition():
    inputs = tuple(tensor.detach() for tensor in address_inputs(1, 4, 3, 3, batch=1))
    indices = tuple(range(len(inputs)))
    forwards = torch.func.jacfwd(addressing.address, indices)(*inputs)
    torch.testing.assert_close(forwards, torch.autograd.functional.jacobian(addressing.address, inputs))


@pytest.mark.parametrize("size", [1e-13, 1e-15, 1e-17, 1e-20, 1e-23, 1e-30, 0.0])
@pytest.mark.parametrize("tiny", ["key", "memory"])
@pytest.mark.parametrize("function", ["content", "address"])
def test_rows_and_keys_of_tiny_norm_have_finite_gradients(function, tiny, size):
    key, _, gate, offsets, sharpness, memory, previous = (part.detach().float() for part in address_inputs(1, 6, 4, 3))
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
    key, strength, gate, offsets, sharpness, memory, previous = (
        part.detach().float() for part in address_inputs(2, 6, 4, 3)
    )
    inputs = {
        "content": (key, memory, strength),
        "address": (key, strength, gate, offsets, sharpness, memory, previous),
        "read": (previous, memory),
        "write": (memory, previous, key.sigmoid(), key),
    }[function]
    exact = getattr(addressing, function)(*inputs)
    for part in inputs:
        part.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        result = getattr(addressing, function)(*inputs)
    grads = torch.autograd.grad(result.square().sum(), inputs)
    torch.testing.assert_close(result.detach(), exact)
    expected = torch.autograd.grad(getattr(addressing, function)(*inputs).square().sum(), inputs)
    torch.testing.assert_close(grads, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("grad", [True, False])
def test_fake_tensors_do_not_enter_the_cache(grad):
    inputs, fake = address_inputs(1, 11 + grad, 4, 3), torch._subclasses.FakeTensorMode()
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            with fake:
                weights = addressing.address(*(fake.from_tensor(part) for part in inputs))
            assert weights.shape == (2, 1, 11 + grad)
            assert type(addressing.address(*inputs)) is torch.Tensor


def test_tensors_cached_in_inference_mode_work_with_gradients():
    inputs = address_inputs(1, 13, 4, 3)
    with torch.inference_mode():
        addressing.address(*inputs)
    (grad,) = torch.autograd.grad(addressing.address(*inputs).square().sum(), inputs[0], create_graph=True)
    assert torch.autograd.grad(grad.square().sum(), inputs[0])[0].isfinite().all()
