"""The equation: parity with PyTorch, broadcasting, the output and when its parts are computed."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    AttentionOutput,
    Bilinear,
    Boxcar,
    Concat,
    Cosine,
    Dot,
    Dropout,
    Gaussian,
    GaussianWindow,
    Rotary,
    Sample,
    ScaledDot,
    StraightThrough,
    Temperature,
    attend,
    causal,
    kernel_sum,
    padding,
    softmax,
    sparsemax,
    window,
)
from regard.testing.checks import make_inputs

BATCHES = {"2D": (), "3D": (2,), "4D": (2, 3), "5D": (2, 1, 3)}


def random_inputs(shape, queries=5, keys=7, dim=8, value_dim=8, **options):
    make = lambda n, d: torch.randn(*shape, n, d, requires_grad=True, **options)  # noqa: E731
    return make(queries, dim), make(keys, dim), make(keys, value_dim)


def same(ours, theirs, inputs, tolerance=1e-5):
    torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)
    factor = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, inputs, factor), torch.autograd.grad(theirs, inputs, factor), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


# ---- parity with scaled_dot_product_attention


@pytest.mark.parametrize("value_dim", [8, 3, 20])
@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_parity_without_a_mask(batch, value_dim):
    inputs = random_inputs(batch, value_dim=value_dim)
    same(attend(*inputs).context, F.scaled_dot_product_attention(*inputs), inputs)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_parity_with_a_bool_mask(batch):
    inputs = random_inputs(batch)
    for shape in ((5, 7), (1, 7), (*batch, 5, 7)):
        mask = torch.rand(shape) < 0.6
        mask[..., 0] = True
        same(attend(*inputs, mask).context, F.scaled_dot_product_attention(*inputs, attn_mask=mask), inputs)


@pytest.mark.parametrize("batch", BATCHES.values(), ids=BATCHES)
def test_parity_with_is_causal(batch):
    for queries, keys in ((5, 5), (5, 7), (7, 5)):  # PyTorch aligns to the top left
        inputs = random_inputs(batch, queries, keys)
        theirs = F.scaled_dot_product_attention(*inputs, is_causal=True)
        same(attend(*inputs, causal(offset=0)).context, theirs, inputs)
    square = random_inputs(batch, 6, 6)
    same(attend(*square, causal()).context, F.scaled_dot_product_attention(*square, is_causal=True), square)


def test_parity_of_every_dtype():
    for dtype, tolerance in ((torch.float64, 1e-10), (torch.bfloat16, 2e-2)):
        inputs = random_inputs((2, 3), dtype=dtype)
        same(attend(*inputs).context, F.scaled_dot_product_attention(*inputs), inputs, tolerance)
        assert attend(*inputs).weights.dtype == dtype


def test_parity_with_one_query_for_many_heads_of_keys():
    """Grouped queries: keys and values of one head, used by all."""
    query, _, _ = random_inputs((2, 4))
    _, key, value = random_inputs((2, 1))
    theirs = F.scaled_dot_product_attention(query, key.expand(2, 4, 7, 8), value.expand(2, 4, 7, 8))
    same(attend(query, key, value).context, theirs, (query, key, value))
    masked = attend(query, key, value, padding([7, 2])).context
    mask = (torch.arange(7) < torch.tensor([[7], [2]])).reshape(2, 1, 1, 7)
    theirs = F.scaled_dot_product_attention(query, key.expand(2, 4, 7, 8), value.expand(2, 4, 7, 8), attn_mask=mask)
    same(masked, theirs, (query, key, value))


# ---- broadcasting


@pytest.mark.parametrize("score", [ScaledDot(), Additive(8, 8, 5), Gaussian(), Cosine(3.0), Boxcar(4.0)], ids=repr)
@pytest.mark.parametrize(
    ("q", "k", "v"),
    [((), (2, 3), ()), ((3,), (2, 1), (2, 3)), ((2, 3), (), (3,)), ((2, 1), (3,), ()), ((), (), (2, 3))],
)
def test_leading_axes_broadcast(score, q, k, v):
    query, key, value = torch.randn(*q, 5, 8), torch.randn(*k, 7, 8), torch.randn(*v, 7, 4)
    wide = query.expand(2, 3, 5, 8), key.expand(2, 3, 7, 8), value.expand(2, 3, 7, 4)
    for mask in (None, padding(torch.tensor([7, 3])), torch.rand(3, 5, 7) < 0.5, causal()):
        output, expected = (attend(*inputs, mask, score=score) for inputs in ((query, key, value), wide))
        torch.testing.assert_close(output.context.expand(2, 3, 5, 4), expected.context)
        torch.testing.assert_close(output.weights.expand(2, 3, 5, 7), expected.weights)


# ---- the result


class Counting(ScaledDot):
    """Counts how often the matrix of scores is computed."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def forward(self, query, key):
        self.calls.append(1)
        return super().forward(query, key)


