"""Normalizers under torch.compile."""

import pytest
import torch

from regard.attention import Dropout, GaussianWindow, Sample, StraightThrough, Temperature, softmax
from regard.attention.normalizers.base import input_kind
from tests.attention.normalizer_cases import ALL, INF, RANDOM, every, scores_for

pytestmark = pytest.mark.bare


def _compiled_agrees(name, backend, dynamic):
    normalize = ALL[name]()
    compiled = torch.compile(normalize, backend=backend, fullgraph=True, dynamic=dynamic)
    for shape in ((2, 4, 6), (3, 5, 8)):
        scores = scores_for(name, *shape).requires_grad_()
        weights = compiled(scores)
        if name not in RANDOM:
            torch.testing.assert_close(weights, normalize(scores))
        assert (weights[scores == -INF] == 0).all()
        if weights.requires_grad:
            (gradient,) = torch.autograd.grad(weights[..., 0].sum(), scores)
            assert gradient.isfinite().all()


@every
@pytest.mark.parametrize("dynamic", [None, True])
def test_compile(name, dynamic):
    torch.compiler.reset()
    _compiled_agrees(name, "eager", dynamic)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("name", ["softmax", "entmax15", "straight_sample"])
def test_compile_with_inductor(name):
    torch.compiler.reset()
    _compiled_agrees(name, "inductor", True)


def test_bound_inside_a_compiled_function():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def compute(scores, center, t):
        assert input_kind(Dropout(softmax, 0.1)) == "logits"
        straight = StraightThrough(Sample())
        weights = straight(scores)
        local = GaussianWindow(Temperature(t.exp()), center * 2, 1.0).with_key_positions(torch.arange(5) * 2)
        return local(scores), straight.log_prob(scores, weights) + straight.entropy(scores)

    scores, center, t = torch.randn(2, 3, 5), torch.rand(2, 3, requires_grad=True), torch.zeros(3, 1)
    weights, log_prob = compute(scores, center, t)
    expected = GaussianWindow(softmax, center * 2, 1.0).with_key_positions(torch.arange(5) * 2)(scores)
    torch.testing.assert_close(weights, expected)
    assert log_prob.shape == (2, 3)
    weights.sum().backward()
    assert (center.grad != 0).any()
