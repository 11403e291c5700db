"""Unusual inputs: empty axes, extreme values, zero vectors, memory layouts."""

import pytest
import torch

from regard.attention import (
    Additive,
    Boxcar,
    Cosine,
    Dot,
    Gaussian,
    LocalM,
    ScaledDot,
    Temperature,
    TopK,
    around,
    attend,
    causal,
    dense,
    entmax15,
    hardmax,
    padding,
    sigmoid,
    softmax,
    sparsemax,
)
from regard.testing.checks import make_inputs
from tests.contract.mechanisms import SCORES

each_score = pytest.mark.parametrize("score", SCORES)
BATCH = (3, 2)

# ---- sizes


@each_score
def test_one_key(score):
    sample = make_inputs(5, 1, BATCH)
    part = SCORES[score]()
    part = part.double() if isinstance(part, torch.nn.Module) else part
    output = attend(*sample, score=part)
    kernel = getattr(part, "output_kind", "") == "kernel"  # a key beyond the width has weight 0
    assert ((output.weights == 1) | ((output.weights == 0) & kernel)).all()
    torch.testing.assert_close(output.context, output.weights * sample.value)


@each_score
def test_no_keys_and_no_queries_with_masks(score):
    part = SCORES[score]()
    part = part.double() if isinstance(part, torch.nn.Module) else part
    for mask in (causal(), padding([0, 0, 0]), around(2.0, 1), dense(torch.ones(1, 1) > 0)):
        output = attend(*make_inputs(5, 0, BATCH), mask, score=part)
        assert output.context.shape == (*BATCH, 5, 3)
        assert (output.context == 0).all()
        assert output.weights.shape == (*BATCH, 5, 0)
        assert attend(*make_inputs(0, 6, BATCH), mask, score=part).context.shape == (*BATCH, 0, 3)


def test_no_batch_entries():
    for score in (ScaledDot(), Gaussian(), Additive(4, 4, 5).double(), Cosine()):
        for mask in (None, causal(), padding(torch.zeros(0, dtype=torch.long))):
            output = attend(*make_inputs(5, 6, (0,)), mask, score=score)
            assert output.context.shape == (0, 5, 3)
            assert output.weights.shape == (0, 5, 6)


def test_no_features():
    query, key, value = torch.zeros(2, 3, 0), torch.zeros(2, 4, 0), torch.randn(2, 4, 3)
    for score in (Dot(), ScaledDot(), Cosine(), Gaussian()):
        torch.testing.assert_close(attend(query, key, value, score=score).context, value.mean(1, True).expand(2, 3, 3))
    assert attend(torch.zeros(2, 3, 4), torch.zeros(2, 5, 4), torch.zeros(2, 5, 0)).context.shape == (2, 3, 0)
    value = torch.randn(2, 30, 3)
    sample = torch.zeros(2, 9, 0), torch.zeros(2, 30, 0), value
    near = value.unfold(1, 3, 1).mean(-1)  # the mean of each key and its two neighbors
    torch.testing.assert_close(attend(*sample, around(torch.arange(9.0) + 1, 1)).context, near[:, :9])
    torch.testing.assert_close(LocalM(ScaledDot(), 1)(*sample).context[:, 1:], near[:, :8])


# ---- large and small numbers