def test_weights_are_computed_once_when_they_are_read():
    score = Counting()
    output = attend(*make_inputs(4, 6, (2,)), score=score)
    assert not score.calls
    first = output.weights
    assert len(score.calls) == 1
    assert output.weights is first or torch.equal(output.weights, first)
    _ = output.scores
    assert len(score.calls) == 1


def test_a_path_that_computes_the_weights_stores_them():
    score = Counting()
    output = attend(*make_inputs(4, 6, (2,)), score=score, normalize=sparsemax)
    assert len(score.calls) == 1
    _ = output.weights
    assert len(score.calls) == 1


def test_scores_are_the_input_of_the_normalizer():
    sample = make_inputs(4, 6, (2,))
    output = attend(*sample, padding([6, 2]))
    raw = sample.query @ sample.key.mT / 2
    visible = padding([6, 2]).materialize(4, 6).expand(2, 4, 6)
    assert (output.scores[~visible] == -torch.inf).all()
    torch.testing.assert_close(output.scores[visible], raw[visible])
    torch.testing.assert_close(output.weights, softmax(output.scores))


def test_repr_and_no_log_prob_without_sampling():
    output = attend(*make_inputs(4, 6, (2,)))
    assert isinstance(output, AttentionOutput)
    assert repr(output) == "AttentionOutput(context=(2, 4, 3))"
    assert output.log_prob is None
    assert output.entropy is None


def test_weights_have_gradients_in_a_separate_loss():
    sample = make_inputs(4, 6, (2,)).requiring_grad()
    score = Additive(4, 4, 5).double()
    output = attend(*sample, score=score)
    (output.weights * output.weights.clamp(min=1e-9).log()).sum().backward()
    assert sample.query.grad.abs().sum() > 0
    assert all(p.grad.abs().sum() > 0 for p in score.parameters())


# ---- the module


def test_the_module_equals_the_function():
    sample = make_inputs(4, 6, (2,))
    score = Bilinear(4, 4).double()
    module = Attention(score, sparsemax)
    output, expected = module(*sample, causal()), attend(*sample, causal(), score=score, normalize=sparsemax)
    assert torch.equal(output.context, expected.context)
    assert torch.equal(output.weights, expected.weights)
    assert [name for name, _ in module.named_parameters()] == ["score.weight"]
    assert torch.equal(Attention()(*sample).context, attend(*sample).context)
    other = copy.deepcopy(module)
    assert torch.equal(other(*sample, causal()).context, output.context)


def test_the_default_normalizer_depends_on_the_score():
    sample = make_inputs(4, 6, (2,))
    expected = attend(*sample, score=Boxcar(3.0), normalize=kernel_sum).context
    assert torch.equal(Attention(Boxcar(3.0))(*sample).context, expected)


