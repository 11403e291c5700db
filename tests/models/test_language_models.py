"""Causal and masked language models."""

import pytest
import torch

from regard.decoding import DecodingConfig, decode
from regard.models import CausalLM, HybridEncoder, MaskedLM, Transformer
from regard.models.hybrid_encoder import SelfAttentionLayer

VOCAB_SIZE = 20


def causal(seed=0, **options):
    torch.manual_seed(seed)
    return CausalLM(VOCAB_SIZE, embed_dim=16, num_heads=2, num_layers=2, ffn_dim=24, dropout=0.0, **options).eval()


def masked():
    torch.manual_seed(0)
    layers = [SelfAttentionLayer(16, num_heads=2) for _ in range(2)]
    return MaskedLM(HybridEncoder(VOCAB_SIZE, 16, layers)).eval()


@pytest.mark.parametrize("norm_first", [True, False])
def test_steps_equal_forward(norm_first):
    model, tokens = causal(norm_first=norm_first), torch.randint(4, VOCAB_SIZE, (3, 9))
    logits = model(tokens)
    for prefix in (1, 4, 8):
        state = model.start_decoding(tokens[:, :prefix], torch.full((3,), prefix))
        steps = [state.step(torch.full((3,), 2))] + [state.step(tokens[:, t]) for t in range(prefix, 9)]
        torch.testing.assert_close(torch.stack(steps, 1), logits[:, prefix - 1 :], atol=1e-5, rtol=1e-5)


def test_later_tokens_are_hidden_from_causal_models_only():
    tokens = torch.randint(4, VOCAB_SIZE, (2, 6))
    other = tokens.clone()
    other[:, 4:] = (tokens[:, 4:] - 3) % (VOCAB_SIZE - 4) + 4
    model = causal()
    torch.testing.assert_close(model(tokens)[:, :4], model(other)[:, :4])
    bidirectional, lengths = masked(), torch.tensor([6, 6])
    assert not torch.allclose(bidirectional(tokens, lengths)[:, :4], bidirectional(other, lengths)[:, :4], atol=1e-3)


def test_rows_are_independent():
    model, lengths = masked(), torch.tensor([6, 2, 4])
    tokens = torch.randint(4, VOCAB_SIZE, (3, 6))
    together = model(tokens, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = model(tokens[row : row + 1, :length], lengths[row : row + 1])[0]
        torch.testing.assert_close(together[row, :length], alone, atol=1e-5, rtol=1e-5)


def test_embeddings_are_tied():
    for model in (causal(), masked()):
        embed = model.embed if isinstance(model, CausalLM) else model.encoder.embed
        assert model.lm_head.weight is embed.weight


def test_reordered_rows_continue():
    model, tokens = causal(), torch.randint(4, VOCAB_SIZE, (2, 3))
    state = model.start_decoding(tokens, torch.tensor([3, 3]))
    state.reorder(torch.tensor([1, 0, 1]))
    first = state.step(torch.full((3,), 2))
    torch.testing.assert_close(first, model(tokens)[[1, 0, 1], -1])
    state.reorder(torch.tensor([2, 1]))
    new_tokens = torch.tensor([7, 9])
    longer = torch.cat([tokens[[1, 0]], new_tokens[:, None]], 1)
    torch.testing.assert_close(state.step(new_tokens), model(longer)[:, -1])


def test_decode():
    model, prefix = causal(), torch.tensor([[2, 7, 8]])
    config = DecodingConfig(method="greedy", max_length=5, max_length_ratio=0, max_length_offset=5)
    ids = decode(model, prefix, torch.tensor([3]), config)[0][0].token_ids
    text = prefix[0].tolist()
    for token in ids:
        logits = model(torch.tensor([text]))[0, -1]
        logits[[0, 2]] = -torch.inf
        assert token == int(logits.argmax())
        text.append(token)


@pytest.mark.bare
def test_prefixes_must_have_one_length():
    with pytest.raises(ValueError, match="all prefixes must have the length of the batch"):
        causal().start_decoding(torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 2]))


def test_state_dict_keys():
    keys = Transformer(9, 9, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=8).state_dict()
    assert "encoder.layers.0.self_attn.q_proj.weight" in keys
    names = set(causal().state_dict())
    assert "decoder.layers.0.self_attn.q_proj.weight" in names


@pytest.mark.parametrize("make", [causal, masked])
def test_all_parameters_get_gradients(make):
    model, tokens = make().train(), torch.randint(4, VOCAB_SIZE, (2, 6))
    logits = model(tokens) if make is causal else model(tokens, torch.tensor([6, 4]))
    torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten()).backward()
    without = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert without == []
