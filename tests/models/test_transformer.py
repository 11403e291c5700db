"""The Transformer against PyTorch's own modules, and the laws of encoder-decoder models."""

import inspect
import math

import pytest
import torch
from torch import nn

from regard.attention import Alibi, MultiHead, RelativeBias, Rotary, ScaledDot
from regard.models import Transformer
from tests.models import laws
from tests.models.laws import close, sample_pairs

NORM_FIRST = (False, True)


def small(seed=0, **options):
    torch.manual_seed(seed)
    defaults = {"embed_dim": 16, "num_heads": 4, "num_encoder_layers": 2, "ffn_dim": 24, "dropout": 0.0}
    model = Transformer(laws.SRC_VOCAB_SIZE, laws.TGT_VOCAB_SIZE, **{**defaults, **options})
    with torch.no_grad():  # with biases of 0 and gains of 1 a missing one would not be noticed
        for p in model.parameters():
            if p.dim() == 1:
                p.add_(torch.randn_like(p) * 0.3)
    return model.eval()


class Reference(nn.Module):
    """The Transformer from nn.MultiheadAttention and dense masks, with the weights of a model of ours."""

    def __init__(self, model, norm_first):
        super().__init__()
        self.model, self.norm_first = model, norm_first

    def attend(self, ours, query, key, mask):
        theirs = nn.MultiheadAttention(ours.embed_dim, ours.num_heads, batch_first=True).to(query)
        state = {
            "in_proj_weight": torch.cat([ours.q_proj.weight, ours.k_proj.weight, ours.v_proj.weight]),
            "in_proj_bias": torch.cat([ours.q_proj.bias, ours.k_proj.bias, ours.v_proj.bias]),
            "out_proj.weight": ours.out_proj.weight,
            "out_proj.bias": ours.out_proj.bias,
        }
        mask = mask.expand(len(query), query.shape[1], key.shape[1]).repeat_interleave(ours.num_heads, 0)
        context, weights = torch.func.functional_call(
            theirs, state, (query, key, key), {"attn_mask": ~mask, "average_attn_weights": False}
        )
        return context, weights

    def residual(self, layer_norm, x, sublayer):
        norm = lambda x: nn.functional.layer_norm(x, x.shape[-1:], layer_norm.weight, layer_norm.bias)  # noqa: E731
        return x + sublayer(norm(x)) if self.norm_first else norm(x + sublayer(x))

    def feed_forward(self, ours, x):
        inner = torch.relu(x @ ours.linear1.weight.T + ours.linear1.bias)
        return inner @ ours.linear2.weight.T + ours.linear2.bias

    def embed(self, embedding, tokens):
        weight = embedding.weight
        dim, x = weight.shape[1], weight[tokens] * math.sqrt(weight.shape[1])
        positions = torch.zeros_like(x[0])
        for i in range(tokens.shape[1]):
            for j in range(0, dim, 2):
                positions[i, j] = math.sin(i / 10000 ** (j / dim))
                positions[i, j + 1] = math.cos(i / 10000 ** (j / dim))
        return x + positions

    def final_norm(self, stack, x):
        if not self.norm_first:
            return x
        return nn.functional.layer_norm(x, x.shape[-1:], stack.norm.weight, stack.norm.bias)

    def forward(self, source, lengths, target):
        is_token = (torch.arange(source.shape[1]) < lengths[:, None])[:, None]
        is_past = torch.ones(target.shape[1], target.shape[1]).tril().bool()[None]
        x = self.embed(self.model.src_embed, source)
        for layer in self.model.encoder.layers:
            x = self.residual(layer.norm1, x, lambda x, layer=layer: self.attend(layer.self_attn, x, x, is_token)[0])
            x = self.residual(layer.norm2, x, lambda x, layer=layer: self.feed_forward(layer.feed_forward, x))
        memory = self.final_norm(self.model.encoder, x)
        y, all_weights = self.embed(self.model.tgt_embed, target), []

        def cross_attend(y, layer):
            context, weights = self.attend(layer.cross_attn, y, memory, is_token)
            all_weights.append(weights)
            return context

        for layer in self.model.decoder.layers:
            y = self.residual(layer.norm1, y, lambda y, layer=layer: self.attend(layer.self_attn, y, y, is_past)[0])
            y = self.residual(layer.norm2, y, lambda y, layer=layer: cross_attend(y, layer))
            y = self.residual(layer.norm3, y, lambda y, layer=layer: self.feed_forward(layer.feed_forward, y))
        return self.final_norm(self.model.decoder, y) @ self.model.lm_head.weight.T, all_weights


