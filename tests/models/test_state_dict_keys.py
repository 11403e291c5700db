"""State-dict keys are part of the format of weight files."""

import re

import pytest
import torch
from torch import nn

from regard.models import Transformer
from tests.models.builders import BUILD
from tests.models.laws import close, sample_pairs

LINEAR = ("weight", "bias")


def linears(*names):
    return {f"{name}.{part}" for name in names for part in LINEAR}


def attention(name):
    return linears(*(f"{name}.{projection}" for projection in ("q_proj", "k_proj", "v_proj", "out_proj")))


FEED_FORWARD = ("feed_forward.linear1", "feed_forward.linear2")
ENCODER_LAYER = attention("self_attn") | linears(*FEED_FORWARD, "norm1", "norm2")
DECODER_LAYER = attention("self_attn") | attention("cross_attn") | linears(*FEED_FORWARD, "norm1", "norm2", "norm3")
ADDITIVE = {"score.query_proj.weight", "score.key_proj.weight", "score.energy"}
HYBRID = (
    {"embed.weight"}
    | linears("norm", *(f"layers.N.{name}" for name in ("conv", "rnn", "out_proj", "norm")))
    | {f"layers.N.{key}" for key in ENCODER_LAYER}
)
HYBRID -= linears("layers.N.rnn")
RECURRENT = {f"{part}_{gates}" for part in ("weight", "bias") for gates in ("ih", "hh")}


def rnn(name, layers=1, reverse=True):
    sides = ("", "_reverse") if reverse else ("",)
    return {f"{name}.{key}_l{layer}{side}" for key in RECURRENT for layer in range(layers) for side in sides}


def prefixed(prefix, keys):
    return {f"{prefix}.{key}" for key in keys}


KEYS = {
    "Transformer": prefixed("encoder.layers.N", ENCODER_LAYER)
    | prefixed("decoder.layers.N", DECODER_LAYER)
    | linears("encoder.norm", "decoder.norm")
    | {"src_embed.weight", "tgt_embed.weight", "lm_head.weight"},
    "RNNSeq2Seq": rnn("encoder.layers")
    | prefixed("attention", ADDITIVE)
    | linears("cells.N.input_proj", "cells.N.hidden_proj", "bridge", "readout_proj")
    | {"cells.N.context_proj.weight", "src_embed.weight", "tgt_embed.weight", "lm_head.weight"},
    "CausalLM": {"embed.weight", "lm_head.weight"}
    | prefixed("decoder.layers.N", ENCODER_LAYER)
    | linears("decoder.norm"),
    "HybridEncoder": HYBRID | rnn("layers.N.rnn"),
    "MaskedLM": prefixed("encoder", HYBRID | rnn("layers.N.rnn")) | linears("lm_head"),
    "ShowAttendTell": prefixed("attention", ADDITIVE)
    | linears("bridge", "gate", "cell.input_proj", "cell.hidden_proj", "readout_proj", "lm_head")
    | {"tgt_embed.weight", "cell.context_proj.weight"},
    "VisualQAModel": {"question_encoder.embed.weight"}
    | rnn("question_encoder.gru", reverse=False)
    | prefixed("attentions.N", ADDITIVE)
    | linears("query_updates.N", "readout_proj", "classifier"),
    "HierarchicalAttentionNetwork": {"embed.weight"}
    | {
        f"{level}.{key}"
        for level in ("word_level", "sentence_level")
        for key in rnn("rnn") | prefixed("pool.attention", ADDITIVE) | {"pool.query"}
    }
    | linears("classifier"),
    "NeuralTuringMachine": prefixed("controller.cell", RECURRENT)
    | {"controller.initial_state", "initial_read"}
    | linears("interface_proj", "output_proj"),
    "LSTMBaseline": rnn("lstm", 2, reverse=False) | linears("output_proj"),
}


@pytest.mark.parametrize("name", KEYS)
def test_state_dict_keys(name):
    keys = {re.sub(r"(?<=\.)\d+(?=\.)", "N", key) for key in BUILD[name]().state_dict()}
    assert keys == KEYS[name]


# Where keys of the Transformer differ from those of nn.Transformer, and why. All others are the same.
RENAMED = {
    r"\.cross_attn\.": ".multihead_attn.",  # says what the second attention of a layer attends to, as Hugging Face does
    r"\.feed_forward\.linear": ".linear",  # a module of its own, which can be replaced and which other models use too
    r"\.[qkv]_proj\.(weight|bias)": r".in_proj_\1",  # three layers, as key and value may have fewer heads than query
}
NOT_IN_PYTORCH = {"src_embed.weight", "tgt_embed.weight", "lm_head.weight"}  # nn.Transformer maps vectors to vectors
FINAL_NORMS = linears("encoder.norm", "decoder.norm")  # only with norm_first, as in the papers; nn.Transformer always


def as_pytorch(state):
    """The state dict of a Transformer with the keys of nn.Transformer; query, key and value are concatenated."""
    converted = {}
    for key, tensor in state.items():
        for pattern, replacement in RENAMED.items():
            key = re.sub(pattern, replacement, key)
        converted[key] = torch.cat([converted[key], tensor]) if key in converted else tensor
    return {key: tensor for key, tensor in converted.items() if key not in NOT_IN_PYTORCH}


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("norm_first", [False, True])
def test_transformer_keys_differ_from_those_of_pytorch_in_few_names(norm_first):
    sizes = {"num_encoder_layers": 2, "num_decoder_layers": 3, "dropout": 0.0, "norm_first": norm_first}
    model = Transformer(11, 13, embed_dim=16, num_heads=2, ffn_dim=24, **sizes)
    theirs = nn.Transformer(16, 2, dim_feedforward=24, batch_first=True, **sizes)
    state, expected = as_pytorch(model.state_dict()), theirs.state_dict()
    assert expected.keys() - state.keys() == (set() if norm_first else FINAL_NORMS)
    assert {key: tensor.shape for key, tensor in state.items()} == {key: expected[key].shape for key in state}
    if norm_first:  # so weights of one can be loaded into the other
        theirs.load_state_dict(state)
        source, lengths, target = sample_pairs()
        padding = torch.arange(source.shape[1]) >= lengths[:, None]
        masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
        causal = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
        hidden = theirs(model.src_embed(source), model.tgt_embed(target), tgt_mask=causal, **masks)
        close(model.forward_hidden(source, lengths, target), hidden)
