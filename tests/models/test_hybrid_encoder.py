"""Encoders with layers of parts kinds, and documents as one sequence."""

import pytest
import torch
from torch import nn

from regard.attention import Additive, Attention, AttentionPool, MaxPool, padding
from regard.models.hierarchical import FlatDocumentClassifier, split_lengths
from regard.models.hybrid_encoder import ConvLayer, HybridEncoder, RNNLayer, SelfAttentionLayer
from regard.viewing import watch

VOCAB_SIZE, DIM = 30, 12


def encoder():
    torch.manual_seed(0)
    layers = [ConvLayer(DIM), SelfAttentionLayer(DIM, num_heads=3), RNNLayer(DIM), RNNLayer(DIM, rnn_type=nn.LSTM)]
    return HybridEncoder(VOCAB_SIZE, DIM, layers).eval()


def classifier(pool=None, max_span=4):
    pool = pool or AttentionPool(Attention(Additive(None, DIM, DIM)))
    return FlatDocumentClassifier(encoder(), pool, DIM, 3, max_span=max_span).eval()


def documents(seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths, counts = torch.tensor([2, 5, 1, 3, 3, 9]), torch.tensor([2, 1, 3])
    return torch.randint(4, VOCAB_SIZE, (int(lengths.sum()),), generator=generator), lengths, counts


def test_rows_are_independent():
    model, lengths = encoder(), torch.tensor([6, 2, 4])
    tokens = torch.randint(4, VOCAB_SIZE, (3, 6))
    together = model(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, :length], alone, atol=1e-5, rtol=1e-5)


def test_documents_are_independent_and_encoded_in_parts():
    model = classifier()
    tokens, lengths, counts = documents()
    together = model(tokens, lengths, counts)
    totals = [7, 1, 15]
    for document, text in enumerate(tokens.split(totals)):
        length = torch.tensor([len(text)])
        torch.testing.assert_close(together[document], model(text, length, torch.tensor([1]))[0])
        states = torch.cat(
            [
                model.encoder(part[None], torch.tensor([len(part)]))[0]
                for part in text.split(split_lengths(length, 4).tolist())
            ]
        )
        output = model.pool.attention(None, states[None], states[None], padding(length))
        torch.testing.assert_close(together[document], model.classifier(output.context[0, 0]))


def test_sentence_ends_do_not_change_the_logits():
    model = classifier()
    tokens, lengths, counts = documents()
    totals = torch.tensor([7, 1, 15])
    expected = model(tokens, totals, torch.ones_like(totals))
    torch.testing.assert_close(model(tokens, lengths, counts), expected)


def test_weights_of_tokens_and_sentences_make_up_a_classifier():
    model = classifier()
    tokens, lengths, counts = documents()
    within, sentences = model.attention_weights(tokens, lengths, counts)
    torch.testing.assert_close(within.sum(1), torch.ones(6))
    torch.testing.assert_close(sentences.sum(1), torch.ones(3))
    assert within[0, 2:].abs().max() == 0
    products = torch.cat([row[:n] * s for row, n, s in zip(within[:2], (2, 5), sentences[0], strict=False)])
    states = model._encode_tokens(tokens, torch.tensor([7, 1, 15]))[:7]
    output = model.pool.attention(None, states[None], states[None], padding([7]))
    torch.testing.assert_close(products, output.weights[0, 0])


def test_max_pool_has_no_weights():
    model = classifier(MaxPool())
    assert model(*documents()).shape == (3, 3)
    with pytest.raises(ValueError, match="a maximum has no weights"):
        model.attention_weights(*documents())


def test_split_lengths():
    totals = torch.randint(1, 200, (50,))
    for max_span in (1, 7, 500):
        sizes, counts = split_lengths(totals, max_span), -(-totals // max_span)
        assert len(sizes) == int(counts.sum())
        assert int(sizes.max()) <= max_span
        for total, parts in zip(totals.tolist(), sizes.split(counts.tolist()), strict=True):
            assert int(parts.sum()) == total
            assert int(parts.max() - parts.min()) <= 1


def test_watch():
    model = classifier()
    tokens, lengths, counts = documents()
    with watch(model) as records:
        model(tokens, lengths, counts)
    names = {record.name for record in records}
    assert names == {"encoder.layers.1.self_attn", "pool.attention"}


def test_all_parameters_get_gradients():
    model = classifier().train()
    model(*documents()).square().sum().backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert without == []