@pytest.mark.parametrize("norm_first", NORM_FIRST)
@pytest.mark.parametrize("training", [False, True])
def test_equals_reference(norm_first, training):
    model = small(norm_first=norm_first, num_decoder_layers=3).train(training)
    source, lengths, target = sample_pairs()
    expected, expected_weights = Reference(model, norm_first)(source, lengths, target)
    close(model(source, lengths, target), expected)
    weights = model.attention_weights(source, lengths, torch.cat([target, target[:, :1]], 1))
    for ours, theirs in zip(weights, expected_weights, strict=True):
        close(ours, theirs)


@pytest.mark.parametrize("norm_first", NORM_FIRST)
def test_gradients_equal_reference(norm_first):
    model = small(norm_first=norm_first).double()
    source, lengths, target = sample_pairs()
    names, weights = zip(*model.named_parameters(), strict=True)

    def gradients(logits):
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), target.roll(-1, 1).flatten())
        return torch.autograd.grad(loss, weights)

    ours = gradients(model(source, lengths, target))
    theirs = gradients(Reference(model, norm_first)(source, lengths, target)[0])
    for name, a, b in zip(names, ours, theirs, strict=True):
        assert torch.allclose(a, b, atol=1e-8), name


@pytest.mark.parametrize("norm_first", NORM_FIRST)
@pytest.mark.parametrize(
    "law",
    [
        laws.steps_equal_forward,
        laws.hidden_states_give_logits,
        laws.rows_are_independent,
        laws.later_tokens_are_hidden,
        laws.reordered_rows_continue,
        laws.all_parameters_get_gradients,
    ],
)
@pytest.mark.parametrize("grad", [False, True])
def test_laws(norm_first, law, grad):
    with torch.set_grad_enabled(grad or law is laws.all_parameters_get_gradients):
        law(small(norm_first=norm_first))


RELATIVE = {
    "Rotary": lambda: Rotary(ScaledDot()),
    "Alibi": lambda: ScaledDot() + Alibi(4),
    "RelativeBias": lambda: 2 * (ScaledDot() + RelativeBias(4)),
}


@torch.no_grad()
@pytest.mark.parametrize("score", RELATIVE)
@pytest.mark.parametrize("law", [laws.steps_equal_forward, laws.rows_are_independent, laws.later_tokens_are_hidden])
def test_relative_positions_only_in_self_attention(score, law):
    def make_self_attn():
        return MultiHead(16, 4, score=RELATIVE[score]())

    law(small(make_self_attn=make_self_attn, make_cross_attn=lambda: MultiHead(16, 4)))
    with pytest.raises(ValueError, match=r"make_cross_attn=lambda: MultiHead\(embed_dim, num_heads\)"):
        small(make_self_attn=make_self_attn)


@pytest.mark.parametrize("norm_first", NORM_FIRST)
def test_attention_weights(norm_first):
    with torch.no_grad():
        model = small(norm_first=norm_first, num_decoder_layers=3)
        laws.attention_weights_are_distributions(model, layers=3, heads=4)


