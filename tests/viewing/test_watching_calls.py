"""Calls inside a watch: decoding steps, users' modules, threads, compiled graphs."""

import gc
import threading

import pytest
import torch
from torch import nn

from regard.attention import KVCache, MultiHead, attend, causal, softmax
from regard.models import NeuralTuringMachine
from regard.viewing import watch
from tests.viewing.watched_models import LENGTHS, SOURCE, TARGET, Pooled, compare_watched, transformer


def test_decoding_steps():
    model = transformer(0.0).eval()
    with torch.no_grad(), watch(model, "decoder", heads=2) as records:
        state = model.start_decoding(SOURCE, LENGTHS)
        for tokens in TARGET.T[:-1]:
            state.step(tokens)
        expected = model.attention_weights(SOURCE, LENGTHS, TARGET)
    names = ["decoder.layers.0.cross_attn", "decoder.layers.1.cross_attn"]
    for name, weights in zip(names, expected, strict=True):
        steps = [record for record in records.calls(name) if record.weights.shape[2] == 1]
        assert [record.call for record in steps] == [0, 1, 2, 3]
        torch.testing.assert_close(
            torch.cat([record.weights for record in steps], 2), weights[:, 2:3], atol=1e-5, rtol=0
        )


def test_a_growing_cache():
    heads, cache = MultiHead(8, 2), KVCache()
    with torch.no_grad(), watch(heads) as records:
        for _ in range(3):
            heads(torch.randn(2, 1, 8), mask=causal(), cache=cache)
    assert [record.weights.shape[-1] for record in records] == [1, 2, 3]
    merged = records.concat_calls("MultiHead")
    assert merged.weights.shape == (2, 2, 3, 3)
    assert not merged.weights.triu(1).any()


def test_attend_in_a_module():
    model = nn.Sequential(nn.Linear(8, 8), Pooled(), nn.ModuleDict({"inner": Pooled()})["inner"])
    x = torch.randn(2, 4, 8)
    records = compare_watched(model, lambda model: model(x))
    assert [(record.name, record.layer) for record in records] == [("1", 0), ("2", 1)]
    inside = model[0](x)
    torch.testing.assert_close(
        records["1"].weights[:, 0], attend(model[1].line(inside), inside, inside, causal()).weights
    )
    with watch(model, layers=1) as records:
        model(x)
    assert records.layers() == ["2"]
    with pytest.raises(ValueError, match=r"no layer 5; the layers are 0 \(1\), 1 \(2\)"), watch(model, layers=5):
        model(x)


def test_an_attention_module_and_a_module_with_attend():
    model, x = nn.ModuleList([MultiHead(8, 2), Pooled()]), torch.randn(1, 3, 8)
    with watch(model, layers="1") as records:
        model[1](model[0](x).context)
    assert [(record.name, record.layer) for record in records] == [("1", 1)]


def test_undeclared_randomness():
    def noisy(scores):
        return nn.functional.dropout(softmax(scores), 0.5)

    model = Pooled(normalize=noisy)
    compare_watched(model, lambda model: model(torch.ones(1, 4, 8)) + torch.rand(()))


def test_an_attention_in_a_plain_list_has_the_name_of_its_owner():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = [MultiHead(8, 2)]

        def forward(self, x):
            return self.hidden[0](x).context

    model, x = Listed(), torch.randn(1, 3, 8)
    with watch(model, heads=1) as records:
        Listed()(x)  # another one: a stranger
        model(x)
    assert len(records) == 1
    assert torch.equal(records["Listed"].weights, model.hidden[0](x).weights[:, 1:])


def test_other_models_are_not_recorded():
    model, other = MultiHead(8, 2), MultiHead(8, 2)
    x = torch.randn(1, 3, 8)
    with watch(model) as records:
        other(x)
        attend(x, x, x)
        model(x)
    assert len(records) == 1


def test_nested_watches():
    model = transformer()
    with watch(model) as outer:
        with watch(model.encoder, 0) as inner:
            model(SOURCE, LENGTHS, TARGET)
        model(SOURCE, LENGTHS, TARGET)
    assert (len(inner), len(outer)) == (1, 12)
    assert inner.layers() == ["layers.0.self_attn"]


