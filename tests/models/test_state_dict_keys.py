"""State-dict keys are part of the format of weight files."""

import re

import pytest

from tests.models.builders import BUILD

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