def test_defaults_are_the_base_model_of_the_paper():
    defaults = {name: p.default for name, p in inspect.signature(Transformer).parameters.items()}
    names = ("embed_dim", "num_heads", "num_encoder_layers", "ffn_dim", "dropout", "norm_first")
    assert [defaults[name] for name in names] == [512, 8, 6, 2048, 0.1, False]
    with torch.device("meta"):
        model = Transformer(100, 100)
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (6, 6)
    attention = 4 * (512 * 512 + 512)
    feed_forward, norm = 512 * 2048 + 2048 + 2048 * 512 + 512, 2 * 512
    stacks = 6 * (attention + feed_forward + 2 * norm) + 6 * (2 * attention + feed_forward + 3 * norm)
    assert sum(p.numel() for p in model.parameters()) == stacks + 3 * 100 * 512


def test_tied_embeddings_share_storage():
    sizes = {"embed_dim": 8, "num_heads": 2, "num_encoder_layers": 1, "ffn_dim": 8}
    model = Transformer(13, 13, tie_embeddings="all", **sizes)
    assert model.src_embed.weight is model.tgt_embed.weight is model.lm_head.weight
    two = Transformer(11, 13, tie_embeddings="output", **sizes)
    assert two.tgt_embed.weight is two.lm_head.weight
    assert two.src_embed.weight is not two.lm_head.weight
    untied = Transformer(13, 13, **sizes)
    assert len({id(w) for w in (untied.src_embed.weight, untied.tgt_embed.weight, untied.lm_head.weight)}) == 3
    double = model.double()
    assert double.src_embed.weight is double.lm_head.weight


@pytest.mark.parametrize("tie_embeddings", ["output", "all"])
def test_laws_with_tied_embeddings(tie_embeddings):
    torch.manual_seed(0)
    sizes = {"embed_dim": 16, "num_heads": 2, "num_encoder_layers": 2, "ffn_dim": 16}
    model = Transformer(13, 13, dropout=0.0, tie_embeddings=tie_embeddings, **sizes).eval()
    with torch.no_grad():
        laws.steps_equal_forward(model)
        laws.reordered_rows_continue(model)


@pytest.mark.bare
def test_tie_all_needs_one_vocabulary():
    with pytest.raises(ValueError, match=r"tie_embeddings='all' needs one vocabulary .* got sizes 11 and 13$"):
        Transformer(11, 13, embed_dim=8, num_heads=2, tie_embeddings="all")


def test_dropout_only_in_training():
    model = small(dropout=0.3)
    pairs = sample_pairs()
    assert torch.equal(model(*pairs), model(*pairs))
    model.train()
    torch.manual_seed(3)
    first, second = model(*pairs), model(*pairs)
    assert not torch.allclose(first, second)
    torch.manual_seed(3)
    assert torch.equal(first, model(*pairs))


def test_a_step_projects_one_token():
    """The source is projected once, and a step projects only its own token."""
    model, (source, lengths, target) = small(), sample_pairs()
    shapes = []
    for layer in model.decoder.layers:
        layer.cross_attn.k_proj.register_forward_hook(lambda m, i, o: shapes.append(i[0].shape))
        layer.self_attn.k_proj.register_forward_hook(lambda m, i, o: shapes.append(i[0].shape))
    with torch.no_grad():
        state = model.start_decoding(source, lengths)
        assert len(shapes) == 2
        for t in range(3):
            state.step(target[:, t])
        state.reorder(torch.tensor([1, 1, 0]))
        state.step(target[:3, 3])
    assert all(shape[1] == 1 for shape in shapes[2:])
    assert len(shapes) == 2 + 4 * 2


def test_empty_reorder():
    with torch.no_grad():
        state = small().start_decoding(*sample_pairs()[:2])
        state.step(torch.full((4,), laws.BOS))
        state.reorder(torch.zeros(0, dtype=torch.long))
        assert state.step(torch.zeros(0, dtype=torch.long)).shape == (0, laws.TGT_VOCAB_SIZE)


def test_autocast_to_bfloat16():
    model, pairs = small(), sample_pairs()
    with torch.no_grad():
        expected = model(*pairs)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            actual = model(*pairs).float()
    assert (actual - expected).abs().max() < 0.1 * expected.abs().max()
