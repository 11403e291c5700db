"""Watching changes nothing: the same outputs to the last bit, whatever is watched and however it is called."""

import gc
import threading

import pytest
import torch
from torch import nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Cache,
    Dropout,
    LocalM,
    LocalP,
    MultiHead,
    Sample,
    ScaledDot,
    attend,
    causal,
    entmax15,
    padding,
    softmax,
    window,
)
from regard.models import NeuralTuringMachine, Recurrent, Transformer
from regard.viewing import watch

SOURCE, TARGET = torch.randint(4, 11, (3, 6)), torch.randint(4, 13, (3, 5))
LENGTHS = torch.tensor([6, 4, 2])


def transformer(dropout=0.1, **options):
    return Transformer(11, 13, dim=16, heads=4, layers=2, hidden_dim=32, dropout=dropout, **options)


def recurrent(attention=None, **options):
    attention = attention or Attention(Additive(16, 16, 8))
    return Recurrent(11, 13, attention, embed_dim=8, dim=16, **options)


def twice(model, call, **options):
    """What the call gives without and with a watch, from the same state of chance; and what was seen."""
    torch.manual_seed(3)
    plain, after = call(model), torch.get_rng_state()
    torch.manual_seed(3)
    with watch(model, **options) as seen:
        watched = call(model)
    assert torch.equal(after, torch.get_rng_state())
    assert torch.equal(plain, watched)
    return seen


class Pooled(nn.Module):
    """A module of somebody's own, which calls attend itself."""

    def __init__(self, **letters):
        super().__init__()
        self.line, self.letters = nn.Linear(8, 8), letters

    def forward(self, x):
        found = [attend(self.line(x), x, x, causal(), **self.letters) for _ in range(1)]
        return found[0].context


