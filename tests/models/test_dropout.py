"""FastDropout has the distribution of PyTorch's dropout."""

import numpy as np
import pytest
import torch

from regard.models.layers import FastDropout

SHAPES = [(), (1,), (3,), (7, 5), (2, 3, 5), (4, 1, 9)]


def fraction_kept(p, count):
    return (FastDropout(p)(torch.ones(count)) != 0).float().mean().item()


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 0.9])
def test_rate_and_mean(p):
    count = 1_000_000
    y = FastDropout(p)(torch.ones(count))
    rate = round(p * 65536) / 65536
    spread = (p * (1 - p) / count) ** 0.5
    assert abs((y == 0).double().mean().item() - rate) < 5 * spread
    assert set(y.unique().tolist()) == {0.0, torch.tensor(1 / (1 - rate)).item()}
    assert abs(y.double().mean().item() - 1) < 5 * spread / (1 - p)


def test_unbiased_at_every_position():
    x, drop = torch.randn(6, 7), FastDropout(0.4)
    mean = torch.stack([drop(x) for _ in range(4000)]).mean(0)
    assert ((mean - x).abs() < 6 * x.abs() * (0.4 / 0.6 / 4000) ** 0.5).all()


def test_neighbors_are_independent():
    """Four elements come from one random word: no correlation at lags up to 8."""
    y = (FastDropout(0.5)(torch.ones(1_000_000)) != 0).double() - 0.5
    for lag in range(1, 9):
        assert abs((y[:-lag] * y[lag:]).mean().item() / 0.25) < 5e-3
    first, second = (FastDropout(0.5)(torch.ones(500_000)) != 0 for _ in range(2))
    assert abs((first == second).double().mean().item() - 0.5) < 5e-3


@pytest.mark.parametrize("shape", SHAPES)
def test_every_shape(shape):
    x = torch.full(shape, 3.0)
    y = FastDropout(0.5)(x)
    assert y.shape == x.shape
    assert set(y.flatten().tolist()) <= {0.0, 6.0}
    assert (x == 3).all(), "the input was written to"


@pytest.mark.parametrize("shape", [(0,), (0, 4), (3, 0)])
def test_empty_tensors(shape):
    x = torch.zeros(shape, requires_grad=True)
    y = FastDropout(0.5)(x)
    assert y.shape == x.shape
    y.sum().backward()
    assert x.grad.shape == x.shape


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_every_dtype(dtype):
    y = FastDropout(0.5)(torch.ones(50, dtype=dtype))
    assert y.dtype == dtype
    assert set(y.tolist()) == {0.0, 2.0}


def test_strides_do_not_matter():
    x = torch.randn(6, 8)
    for view in (lambda x: x.T, lambda x: x[:, ::2], lambda x: x[:, :1].expand(6, 5), lambda x: x.unfold(1, 3, 1)):
        torch.manual_seed(5)
        first = FastDropout(0.3)(view(x))
        torch.manual_seed(5)
        second = FastDropout(0.3)(view(x).contiguous())
        assert torch.equal(first, second)


def test_gradient_is_the_mask():
    x = torch.randn(5, 7, requires_grad=True)
    y = FastDropout(0.25)(x)
    grad_output = torch.randn(7, 5).T  # not contiguous
    (grad,) = torch.autograd.grad(y, x, grad_output)
    factor = 1 / 0.75
    torch.testing.assert_close(grad, torch.where(y == 0, 0, grad_output * factor))


def test_double_backward():
    x = torch.randn(5, 7, dtype=torch.float64, requires_grad=True)

    def apply(x):
        torch.manual_seed(0)
        return FastDropout(0.25)(x)

    assert torch.autograd.gradcheck(apply, x)
    assert torch.autograd.gradgradcheck(apply, x)


def test_seed_determines_the_result():
    drop, x = FastDropout(0.5), torch.ones(100)
    torch.manual_seed(7)
    first, second = drop(x), drop(x)
    assert not torch.equal(first, second)
    np.random.seed(123)
    torch.manual_seed(7)
    assert torch.equal(drop(x), first)
    assert torch.equal(drop(x), second)


def test_identity_in_eval_mode_or_with_p_0():
    x = torch.randn(4, 4)
    assert FastDropout(0.5).eval()(x) is x
    assert FastDropout(0.0)(x) is x
    before = torch.random.get_rng_state()
    FastDropout(0.0)(x)
    assert torch.equal(before, torch.random.get_rng_state())


def test_infinity_is_kept():
    y = FastDropout(0.5)(torch.full((100,), torch.inf))
    assert y.isinf().any()


@pytest.mark.bare
@pytest.mark.parametrize("p", [-0.1, 1.0, 1.5, float("nan")])
def test_invalid_p(p):
    with pytest.raises(ValueError, match=r"^FastDropout: invalid value .* for p: must be at least 0 and below 1"):
        FastDropout(p)


@pytest.mark.parametrize("p", [0.99999, 0.999995, 1 - 1e-9])
def test_p_close_to_1(p):
    y = FastDropout(p)(torch.ones(1000))
    assert y.isfinite().all()
    assert fraction_kept(p, 1000) < 0.05


def test_compiled_dropout_is_that_of_pytorch(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    torch.manual_seed(0)
    y = FastDropout(0.5)(torch.ones(1000))
    torch.manual_seed(0)
    assert torch.equal(y, torch.nn.functional.dropout(torch.ones(1000), 0.5))
