"""Where words looked, now that they are known: Bayes' rule, and nothing else."""

import pytest
import torch

from regard.attention import Additive, Attention, Bilinear, Boxcar, LocalP, hardmax
from regard.models import RNNSeq2Seq
from regard.models import rnn_decoding as _hindsight
from regard.models.rnn_decoding import EncoderMemory

SOURCE = torch.tensor([[4, 5, 6, 7, 2], [8, 9, 2, 0, 0]])
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 9, 10, 2, 0, 0]])
KINDS = {
    "bahdanau": {},
    "bahdanau, two layers of lstm": {"cell": "lstm", "layers": 2},
    "luong": {"order": "luong"},
    "luong with feeding": {"order": "luong", "input_feeding": True, "tied": True},
}


def made(attention=None, **given):
    torch.manual_seed(0)
    attention = attention or Attention(Additive(6, 6, 5))
    return RNNSeq2Seq(11, 12, attention, embed_dim=4, hidden_dim=6, **given).eval()


def by_the_rule(model, monkeypatch):
    """One place and one word at a time: the network is run anew with that place as all it sees in that step."""
    look, forced = EncoderMemory.attend, {}

    def looking(self, query, t):
        context, seen = look(self, query, t)
        if "step" in forced and t <= forced["step"] < t + query.shape[1]:
            context = context.clone()
            context[:, forced["step"] - t] = self.over.value[:, forced["place"]]
        return context, seen

    monkeypatch.setattr(EncoderMemory, "look", looking)
    weights = model.looks(SOURCE, LENGTHS, TARGET)[0][:, 0]
    chances = torch.zeros_like(weights)
    for step in range(TARGET.shape[1] - 1):
        for place in range(SOURCE.shape[1]):
            forced.update(step=step, place=place)
            scores = model.output(model(SOURCE, LENGTHS, TARGET[:, : step + 1]))[:, step].softmax(-1)
            chances[:, step, place] = scores.gather(1, TARGET[:, step + 1, None]).squeeze(1)
    both = weights * chances
    return both / both.sum(-1, keepdim=True)


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_bayes_rule(kind, monkeypatch):
    model = made(**KINDS[kind])
    (found,) = model.posterior_alignment(SOURCE, LENGTHS, TARGET)
    assert found.shape == (2, 1, 5, 5)
    torch.testing.assert_close(found[:, 0], by_the_rule(model, monkeypatch), atol=1e-5, rtol=1e-4)
    assert (found[1, :, :, 3:] == 0).all()  # there is nothing


@torch.no_grad()
def test_places_out_of_reach_stay_so(monkeypatch):
    model = made(LocalP(Bilinear(6, 6), query_dim=6, hidden_dim=5, radius=1), order="luong")
    (found,), (weights,) = (
        f(SOURCE, LENGTHS, TARGET) for f in (model.posterior_alignment, model.attention_weights)
    )
    assert (found[weights == 0] == 0).all()
    torch.testing.assert_close(found[:, 0], by_the_rule(model, monkeypatch), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_one_who_was_certain_does_not_change_its_mind():
    model = made(Attention(Additive(6, 6, 5), hardmax))
    torch.testing.assert_close(
        model.posterior_alignment(SOURCE, LENGTHS, TARGET)[0],
        model.attention_weights(SOURCE, LENGTHS, TARGET)[0],
    )


@torch.no_grad()
def test_many_words_are_scored_in_parts(monkeypatch):
    model = made()
    (whole,) = model.posterior_alignment(SOURCE, LENGTHS, TARGET)
    monkeypatch.setattr(_hindsight, "AT_ONCE", 1)
    torch.testing.assert_close(model.posterior_alignment(SOURCE, LENGTHS, TARGET)[0], whole)


def test_without_attention_there_is_none():
    model = RNNSeq2Seq(11, 12, None, embed_dim=4, hidden_dim=6).eval()
    assert model.posterior_alignment(SOURCE, LENGTHS, TARGET) == []
    with pytest.raises(ValueError, match="has no weights to correct"):
        _hindsight.posterior_alignment(model, SOURCE, LENGTHS, TARGET)


@torch.no_grad()
def test_who_saw_nothing_came_from_nowhere():
    model = made(Attention(Boxcar(1e-6)))  # nothing is as near as that
    assert not model.attention_weights(SOURCE, LENGTHS, TARGET)[0].any()
    assert torch.equal(model.posterior_alignment(SOURCE, LENGTHS, TARGET)[0], torch.zeros(2, 1, 5, 5))