@each_score
@pytest.mark.parametrize("size", [1e4, 1e-30], ids=["huge", "tiny"])
def test_extreme_vectors_have_finite_results(score, size):
    part = SCORES[score]()
    sample = make_inputs(5, 6, BATCH, dtype=torch.float32)
    query, key = (size * sample.query).requires_grad_(), (size * sample.key).requires_grad_()
    for mask in (None, padding([6, 2, 0])):
        output = attend(query, key, sample.value, mask, score=part)
        assert output.context.isfinite().all()
        assert output.weights.isfinite().all()
        torch.testing.assert_close(output.context, output.weights @ sample.value, rtol=1e-3, atol=1e-3)
        gradients = (
            torch.autograd.grad(output.context.sum() + output.weights.square().sum(), (query, key), allow_unused=True)
            if output.context.requires_grad
            else ()
        )
        assert all(g is None or g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("offset", [1000.0, -1000.0])
@pytest.mark.parametrize("size", [5, 64])
def test_additive_with_large_offsets(offset, size):
    """Projections around 1000 apart from each other, on the product path (64) and by the definition (5)."""
    torch.manual_seed(0)
    score = Additive(4, 4, 64)
    query, key, value = torch.randn(2, size, 4), torch.randn(2, size, 4), torch.randn(2, size, 3)
    with torch.no_grad():
        score.query_proj.weight.mul_(20)
        query[:, : size // 2] += offset
        key[..., 0] -= offset
    exact = Additive(4, 4, 64).double()
    exact.load_state_dict({name: tensor.double() for name, tensor in score.state_dict().items()})
    wide = exact.reference_scores(query.double(), key.double())
    # what float32 projections can be asked for: their own rounding, not more
    a, b = score.query_proj(query).double(), score.key_proj(key).double()
    expected = torch.tanh(a.unsqueeze(-2) + b.unsqueeze(-3)) @ score.energy.double()
    actual = score(query, key)
    torch.testing.assert_close(actual.double(), expected, rtol=1e-4, atol=1e-4)
    assert wide.isfinite().all()
    output = attend(query, key, value, score=score)
    torch.testing.assert_close(output.context.double(), expected.softmax(-1) @ value.double(), rtol=1e-3, atol=1e-3)


def test_sums_over_many_keys_are_accurate_in_half_precision():
    """4096 equal weights of 1/4096: added up in bfloat16 they would stop growing."""
    value = torch.ones(4096, 1, dtype=torch.bfloat16)
    key, query = torch.zeros(4096, 4, dtype=torch.bfloat16), torch.zeros(1, 4, dtype=torch.bfloat16)
    for score in (ScaledDot(), Gaussian(), Cosine()):
        for normalize in (None, Temperature(2.0), sparsemax, entmax15):
            context = attend(query, key, value, score=score, normalize=normalize).context
            assert context.item() == pytest.approx(1.0, abs=0.01)


def test_infinite_scores_of_a_user_defined_score():
    """A score may hide keys by itself."""

    def only_even(query, key):
        scores = query @ key.mT
        return scores.masked_fill(torch.arange(key.shape[-2]) % 2 == 1, -torch.inf)

    sample = make_inputs(5, 6, (2,))
    for normalize in (softmax, sparsemax, hardmax, sigmoid, TopK(2)):
        weights = attend(*sample, score=only_even, normalize=normalize).weights
        assert (weights[..., 1::2] == 0).all()
        assert (weights.sum(-1) > 0).all()


# ---- zero vectors


def test_cosine_of_zero_vectors():
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    query[:, 0], key[:, 1] = 0, 0
    query.requires_grad_(), key.requires_grad_()
    scores = Cosine(3.0)(query, key)
    assert (scores[:, 0] == 0).all()
    assert (scores[:, :, 1] == 0).all()
    output = attend(query, key, key, score=Cosine(3.0))
    (output.context.square().sum() + output.weights.square().sum() + scores.square().sum()).backward()
    assert query.grad.isfinite().all()
    assert key.grad.isfinite().all()
    assert (query.grad[:, 0] == 0).all()


def test_distance_zero():
    key = torch.randn(2, 5, 4, requires_grad=True)
    for score in (Gaussian(), Gaussian(0.3, learned=True), Boxcar(1.0)):
        output = attend(key, key, key, score=score)
        (output.context.square().sum() + output.weights.square().sum()).backward()
        assert key.grad.isfinite().all()


# ---- layouts of memory


def layouts(tensor):
    """The same values in four memory layouts."""
    yield "transposed", tensor.mT.contiguous().mT
    yield ("every other one", torch.stack([tensor, tensor.new_full(tensor.shape, 9.0)], -1).flatten(-2)[..., ::2])
    yield "reversed twice", tensor.flip(-2).flip(-2)
    yield "batch last", tensor.movedim(0, -1).contiguous().movedim(-1, 0)


@each_score
def test_layouts(score):
    sample = make_inputs(5, 6, BATCH)
    part = SCORES[score]()
    part = part.double() if isinstance(part, torch.nn.Module) else part
    for mask in (None, padding([6, 2, 0])):
        expected = attend(*sample, mask, score=part)
        for (_, query), (_, key), (_, value) in zip(*(layouts(t) for t in sample), strict=True):
            output = attend(query, key, value, mask, score=part)
            torch.testing.assert_close(output.context, expected.context)
            torch.testing.assert_close(output.weights, expected.weights)


@each_score
def test_expanded_tensors(score):
    sample = make_inputs(5, 6, BATCH)
    part = SCORES[score]()
    part = part.double() if isinstance(part, torch.nn.Module) else part
    query, key, value = (t[:1, :1].expand(*BATCH, -1, -1) for t in sample)
    key = key[..., :1, :].expand(-1, -1, 6, -1)
    mask = torch.ones(1, 1, dtype=torch.bool).expand(5, 6)
    output = attend(query, key, value, mask, score=part)
    expected = attend(*(t.contiguous() for t in (query, key, value)), mask.contiguous(), score=part)
    torch.testing.assert_close(output.context, expected.context)
    torch.testing.assert_close(output.weights, expected.weights)


def test_one_tensor_as_all_three():
    x = torch.randn(2, 5, 4, requires_grad=True)
    (gradient,) = torch.autograd.grad(attend(x, x, x, causal()).context.square().sum(), x)
    y = x.detach().clone().requires_grad_()
    (expected,) = torch.autograd.grad(attend(y, y.clone(), y.clone(), causal()).context.square().sum(), y)
    torch.testing.assert_close(gradient, expected)
