"""Layers of several kinds in one stack, and documents read as one sequence."""

import pytest
import torch
from torch import nn

from regard.attention import Additive, Attention, padding
from regard.attention.pooling import SequenceAttentionPool, SequenceMaxPool
from regard.models.flat_document import FlatDocumentClassifier, split_lengths
from regard.models.language_models import ConvLayer, HybridEncoder, RNNLayer, SelfAttentionLayer
from regard.viewing import watch

WORDS, DIM = 30, 12


def stack():
    torch.manual_seed(0)
    layers = [
        ConvLayer(DIM),
        SelfAttentionLayer(DIM, num_heads=3),
        RNNLayer(DIM),
        RNNLayer(DIM, rnn_type=nn.LSTM),
    ]
    return HybridEncoder(WORDS, DIM, layers).eval()


def whole(pool=None, span=4):
    reader, look = stack(), SequenceAttentionPool(Attention(Additive(None, DIM, DIM)))
    return FlatDocumentClassifier(reader, pool or look, DIM, 3, max_span=span).eval()


def documents(seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths, counts = torch.tensor([2, 5, 1, 3, 3, 9]), torch.tensor([2, 1, 3])
    return torch.randint(4, WORDS, (int(lengths.sum()),), generator=generator), lengths, counts


def test_rows_are_independent():
    model, lengths = stack(), torch.tensor([6, 2, 4])
    words = torch.randint(4, WORDS, (3, 6))
    together = model(words, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(words[row : row + 1, :length], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, :length], alone, atol=1e-5, rtol=1e-5)


def test_documents_are_independent_and_read_in_parts():
    model = whole()
    words, lengths, counts = documents()
    together = model(words, lengths, counts)
    totals = [7, 1, 15]
    for document, text in enumerate(words.split(totals)):
        one = torch.tensor([len(text)])
        torch.testing.assert_close(together[document], model(text, one, torch.tensor([1]))[0])
        states = torch.cat(
            [
                model.encoder(part[None], torch.tensor([len(part)]))[0]
                for part in text.split(split_lengths(one, 4).tolist())
            ]
        )
        seen = model.pool.attention(None, states[None], states[None], padding(one))
        torch.testing.assert_close(together[document], model.classifier(seen.context[0, 0]))


def test_sentences_do_not_matter_to_the_class():
    model = whole()
    words, lengths, counts = documents()
    one = torch.tensor([7, 1, 15])
    torch.testing.assert_close(model(words, lengths, counts), model(words, one, torch.ones_like(one)))


def test_weights_of_words_and_sentences_make_up_a_whole():
    model = whole()
    words, lengths, counts = documents()
    within, sentences = model.attention_weights(words, lengths, counts)
    torch.testing.assert_close(within.sum(1), torch.ones(6))
    torch.testing.assert_close(sentences.sum(1), torch.ones(3))
    assert within[0, 2:].abs().max() == 0
    shares = torch.cat([row[:n] * s for row, n, s in zip(within[:2], (2, 5), sentences[0], strict=False)])
    states = model._encode_tokens(words, torch.tensor([7, 1, 15]))[:7]
    seen = model.pool.attention(None, states[None], states[None], padding([7]))
    torch.testing.assert_close(shares, seen.weights[0, 0])


def test_a_maximum_has_no_weights():
    model = whole(SequenceMaxPool())
    assert model(*documents()).shape == (3, 3)
    with pytest.raises(ValueError, match="a maximum has no weights"):
        model.attention_weights(*documents())


def test_parts_are_of_nearly_equal_size():
    totals = torch.randint(1, 200, (50,))
    for span in (1, 7, 500):
        sizes, counts = split_lengths(totals, span), -(-totals // span)
        assert len(sizes) == int(counts.sum())
        assert int(sizes.max()) <= span
        for total, several in zip(totals.tolist(), sizes.split(counts.tolist()), strict=True):
            assert int(several.sum()) == total
            assert int(several.max() - several.min()) <= 1


def test_watching_sees_the_attention_inside():
    model = whole()
    words, lengths, counts = documents()
    with watch(model) as seen:
        model(words, lengths, counts)
    names = {record.name for record in seen}
    assert names == {"reader.layers.1.layer.look", "pool.attention"}


def test_gradients_reach_everything():
    model = whole().train()
    model(*documents()).square().sum().backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert idle == []
