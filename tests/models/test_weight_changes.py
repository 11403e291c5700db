"""Fast decoders keep weights in another layout; whatever changes a weight, the next start uses the new one."""

import copy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from regard.models.fast_decoding import _sample_size
from regard.models.rnn_decoding import RNNDecoderState
from regard.models.rnn_fast import FusedRNNDecoderState
from regard.models.transformer import TransformerDecoderState
from regard.models.transformer_fast import FusedDecoderState
from tests.models import test_fast_decoding, test_fast_rnn_decoding, test_rnn_seq2seq, test_transformer
from tests.models.laws import close, sample_pairs

MODELS = {
    "rnn": (lambda: test_rnn_seq2seq.small("bahdanau"), FusedRNNDecoderState, test_fast_rnn_decoding.reference_state),
    "transformer": (test_transformer.small, FusedDecoderState, test_fast_decoding.reference_state),
}
OPTIMIZERS = {
    "fused Adam": partial(torch.optim.Adam, fused=True),
    "fused AdamW": partial(torch.optim.AdamW, fused=True),
    "foreach Adam": partial(torch.optim.Adam, foreach=True),
    "fused SGD": partial(torch.optim.SGD, fused=True),
    "RMSprop": torch.optim.RMSprop,
}


def weights(model):
    """Some weight matrices of the decoder that are stored in another layout, and biases."""
    if hasattr(model, "cells"):
        cell = model.cells[0]
        return [model.lm_head.weight, cell.hidden_proj.weight, cell.context_proj.weight], [cell.hidden_proj.bias]
    layer = model.decoder.layers[0]
    matrices = [model.lm_head.weight, layer.feed_forward.linear1.weight, layer.cross_attn.k_proj.weight]
    return matrices, [layer.feed_forward.linear1.bias, layer.self_attn.out_proj.bias]


def average(model):
    """An average as many trainings keep it, which counts no versions."""
    for p in model.parameters():
        p.data.lerp_(torch.rand_like(p), 0.1)


