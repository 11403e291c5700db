"""Fast decoding with recurrent models equals its definition for every cell, decoder and attention."""

from functools import partial
from itertools import product

import pytest
import torch
from torch import nn

from regard import attention as a
from regard.attention.observers import register_watcher
from regard.decoding import DecodingConfig, decode
from regard.models import RNNSeq2Seq
from regard.models import rnn_fast as rnn
from regard.models.fast_decoding import unique_rows
from regard.models.rnn_decoding import RNNDecoderState
from regard.models.rnn_fast import FactoredAdditive, FusedRNNDecoderState
from tests.models.laws import TGT_VOCAB_SIZE, assert_equal_hypotheses, close, sample_pairs
from tests.models.test_fast_decoding import beams_equal_rows
from tests.models.test_rnn_seq2seq import ATTENTIONS, DECODERS, DIM, small

LENGTHS = (6, 3, 1, 5, 4, 6, 2)
GRID = list(product(DECODERS, ("gru", "lstm"), (1, 2), (False, True)))


@pytest.fixture(autouse=True)
def small_limits(monkeypatch):
    """Group few rows too, and compute scores in several chunks."""
    monkeypatch.setattr(rnn, "unique_rows", partial(unique_rows, min_rows=1))
    monkeypatch.setattr(rnn, "MAX_CACHED_PAIRS", 3 * 4 * 6 * 5)


def reference_state(model, source, lengths):
    """The definition, whatever `start_decoding` chooses."""
    return RNNDecoderState(model, *model.encode(source, lengths))


def fused_state(model, source, lengths):
    steps = model.start_decoding(source, lengths)
    assert isinstance(steps, FusedRNNDecoderState)
    return steps


@pytest.mark.parametrize(("decoder", "cell", "layers", "tie_embeddings"), GRID)
def test_fused_steps_equal_reference(decoder, cell, layers, tie_embeddings):
    model = small(decoder, cell, layers, tie_embeddings=tie_embeddings)
    source, lengths, _ = sample_pairs(LENGTHS)
    with torch.no_grad():
        state = fused_state(model, source, lengths)
        assert isinstance(state.memory, FactoredAdditive)
        beams_equal_rows(state, reference_state(model, source, lengths))


@pytest.mark.parametrize("attention", [name for name in ATTENTIONS if name not in ("additive", "sample")])
@pytest.mark.parametrize("decoder", list(DECODERS))
def test_attention_other_than_additive(decoder, attention):
    model = small(decoder, attention=attention)
    source, lengths, _ = sample_pairs(LENGTHS)
    with torch.no_grad():
        state = fused_state(model, source, lengths)
        assert not isinstance(state.memory, FactoredAdditive)
        beams_equal_rows(state, reference_state(model, source, lengths), weights=attention != "none")


@pytest.mark.parametrize("activation", ["tanh", "sigmoid", "relu"])
@pytest.mark.parametrize("size", [1.0, 8.0, 300.0])
def test_factored_scores_equal_reference(activation, size):
    """Large keys and queries saturate the network; factors of a too large range are not used."""
    score = a.Additive(DIM, DIM, 5, activation=activation)
    model = small("luong", attention=a.Attention(score, a.Dropout(a.softmax, 0.1)))
    source, lengths, _ = sample_pairs(LENGTHS)
    with torch.no_grad():
        score.query_proj.weight.mul_(size)
        score.key_proj.weight.mul_(size)
        state = fused_state(model, source, lengths)
        assert isinstance(state.memory, FactoredAdditive) == (activation != "relu" and size < 100)
        tokens = torch.randint(4, TGT_VOCAB_SIZE, (7,))
        slow = reference_state(model, source, lengths)
        close(state.step(tokens), slow.step(tokens))
        close(state.weights(), slow.weights())


def test_float64():
    model = small("bahdanau", "lstm", 2).double()
    source, lengths, target = sample_pairs(LENGTHS)
    with torch.no_grad():
        close(
            fused_state(model, source, lengths).step(target[:, 0]),
            reference_state(model, source, lengths).step(target[:, 0]),
            atol=1e-12,
        )


@pytest.mark.parametrize("decoder", ["bahdanau", "feeding"])
def test_two_reorders_before_a_step(decoder):
    model = small(decoder, "lstm")
    source, lengths, target = sample_pairs()
    with torch.no_grad():
        fast, slow = fused_state(model, source, lengths), reference_state(model, source, lengths)
        for state in (fast, slow):
            state.step(target[:, 0])
            for rows in ([3, 1, 1, 0, 3], [4, 4, 0, 2]):
                state.reorder(torch.tensor(rows))
        close(fast.step(target[:, 1]), slow.step(target[:, 1]))


