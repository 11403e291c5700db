"""The recurrent model's shortcut is its steps: for every cell, order and attention, and wherever rows share."""

from functools import partial
from itertools import chain, product

import pytest
import torch
from torch import nn

from regard import attention as a
from regard.attention.observers import register_watcher
from regard.decoding import DecodingConfig, decode
from regard.models import RNNSeq2Seq
from regard.models.fast_decoding import rnn as _factored
from regard.models.fast_decoding import rnn as _packed_recurrent_steps
from regard.models.fast_decoding.rnn import FactoredAdditive, FusedRNNDecoderState
from regard.models.fast_decoding.shared import unique_rows
from regard.models.rnn_decoding import RNNDecoderState
from tests.models.laws import TARGET_WORDS, close, some_pairs
from tests.models.test_beams import beams_are_rows
from tests.models.test_recurrent import ATTENTIONS, DIM, ORDERS, small

LENGTHS = (6, 3, 1, 5, 4, 6, 2)
GRID = list(product(ORDERS, ("gru", "lstm"), (1, 2), (False, True)))


@pytest.fixture(autouse=True)
def small_is_large(monkeypatch):
    """Few rows share too, and a few pairs fill the cache."""
    monkeypatch.setattr(_packed_recurrent_steps, "distinct", partial(unique_rows, min_rows=1))
    monkeypatch.setattr(_factored, "CACHED", 3 * 4 * 6 * 5)


def plain(model, source, lengths):
    """The definition, whatever `begin` takes."""
    return RNNDecoderState(model, *model.encode(source, lengths))


def begun(model, source, lengths):
    steps = model.begin(source, lengths)
    assert isinstance(steps, FusedRNNDecoderState)
    return steps


@pytest.mark.parametrize(("order", "cell", "layers", "tied"), GRID)
def test_the_shortcut_is_the_steps(order, cell, layers, tied):
    model = small(order, cell, layers, tied=tied)
    source, lengths, _ = some_pairs(LENGTHS)
    with torch.no_grad():
        steps = begun(model, source, lengths)
        assert isinstance(steps.memory, FactoredAdditive)
        beams_are_rows(steps, plain(model, source, lengths))


@pytest.mark.parametrize("attention", [name for name in ATTENTIONS if name not in ("additive", "sample")])
@pytest.mark.parametrize("order", list(ORDERS))
def test_other_attention_is_asked_as_it_is(order, attention):
    model = small(order, attention=attention)
    source, lengths, _ = some_pairs(LENGTHS)
    with torch.no_grad():
        steps = begun(model, source, lengths)
        assert not isinstance(steps.memory, FactoredAdditive)
        beams_are_rows(steps, plain(model, source, lengths), weights=attention != "none")


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu"])
@pytest.mark.parametrize("size", [1.0, 8.0, 300.0])
def test_factors_stand_for_the_definition_or_are_not_used(activation, size):
    """Large keys and queries saturate the network; where they are too far apart, factors cannot be represented."""
    score = a.Additive(DIM, DIM, 5, activation=activation)
    model = small("luong", attention=a.Attention(score, a.Dropout(a.softmax, 0.1)))
    source, lengths, _ = some_pairs(LENGTHS)
    with torch.no_grad():
        score.query_proj.weight.mul_(size)
        score.key_proj.weight.mul_(size)
        steps = begun(model, source, lengths)
        assert isinstance(steps.memory, FactoredAdditive) == (activation != "relu" and size < 100)
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
        model.lm_head.weight.mul_(3)  # far enough from uniform that no two words tie
    source, lengths, _ = some_pairs(LENGTHS)
    options = DecodingConfig(num_best=3, coverage_penalty=0.2, max_length=14)
    ours, theirs = (decode(one, source, lengths, options) for one in (model, Definition(model)))
    assert [[one.token_ids for one in several] for several in ours] == [
        [one.token_ids for one in s] for s in theirs
    ]
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert one.score == pytest.approx(other.score, abs=1e-4)


class Definition:
    """A model whose steps are the definition."""

    def __init__(self, model):
        self.model = model

    def start_decoding(self, source, lengths):
        return plain(self.model, source, lengths)


@pytest.mark.parametrize("order", ["bahdanau", "feeding"])
def test_changed_weights_are_laid_out_anew(order):
    model = small(order, layers=2)
    source, lengths, target = some_pairs()
    for change in (
        lambda: model.lm_head.weight.mul_(2),
        lambda: model.first.context_proj.weight.add_(0.3),
        lambda: model.above[0].past.bias.add_(0.3),
        lambda: model.readout_proj.weight.mul_(2),
        lambda: model.tgt_embed.weight.mul_(2),
        lambda: model.attention.score.W.weight.mul_(2),
        lambda: model.lm_head.weight.data.copy_(
            model.lm_head.weight.data.flip(0)
        ),  # not counted, and the same sum
        lambda: model.load_state_dict({name: p + 0.1 for name, p in model.state_dict().items()}),
        lambda: setattr(model.readout_proj, "bias", nn.Parameter(torch.rand(len(model.readout_proj.bias)))),
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


class Other(RNNSeq2Seq):
    """Somebody's own."""


def test_where_parts_must_be_called_they_are():
    source, lengths, _ = some_pairs()

    def kind(model):
        return type(model.begin(source, lengths))

    model = small()
    assert kind(model) is RNNDecoderState  # gradients are wanted
    with torch.no_grad():
        assert kind(model) is FusedRNNDecoderState
        with register_watcher(lambda who, weights: None):
            assert kind(model) is RNNDecoderState
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert kind(model) is RNNDecoderState
        for part in (
            model.first.hidden_proj,
            model.attention.score.W,
            model.readout_proj,
            model.tgt_embed,
            model.dropout,
        ):
            handle = part.register_forward_hook(lambda *_: None)
            assert kind(model) is RNNDecoderState
            handle.remove()
        assert kind(model) is FusedRNNDecoderState
        model.readout_proj.forward = torch.zeros_like
        assert kind(model) is RNNDecoderState
        del model.readout_proj.forward
        assert kind(model) is FusedRNNDecoderState
        assert kind(small().train()) is RNNDecoderState
        assert kind(small().bfloat16()) is RNNDecoderState
        other = Other(11, TARGET_WORDS, ATTENTIONS["additive"](), embed_dim=6, hidden_dim=DIM)
        assert kind(other.eval()) is RNNDecoderState