DATA_WRITES = {
    "mul_": lambda w: w.data.mul_(1.5),
    "add_": lambda w: w.data.add_(torch.randn_like(w)),
    "copy_": lambda w: w.data.copy_(torch.rand_like(w)),
    "the same numbers in another order": lambda w: w.data.copy_(w.data.flip(0)),
    "a row": lambda w: w.data[len(w) // 2].zero_(),
    "a column": lambda w: w.data[:, w.shape[1] // 3].add_(3 * torch.randn(len(w))),
    "a block": lambda w: w.data[: len(w) // 2, : w.shape[1] // 2].neg_(),
    "a strip of a row": lambda w: w.data[1].add_(torch.rand(w.shape[1])),
    "another tensor": lambda w: setattr(w, "data", torch.rand_like(w)),
}


def steps(state, target):
    return torch.stack([state.step(target[:, t]) for t in range(2)])


def check(kind, model, change, is_fused=True):
    """After a change, a new state computes what the definition does."""
    _, fused, reference = MODELS[kind]
    source, lengths, target = sample_pairs()
    with torch.no_grad():
        before = steps(model.start_decoding(source, lengths), target)
    change()
    with torch.no_grad():
        state = model.start_decoding(source, lengths)
        assert isinstance(state, fused) == is_fused
        after = steps(state, target)
        close(after, steps(reference(model, source, lengths), target))
    assert not torch.allclose(after, before, atol=1e-5)


@pytest.mark.parametrize("write", list(DATA_WRITES))
@pytest.mark.parametrize("kind", list(MODELS))
def test_writes_through_data(kind, write):
    model = MODELS[kind][0]()
    for matrix in weights(model)[0]:
        check(kind, model, partial(DATA_WRITES[write], matrix))


@pytest.mark.parametrize("kind", list(MODELS))
def test_single_elements(kind):
    model = MODELS[kind][0]()
    for bias in weights(model)[1]:  # vectors are read whole
        check(kind, model, lambda bias=bias: bias.data[1].add_(3.0))

    @torch.no_grad()
    def write(matrix):  # counted, as it is not written through .data
        matrix[1, 2] += 3.0

    for matrix in weights(model)[0]:
        check(kind, model, partial(write, matrix))


@pytest.mark.parametrize("name", list(OPTIMIZERS))
@pytest.mark.parametrize("kind", list(MODELS))
def test_optimizers(kind, name):
    model = MODELS[kind][0]()
    optimizer = OPTIMIZERS[name](model.parameters(), lr=0.05)
    for _ in range(2):
        for parameter in model.parameters():
            parameter.grad = torch.randn_like(parameter)
        check(kind, model, optimizer.step)


def test_a_step_counts_for_what_it_changes_only():
    trained, frozen = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    trained.grad, versions = torch.ones(2), (trained._version, frozen._version)
    torch.optim.Adam([trained, frozen], fused=True).step()
    assert trained._version > versions[0]
    assert frozen._version == versions[1]


@pytest.mark.parametrize("kind", list(MODELS))
def test_averages(kind):
    model = MODELS[kind][0]()
    check(kind, model, partial(average, model))
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))

    def update():
        other = copy.deepcopy(model)
        average(other)
        ema.update_parameters(other)

    ema.update_parameters(model)
    check(kind, ema.module.eval(), update)


@pytest.mark.parametrize("assign", [False, True])
@pytest.mark.parametrize("kind", list(MODELS))
def test_loaded_weights(kind, assign):
    model = MODELS[kind][0]()
    state = {name: p + torch.rand_like(p) / 5 for name, p in model.state_dict().items()}
    check(kind, model, lambda: model.load_state_dict(state, assign=assign))


@pytest.mark.parametrize("kind", list(MODELS))
def test_other_dtypes_and_autocast(kind):
    model = MODELS[kind][0]()
    fused = MODELS[kind][1]
    source, lengths, target = sample_pairs()
    with torch.no_grad():
        first = steps(model.start_decoding(source, lengths), target)
        with torch.autocast("cpu", torch.bfloat16):
            state = model.start_decoding(source, lengths)
            assert isinstance(state, (RNNDecoderState, TransformerDecoderState))
            steps(state, target)
        close(steps(model.start_decoding(source, lengths), target), first)
        state = model.double().start_decoding(source, lengths)
        assert isinstance(state, fused)
        close(steps(state, target).float(), first)


def test_every_row_and_column_is_sampled():
    for shape in [(10_000, 512), (512, 2048), (2048, 512), (1536, 1024), (768, 768)]:  # of usual models
        assert _sample_size(shape)[0] < 1.01 * max(shape) + 2
    for rows, columns in [
        (1, 1),
        (1, 9),
        (9, 1),
        (2, 2),
        (3, 2),
        (4, 4),
        (7, 30),
        (30, 7),
        (12, 16),
        (64, 48),
        (6, 35),
    ]:
        count, step = _sample_size((rows, columns))
        sampled = torch.arange(rows * columns)[::step]
        assert len(sampled) == count
        assert len((sampled // columns).unique()) == rows, (rows, columns)
        assert len((sampled % columns).unique()) == columns, (rows, columns)
    assert _sample_size((5,)) == (5, 1)  # vectors are read whole


class SameLinear(nn.Linear):
    """A user's layer that computes what nn.Linear does."""

    def describe(self):
        return "same"


class OtherLinear(nn.Linear):
    """A user's layer that does not, in a module that is named like one of the library."""

    __module__ = "regard.models.layers"

    def forward(self, x):
        return -super().forward(x)


class Doubled(nn.Module):
    def forward(self, weight):
        return 2 * weight


@pytest.mark.parametrize("kind", list(MODELS))
def test_parts_are_known_by_what_they_compute(kind):
    model = MODELS[kind][0]()
    parent, name = (model, "readout_proj") if kind == "rnn" else (model.decoder.layers[0].feed_forward, "linear1")
    before = getattr(parent, name)

    def replace(layer):
        with torch.no_grad():
            other = layer(before.in_features, before.out_features).eval()
            other.weight.normal_()
        setattr(parent, name, other)

    check(kind, model, partial(replace, SameLinear))
    check(kind, model, partial(replace, OtherLinear), is_fused=False)
    setattr(parent, name, before)
    check(kind, model, lambda: parametrize.register_parametrization(before, "weight", Doubled()), is_fused=False)
