"""Weights are those of the call: later changes are detected, and reading has no side effects."""

import pytest
import torch

from regard.attention import (
    Additive,
    Attention,
    Bilinear,
    Concat,
    Dropout,
    Gumbel,
    LocalM,
    MultiHead,
    Sample,
    ScaledDot,
    Temperature,
    around,
    attend,
    documents,
    padding,
    softmax,
)
from regard.testing.checks import make_inputs

CHANGES = {
    "query": lambda s: s.query.add_(1),
    "part of the query": lambda s: s.query[0, 0].zero_(),
    "key": lambda s: s.key.mul_(2),
    "parameter": lambda s: torch.optim.SGD(s.score.parameters(), lr=1.0).step(),
    "loaded": lambda s: s.score.load_state_dict({"weight": torch.eye(4, dtype=torch.float64)}),
    "replaced parameter": lambda s: setattr(s.score, "weight", torch.nn.Parameter(torch.eye(4).double())),
    "lengths": lambda s: s.lengths.fill_(1),
    "mask": lambda s: s.visible.fill_(True),
    "center": lambda s: s.center.add_(1),
    "documents": lambda s: s.ids.zero_(),
    "temperature": lambda s: setattr(s.normalize, "temperature", 0.1),
    "learned temperature": lambda s: s.learned.temperature.detach().add_(1),
}


class Example:
    """A call with every kind of tensor and setting that a caller may change afterwards."""

    def __init__(self):
        torch.manual_seed(0)
        self.query, self.key, self.value = make_inputs(5, 6, (2,))
        self.score = Bilinear(4, 4).double()
        self.score.weight.grad = torch.ones_like(self.score.weight)
        self.lengths, self.center = torch.tensor([6, 4]), torch.full((2, 5), 2.0)
        self.visible, self.ids = torch.rand(5, 6) < 0.9, torch.arange(6) // 4
        self.normalize, self.learned = (Temperature(0.7), Temperature(torch.nn.Parameter(torch.tensor(0.7).double())))

    def attend(self, normalize):
        mask = padding(self.lengths) & around(self.center, 3) & self.visible & documents(self.ids[:5], self.ids)
        return attend(self.query, self.key, self.value, mask, score=self.score, normalize=normalize)


@pytest.mark.parametrize("change", CHANGES)
def test_weights_of_changed_tensors_are_an_error(change):
    example = Example()
    normalize = example.learned if "learned" in change else example.normalize
    early, late = example.attend(normalize), example.attend(normalize)
    expected = early.weights.detach().clone()
    CHANGES[change](example)
    with pytest.raises(RuntimeError, match=r"can no longer be read.*changed since.*read .weights before") as error:
        _ = late.weights
    assert "\n" not in str(error.value)
    with pytest.raises(RuntimeError, match="can no longer be read"):
        _ = late.scores
    assert torch.equal(early.weights, expected)  # read before the change
    assert late.context.isfinite().all()


def test_irrelevant_changes_are_allowed():
    example = Example()
    output, expected = example.attend(example.normalize), example.attend(example.normalize).weights
    example.value.zero_()
    example.score.weight.grad.zero_()
    example.score.eval()
    example.score.requires_grad_(False)
    torch.testing.assert_close(output.weights, expected)


def test_weights_that_were_read_do_not_change():
    """A path that computes the weights stores them."""
    sample = make_inputs(5, 6, (2,))
    output = attend(*sample, normalize=Sample())
    expected = output.weights.clone()
    sample.query.zero_()
    assert torch.equal(output.weights, expected)


def test_a_training_loop_that_reads_too_late_raises():
    module = MultiHead(8, 2)
    optimizer = torch.optim.Adam(module.parameters())
    x = torch.randn(2, 5, 8)
    output = module(x)
    early = module(x)
    early_weights = early.weights
    (output.context.sum() + early_weights.sum()).backward()
    optimizer.step()
    assert torch.equal(early.weights, early_weights)
    # The projections were computed before the step, and these tensors have not changed.
    torch.testing.assert_close(output.weights, early_weights)
    local = LocalM(Additive(8, 8, 4), 2)
    optimizer = torch.optim.Adam(local.parameters())
    output = local(x, torch.randn(2, 50, 8), torch.randn(2, 50, 3))
    output.context.sum().backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match="can no longer be read"):
        _ = output.weights


def test_autocast_is_that_of_the_call():
    x = torch.randn(2, 5, 4)
    for score in (Bilinear(4, 4), Additive(4, 4, 5), ScaledDot(), Concat(4, 4, 5)):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            output, other = (attend(x.bfloat16(), x.bfloat16(), x.bfloat16(), score=score) for _ in range(2))
            inside = output.weights
        assert torch.equal(other.weights, inside)
        plain = attend(x, x, x, score=score)
        expected = attend(x, x, x, score=score).weights
        with torch.autocast("cpu", dtype=torch.bfloat16):
            torch.testing.assert_close(plain.weights, expected)


@pytest.mark.parametrize("normalize", [Gumbel(0.5), Sample(), Dropout(softmax, 0.5)], ids=lambda n: type(n).__name__)
def test_reading_draws_no_random_numbers(normalize):
    sample = make_inputs(5, 6, (2,))
    output = attend(*sample, normalize=normalize)
    state = torch.get_rng_state()
    _ = output.weights, output.scores
    assert torch.equal(torch.get_rng_state(), state)


def test_a_scalar_center_that_changes_in_place_is_detected():
    center = torch.tensor(1.0)
    output = attend(*(torch.randn(9, 4) for _ in range(3)), around(center, 1))
    center.fill_(6.0)
    with pytest.raises(RuntimeError, match="can no longer be read"):
        _ = output.weights


def test_an_integer_setting_that_changes_is_detected():
    temperature = Temperature(2)
    output = attend(*(torch.randn(9, 4) for _ in range(3)), normalize=temperature)
    temperature.temperature = 5
    with pytest.raises(RuntimeError, match="can no longer be read"):
        _ = output.weights


@pytest.mark.parametrize("attention", [Attention(Additive(4, 4, 8)), MultiHead(4, 2)], ids=["one", "heads"])
def test_precomputed_keys_of_changed_parameters_are_an_error(attention):
    key = torch.randn(2, 5, 4)
    memory = attention.precompute(key, key)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.mul_(-3)
    with pytest.raises(RuntimeError, match=r"call precompute\(\) again"):
        memory(torch.randn(2, 3, 4))
