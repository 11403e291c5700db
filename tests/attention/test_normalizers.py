"""The laws of normalizers, their properties, and their error messages."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import forward_ad, gradcheck

from regard.attention import (
    Dropout,
    Entmax,
    GaussianWindow,
    Gumbel,
    Normalizer,
    Sample,
    StraightThrough,
    Temperature,
    TopK,
    hardmax,
    kernel_sum,
    masked_normalizer,
    softmax,
)
from regard.attention.normalizers.base import input_kind, is_random
from tests.attention.normalizer_cases import ALL, HARD, INF, KERNEL, SMOOTH, SUMS_TO_ONE, every, scores_for


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_hidden_keys_have_weight_0(name, dtype):
    scores = scores_for(name, 2, 4, 6, dtype=dtype).requires_grad_()
    weights = ALL[name]()(scores)
    assert weights.dtype == dtype
    assert weights.shape == scores.shape
    assert weights.isfinite().all()
    assert (weights[scores == -INF] == 0).all()
    if not weights.requires_grad:  # the hard ones have no gradient, and must not disturb others
        weights = weights * torch.ones_like(weights, requires_grad=True)
    (gradient,) = torch.autograd.grad((weights * torch.randn(6)).sum(), scores, allow_unused=True)
    if gradient is not None:
        assert gradient.isfinite().all()
        assert (gradient[scores == -INF] == 0).all()


@pytest.mark.parametrize("name", sorted(SUMS_TO_ONE))
def test_weights_sum_to_1_or_0(name):
    scores = scores_for(name, 3, 5, 7)
    weights = ALL[name]()(scores)
    output = (scores > -INF).any(-1)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), output.float())


@every
@pytest.mark.parametrize("shape", [(2, 3, 0), (3, 0), (0, 3, 4), (2, 0, 4), (2, 1, 1)])
def test_small_shapes(name, shape):
    scores = torch.ones(shape, requires_grad=True)
    weights = ALL[name]()(scores)
    assert weights.shape == shape
    if name in SUMS_TO_ONE and shape[-1] == 1:
        assert (weights == 1).all()


@every
def test_bfloat16_is_computed_in_float32(name):
    scores = scores_for(name, 2, 4, 30, dtype=torch.bfloat16)
    torch.manual_seed(1)
    half = ALL[name]()(scores)
    torch.manual_seed(1)
    full = ALL[name]()(scores.float())
    assert torch.equal(half, full.bfloat16())


@every
def test_huge_scores(name):
    sign = 1 if name in KERNEL else -1
    scores = torch.tensor([[1e4, sign * 1e4, 0.0, -INF], [sign * 1e4, sign * 1e4, -INF, -INF]], requires_grad=True)
    weights = ALL[name]()(scores)
    assert weights.isfinite().all()
    if weights.requires_grad:
        assert torch.autograd.grad(weights[:, 0].sum(), scores)[0].isfinite().all()


@every
def test_autocast(name):
    scores = scores_for(name, 2, 4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(1)
        weights = ALL[name]()(scores)
    torch.manual_seed(1)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, ALL[name]()(scores))


@every
def test_pickle_and_deepcopy(name):
    normalize = ALL[name]()
    scores = scores_for(name, 2, 4, 6)
    for twin in (copy.deepcopy(normalize), pickle.loads(pickle.dumps(normalize))):
        torch.manual_seed(1)
        first = normalize(scores)
        torch.manual_seed(1)
        assert torch.equal(first, twin(scores))
        if not isinstance(normalize, nn.Module):
            assert twin is normalize


@pytest.mark.parametrize("name", [*SMOOTH, *KERNEL])
def test_gradients(name):
    scores = 2 * torch.randn(3, 5, dtype=torch.float64)
    scores = scores.abs() + 0.1 if name in KERNEL else scores
    hidden = torch.rand(3, 5) < 0.3
    hidden[-1] = True

    def weights(visible):
        return ALL[name]()(visible.masked_fill(hidden, -INF))

    assert gradcheck(weights, scores.requires_grad_())


@pytest.mark.parametrize("name", [*SMOOTH, *KERNEL, "straight_softmax", "straight_sparsemax"])
def test_all_modes_of_differentiation_agree(name):
    normalize, scores = ALL[name](), scores_for(name, 3, 4, dtype=torch.float64)
    expected = torch.autograd.functional.jacobian(normalize, scores)
    tangent = torch.randn_like(scores)
    torch.testing.assert_close(torch.func.jacfwd(normalize)(scores), expected)
    torch.testing.assert_close(torch.func.jacrev(normalize)(scores), expected)
    with forward_ad.dual_level():
        actual = forward_ad.unpack_dual(normalize(forward_ad.make_dual(scores, tangent))).tangent
    torch.testing.assert_close(actual, (expected * tangent).sum((-1, -2)))
    if "bell" not in name:  # its positions are those of the full tensor
        rows = torch.func.jacrev(lambda rows: torch.func.vmap(normalize)(rows[:, None])[:, 0])(scores)
        torch.testing.assert_close(rows, expected)


def test_forward_mode_of_softmax_is_that_of_torch():
    scores, tangent = torch.randn(3, 5), torch.randn(3, 5)
    actual = torch.func.jvp(softmax, (scores,), (tangent,))
    torch.testing.assert_close(actual, torch.func.jvp(lambda s: torch.softmax(s, -1), (scores,), (tangent,)))


def test_forward_mode_of_a_temperature_with_hidden_keys():
    scores = scores_for("temperature", 3, 4, dtype=torch.float64)

    def weights_at(t):
        return Temperature(t)(scores)

    t = torch.tensor(0.7, dtype=torch.float64)
    slope = torch.func.jacfwd(weights_at)(t)
    assert slope.isfinite().all()
    torch.testing.assert_close(slope, (weights_at(t + 1e-6) - weights_at(t - 1e-6)) / 2e-6)


rows = st.lists(st.floats(-20, 20, width=32) | st.just(-INF), min_size=1, max_size=9)


@pytest.mark.parametrize("name", sorted((SMOOTH | HARD).keys() - {"foreign", "bell", "sigmoid", "sigmoid_sum"}))
@settings(max_examples=20)
@given(row=rows, shift=st.floats(-5, 5, width=32))
def test_a_shift_changes_nothing(name, row, shift):
    scores = torch.tensor([row], dtype=torch.float64)
    first, second = ALL[name]()(scores), ALL[name]()(scores + shift)
    if name in HARD or name == "topk":  # a shift may round two scores into one
        first, second = first.sort(-1).values, second.sort(-1).values
    # entmax with alpha > 2 is steep at its edges: w ~ sqrt(s - tau)
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", sorted((SMOOTH | HARD | KERNEL).keys() - {"bell", "bell_kernel", "foreign"}))
@settings(max_examples=20)
@given(row=rows, order=st.randoms(use_true_random=False))
def test_order_of_keys_does_not_matter(name, row, order):
    scores = torch.tensor([sorted(set(row))])  # no ties
    scores = scores.exp().masked_fill(scores == -INF, -INF) if name in KERNEL else scores
    permutation = list(range(scores.shape[-1]))
    order.shuffle(permutation)
    normalize = ALL[name]()
    if name == "straight_sparsemax" or name == "straight_softmax":
        scores = scores * 8  # weights may tie where scores do not
    first, second = normalize(scores)[:, permutation], normalize(scores[:, permutation])
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [*sorted(SMOOTH.keys() - {"bell"}), "hardmax", "kernel_sum"])
@settings(max_examples=20)
@given(row=rows, more=st.integers(1, 5))
def test_additional_hidden_keys_change_nothing(name, row, more):
    scores = torch.tensor([row])
    scores = scores.exp().masked_fill(scores == -INF, -INF) if name in KERNEL else scores
    wider = torch.cat([scores, torch.full((1, more), -INF)], -1)
    expected = nn.functional.pad(ALL[name]()(scores), (0, more))
    torch.testing.assert_close(ALL[name]()(wider), expected, rtol=1e-4, atol=1e-6)


def test_properties_of_normalizers():
    assert input_kind(softmax) == input_kind(Temperature(1.0)) == input_kind(lambda s: s) == "logits"
    assert (
        input_kind(kernel_sum)
        == input_kind(Dropout(kernel_sum, 0.1))
        == input_kind(GaussianWindow(kernel_sum, 0.0, 1.0))
        == "kernel"
    )
    assert not any(map(is_random, (softmax, hardmax, Entmax(1.5), lambda s: s, Dropout(softmax, 0.0))))
    for normalize in (
        Sample(),
        Gumbel(),
        Dropout(softmax, 0.1),
        StraightThrough(Sample()),
        GaussianWindow(Gumbel(), 0.0, 1.0),
    ):
        assert is_random(normalize)
        assert not is_random(normalize.eval())
    assert is_random(masked_normalizer(input_kind="logits", is_random=True)(lambda s: s))


def test_a_user_defined_normalizer():
    class Careless(Normalizer):
        def compute_weights(self, scores):
            assert (scores > -INF).any(-1).all()
            assert scores.dtype == torch.float32
            return torch.full_like(scores, torch.nan).where(scores == -INF, torch.ones(()))

    scores = scores_for("softmax", 2, 4, 6, dtype=torch.bfloat16)
    assert torch.equal(Careless()(scores), (scores > -INF).bfloat16())
    with pytest.raises(NotImplementedError, match="implement compute_weights"):
        Normalizer()(torch.zeros(1, 2))


@pytest.mark.bare
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Dropout(softmax, 2), ValueError, "Dropout: p must be .* not 2"),
        (lambda: Dropout(softmax, math.nan), ValueError, "p must be .* not nan"),
        (lambda: Dropout(None, 0.1), TypeError, "normalize must be a function or module.* got None"),
        (lambda: StraightThrough("softmax"), TypeError, "normalize must be a function or module.* got 'softmax'"),
        (
            lambda: StraightThrough(Temperature),
            TypeError,
            r"an instance, not a class: write Temperature\(temperature\)",
        ),
        (lambda: Entmax(0.5), ValueError, "Entmax: alpha must be .* not 0.5"),
        (lambda: TopK(0), ValueError, "TopK: k must be .* not 0"),
        (lambda: TopK(2.5), ValueError, "TopK: k must be .* not 2.5"),
        (lambda: Temperature(0), ValueError, "Temperature: temperature must be .* not 0"),
        (lambda: Temperature("warm"), TypeError, "Temperature: temperature must be .* not 'warm'"),
        (lambda: Gumbel(-1.0), ValueError, "Gumbel: temperature must be .* not -1.0"),
        (lambda: GaussianWindow(softmax, 0.0, 0.0), ValueError, "GaussianWindow: sigma must be .* not 0.0"),
        (lambda: GaussianWindow(Dropout(softmax, 0.1), 0.0, 1.0), ValueError, r"write Dropout\(GaussianWindow"),
        (lambda: StraightThrough(Dropout(softmax, 0.1)), ValueError, r"write Dropout\(StraightThrough"),
        (
            lambda: GaussianWindow(softmax, torch.zeros(2, 3), 1.0)(torch.zeros(3, 4)),
            ValueError,
            r"center .* got \(2, 3\)",
        ),
    ],
)
def test_wrong_arguments(make, error, words):
    with pytest.raises(error, match=words) as caught_error:
        make()
    assert "\n" not in str(caught_error.value)