@pytest.mark.parametrize("decoder", list(DECODERS))
def test_searches_equal_reference(decoder):
    model = small(decoder, dropout=0.1)
    with torch.no_grad():
        model.lm_head.weight.mul_(3)  # far from uniform, so that no two tokens tie
    source, lengths, _ = sample_pairs(LENGTHS)
    options = DecodingConfig(num_best=3, coverage_penalty=0.2, max_length=14)
    ours, theirs = (decode(decoder, source, lengths, options) for decoder in (model, ReferenceModel(model)))
    assert_equal_hypotheses(ours, theirs)


class ReferenceModel:
    """A model that always uses the definition."""

    def __init__(self, model):
        self.model = model

    def start_decoding(self, source, lengths):
        return reference_state(self.model, source, lengths)


@pytest.mark.parametrize("decoder", ["bahdanau", "feeding"])
def test_changed_weights_are_noticed(decoder):
    model = small(decoder, layers=2)
    source, lengths, target = sample_pairs()
    for change in (
        lambda: model.lm_head.weight.mul_(2),
        lambda: model.cells[0].context_proj.weight.add_(0.3),
        lambda: model.cells[1].hidden_proj.bias.add_(0.3),
        lambda: model.readout_proj.weight.mul_(2),
        lambda: model.tgt_embed.weight.mul_(2),
        lambda: model.attention.score.query_proj.weight.mul_(2),
        lambda: model.lm_head.weight.data.copy_(
            model.lm_head.weight.data.flip(0)
        ),  # no version counter, and the same sum
        lambda: model.load_state_dict({name: p + 0.1 for name, p in model.state_dict().items()}),
        lambda: setattr(model.readout_proj, "bias", nn.Parameter(torch.rand(len(model.readout_proj.bias)))),
    ):
        with torch.no_grad():
            before = second_step(fused_state(model, source, lengths), target)
            change()
            after = second_step(fused_state(model, source, lengths), target)
            close(after, second_step(reference_state(model, source, lengths), target))
        assert not torch.allclose(after, before, atol=1e-4)


def second_step(state, target):
    """Logits of the second step, the first one with input feeding."""
    state.step(target[:, 0])
    return state.step(target[:, 1])


def test_fused_optimizer_steps_are_noticed():
    model = small("feeding")
    source, lengths, target = sample_pairs()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1, fused=True)
    for _ in range(2):
        with torch.no_grad():
            close(
                second_step(fused_state(model, source, lengths), target),
                second_step(reference_state(model, source, lengths), target),
            )
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


class SameModel(RNNSeq2Seq):
    """A user's subclass that overrides nothing."""

    def extra_repr(self):
        return "same"


class OtherReadout(RNNSeq2Seq):
    """A user's subclass that overrides a method."""

    def readout(self, top_hidden, context, embedded):
        return -super().readout(top_hidden, context, embedded)


def test_when_fusing_is_possible():
    source, lengths, _ = sample_pairs()

    def state_type(model):
        return type(model.start_decoding(source, lengths))

    model = small()
    assert state_type(model) is RNNDecoderState  # gradients are enabled
    with torch.no_grad():
        assert state_type(model) is FusedRNNDecoderState
        with register_watcher(lambda who, weights: None):
            assert state_type(model) is RNNDecoderState
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert state_type(model) is RNNDecoderState
        for part in (
            model.cells[0].hidden_proj,
            model.attention.score.query_proj,
            model.readout_proj,
            model.tgt_embed,
            model.dropout,
        ):
            handle = part.register_forward_hook(lambda *_: None)
            assert state_type(model) is RNNDecoderState
            handle.remove()
        assert state_type(model) is FusedRNNDecoderState
        model.readout_proj.forward = torch.zeros_like
        assert state_type(model) is RNNDecoderState
        del model.readout_proj.forward
        assert state_type(model) is FusedRNNDecoderState
        assert state_type(small().train()) is RNNDecoderState
        assert state_type(small().bfloat16()) is RNNDecoderState
        for model_class, expected in ((SameModel, FusedRNNDecoderState), (OtherReadout, RNNDecoderState)):
            own = model_class(11, TGT_VOCAB_SIZE, ATTENTIONS["additive"](), embed_dim=6, hidden_dim=DIM)
            assert state_type(own.eval()) is expected