def test_threads_are_independent():
    shared = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    ours, x = MultiHead(8, 2), torch.randn(1, 3, 8)
    turn, counts = threading.Barrier(2), {}

    def work(name, times):
        with torch.no_grad(), watch(nn.ModuleList([shared, ours])) as records:
            turn.wait()
            for _ in range(times):
                shared(x)
                ours(x)
            turn.wait()
        turn.wait()
        counts[name] = len(records)

    threads = [threading.Thread(target=work, args=(name, times)) for name, times in (("a", 3), ("b", 5))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {"a": 6, "b": 10}
    assert "forward" not in shared.__dict__


def test_a_model_is_restored_after_an_error():
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    with pytest.raises(RuntimeError, match="boom"), watch(model):
        raise RuntimeError("boom")
    assert "forward" not in model.__dict__
    assert "forward" not in model.self_attn.__dict__


def test_a_checkpointed_call_is_recorded_once():
    heads, x = MultiHead(8, 2), torch.randn(1, 3, 8, requires_grad=True)
    with watch(heads) as records:
        torch.utils.checkpoint.checkpoint(lambda x: heads(x).context, x, use_reentrant=False).sum().backward()
    assert len(records) == 1


def test_a_module_with_two_names():
    heads, x = MultiHead(8, 2), torch.randn(1, 3, 8)
    model = nn.ModuleDict({"one": heads, "other": heads})
    for layers in ("one", "other", "oth*"):
        with watch(model, layers=layers) as records:
            heads(x)
        assert records.layers() == ["one"]


def test_no_selected_layer():
    heads = MultiHead(8, 2)
    with watch(heads, layers=[]) as records:  # and no warning
        heads(torch.randn(1, 3, 8))
    assert not records


@pytest.mark.parametrize("grad", [True, False])
def test_heads_of_a_neural_turing_machine(grad):
    machine = NeuralTuringMachine(5, 4, memory_rows=8, memory_width=6, num_read_heads=2)
    inputs, state, steps = torch.rand(3, 4, 5), machine.init_state(3), []
    with torch.set_grad_enabled(grad):
        records = compare_watched(machine, lambda machine: machine(inputs)[0])
        for vector in inputs.unbind(1):
            state = machine.step(vector, state).state
            steps.append(torch.cat((state.read_weights, state.write_weights), 1))
    merged = records.concat_calls("NeuralTuringMachine")
    torch.testing.assert_close(merged.weights, torch.stack(steps, 2).detach())
    with watch(machine, heads=2) as write_records:
        machine(inputs)
    torch.testing.assert_close(write_records.concat_calls("NeuralTuringMachine").weights, merged.weights[:, 2:])


@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("kind", ["ours", "theirs"])
def test_per_sample_gradients_by_torch_func(kind):
    class SumOfSquares(nn.Module):
        def __init__(self):
            super().__init__()
            self.self_attn = MultiHead(8, 2) if kind == "ours" else nn.MultiheadAttention(8, 2)

        def forward(self, x):
            return (self.self_attn(x).context if kind == "ours" else self.self_attn(x, x, x)[0]).square().sum()

    model, x = SumOfSquares(), torch.randn(5, 3, 8)
    parameters = dict(model.named_parameters())
    one_gradient = torch.func.grad(lambda parameters, x: torch.func.functional_call(model, parameters, (x,)))

    def gradients(model):
        grads = torch.func.vmap(one_gradient, (None, 0))(parameters, x)
        return torch.cat([part.flatten() for part in grads.values()])

    records = compare_watched(model, gradients)
    with watch(model) as plain:
        for row in x:
            model(row)
    torch.testing.assert_close(records[0].weights, torch.cat([record.weights for record in plain]))


def test_an_empty_watch_warns():
    with (
        pytest.warns(UserWarning, match="nothing was recorded: call the model inside the `with`"),
        watch(MultiHead(8, 2)),
    ):
        pass


def test_tokens_that_fit_no_axis_warn():
    heads = MultiHead(8, 2)
    with pytest.warns(UserWarning, match="no axis of any record"), watch(heads, tokens=["a", "b"]):
        heads(torch.randn(1, 3, 8))


def test_weights_can_be_read_later_and_memory_is_released():
    heads, x = MultiHead(8, 2), torch.randn(1, 3, 8)
    with watch(heads, heads=0) as records:
        output = heads(x)
    assert output._computed is None
    assert torch.equal(output.weights[:, :1], records[0].weights)
    del output
    gc.collect()
    assert records[0].weights.untyped_storage().nbytes() == records[0].weights.numel() * 4


@pytest.mark.bare
def test_compiled_models_are_rejected_and_compiled_calls_warn():
    torch.compiler.reset()
    heads, x = MultiHead(8, 2), torch.randn(1, 3, 8)
    inside = torch.compile(MultiHead(8, 2), backend="eager")
    for model, words in (
        (torch.compile(heads, backend="eager"), "this model"),
        (nn.Sequential(inside), "0 in this model"),
    ):
        with (
            pytest.raises(ValueError, match=f"{words} is compiled, and compiled graphs cannot be watched"),
            watch(model),
        ):
            pass
    call = torch.compile(lambda x: heads(x).context, backend="eager", fullgraph=True)
    plain = call(x)
    with pytest.warns(UserWarning, match="compiled graphs and other threads are not recorded"), watch(heads):
        assert torch.equal(call(x), plain)
    theirs = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    call = torch.compile(lambda x: theirs(x, x, x)[0], backend="eager")
    plain = call(x)
    with pytest.warns(UserWarning, match="compiled graphs and other threads are not recorded"), watch(theirs):
        assert torch.equal(call(x), plain)
    heads.compile(backend="eager")
    with pytest.raises(ValueError, match="is compiled"), watch(heads):
        pass
    torch.compiler.reset()
