"""Forward mode, second derivatives and torch.func: equal to finite differences, on every path."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.func import hessian, jvp, vmap

from regard.attention import (
    Additive,
    Alibi,
    Cosine,
    Epanechnikov,
    Gaussian,
    MultiHead,
    RelativeBias,
    Rotary,
    ScaledDot,
    Temperature,
    attend,
    causal,
    dense,
    padding,
    window,
)

SCORES = {
    "ScaledDot": ScaledDot,
    "Cosine": Cosine,
    "Gaussian": lambda: Gaussian(0.8),
    "Gaussian by feature": lambda: Gaussian(torch.tensor([0.8, 1.0, 2.0, 0.5])),
    "Additive": lambda: Additive(4, 4, 5).double(),
    "Rotary": lambda: Rotary(ScaledDot()),
    "Alibi": lambda: ScaledDot() + Alibi(2),
    "RelativeBias": lambda: ScaledDot() + RelativeBias(2).double(),
}
MASKS = {"none": None, "causal": causal(), "padding": padding([3, 0]), "dense": dense(torch.eye(3) > 0)}


def leaves(*shape, count=3):
    return tuple(torch.randn(*shape, dtype=torch.float64, requires_grad=True) for _ in range(count))


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("mask", MASKS)
def test_derivatives_of_every_kind(score, mask):
    part, inputs = SCORES[score](), leaves(2, 2, 3, 4)

    def function(query, key, value):
        return attend(query, key, value, MASKS[mask], score=part).context

    assert gradcheck(function, inputs, check_forward_ad=True, fast_mode=True)
    assert gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("score", ["ScaledDot", "Gaussian", "Rotary"])
def test_one_tensor_as_query_key_and_value(score):
    part, (x,) = SCORES[score](), leaves(2, 3, 4, count=1)

    def energy(x):
        return attend(x, x, x, causal(), score=part).context.square().sum()

    second = torch.autograd.functional.hessian(energy, x)
    torch.testing.assert_close(hessian(energy)(x), second)
    assert gradgradcheck(energy, x, fast_mode=True)


def test_settings_and_partial_paths():
    inputs = leaves(2, 3, 4)
    assert gradgradcheck(lambda *sample: attend(*sample, normalize=Temperature(0.5)).context, inputs, fast_mode=True)
    assert gradcheck(
        lambda *sample: attend(*sample, score=Epanechnikov(9.0)).context, inputs, check_forward_ad=True, fast_mode=True
    )
    query, key, value = (torch.randn(200, 4) for _ in range(3))
    tangent = jvp(lambda q: attend(q, key, value, window(2, 1)).context, (query,), (query,))[1]
    expected = jvp(lambda q: attend(q, key, value, window(2, 1).materialize(200, 200)).context, (query,), (query,))[1]
    torch.testing.assert_close(tangent, expected)


@pytest.mark.parametrize("num_kv_heads", [4, 2, 1])
def test_multi_head(num_kv_heads):
    heads, (x,) = MultiHead(8, 4, num_kv_heads).double(), leaves(2, 3, 8, count=1)
    for mask in (None, causal(), padding([3, 1])):
        assert gradcheck(lambda x, mask=mask: heads(x, mask=mask).context, x, check_forward_ad=True, fast_mode=True)
        assert gradgradcheck(lambda x, mask=mask: heads(x, mask=mask).context, x, fast_mode=True)
    torch.testing.assert_close(vmap(lambda x: heads(x).context)(x), heads(x).context)
