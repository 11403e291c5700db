"""The Transformer against PyTorch's own parts, and against what a model promises."""

import inspect
import math

import pytest
import torch
from torch import nn

from regard.attention import Alibi, MultiHead, RelativeBias, Rotary, ScaledDot
from regard.models import Transformer
from tests.models import laws
from tests.models.laws import close, logits, some_pairs

NORMS = ("post", "pre")


def small(seed=0, **options):
    torch.manual_seed(seed)
    usual = {"dim": 16, "heads": 4, "layers": 2, "hidden_dim": 24, "dropout": 0.0}
    model = Transformer(laws.SOURCE_WORDS, laws.TARGET_WORDS, **{**usual, **options})
    with torch.no_grad():  # biases of 0 and gains of 1 would hide that one is left out
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.3)
    return model.eval()


class Plain(nn.Module):
    """The paper once more, with nn.MultiheadAttention, masks as matrices, and the weights of a model of ours."""

    def __init__(self, model, norm):
        super().__init__()
        self.model, self.first = model, norm == "pre"

    def heads(self, ours, query, key, mask):
        theirs = nn.MultiheadAttention(ours.dim, ours.heads, batch_first=True).to(query)
        state = {
            "in_proj_weight": torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]),
            "in_proj_bias": torch.cat([ours.query.bias, ours.key.bias, ours.value.bias]),
            "out_proj.weight": ours.output.weight,
            "out_proj.bias": ours.output.bias,
        }
        mask = mask.expand(len(query), query.shape[1], key.shape[1]).repeat_interleave(ours.heads, 0)
        answer, weights = torch.func.functional_call(
            theirs, state, (query, key, key), {"attn_mask": ~mask, "average_attn_weights": False}
        )
        return answer, weights

    def add(self, residual, x, sublayer):
        gain = residual.norm
        norm = lambda x: nn.functional.layer_norm(x, x.shape[-1:], gain.weight, gain.bias)  # noqa: E731
        return x + sublayer(norm(x)) if self.first else norm(x + sublayer(x))

    def think(self, part, x):
        return torch.relu(x @ part[0].weight.T + part[0].bias) @ part[2].weight.T + part[2].bias

    def embed(self, embedding, words):
        weight = embedding.words.weight
        dim, x = weight.shape[1], weight[words] * math.sqrt(weight.shape[1])
        place = torch.zeros_like(x[0])
        for i in range(words.shape[1]):
            for j in range(0, dim, 2):
                place[i, j] = math.sin(i / 10000 ** (j / dim))
                place[i, j + 1] = math.cos(i / 10000 ** (j / dim))
        return x + place

    def last(self, stack, x):
        return (
            nn.functional.layer_norm(x, x.shape[-1:], stack.norm.weight, stack.norm.bias) if self.first else x
        )

    def forward(self, source, lengths, target):
        real = (torch.arange(source.shape[1]) < lengths[:, None])[:, None]
        past = torch.ones(target.shape[1], target.shape[1]).tril().bool()[None]
        x = self.embed(self.model.read, source)
        for layer in self.model.encoder.layers:
            x = self.add(layer.add_look, x, lambda x, layer=layer: self.heads(layer.look, x, x, real)[0])
            x = self.add(layer.add_think, x, lambda x, layer=layer: self.think(layer.think, x))
        memory, y, seen = self.last(self.model.encoder, x), self.embed(self.model.write, target), []

        def back(y, layer):
            answer, weights = self.heads(layer.cross_attn, y, memory, real)
            seen.append(weights)
            return answer

        for layer in self.model.decoder.layers:
            y = self.add(layer.add_look, y, lambda y, layer=layer: self.heads(layer.look, y, y, past)[0])
            y = self.add(layer.add_back, y, lambda y, layer=layer: back(y, layer))
            y = self.add(layer.add_think, y, lambda y, layer=layer: self.think(layer.think, y))
        return self.last(self.model.decoder, y) @ self.model.output.weight.T, seen


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("training", [False, True])
def test_it_is_the_paper_in_plain_parts(norm, training):
    model = small(norm=norm, decoder_layers=3).train(training)
    source, lengths, target = some_pairs()
    want, seen = Plain(model, norm)(source, lengths, target)
    close(logits(model, source, lengths, target), want)
    looks = model.looks(source, lengths, torch.cat([target, target[:, :1]], 1))
    for ours, theirs in zip(looks, seen, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("norm", NORMS)
def test_its_gradients_are_those_of_plain_parts(norm):
    model = small(norm=norm).double()
    source, lengths, target = some_pairs()
    names, weights = zip(*model.named_parameters(), strict=True)

    def gradients(found):
        loss = nn.functional.cross_entropy(found.flatten(0, 1), target.roll(-1, 1).flatten())
        return torch.autograd.grad(loss, weights)

    ours = gradients(logits(model, source, lengths, target))
    theirs = gradients(Plain(model, norm)(source, lengths, target)[0])
    for name, a, b in zip(names, ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-8), name


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "law",
    [
        laws.steps_are_forward,
        laws.rows_are_independent,
        laws.later_words_are_not_seen,
        laws.selected_rows_go_on,
        laws.gradients_reach_everything,
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_promises(norm, law, grad):
    with torch.set_grad_enabled(grad or law is laws.gradients_reach_everything):
        law(small(norm=norm))


DISTANT = {
    "Rotary": lambda: Rotary(ScaledDot()),
    "Alibi": lambda: ScaledDot() + Alibi(4),
    "RelativeBias": lambda: 2 * (ScaledDot() + RelativeBias(4)),
}


@torch.no_grad()
@pytest.mark.parametrize("score", DISTANT)
@pytest.mark.parametrize(
    "law", [laws.steps_are_forward, laws.rows_are_independent, laws.later_words_are_not_seen]
)
def test_distances_within_a_text_are_felt_and_across_there_are_none(score, law):
    def heads():
        return MultiHead(16, 4, score=DISTANT[score]())

    law(small(attention=heads, across=lambda: MultiHead(16, 4)))
    with pytest.raises(ValueError, match=r"across=lambda: MultiHead\(dim, heads\)"):
        small(attention=heads)


@pytest.mark.parametrize("norm", NORMS)
def test_looks(norm):
    with torch.no_grad():
        laws.looks_are_shares(small(norm=norm, decoder_layers=3), layers=3, heads=4)


def test_the_defaults_are_the_paper():
    defaults = {name: p.default for name, p in inspect.signature(Transformer).parameters.items()}
    assert [defaults[name] for name in ("dim", "heads", "layers", "hidden_dim", "dropout", "norm")] == [
        512, 8, 6, 2048, 0.1, "post",
    ]  # fmt: skip
    with torch.device("meta"):
        model = Transformer(100, 100)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (6, 6)
    layer = 4 * (512 * 512 + 512)  # an attention
    think, norm = 512 * 2048 + 2048 + 2048 * 512 + 512, 2 * 512
    stacks = 6 * (layer + think + 2 * norm) + 6 * (2 * layer + think + 3 * norm)
    assert sum(p.numel() for p in model.parameters()) == stacks + 3 * 100 * 512


def test_tied_embeddings_share_storage():
    one = Transformer(13, 13, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=8, tie_embeddings="all")
    assert one.src_embed.words.weight is one.tgt_embed.words.weight is one.lm_head.weight
    two = Transformer(
        11, 13, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=8, tie_embeddings="output"
    )
    assert two.tgt_embed.words.weight is two.lm_head.weight
    assert two.src_embed.words.weight is not two.lm_head.weight
    apart = Transformer(13, 13, embed_dim=8, num_heads=2, num_encoder_layers=1, ffn_dim=8)
    assert (
        len(
            {
                id(w)
                for w in (apart.src_embed.words.weight, apart.tgt_embed.words.weight, apart.lm_head.weight)
            }
        )
        == 3
    )
    pair = one.double()
    assert pair.src_embed.words.weight is pair.lm_head.weight


@pytest.mark.parametrize("tied", ["output", "all"])
def test_tied_models_keep_the_promises(tied):
    torch.manual_seed(0)
    model = Transformer(
        13, 13, embed_dim=16, num_heads=2, num_encoder_layers=2, ffn_dim=16, dropout=0.0, tie_embeddings=tied
    ).eval()
    with torch.no_grad():
        laws.steps_are_forward(model)
        laws.selected_rows_go_on(model)


@pytest.mark.bare
def test_one_vocabulary_is_needed_to_tie_all():
    with pytest.raises(ValueError, match=r"^tied='all' needs one vocabulary .* got 11 and 13 words$"):
        Transformer(11, 13, embed_dim=8, num_heads=2, tie_embeddings="all")


def test_dropout_acts_in_training_only():
    model = small(dropout=0.3)
    pairs = some_pairs()
    assert torch.equal(model(*pairs), model(*pairs))
    model.train()
    torch.manual_seed(3)
    one, two = model(*pairs), model(*pairs)
    assert not torch.allclose(one, two)
    torch.manual_seed(3)
    assert torch.equal(one, model(*pairs))


def test_step_after_step_asks_one_query(monkeypatch):
    """The source is projected when it is read, and never again."""
    model, (source, lengths, target) = small(), some_pairs()
    seen = []
    for layer in model.decoder.layers:
        layer.cross_attn.key.register_forward_hook(lambda m, i, o: seen.append(i[0].shape))
        layer.look.key.register_forward_hook(lambda m, i, o: seen.append(i[0].shape))
    with torch.no_grad():
        steps = model.start_decoding(source, lengths)
        assert len(seen) == 2
        for t in range(3):
            steps.step(target[:, t])
        steps.reorder(torch.tensor([1, 1, 0]))
        steps.step(target[:3, 3])
    assert all(shape[1] == 1 for shape in seen[2:]), "a step projected more than its own word"
    assert len(seen) == 2 + 4 * 2


def test_an_empty_selection_leaves_nothing():
    with torch.no_grad():
        steps = small().start_decoding(*some_pairs()[:2])
        steps.step(torch.full((4,), laws.BOS))
        steps.reorder(torch.zeros(0, dtype=torch.long))
        assert steps.step(torch.zeros(0, dtype=torch.long)).shape == (0, laws.TARGET_WORDS)


def test_autocast_to_bfloat16_gives_about_the_same():
    model, pairs = small(), some_pairs()
    with torch.no_grad():
        want = logits(model, *pairs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = logits(model, *pairs).float()
    assert (found - want).abs().max() < 0.1 * want.abs().max()
