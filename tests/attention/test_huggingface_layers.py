"""The attention of Hugging Face's families as a MultiHead: their weights load as they are, without permuting."""

import importlib

import pytest
import torch
from torch import nn

from regard.attention import Dot, KVCache, MultiHead, Rotary, ScaledDot, SoftCap, WithSink, causal, softmax, window

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "vocab_size": 9}
SMALL |= {"max_position_embeddings": 64, "intermediate_size": 8, "attn_implementation": "eager"}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "original_max_position_embeddings": 16}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 16}


class GemmaNorm(nn.RMSNorm):
    """The weight of Gemma's norm is added to 1."""

    def forward(self, x):
        return nn.functional.rms_norm(x, self.normalized_shape, eps=self.eps) * (1 + self.weight)


def score_of(config, scale=None, cap=None):
    score = ScaledDot() if scale is None else scale * Dot()
    return Rotary(score if cap is None else SoftCap(score, cap), interleaved=False, scaling=config.rope_parameters)


# family: (options of its config, from the config to the options of MultiHead)
FAMILIES = {
    "llama": ({}, lambda c: {"score": score_of(c)}),
    "llama, 3.1": ({"rope_parameters": LLAMA3}, lambda c: {"score": score_of(c)}),
    "llama, head_dim and bias": (
        {"head_dim": 6, "attention_bias": True},
        lambda c: {"score": score_of(c), "bias": True},
    ),
    "mistral": ({"head_dim": 16, "sliding_window": None}, lambda c: {"score": score_of(c)}),
    "qwen2": ({}, lambda c: {"score": score_of(c), "bias": True, "out_bias": False}),
    "qwen3": (
        {"head_dim": 16},
        lambda c: {"score": score_of(c), "qk_norm": lambda dim: nn.RMSNorm(dim, eps=c.rms_norm_eps)},
    ),
    "gemma": ({"head_dim": 16}, lambda c: {"score": score_of(c)}),
    "gemma2": (
        {"head_dim": 16, "query_pre_attn_scalar": 24, "attn_logit_softcapping": 0.5},
        lambda c: {"score": score_of(c, c.query_pre_attn_scalar**-0.5, c.attn_logit_softcapping)},
    ),
    "gpt_oss": (
        {"head_dim": 16, "rope_parameters": {**YARN, "truncate": False}},
        lambda c: {"score": score_of(c), "normalize": WithSink(softmax, c.num_attention_heads), "bias": True},
    ),
    "gpt_neox": (
        {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.5}},
        lambda c: {"score": score_of(c), "bias": True},
    ),
}


def build(name):
    """The attention of a family with random weights, its rotary module, and the MultiHead with the same weights."""
    family = name.partition(",")[0]
    options, make_options = FAMILIES[name]
    modeling = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    prefix = {"gpt_oss": "GptOss", "gpt_neox": "GPTNeoX"}.get(family, family.capitalize())
    config = getattr(transformers, f"{prefix}Config")(**{**SMALL, **options})
    theirs = getattr(modeling, f"{prefix}Attention")(config, layer_idx=0).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    rotary = getattr(modeling, f"{prefix}RotaryEmbedding")(config)
    heads = (config.num_attention_heads, None if family == "gpt_neox" else config.num_key_value_heads)
    sizes = {"bias": False, "head_dim": getattr(config, "head_dim", None)}
    ours = MultiHead(config.hidden_size, *heads, **{**sizes, **make_options(config)}).eval()
    ours.load_state_dict(rename(theirs.state_dict(), family))
    return theirs, rotary, ours


def rename(state, family):
    """Their state dict under our names: no tensor is permuted; GPT-NeoX has one tensor for the heads' q, k and v."""
    if family == "gpt_neox":
        renamed = {f"out_proj.{kind}": state[f"dense.{kind}"] for kind in ("weight", "bias")}
        for kind in ("weight", "bias"):
            heads = state[f"query_key_value.{kind}"].unflatten(0, (4, 3, -1))
            renamed |= {f"{part}_proj.{kind}": heads[:, index].flatten(0, 1) for index, part in enumerate("qkv")}
        return renamed
    return {name.replace("o_proj", "out_proj").replace("sinks", "normalize.sinks"): t for name, t in state.items()}


def their_output(theirs, rotary, x, visible):
    positions = torch.arange(x.shape[1])[None]
    additive = torch.where(visible, 0.0, torch.finfo(x.dtype).min)[None, None]
    return theirs(x, attention_mask=additive, position_embeddings=rotary(x, positions))[:2]


@pytest.mark.parametrize("name", FAMILIES)
def test_weights_of_a_family_load_without_permuting(name):
    theirs, rotary, ours = build(name)
    x = torch.randn(2, 12, 32)
    for mask in (causal(), window(3, 0)):
        context, weights = their_output(theirs, rotary, x, mask.materialize(12, 12))
        output = ours(x, mask=mask)
        torch.testing.assert_close(output.context, context, rtol=1e-5, atol=1e-5)
        if weights is not None:
            torch.testing.assert_close(output.weights, weights[..., :12], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_family_decodes_with_a_cache(name):
    theirs, rotary, ours = build(name)
    x, cache = torch.randn(2, 9, 32), KVCache()
    with torch.no_grad():
        expected = their_output(theirs, rotary, x, causal().materialize(9, 9))[0]
        for at in range(9):
            step = ours(x[:, at : at + 1], mask=causal(), cache=cache).context
            torch.testing.assert_close(step[:, 0], expected[:, at], rtol=1e-5, atol=1e-5)


def test_norms_of_gemma3():
    config = transformers.Gemma3TextConfig(**{**SMALL, "head_dim": 16, "query_pre_attn_scalar": 24})
    modeling = importlib.import_module("transformers.models.gemma3.modeling_gemma3")
    theirs = modeling.Gemma3Attention(config, layer_idx=0).eval()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.normal_(std=0.3)
    layer_type = config.layer_types[0]
    scaling = config.rope_parameters[layer_type]
    score = Rotary(config.query_pre_attn_scalar**-0.5 * Dot(), interleaved=False, scaling=scaling)
    norm = {"qk_norm": lambda dim: GemmaNorm(dim, eps=config.rms_norm_eps)}
    ours = MultiHead(32, 4, 2, head_dim=16, bias=False, score=score, **norm).eval()
    ours.load_state_dict(rename(theirs.state_dict(), "gemma3"))
    x = torch.randn(2, 12, 32)
    rotary = modeling.Gemma3RotaryEmbedding(config)
    expected = their_output(theirs, lambda *args: rotary(*args, layer_type), x, causal().materialize(12, 12))[0]
    torch.testing.assert_close(ours(x, mask=causal()).context, expected, rtol=1e-5, atol=1e-5)
