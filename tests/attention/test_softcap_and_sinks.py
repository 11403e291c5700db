"""SoftCap and WithSink against their formulas, on fast paths, and with wrong arguments."""

import pytest
import torch
from torch import nn

from regard.attention import (
    Bilinear,
    Dot,
    Location,
    MultiHead,
    Rotary,
    ScaledDot,
    SoftCap,
    WithSink,
    attend,
    causal,
    kernel_sum,
    padding,
    softmax,
    sparsemax,
    window,
)
from regard.attention.fast import blocked
from regard.errors import ShapeError, UsageError
from regard.testing.checks import make_inputs


def test_the_cap_is_that_of_gemma2():
    sample = make_inputs()
    scores = sample.query @ sample.key.mT / 2
    torch.testing.assert_close(SoftCap(ScaledDot(), 0.7)(sample.query, sample.key), torch.tanh(scores / 0.7) * 0.7)
    assert SoftCap(ScaledDot, 3.0)(sample.query, sample.key).abs().max() < 3.0


def test_keys_that_the_score_hides_stay_hidden():
    score, sample = SoftCap(Location(4, 4).double(), 2.0), make_inputs(5, 6)
    weights = attend(*sample, score=score).weights
    assert (weights[..., 4:] == 0).all()
    assert (weights[..., :4] > 0).all()


@pytest.mark.parametrize("inner", [ScaledDot, lambda: Bilinear(4, 4).double(), lambda: Rotary(ScaledDot())])
def test_a_cap_keeps_the_window_linear(inner, used_paths, monkeypatch):
    sample, score = make_inputs(200, 200, (2, 3)), SoftCap(inner(), 0.8)
    output = attend(*sample, window(4, 0), score=score)
    assert used_paths == ["banded"]
    torch.testing.assert_close(output.context, output.weights @ sample.value)
    monkeypatch.setattr(blocked, "MAX_SCORES", 10_000)
    torch.testing.assert_close(
        attend(*sample, causal(), score=score).context,
        attend(*sample, causal().materialize(200, 200), score=score).weights @ sample.value,
    )
    assert used_paths[-1] == "blocked"


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_heads_are_capped(kv_heads):
    attention = MultiHead(16, 4, kv_heads, score=SoftCap(ScaledDot(), 0.5))
    output = attention(x := torch.randn(2, 5, 16), mask=causal())
    torch.testing.assert_close(attention.precompute(x, mask=causal())(x).context, output.context)
    assert output.scores.masked_fill(output.scores == -torch.inf, 0).abs().max() < 0.5


# ---- sinks


def test_a_sink_is_one_more_key_without_a_value():
    scores = torch.randn(2, 3, 5, 6, dtype=torch.float64)
    normalize = WithSink(softmax, 3, sinks=nn.Parameter(torch.randn(3, dtype=torch.float64)))
    column = normalize.sinks.view(1, 3, 1, 1).expand(2, 3, 5, 1)
    expected = torch.softmax(torch.cat([scores, column], -1), -1)[..., :6]
    torch.testing.assert_close(normalize(scores), expected)
    assert torch.autograd.gradcheck(
        lambda s, sinks: WithSink(softmax, 3, sinks=sinks)(s), (scores.requires_grad_(), normalize.sinks)
    )


def test_zeros_are_softmax_plus_one():
    scores = torch.randn(4, 6)
    torch.testing.assert_close(WithSink(softmax, 1)(scores), scores.exp() / (1 + scores.exp().sum(-1, keepdim=True)))


def test_a_query_without_visible_keys_gives_all_weight_to_the_sink():
    attention = MultiHead(16, 4, normalize=WithSink(softmax, 4), dropout=0.1)
    output = attention(torch.randn(2, 3, 16), mask=padding([3, 0]))
    assert torch.equal(output.weights[1], torch.zeros(4, 3, 3))
    output.context.sum().backward()
    sinks = attention.normalize.normalize.sinks
    assert torch.isfinite(sinks.grad).all()
    assert "normalize.normalize.sinks" in attention.state_dict()


def test_sinks_in_a_window_equal_the_definition(used_paths):
    """Each head has its own sink, so rows are not alike and the window is not cut into blocks."""
    sample = make_inputs(200, 200, (2, 3))
    normalize = WithSink(sparsemax, 3, sinks=torch.tensor([-1.0, 0.5, 3.0], dtype=torch.float64))
    output = attend(*sample, window(4, 0), normalize=normalize)
    assert used_paths == []
    torch.testing.assert_close(output.context, output.weights @ sample.value)


@pytest.mark.bare
def test_unusable_arguments_are_refused():
    for cap in (0, -1.0, True, "50", float("inf"), None):
        with pytest.raises(UsageError, match="SoftCap: cap must be a positive number"):
            SoftCap(Dot(), cap)
    with pytest.raises(UsageError, match="kernel values have no sink"):
        WithSink(kernel_sum, 2)
    for heads, sinks in ((0, None), (2, torch.zeros(3)), (2, torch.zeros(2, 1))):
        with pytest.raises(ShapeError, match=r"sinks must be \(num_heads,\)"):
            WithSink(softmax, heads, sinks=sinks)
    for shape in ((2, 4, 5, 6), (5, 6)):
        with pytest.raises(ShapeError, match="WithSink expects 3 heads on the axis before the queries, got scores"):
            WithSink(softmax, 3)(torch.zeros(shape))
