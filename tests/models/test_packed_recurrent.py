"""The recurrent model's shortcut is its steps: for every cell, order and attention, and wherever rows share."""

from functools import partial
from itertools import chain, product

import pytest
import torch
from torch import nn

from regard import attention as a
from regard.attention._watching import telling
from regard.decoding import Decoding, decode
from regard.models import Recurrent, _factored, _packed_recurrent_steps
from regard.models._factored import Factored
from regard.models._packed_recurrent_steps import PackedRecurrentSteps
from regard.models._shared import distinct
from regard.models.recurrent import Steps
from tests.models.laws import TARGET_WORDS, close, some_pairs
from tests.models.test_beams import beams_are_rows
from tests.models.test_recurrent import ATTENTIONS, DIM, ORDERS, small

LENGTHS = (6, 3, 1, 5, 4, 6, 2)
GRID = list(product(ORDERS, ("gru", "lstm"), (1, 2), (False, True)))


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    """Few rows share too, and a few pairs fill the cache."""
    monkeypatch.setattr(_packed_recurrent_steps, "distinct", partial(distinct, few=1))
    monkeypatch.setattr(_factored, "CACHED", 3 * 4 * 6 * 5)


def plain(model, source, lengths):
    """The definition, whatever `begin` takes."""
    return Steps(model, *model.encode(source, lengths))


def begun(model, source, lengths):
    steps = model.begin(source, lengths)
    assert isinstance(steps, PackedRecurrentSteps)
    return steps


@pytest.mark.parametrize(("order", "cell", "layers", "tied"), GRID)
def test_the_shortcut_is_the_steps(order, cell, layers, tied):
    model = small(order, cell, layers, tied=tied)
    source, lengths, _ = some_pairs(LENGTHS)
    with torch.no_grad():
        steps = begun(model, source, lengths)
        assert isinstance(steps.memory, Factored)
        beams_are_rows(steps, plain(model, source, lengths))


@pytest.mark.parametrize("attention", [name for name in ATTENTIONS if name not in ("additive", "sample")])
@pytest.mark.parametrize("order", list(ORDERS))
def test_other_attention_is_asked_as_it_is(order, attention):
    model = small(order, attention=attention)
    source, lengths, _ = some_pairs(LENGTHS)
    with torch.no_grad():
        steps = begun(model, source, lengths)
        assert not isinstance(steps.memory, Factored)
        beams_are_rows(steps, plain(model, source, lengths), weights=attention != "none")


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu"])
@pytest.mark.parametrize("size", [1.0, 8.0, 300.0])
def test_factors_stand_for_the_definition_or_are_not_used(activation, size):
    """Large keys and queries saturate the network; where they are too far apart, factors cannot be represented."""
    score = a.Additive(DIM, DIM, 5, activation=activation)
    model = small("luong", attention=a.Attention(score, a.Dropout(a.softmax, 0.1)))
    source, lengths, _ = some_pairs(LENGTHS)
    with torch.no_grad():
        score.W.weight.mul_(size)
        score.U.weight.mul_(size)
        steps = begun(model, source, lengths)
        assert isinstance(steps.memory, Factored) == (activation != "relu" and size < 100)
        words = torch.randint(4, TARGET_WORDS, (7,))
        slow = plain(model, source, lengths)
        close(steps.step(words), slow.step(words))
        close(steps.weights(), slow.weights())


def test_double_precision_stays_double():
    model = small("bahdanau", "lstm", 2).double()
    source, lengths, target = some_pairs(LENGTHS)
    with torch.no_grad():
        close(
            begun(model, source, lengths).step(target[:, 0]),
            plain(model, source, lengths).step(target[:, 0]),
            atol=1e-12,
        )


@pytest.mark.parametrize("order", ["bahdanau", "feeding"])
def test_rows_are_chosen_twice_before_a_step(order):
    model = small(order, "lstm")
    source, lengths, target = some_pairs()
    with torch.no_grad():
        fast, slow = begun(model, source, lengths), plain(model, source, lengths)
        for steps in (fast, slow):
            steps.step(target[:, 0])
            for rows in ([3, 1, 1, 0, 3], [4, 4, 0, 2]):
                steps.select(torch.tensor(rows))
        close(fast.step(target[:, 1]), slow.step(target[:, 1]))


@pytest.mark.parametrize("order", list(ORDERS))
def test_searches_by_the_shortcut_are_searches_by_the_steps(order):
    model = small(order, dropout=0.1)
    with torch.no_grad():
        model.output.weight.mul_(3)  # far enough from uniform that no two words tie
    source, lengths, _ = some_pairs(LENGTHS)
    options = Decoding(best=3, coverage=0.2, max_length=14)
    ours, theirs = (decode(one, source, lengths, options) for one in (model, Definition(model)))
    assert [[one.ids for one in several] for several in ours] == [[one.ids for one in s] for s in theirs]
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)


class Definition:
    """A model whose steps are the definition."""

    def __init__(self, model):
        self.model = model

    def begin(self, source, lengths):
        return plain(self.model, source, lengths)


@pytest.mark.parametrize("order", ["bahdanau", "feeding"])
def test_changed_weights_are_laid_out_anew(order):
    model = small(order, layers=2)
    source, lengths, target = some_pairs()
    for change in (
        lambda: model.output.weight.mul_(2),
        lambda: model.first.late.weight.add_(0.3),
        lambda: model.above[0].past.bias.add_(0.3),
        lambda: model.join.weight.mul_(2),
        lambda: model.write.weight.mul_(2),
        lambda: model.attention.score.W.weight.mul_(2),
        lambda: model.output.weight.data.copy_(
            model.output.weight.data.flip(0)
        ),  # not counted, and the same sum
        lambda: model.load_state_dict({name: p + 0.1 for name, p in model.state_dict().items()}),
        lambda: setattr(model.join, "bias", nn.Parameter(torch.rand(len(model.join.bias)))),
    ):
        with torch.no_grad():
            before = second(begun(model, source, lengths), target)
            change()
            after = second(begun(model, source, lengths), target)
            close(after, second(plain(model, source, lengths), target))
        assert not torch.allclose(after, before, atol=1e-4)


def second(steps, target):
    """The scores after two words: with the first, nothing is fed yet."""
    steps.step(target[:, 0])
    return steps.step(target[:, 1])


def test_steps_of_a_fused_optimizer_are_noticed():
    model = small("feeding")
    source, lengths, target = some_pairs()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        with torch.no_grad():
            close(
                second(begun(model, source, lengths), target), second(plain(model, source, lengths), target)
            )
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


class Other(Recurrent):
    """Somebody's own."""


def test_where_parts_must_be_called_they_are():
    source, lengths, _ = some_pairs()

    def kind(model):
        return type(model.begin(source, lengths))

    model = small()
    assert kind(model) is Steps  # gradients are wanted
    with torch.no_grad():
        assert kind(model) is PackedRecurrentSteps
        with telling(lambda who, weights: None):
            assert kind(model) is Steps
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert kind(model) is Steps
        for part in (model.first.past, model.attention.score.W, model.join, model.write, model.dropout):
            handle = part.register_forward_hook(lambda *_: None)
            assert kind(model) is Steps
            handle.remove()
        assert kind(model) is PackedRecurrentSteps
        model.join.forward = torch.zeros_like
        assert kind(model) is Steps
        del model.join.forward
        assert kind(model) is PackedRecurrentSteps
        assert kind(small().train()) is Steps
        assert kind(small().bfloat16()) is Steps
        other = Other(11, TARGET_WORDS, ATTENTIONS["additive"](), embed_dim=6, dim=DIM)
        assert kind(other.eval()) is Steps