MODELS = {
    "transformer": transformer,
    "dropped weights": lambda: transformer(attention=lambda: MultiHead(16, 4, dropout=0.5)),
    "grouped": lambda: transformer(attention=lambda: MultiHead(16, 4, kv_heads=2)),
    "one for all": lambda: transformer(attention=lambda: MultiHead(16, 4, kv_heads=1)),
    "a bias a head": lambda: transformer(attention=lambda: MultiHead(16, 4, score=ScaledDot() + Alibi(4))),
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
        torch.testing.assert_close(seen.joined(name).weights, look)


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


def test_decoding_step_by_step_is_seen():
    model = transformer(0.0).eval()
    with torch.no_grad(), watch(model, "decoder", heads=2) as seen:
        steps = model.begin(SOURCE, LENGTHS)
        for words in TARGET.T[:-1]:
            steps.step(words)
        looks = model.looks(SOURCE, LENGTHS, TARGET)
    names = ["decoder.layers.0.look_back", "decoder.layers.1.look_back"]
    for name, look in zip(names, looks, strict=True):
        steps = [record for record in seen.calls(name) if record.weights.shape[2] == 1]
        assert [record.call for record in steps] == [0, 1, 2, 3]
        torch.testing.assert_close(
            torch.cat([record.weights for record in steps], 2), look[:, 2:3], atol=1e-5, rtol=0
        )


def test_a_cache_is_seen_growing():
    heads, cache = MultiHead(8, 2), Cache()
    with torch.no_grad(), watch(heads) as seen:
        for _ in range(3):
            heads(torch.randn(2, 1, 8), mask=causal(), cache=cache)
    assert [record.weights.shape[-1] for record in seen] == [1, 2, 3]
    joined = seen.joined("MultiHead")
    assert joined.weights.shape == (2, 2, 3, 3)
    assert not joined.weights.triu(1).any()


def test_attend_in_a_module_of_ones_own():
    model = nn.Sequential(nn.Linear(8, 8), Pooled(), nn.ModuleDict({"inner": Pooled()})["inner"])
    x = torch.randn(2, 4, 8)
    seen = twice(model, lambda model: model(x))
    assert [(record.name, record.layer) for record in seen] == [("1", 0), ("2", 1)]
    inside = model[0](x)
    torch.testing.assert_close(
        seen["1"].weights[:, 0], attend(model[1].line(inside), inside, inside, causal()).weights
    )
    with watch(model, layers=1) as seen:
        model(x)
    assert seen.layers() == ["2"]
    with (
        pytest.raises(ValueError, match=r"no layer 5 to watch; there are 0 \(1\), 1 \(2\)"),
        watch(model, layers=5),
    ):
        model(x)


def test_a_known_attention_beside_one_that_is_not():
    model, x = nn.ModuleList([MultiHead(8, 2), Pooled()]), torch.randn(1, 3, 8)
    with watch(model, layers="1") as seen:
        model[1](model[0](x).context)
    assert [(record.name, record.layer) for record in seen] == [("1", 1)]


def test_parts_that_draw_without_saying_so():
    def noisy(scores):
        return nn.functional.dropout(softmax(scores), 0.5)

    model = Pooled(normalize=noisy)
    twice(model, lambda model: model(torch.ones(1, 4, 8)) + torch.rand(()))


def test_an_attention_in_a_plain_list_goes_by_its_owner():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [MultiHead(8, 2)]

        def forward(self, x):
            return self.hidden[0](x).context

    model, x = Listed(), torch.randn(1, 3, 8)
    with watch(model, heads=1) as seen:
        Listed()(x)  # another one: a stranger
        model(x)
    assert len(seen) == 1
    assert torch.equal(seen["Listed"].weights, model.hidden[0](x).weights[:, 1:])


def test_strangers_are_not_recorded():
    model, other = MultiHead(8, 2), MultiHead(8, 2)
    x = torch.randn(1, 3, 8)
    with watch(model) as seen:
        other(x)
        attend(x, x, x)
        model(x)
    assert len(seen) == 1


def test_watches_within_watches():
    model = transformer()
    with watch(model) as outer:
        with watch(model.encoder, 0) as inner:
            model(SOURCE, LENGTHS, TARGET)
        model(SOURCE, LENGTHS, TARGET)
    assert (len(inner), len(outer)) == (1, 12)
    assert inner.layers() == ["layers.0.look"]


def test_two_threads_do_not_mix():
    shared = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    ours, x = MultiHead(8, 2), torch.randn(1, 3, 8)
    turn, counts = threading.Barrier(2), {}

    def work(name, times):
        with torch.no_grad(), watch(nn.ModuleList([shared, ours])) as seen:
            turn.wait()
            for _ in range(times):
                shared(x)
                ours(x)
            turn.wait()
        turn.wait()
        counts[name] = len(seen)

    threads = [threading.Thread(target=work, args=(name, times)) for name, times in (("a", 3), ("b", 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"a": 6, "b": 10}
    assert "forward" not in shared.__dict__


def test_nothing_is_left_behind_by_an_error():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises(RuntimeError, match="boom"), watch(model):
        raise RuntimeError("boom")
    assert "forward" not in model.__dict__
    assert "forward" not in model.self_attn.__dict__


def test_a_checkpoint_is_seen_once():
    heads, x = MultiHead(8, 2), torch.randn(1, 3, 8, requires_grad=True)
    with watch(heads) as seen:
        torch.utils.checkpoint.checkpoint(lambda x: heads(x).context, x, use_reentrant=False).sum().backward()
    assert len(seen) == 1


def test_a_module_with_two_names_is_found_by_both():
    heads, x = MultiHead(8, 2), torch.randn(1, 3, 8)
    model = nn.ModuleDict({"one": heads, "other": heads})
    for layers in ("one", "other", "oth*"):
        with watch(model, layers=layers) as seen:
            heads(x)
        assert seen.layers() == ["one"]


def test_no_layer_is_a_choice():
    heads = MultiHead(8, 2)
    with watch(heads, layers=[]) as seen:  # and no warning
        heads(torch.randn(1, 3, 8))
    assert not seen


@pytest.mark.parametrize("grad", [True, False])
def test_a_machine_is_seen_where_its_heads_are(grad):
    machine = NeuralTuringMachine(5, 4, rows=8, width=6, read_heads=2)
    inputs, state, steps = torch.rand(3, 4, 5), machine.begin(3), []
    with torch.set_grad_enabled(grad):
        seen = twice(machine, lambda machine: machine(inputs)[0])
        for now in inputs.unbind(1):
            state = machine.step(now, state).state
            steps.append(torch.cat((state.read_weights, state.write_weights), 1))
    found = seen.joined("NeuralTuringMachine")
    torch.testing.assert_close(found.weights, torch.stack(steps, 2).detach())
    with watch(machine, heads=2) as written:
        machine(inputs)
    torch.testing.assert_close(written.joined("NeuralTuringMachine").weights, found.weights[:, 2:])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_gradients_of_each_row_by_torch_func(kind):
    class Mine(nn.Module):
        def __init__(self):
            super().__init__()
            self.look = MultiHead(8, 2) if kind == "ours" else nn.MultiheadAttention(8, 2)

        def forward(self, x):
            return (self.look(x).context if kind == "ours" else self.look(x, x, x)[0]).square().sum()

    model, x = Mine(), torch.randn(5, 3, 8)
    parameters = dict(model.named_parameters())
    one = torch.func.grad(lambda parameters, x: torch.func.functional_call(model, parameters, (x,)))

    def gradients(model):
        found = torch.func.vmap(one, (None, 0))(parameters, x)
        return torch.cat([part.flatten() for part in found.values()])

    seen = twice(model, gradients)
    with watch(model) as plain:
        for row in x:
            model(row)
    torch.testing.assert_close(seen[0].weights, torch.cat([record.weights for record in plain]))


def test_an_empty_watch_says_so():
    with (
        pytest.warns(UserWarning, match="nothing was seen: call the model inside the `with`"),
        watch(MultiHead(8, 2)),
    ):
        pass


def test_tokens_that_fit_nowhere_are_noticed():
    heads = MultiHead(8, 2)
    with pytest.warns(UserWarning, match="no axis of any record"), watch(heads, tokens=["a", "b"]):
        heads(torch.randn(1, 3, 8))


def test_reading_weights_later_still_works_and_nothing_is_kept_alive():
    heads, x = MultiHead(8, 2), torch.randn(1, 3, 8)
    with watch(heads, heads=0) as seen:
        looked = heads(x)
    assert looked._seen is None
    assert torch.equal(looked.weights[:, :1], seen[0].weights)
    del looked
    gc.collect()
    assert seen[0].weights.untyped_storage().nbytes() == seen[0].weights.numel() * 4


@pytest.mark.bare
def test_compiled_models_are_refused_and_compiled_calls_said_to_be_unseen():
    torch.compiler.reset()
    heads, x = MultiHead(8, 2), torch.randn(1, 3, 8)
    inside = torch.compile(MultiHead(8, 2), backend="eager")
    for model, words in (
        (torch.compile(heads, backend="eager"), "this model"),
        (nn.Sequential(inside), "0 in this model"),
    ):
        with (
            pytest.raises(ValueError, match=f"{words} is compiled, and a compiled graph runs past"),
            watch(model),
        ):
            pass
    call = torch.compile(lambda x: heads(x).context, backend="eager", fullgraph=True)
    plain = call(x)
    with pytest.warns(UserWarning, match="what runs in a compiled graph"), watch(heads):
        assert torch.equal(call(x), plain)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    call = torch.compile(lambda x: theirs(x, x, x)[0], backend="eager")
    plain = call(x)
    with pytest.warns(UserWarning, match="what runs in a compiled graph"), watch(theirs):
        assert torch.equal(call(x), plain)
    heads.compile(backend="eager")
    with pytest.raises(ValueError, match="is compiled"), watch(heads):
        pass
    torch.compiler.reset()