@pytest.mark.parametrize(
    "score",
    [
        ScaledDot(),
        Bilinear(4, 4),
        Additive(4, 4, 5),
        Concat(4, 4, 5),
        Concat(4, 4, 5, num_layers=2),
        Cosine(2.0),
        Gaussian(),
        Rotary(ScaledDot()),
        Rotary(Additive(4, 4, 5)),
        ScaledDot() + Alibi(3),
        2 * Additive(4, 4, 5),
        Boxcar(3.0),
        Additive(None, 4, 5),
    ],
    ids=lambda score: " ".join(repr(score).split()),
)
@pytest.mark.parametrize("mask", [None, padding([6, 3]), window(2, 1), causal()], ids=repr)
def test_precomputed_keys_equal_the_keys(score, mask):
    sample = make_inputs(2, 6, (2, 3))
    attention = Attention(score.double())
    again = attention.precompute(sample.key, sample.value, mask)
    for query in (sample.query, sample.query + 1, sample.query[..., :1, :]):
        output, expected = again(query), attention(query, sample.key, sample.value, mask)
        torch.testing.assert_close(output.context, expected.context)
        torch.testing.assert_close(output.weights, expected.weights)


def test_precomputed_keys_are_projected_once():
    score = Additive(4, 4, 5)
    calls = []
    score.key_proj.register_forward_hook(lambda *_: calls.append(1))
    key = torch.randn(2, 6, 4)
    again = Attention(score).precompute(key, key)
    for _ in range(3):
        _ = again(torch.randn(2, 1, 4)).weights
    assert len(calls) == 1


def test_precomputed_keys_have_gradients():
    sample = make_inputs(2, 6, (2,)).requiring_grad()
    score = Additive(4, 4, 5).double()
    again = Attention(score).precompute(sample.key, sample.value)
    inputs = [*sample, *score.parameters()]
    factor = torch.randn(2, 2, 3, dtype=torch.float64)
    for actual, expected in zip(
        torch.autograd.grad(again(sample.query).context, inputs, factor),
        torch.autograd.grad(Attention(score)(*sample).context, inputs, factor),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected)


# ---- dropout


def test_the_context_uses_dropped_weights_and_weights_are_those_before():
    sample = make_inputs(40, 50, (2,))
    value = torch.eye(50, dtype=torch.float64)  # the context then is the weights that were used
    drop = Dropout(softmax, 0.3)
    output = attend(sample.query, sample.key, value, normalize=drop)
    plain = attend(sample.query, sample.key, value).weights
    torch.testing.assert_close(output.weights, plain)
    retained = output.context != 0
    assert 0.65 < retained.double().mean() < 0.75
    torch.testing.assert_close(output.context[retained], plain[retained] / 0.7)
    quiet = attend(sample.query, sample.key, value, normalize=drop.eval())
    torch.testing.assert_close(quiet.context, plain)
    everything = attend(sample.query, sample.key, value, normalize=Dropout(softmax, 1.0))
    assert (everything.context == 0).all()
    nothing = attend(sample.query, sample.key, value, normalize=Dropout(softmax, 0.0))
    torch.testing.assert_close(nothing.context, plain)


def test_a_later_switch_to_eval_does_not_change_the_weights():
    sample = make_inputs(4, 6, (2,))
    module = Attention(ScaledDot(), Dropout(Temperature(0.5), 0.5))
    output = module(*sample)
    expected = module(*sample).weights
    module.eval()
    assert torch.equal(output.weights, expected)
    assert not any(part.training for part in module.modules())


