"""Watching does not change a model: equal outputs bit for bit, and the weights of the model."""

import pytest
import torch

from regard.attention import (
    Alibi,
    Attention,
    Dropout,
    LocalM,
    LocalP,
    MultiHead,
    Sample,
    ScaledDot,
    causal,
    entmax15,
    padding,
    softmax,
    window,
)
from regard.viewing import watch
from tests.viewing.watched_models import LENGTHS, SOURCE, TARGET, compare_watched, recurrent, transformer

MODELS = {
    "transformer": transformer,
    "dropped weights": lambda: transformer(make_self_attn=lambda: MultiHead(16, 4, dropout=0.5)),
    "grouped": lambda: transformer(make_self_attn=lambda: MultiHead(16, 4, num_kv_heads=2)),
    "one for all": lambda: transformer(make_self_attn=lambda: MultiHead(16, 4, num_kv_heads=1)),
    "a bias a head": lambda: transformer(
        make_self_attn=lambda: MultiHead(16, 4, score=ScaledDot() + Alibi(4)), make_cross_attn=lambda: MultiHead(16, 4)
    ),
    "entmax": lambda: transformer(make_self_attn=lambda: MultiHead(16, 4, normalize=entmax15)),
    "drawn": lambda: transformer(make_self_attn=lambda: MultiHead(16, 4, normalize=Sample())),
    "recurrent": recurrent,
    "luong": lambda: recurrent(Attention(), decoder_type="luong"),
    "local-m": lambda: recurrent(LocalM(ScaledDot(), radius=1)),
    "local-p": lambda: recurrent(LocalP(ScaledDot(), 16, 8, radius=2, normalize=Dropout(softmax, 0.3))),
}


def learned(model):
    """Output and gradients."""
    model.zero_grad()
    hidden = model(SOURCE, LENGTHS, TARGET)
    hidden.square().sum().backward()
    return torch.cat([hidden.detach().flatten(), *(p.grad.flatten() for p in model.parameters() if p.grad is not None)])


@pytest.mark.parametrize("mode", ["train", "eval", "no_grad", "inference", "autocast"])
@pytest.mark.parametrize("model", MODELS)
def test_outputs_do_not_change(model, mode):
    model = MODELS[model]().train(mode == "train")
    if mode in ("train", "eval"):
        records = compare_watched(model, learned)
    elif mode == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            records = compare_watched(model, lambda model: model(SOURCE, LENGTHS, TARGET))
    else:
        with torch.no_grad() if mode == "no_grad" else torch.inference_mode():
            records = compare_watched(model, lambda model: model(SOURCE, LENGTHS, TARGET))
    for record in records:
        assert not record.weights.requires_grad
        assert record.weights.dtype == torch.float32
        assert record.weights.is_contiguous()
        if not isinstance(getattr(model, "attention", None), LocalP):  # under a bell they sum to less
            torch.testing.assert_close(record.weights.sum(-1), torch.ones(record.weights.shape[:-1]), atol=2e-2, rtol=0)
        if record.weights.shape[-1] == 6:  # attends to the source
            for row, length in enumerate(LENGTHS):
                assert not record.weights[row, ..., length:].any()


@pytest.mark.parametrize("model", ["transformer", "grouped", "a bias a head", "entmax", "recurrent", "luong"])
def test_the_weights_are_those_of_the_model(model):
    model = MODELS[model]().eval()
    with torch.no_grad():
        expected = model.attention_weights(SOURCE, LENGTHS, TARGET)
        with watch(model) as records:
            model(SOURCE, LENGTHS, TARGET[:, :-1])
    names = [name for name in records.layers() if "cross_attn" in name or name == "attention"]
    for name, weights in zip(names, expected, strict=True):
        torch.testing.assert_close(records.concat_calls(name).weights, weights)


def test_sampled_weights_are_recorded():
    heads = MultiHead(8, 2, normalize=Sample()).train()
    x = torch.randn(1, 4, 8)
    with watch(heads) as records:
        output = heads(x)
    assert torch.equal(records[0].weights, output.weights)
    assert records[0].weights.amax(-1).eq(1).all()


def test_weights_are_recorded_before_dropout():
    heads = MultiHead(8, 2, dropout=0.9).train()
    x = torch.randn(2, 5, 8)
    with watch(heads) as records:
        heads(x)
    torch.testing.assert_close(records["MultiHead"].weights, heads.eval()(x).weights)


@pytest.mark.parametrize("score", [None, ScaledDot() + Alibi(4)], ids=["dot", "bias"])
@pytest.mark.parametrize(
    "mask",
    [
        None,
        causal(),
        padding([5, 3]),
        causal() & padding([5, 3]),
        ~window(0, 0),
        torch.rand(2, 4, 5, 5) > 0.3,
        torch.rand(1, 4, 5, 5) > 0.3,
        torch.rand(2, 1, 5, 5) > 0.3,
    ],
    ids=["none", "causal", "padding", "both", "not", "dense", "a head", "a row"],
)
def test_selected_heads_equal_those_of_all(mask, score):
    heads, x = MultiHead(16, 4, score=score), torch.randn(2, 5, 16)
    with watch(heads) as all_records, watch(heads, heads=[3, 1]) as selected:
        output = heads(x, mask=mask)
    assert selected[0].heads == (3, 1)
    assert torch.equal(all_records[0].weights, output.weights)
    torch.testing.assert_close(selected[0].weights, output.weights[:, [3, 1]])


def test_layers_by_number_name_and_pattern():
    model = transformer()
    expected = {
        1: ["encoder.layers.1.self_attn"],
        "decoder.layers.0": ["decoder.layers.0.self_attn", "decoder.layers.0.cross_attn"],
        "*.cross_attn": ["decoder.layers.0.cross_attn", "decoder.layers.1.cross_attn"],
        (0, "*.1.cross_attn"): ["encoder.layers.0.self_attn", "decoder.layers.1.cross_attn"],
    }
    for layers, names in expected.items():
        with watch(model, layers=layers) as records:
            model(SOURCE, LENGTHS, TARGET)
        assert records.layers() == names
    assert [record.layer for record in records] == [0, 5]


@pytest.mark.bare
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layers": 6}, r"no layer 6; the layers are 0 \(encoder.layers.0.self_attn\), 1 "),
        ({"layers": ["encoder", "nowhere.*"]}, "no layer 'nowhere.*'"),
        ({"layers": 1.5}, "numbers or names of modules, got 1.5"),
        ({"heads": "all"}, "heads must be numbers, got 'all'"),
        ({"layers": [None]}, "numbers or names of modules, got None"),
        ({"heads": 4}, "no head 4 in encoder.layers.0.self_attn, which has heads 0 to 3"),
        ({"heads": [-1]}, "no head -1"),
        ({"heads": []}, r"heads=\[\] selects no head"),
    ],
)
def test_invalid_selections_are_rejected(options, message):
    with pytest.raises((ValueError, TypeError), match=message), watch(transformer(), **options):
        pass


@pytest.mark.bare
def test_only_modules_can_be_watched():
    with pytest.raises(TypeError, match=r"watch its .model"), watch("model"):
        pass
