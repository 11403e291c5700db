"""Watching changes nothing: the same outputs to the last bit, whatever is watched and however it is called."""

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
from tests.viewing.watched import LENGTHS, SOURCE, TARGET, recurrent, transformer, twice

MODELS = {
    "transformer": transformer,
    "dropped weights": lambda: transformer(attention=lambda: MultiHead(16, 4, dropout=0.5)),
    "grouped": lambda: transformer(attention=lambda: MultiHead(16, 4, num_kv_heads=2)),
    "one for all": lambda: transformer(attention=lambda: MultiHead(16, 4, num_kv_heads=1)),
    "a bias a head": lambda: transformer(
        attention=lambda: MultiHead(16, 4, score=ScaledDot() + Alibi(4)), across=lambda: MultiHead(16, 4)
    ),
    "entmax": lambda: transformer(attention=lambda: MultiHead(16, 4, normalize=entmax15)),
    "drawn": lambda: transformer(attention=lambda: MultiHead(16, 4, normalize=Sample())),
    "recurrent": recurrent,
    "luong": lambda: recurrent(Attention(), order="luong"),
    "local-m": lambda: recurrent(LocalM(ScaledDot(), radius=1)),
    "local-p": lambda: recurrent(LocalP(ScaledDot(), 16, 8, radius=2, normalize=Dropout(softmax, 0.3))),
}


def learned(model):
    """Output and gradients together."""
    model.zero_grad()
    hidden = model(SOURCE, LENGTHS, TARGET)
    hidden.square().sum().backward()
    return torch.cat(
        [hidden.detach().flatten(), *(p.grad.flatten() for p in model.parameters() if p.grad is not None)]
    )


@pytest.mark.parametrize("mode", ["train", "eval", "no_grad", "inference", "autocast"])
@pytest.mark.parametrize("model", MODELS)
def test_nothing_changes(model, mode):
    model = MODELS[model]().train(mode == "train")
    if mode in ("train", "eval"):
        seen = twice(model, learned)
    elif mode == "autocast":
        with torch.autocast("cpu", torch.bfloat16):
            seen = twice(model, lambda model: model(SOURCE, LENGTHS, TARGET))
    else:
        with torch.no_grad() if mode == "no_grad" else torch.inference_mode():
            seen = twice(model, lambda model: model(SOURCE, LENGTHS, TARGET))
    for record in seen:
        assert not record.weights.requires_grad
        assert record.weights.dtype == torch.float32
        assert record.weights.is_contiguous()
        if not isinstance(getattr(model, "attention", None), LocalP):  # under a bell they sum to less
            torch.testing.assert_close(
                record.weights.sum(-1), torch.ones(record.weights.shape[:-1]), atol=2e-2, rtol=0
            )
        if record.weights.shape[-1] == 6:  # looks at the source
            for row, length in enumerate(LENGTHS):
                assert not record.weights[row, ..., length:].any()


@pytest.mark.parametrize("model", ["transformer", "grouped", "a bias a head", "entmax", "recurrent", "luong"])
def test_the_weights_are_those_of_the_model(model):
    model = MODELS[model]().eval()
    with torch.no_grad():
        looks = model.looks(SOURCE, LENGTHS, TARGET)
        with watch(model) as seen:
            model(SOURCE, LENGTHS, TARGET[:, :-1])
    names = [name for name in seen.layers() if "look_back" in name or name == "attention"]
    for name, look in zip(names, looks, strict=True):
        torch.testing.assert_close(seen.concat_calls(name).weights, look)


def test_drawn_weights_are_the_very_ones():
    heads = MultiHead(8, 2, normalize=Sample()).train()
    x = torch.randn(1, 4, 8)
    with watch(heads) as seen:
        looked = heads(x)
    assert torch.equal(seen[0].weights, looked.weights)
    assert seen[0].weights.amax(-1).eq(1).all()


def test_weights_are_those_before_dropping():
    heads = MultiHead(8, 2, dropout=0.9).train()
    x = torch.randn(2, 5, 8)
    with watch(heads) as seen:
        heads(x)
    torch.testing.assert_close(seen["MultiHead"].weights, heads.eval()(x).weights)


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
        torch.rand(4, 5, 5) > 0.3,
        torch.rand(2, 1, 5, 5) > 0.3,
    ],
    ids=["none", "causal", "padding", "both", "not", "dense", "a head", "a row"],
)
def test_some_heads_are_some_of_all(mask, score):
    heads, x = MultiHead(16, 4, score=score), torch.randn(2, 5, 16)
    with watch(heads) as all_of_them, watch(heads, heads=[3, 1]) as some:
        looked = heads(x, mask=mask)
    assert some[0].heads == (3, 1)
    assert torch.equal(all_of_them[0].weights, looked.weights)
    torch.testing.assert_close(some[0].weights, looked.weights[:, [3, 1]])


def test_layers_by_number_name_and_pattern():
    model = transformer()
    wanted = {
        1: ["encoder.layers.1.look"],
        "decoder.layers.0": ["decoder.layers.0.look", "decoder.layers.0.look_back"],
        "*.look_back": ["decoder.layers.0.look_back", "decoder.layers.1.look_back"],
        (0, "*.1.look_back"): ["encoder.layers.0.look", "decoder.layers.1.look_back"],
    }
    for layers, names in wanted.items():
        with watch(model, layers=layers) as seen:
            model(SOURCE, LENGTHS, TARGET)
        assert seen.layers() == names
    assert [record.layer for record in seen] == [0, 5]


@pytest.mark.bare
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"layers": 6}, r"no layer 6 to watch; there are 0 \(encoder.layers.0.look\), 1 "),
        ({"layers": ["encoder", "nowhere.*"]}, "no layer 'nowhere.*'"),
        ({"layers": 1.5}, "numbers or names of modules, got 1.5"),
        ({"heads": "all"}, "heads are numbers, got 'all'"),
        ({"layers": [None]}, "numbers or names of modules, got None"),
        ({"heads": 4}, "no head 4 in encoder.layers.0.look, which has heads 0 to 3"),
        ({"heads": [-1]}, "no head -1"),
        ({"heads": []}, r"no head in heads=\[\]; leave it out"),
    ],
)
def test_a_wrong_choice_is_refused(options, sentence):
    with pytest.raises((ValueError, TypeError), match=sentence), watch(transformer(), **options):
        pass


@pytest.mark.bare
def test_only_modules_can_be_watched():
    with pytest.raises(TypeError, match=r"watch its .model"), watch("model"):
        pass
