"""Posterior alignment is Bayes' rule."""

import pytest
import torch

from regard.attention import Additive, Attention, Bilinear, Boxcar, LocalP, hardmax
from regard.models import RNNSeq2Seq, rnn_decoding
from regard.models.rnn_decoding import EncoderMemory

SOURCE = torch.tensor([[4, 5, 6, 7, 2], [8, 9, 2, 0, 0]])
LENGTHS = torch.tensor([5, 3])
TARGET = torch.tensor([[1, 5, 6, 7, 8, 2], [1, 9, 10, 2, 0, 0]])
OPTIONS = {
    "bahdanau": {},
    "bahdanau, two layers of lstm": {"cell_type": "lstm", "num_layers": 2},
    "luong": {"decoder_type": "luong"},
    "luong with feeding": {"decoder_type": "luong", "input_feeding": True, "tie_embeddings": True},
}


def build(attention=None, **options):
    torch.manual_seed(0)
    attention = attention or Attention(Additive(6, 6, 5))
    return RNNSeq2Seq(11, 12, attention, embed_dim=4, hidden_dim=6, **options).eval()


def bayes_rule(model, monkeypatch):
    """For each position and step the model is run again with that position as the context of the step."""
    attend, forced = EncoderMemory.attend, {}

    def attend_to_one(self, query, t):
        context, output = attend(self, query, t)
        if "step" in forced and t <= forced["step"] < t + query.shape[1]:
            context = context.clone()
            context[:, forced["step"] - t] = self.projected_kv.value[:, forced["position"]]
        return context, output

    monkeypatch.setattr(EncoderMemory, "attend", attend_to_one)
    weights = model.attention_weights(SOURCE, LENGTHS, TARGET)[0][:, 0]
    likelihoods = torch.zeros_like(weights)
    for step in range(TARGET.shape[1] - 1):
        for position in range(SOURCE.shape[1]):
            forced.update(step=step, position=position)
            probabilities = model(SOURCE, LENGTHS, TARGET[:, : step + 1])[:, step].softmax(-1)
            likelihoods[:, step, position] = probabilities.gather(1, TARGET[:, step + 1, None]).squeeze(1)
    posterior = weights * likelihoods
    return posterior / posterior.sum(-1, keepdim=True)


@torch.no_grad()
@pytest.mark.parametrize("name", OPTIONS)
def test_equals_bayes_rule(name, monkeypatch):
    model = build(**OPTIONS[name])
    (actual,) = model.posterior_alignment(SOURCE, LENGTHS, TARGET)
    assert actual.shape == (2, 1, 5, 5)
    torch.testing.assert_close(actual[:, 0], bayes_rule(model, monkeypatch), atol=1e-5, rtol=1e-4)
    assert (actual[1, :, :, 3:] == 0).all()  # padding


@torch.no_grad()
def test_weights_of_zero_stay_zero(monkeypatch):
    model = build(LocalP(Bilinear(6, 6), query_dim=6, hidden_dim=5, radius=1), decoder_type="luong")
    (actual,), (weights,) = (f(SOURCE, LENGTHS, TARGET) for f in (model.posterior_alignment, model.attention_weights))
    assert (actual[weights == 0] == 0).all()
    torch.testing.assert_close(actual[:, 0], bayes_rule(model, monkeypatch), atol=1e-5, rtol=1e-4)


@torch.no_grad()
def test_hardmax_weights_do_not_change():
    model = build(Attention(Additive(6, 6, 5), hardmax))
    torch.testing.assert_close(
        model.posterior_alignment(SOURCE, LENGTHS, TARGET)[0], model.attention_weights(SOURCE, LENGTHS, TARGET)[0]
    )


@torch.no_grad()
def test_chunks_equal_one_pass(monkeypatch):
    model = build()
    (expected,) = model.posterior_alignment(SOURCE, LENGTHS, TARGET)
    monkeypatch.setattr(rnn_decoding, "MAX_LOGITS", 1)
    torch.testing.assert_close(model.posterior_alignment(SOURCE, LENGTHS, TARGET)[0], expected)


def test_without_attention():
    model = RNNSeq2Seq(11, 12, None, embed_dim=4, hidden_dim=6).eval()
    assert model.posterior_alignment(SOURCE, LENGTHS, TARGET) == []
    with pytest.raises(ValueError, match="has no weights to correct"):
        rnn_decoding.posterior_alignment(model, SOURCE, LENGTHS, TARGET)


@torch.no_grad()
def test_empty_rows_stay_empty():
    model = build(Attention(Boxcar(1e-6)))  # no key is within reach
    assert not model.attention_weights(SOURCE, LENGTHS, TARGET)[0].any()
    assert torch.equal(model.posterior_alignment(SOURCE, LENGTHS, TARGET)[0], torch.zeros(2, 1, 5, 5))
