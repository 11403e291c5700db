"""Whatever is called within a watch is seen: steps, modules of one's own, threads, compiled graphs."""

import gc
import threading

import pytest
import torch
from torch import nn

from regard.attention import KVCache, MultiHead, attend, causal, softmax
from regard.models import NeuralTuringMachine
from regard.viewing import watch
from tests.viewing.watched import LENGTHS, SOURCE, TARGET, Pooled, transformer, twice


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
    heads, cache = MultiHead(8, 2), KVCache()
    with torch.no_grad(), watch(heads) as seen:
        for _ in range(3):
            heads(torch.randn(2, 1, 8), mask=causal(), cache=cache)
    assert [record.weights.shape[-1] for record in seen] == [1, 2, 3]
    joined = seen.concat_calls("MultiHead")
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
    machine = NeuralTuringMachine(5, 4, memory_rows=8, memory_width=6, num_read_heads=2)
    inputs, state, steps = torch.rand(3, 4, 5), machine.init_state(3), []
    with torch.set_grad_enabled(grad):
        seen = twice(machine, lambda machine: machine(inputs)[0])
        for now in inputs.unbind(1):
            state = machine.step(now, state).state
            steps.append(torch.cat((state.read_weights, state.write_weights), 1))
    found = seen.concat_calls("NeuralTuringMachine")
    torch.testing.assert_close(found.weights, torch.stack(steps, 2).detach())
    with watch(machine, heads=2) as written:
        machine(inputs)
    torch.testing.assert_close(written.concat_calls("NeuralTuringMachine").weights, found.weights[:, 2:])


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
    assert looked._computed is None
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