def test_training_and_grad_mode_are_those_of_the_call():
    class Loud(nn.Module):
        """A score that differs in training, so that the weights show the mode."""

        def forward(self, query, key):
            return query @ key.mT * (2 if self.training else 1)

    sample = make_inputs(4, 6, (2,)).requiring_grad()

    class Fast(ScaledDot):
        def scale(self, dim):
            return 2.0 if self.training else 1.0

    for score in (Loud(), Fast()):
        module = Attention(score)
        output = module.train()(*sample)
        module.eval()
        torch.testing.assert_close(output.weights, softmax(2 * sample.query @ sample.key.mT))
        assert not score.training
    with torch.no_grad():
        later = attend(*sample).weights
    assert not later.requires_grad
    output = attend(*sample)
    with torch.no_grad():
        assert output.weights.requires_grad
    with torch.no_grad():
        output = attend(*sample)
    assert not output.weights.requires_grad
    with torch.inference_mode():
        output = attend(*sample)
    assert torch.equal(output.weights, attend(*sample).weights)


# ---- one key at a time


def test_the_context_is_the_value_of_the_sampled_key():
    sample = make_inputs(200, 6, (2,))
    output = attend(*sample, padding([6, 2]), normalize=Sample())
    assert ((output.weights == 0) | (output.weights == 1)).all()
    assert (output.weights.sum(-1) == 1).all()
    torch.testing.assert_close(output.context, output.weights @ sample.value)
    soft = attend(*sample, padding([6, 2])).weights
    chosen = (soft * output.weights).sum(-1)
    torch.testing.assert_close(output.log_prob, chosen.log())
    torch.testing.assert_close(output.entropy, -(soft * soft.clamp(min=1e-300).log()).sum(-1))
    assert output.log_prob.shape == (2, 200)


def test_the_best_key_in_eval_mode():
    sample = make_inputs(20, 6, (2,))
    output = attend(*sample, normalize=Sample().eval())
    assert torch.equal(output.weights.argmax(-1), output.scores.argmax(-1))
    torch.testing.assert_close(output.log_prob, softmax(output.scores).amax(-1).log())


def test_log_prob_through_wrappers():
    sample = make_inputs(4, 6, (2,))
    for normalize in (StraightThrough(Sample()), Dropout(Sample(), 0.3)):
        output = attend(*sample, normalize=normalize)
        assert output.log_prob.shape == output.entropy.shape == (2, 4)
    assert attend(*sample, normalize=GaussianWindow(softmax, 1.0, 2.0)).log_prob is None


def test_log_prob_and_entropy_without_visible_keys():
    sample = make_inputs(4, 6, (2,)).requiring_grad()
    output = attend(*sample, padding([0, 3]), normalize=Sample())
    assert (output.log_prob[0] == 0).all()
    assert (output.entropy[0] == 0).all()
    (output.log_prob.sum() + output.entropy.sum()).backward()
    assert sample.query.grad.isfinite().all()
    assert (sample.query.grad[0] == 0).all()


def test_reinforce_estimates_the_gradient_of_the_expected_reward():
    """E[r] = sum_i p_i r_i has gradient sum_i p_i (r_i - E[r]) ds_i; the sampled estimate equals it on average."""
    torch.manual_seed(3)
    query = torch.randn(1, 3, dtype=torch.float64, requires_grad=True)
    key = torch.randn(4, 3, dtype=torch.float64)
    reward = torch.tensor([[1.0], [0.0], [-2.0], [3.0]], dtype=torch.float64)
    exact_value = attend(query, key, reward, score=Dot()).context.squeeze()
    (exact,) = torch.autograd.grad(exact_value, query)
    many = query.expand(40_000, 1, 3)
    output = attend(many, key, reward, score=Dot(), normalize=Sample())
    advantage = output.context.squeeze(-1).detach() - exact_value.detach()
    (estimate,) = torch.autograd.grad((advantage * output.log_prob).mean(), query)
    assert output.context.mean().item() == pytest.approx(exact_value.item(), abs=0.03)
    torch.testing.assert_close(estimate, exact, rtol=0, atol=0.03)


def test_a_generator_makes_sampling_reproducible():
    sample = make_inputs(50, 6, (2,))
    first, second = (attend(*sample, normalize=Sample(torch.Generator().manual_seed(5))).weights for _ in range(2))
    assert torch.equal(first, second)
