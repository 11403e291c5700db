"""Starts and readouts of RNN decoders: fast steps equal the definition, and the definition a loop written by hand."""

from itertools import product

import pytest
import torch

from regard.errors import ConfigError, UsageError
from regard.models.rnn_decoding import posterior_alignment
from regard.models.rnn_fast import FusedRNNDecoderState
from regard.tasks import make_config
from tests.models import laws
from tests.models.laws import close, sample_pairs
from tests.models.test_fast_decoding import beams_equal_rows
from tests.models.test_fast_rnn_decoding import LENGTHS, fused_state, reference_state
from tests.models.test_rnn_seq2seq import DECODERS, DIM, small

STARTS = ("bridge", "last", "per-layer", "zero")
GRID = [
    (decoder, cell, start, readout)
    for decoder, cell, start, readout in product(DECODERS, ("gru", "lstm"), STARTS, ("maxout", "tanh", "linear"))
    if (readout != "maxout" or decoder == "bahdanau") and (start != "bridge" or readout != "maxout")
]


@pytest.mark.parametrize(("decoder", "cell", "start", "readout"), GRID)
def test_fused_steps_equal_reference(decoder, cell, start, readout):
    model = small(decoder, cell, layers=2, init_hidden=start, readout_type=readout)
    source, lengths, _ = sample_pairs(LENGTHS)
    with torch.no_grad():
        assert isinstance(model.start_decoding(source, lengths), FusedRNNDecoderState)
        beams_equal_rows(fused_state(model, source, lengths), reference_state(model, source, lengths))
        laws.steps_equal_forward(model)
        laws.hidden_states_give_logits(model)
        laws.rows_are_independent(model)
        weights = posterior_alignment(model, *sample_pairs())
        close(weights.sum(-1), torch.ones(weights.shape[:2]))


def gru_step(cell, x, state):
    (h,) = state
    r_x, z_x, n_x = (cell.input_proj.weight @ x + cell.input_proj.bias).chunk(3)
    hidden_bias = 0 if cell.hidden_proj.bias is None else cell.hidden_proj.bias
    r_h, z_h, n_h = (cell.hidden_proj.weight @ h + hidden_bias).chunk(3)
    reset, keep = torch.sigmoid(r_x + r_h), torch.sigmoid(z_x + z_h)
    return ((1 - keep) * torch.tanh(n_x + reset * n_h) + keep * h,)


def lstm_step(cell, x, state):
    h, c = state
    hidden_bias = 0 if cell.hidden_proj.bias is None else cell.hidden_proj.bias
    gates = cell.input_proj.weight @ x + cell.input_proj.bias + cell.hidden_proj.weight @ h + hidden_bias
    i, f, g, o = gates.chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


def logits_of_one(model, source, target, start, readout):
    """The logits of one pair without padding, by Luong's decoder with dot products."""
    states, final = model.encoder.layers(model.src_embed(source)[None])
    parts = final if isinstance(final, tuple) else (final,)  # each (layers * 2, 1, size)
    step = lstm_step if len(parts) == 2 else gru_step
    layers = []
    for layer in range(2):
        own = tuple(torch.cat([part[2 * layer, 0], part[2 * layer + 1, 0]]) for part in parts)
        last = torch.cat([parts[0][2, 0], parts[0][3, 0]])
        layers.append({"zero": (torch.zeros(DIM),) * len(parts), "last": (last,) * len(parts), "per-layer": own}[start])
    logits = []
    for token in target:
        x = model.tgt_embed.weight[token]
        for layer, cell in enumerate(model.cells):
            layers[layer] = step(cell, x, layers[layer])
            x = layers[layer][0]
        features = torch.cat([x, torch.softmax(states[0] @ x, 0) @ states[0]])
        if readout == "tanh":
            features = torch.tanh(model.readout_proj.weight @ features + model.readout_proj.bias)
        logits.append(model.lm_head.weight @ features)
    return torch.stack(logits)


@pytest.mark.parametrize("cell", ["gru", "lstm"])
@pytest.mark.parametrize("readout", ["tanh", "linear"])
@pytest.mark.parametrize("start", ["last", "per-layer", "zero"])
def test_forward_equals_a_loop(start, readout, cell):
    model = small("luong", cell, 2, "dot", init_hidden=start, readout_type=readout)
    source, lengths, target = sample_pairs()
    with torch.no_grad():
        logits = model(source, lengths, target)
        for row, length in enumerate(lengths):
            close(logits[row], logits_of_one(model, source[row, :length], target[row], start, readout))


def test_only_what_is_used_has_parameters():
    names = {name.split(".")[0] for name in small("luong", init_hidden="zero", readout_type="linear").state_dict()}
    assert names == {"src_embed", "tgt_embed", "encoder", "attention", "cells", "lm_head"}
    model = small(init_hidden="last", readout_type="tanh", tie_embeddings=True)
    assert model.lm_head.weight is model.tgt_embed.weight
    model.reset_parameters()


@pytest.mark.bare
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler reads it
@pytest.mark.parametrize(("start", "readout"), [("per-layer", "linear"), ("zero", "tanh")])
def test_compiled_equals_plain(start, readout):
    model = small("bahdanau", "lstm", 2, init_hidden=start, readout_type=readout)
    pairs = sample_pairs()
    close(torch.compile(model, backend="aot_eager")(*pairs), model(*pairs))


@pytest.mark.bare
@pytest.mark.parametrize(
    ("decoder", "options", "message"),
    [
        ("luong", {"readout_type": "maxout"}, "readout_type='maxout' needs decoder_type='bahdanau'"),
        ("luong", {"readout_type": "linear", "tie_embeddings": True}, "readout_type='linear' has no vector of size"),
        ("luong", {"init_hidden": "last", "encoder_hidden_dim": 3}, "needs encoder states of size hidden_dim=8, but"),
        ("luong", {"init_hidden": "first"}, "init_hidden"),
        ("luong", {"readout_type": "softmax"}, "readout_type"),
    ],
)
def test_refused_arguments(decoder, options, message):
    with pytest.raises((UsageError, ValueError), match=message):
        small(decoder, **options)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["readout_type=maxout", "decoder_type=luong"], "readout_type.*maxout needs decoder_type=bahdanau"),
        (["readout_type=linear", "tie_embeddings=output"], "readout_type.*linear needs tie_embeddings=none"),
        (["init_hidden=last", "encoder_hidden_dim=3"], "init_hidden.*last needs encoder states of size hidden_dim=64"),
        (["init_hidden=per-layer", "hidden_dim=7"], "init_hidden.*of size hidden_dim=7, but they have 6"),
        (["init_hidden=zero", "model=transformer"], "init_hidden"),
        (["init_hidden=none"], "init_hidden"),
    ],
)
def test_refused_options(overrides, message):
    with pytest.raises(ConfigError, match=message):
        make_config("reverse", overrides)


def test_options_reach_the_model():
    from regard.tasks.translation.task import build_model

    model = build_model(make_config("reverse", ["init_hidden=per-layer", "readout_type=linear"]), 9, 9)
    assert (model.init_hidden, model.readout_type, model.bridge) == ("per-layer", "linear", None)
    assert build_model(make_config("reverse", ["decoder_type=luong"]), 9, 9).readout_type == "tanh"
