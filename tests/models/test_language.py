"""The halves of the Transformer by themselves."""

import pytest
import torch

from regard.decoding import DecodingConfig, decode
from regard.models import Transformer
from regard.models.language_models import CausalLM, HybridEncoder, MaskedLM, SelfAttentionLayer

WORDS = 20


def writing(seed=0, **options):
    torch.manual_seed(seed)
    return CausalLM(WORDS, embed_dim=16, num_heads=2, num_layers=2, ffn_dim=24, dropout=0.0, **options).eval()


def filling():
    torch.manual_seed(0)
    layers = [SelfAttentionLayer(16, num_heads=2) for _ in range(2)]
    return MaskedLM(HybridEncoder(WORDS, 16, layers)).eval()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_steps_are_forward(norm):
    model, words = writing(norm=norm), torch.randint(4, WORDS, (3, 9))
    whole = model.lm_head(model(words))
    for begun in (1, 4, 8):
        steps = model.start_decoding(words[:, :begun], torch.full((3,), begun))
        found = [steps.step(torch.full((3,), 2))] + [steps.step(words[:, t]) for t in range(begun, 9)]
        torch.testing.assert_close(torch.stack(found, 1), whole[:, begun - 1 :], atol=1e-5, rtol=1e-5)


def test_later_words_are_not_seen_by_the_one_and_seen_by_the_other():
    words = torch.randint(4, WORDS, (2, 6))
    other = words.clone()
    other[:, 4:] = (words[:, 4:] - 3) % (WORDS - 4) + 4
    model = writing()
    torch.testing.assert_close(model(words)[:, :4], model(other)[:, :4])
    both, lengths = filling(), torch.tensor([6, 6])
    assert not torch.allclose(both(words, lengths)[:, :4], both(other, lengths)[:, :4], atol=1e-3)


def test_rows_are_independent():
    model, lengths = filling(), torch.tensor([6, 2, 4])
    words = torch.randint(4, WORDS, (3, 6))
    together = model.lm_head(model(words, lengths))
    for row, length in enumerate(lengths.tolist()):
        alone = model.lm_head(model(words[row : row + 1, :length], lengths[row : row + 1]))[0]
        torch.testing.assert_close(together[row, :length], alone, atol=1e-5, rtol=1e-5)


def test_the_embeddings_are_the_output():
    for model in (writing(), filling()):
        embed = model.embed if isinstance(model, CausalLM) else model.reader.embed
        assert model.output.weight is embed.words.weight


def test_selected_rows_go_on():
    model, words = writing(), torch.randint(4, WORDS, (2, 3))
    steps = model.start_decoding(words, torch.tensor([3, 3]))
    steps.reorder(torch.tensor([1, 0, 1]))
    first = steps.step(torch.full((3,), 2))
    torch.testing.assert_close(first, model.lm_head(model(words))[[1, 0, 1], -1])
    steps.reorder(torch.tensor([2, 1]))
    said = torch.tensor([7, 9])
    longer = torch.cat([words[[1, 0]], said[:, None]], 1)
    torch.testing.assert_close(steps.step(said), model.lm_head(model(longer))[:, -1])


def test_it_can_be_decoded():
    model, begun = writing(), torch.tensor([[2, 7, 8]])
    limits = DecodingConfig(method="greedy", max_length=5, max_length_ratio=0, max_length_offset=5)
    ids = decode(model, begun, torch.tensor([3]), limits)[0][0].token_ids
    text = begun[0].tolist()
    for word in ids:
        scores = model.lm_head(model(torch.tensor([text])))[0, -1]
        scores[[0, 2]] = -torch.inf
        assert word == int(scores.argmax())
        text.append(word)


@pytest.mark.bare
def test_beginnings_are_of_one_length():
    with pytest.raises(ValueError, match="beginnings of one length"):
        writing().start_decoding(torch.zeros(2, 3, dtype=torch.long), torch.tensor([3, 2]))


def test_the_transformer_keeps_its_names():
    keys = Transformer(9, 9, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=8).state_dict()
    assert "encoder.layers.0.look.query.weight" in keys
    names = set(writing().state_dict())
    assert "decoder.layers.0.look.query.weight" in names


@pytest.mark.parametrize("make", [writing, filling])
def test_gradients_reach_everything(make):
    model, words = make().train(), torch.randint(4, WORDS, (2, 6))
    hidden = model(words) if make is writing else model(words, torch.tensor([6, 4]))
    torch.nn.functional.cross_entropy(model.output(hidden).flatten(0, 1), words.flatten()).backward()
    idle = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert idle == []
