"""PyTorch's attention: equal outputs on all paths, and the weights that PyTorch returns."""

import copy
import warnings

import pytest
import torch
from torch import nn

from regard.viewing import watch

BATCH, QUERIES, KEYS, DIM, HEADS = 3, 5, 7, 8, 4
HIDDEN = torch.arange(KEYS) >= torch.tensor([7, 4, 2])[:, None]  # True is padding, as in PyTorch
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:.*enable_nested_tensor")


def attention(**options):
    torch.manual_seed(1)
    return nn.MultiheadAttention(DIM, HEADS, **{"batch_first": True, **options}).eval()


def inputs(batch_first=True, kdim=DIM, vdim=DIM):
    tensors = [torch.randn(BATCH, n, d) for n, d in ((QUERIES, DIM), (KEYS, kdim), (KEYS, vdim))]
    return tensors if batch_first else [x.transpose(0, 1) for x in tensors]


def equal(a, b):
    assert torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def watched(module, *args, **kwargs):
    """Check that the output is equal with a watch; return the records."""
    torch.manual_seed(5)
    plain = module(*args, **kwargs)
    torch.manual_seed(5)
    with watch(module) as records:
        output = module(*args, **kwargs)
    for a, b in zip(plain, output, strict=True) if isinstance(plain, tuple) else [(plain, output)]:
        if isinstance(a, torch.Tensor):
            equal(a, b)
    return records


def torch_weights(module, *args, **kwargs):
    """The weights that the module returns with need_weights=True; 0 for queries without a visible key."""
    with torch.no_grad():
        weights = module(*args, **{**kwargs, "need_weights": True, "average_attn_weights": False})[1]
    return (weights if weights.dim() == 4 else weights[None]).nan_to_num(0.0)


OPTIONS = {
    "plain": {},
    "sequence first": {"batch_first": False},
    "no bias": {"bias": False},
    "other sizes": {"kdim": 6, "vdim": 10},
    "a learned key": {"add_bias_kv": True},
    "a zero key": {"add_zero_attn": True},
    "both keys": {"add_bias_kv": True, "add_zero_attn": True, "kdim": 6, "batch_first": False},
}
MASKS = {
    "none": {},
    "padding": {"key_padding_mask": HIDDEN},
    "additive padding": {"key_padding_mask": torch.zeros(BATCH, KEYS).masked_fill(HIDDEN, -torch.inf)},
    "matrix": {"attn_mask": torch.rand(QUERIES, KEYS) > 0.7},
    "added": {"attn_mask": torch.randn(QUERIES, KEYS)},
    "a head": {"attn_mask": torch.rand(BATCH * HEADS, QUERIES, KEYS) > 0.7},
    "both": {"attn_mask": torch.rand(BATCH * HEADS, QUERIES, KEYS) > 0.7, "key_padding_mask": HIDDEN},
}


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("options", OPTIONS)
def test_every_attention_and_mask(options, mask, grad):
    options, mask = OPTIONS[options], MASKS[mask]
    module = attention(**options)
    tensors = inputs(options.get("batch_first", True), options.get("kdim", DIM), options.get("vdim", DIM))
    with torch.set_grad_enabled(grad):
        records = watched(module, *tensors, need_weights=False, **mask)
        watched(module, *tensors, **mask)
    torch.testing.assert_close(records[0].weights, torch_weights(module, *tensors, **mask))
    with watch(module, heads=[2, 0]) as some:
        module(*tensors, **mask)
    torch.testing.assert_close(some[0].weights, records[0].weights[:, [2, 0]])
    with watch(module, heads=[3, 2, 1, 0]) as reversed_heads:
        module(*tensors, **mask)
    torch.testing.assert_close(reversed_heads[0].weights, records[0].weights.flip(1))


@pytest.mark.parametrize("mask", ["none", "padding", "matrix"])
def test_one_text_without_a_batch(mask):
    module, (query, key, value) = attention(), (x[0] for x in inputs())
    mask = {name: tensor[0] if name == "key_padding_mask" else tensor for name, tensor in MASKS[mask].items()}
    records = watched(module, query, key, value, **mask)
    torch.testing.assert_close(records[0].weights, torch_weights(module, query, key, value, **mask))


@pytest.mark.parametrize("grad", [True, False])
def test_self_attention_by_its_fast_path(grad):
    module, x = attention(), torch.randn(BATCH, KEYS, DIM)
    causal = nn.Transformer.generate_square_subsequent_mask(KEYS)
    for mask in ({}, {"key_padding_mask": HIDDEN}, {"attn_mask": causal, "is_causal": True}):
        with torch.set_grad_enabled(grad):
            records = watched(module, x, x, x, need_weights=False, **mask)
        torch.testing.assert_close(records[0].weights, torch_weights(module, x, x, x, **mask))


def test_training_with_dropout():
    module, tensors = attention(dropout=0.5).train(), inputs()
    records = watched(module, *tensors)
    torch.testing.assert_close(records[0].weights, torch_weights(module.eval(), *tensors))


def test_half_precision_and_autocast():
    module, x = attention(), torch.randn(BATCH, KEYS, DIM)
    exact = torch_weights(module, x, x, x)
    with torch.autocast("cpu", torch.bfloat16):
        records = watched(module, x, x, x)
    torch.testing.assert_close(records[0].weights, exact, atol=1e-2, rtol=0)
    half = copy.deepcopy(module).bfloat16()
    records = watched(half, *[x.bfloat16()] * 3)
    assert records[0].weights.dtype == torch.float32
    torch.testing.assert_close(records[0].weights, exact, atol=1e-2, rtol=0)


def layer(**options):
    torch.manual_seed(2)
    return nn.TransformerEncoderLayer(DIM, HEADS, 16, **{"batch_first": True, **options}).eval()


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mask", ["none", "padding", "matrix", "both"])
def test_an_encoder_layer(fast, norm_first, mask, monkeypatch):
    module, x = layer(norm_first=norm_first), torch.randn(BATCH, KEYS, DIM)
    square = torch.rand(KEYS, KEYS) > 0.7
    mask = {
        "none": {},
        "padding": {"src_key_padding_mask": HIDDEN},
        "matrix": {"src_mask": square},
        "both": {"src_mask": square, "src_key_padding_mask": HIDDEN},
    }[mask]
    fast_calls = []
    real = torch._transformer_encoder_layer_fwd
    monkeypatch.setattr(torch, "_transformer_encoder_layer_fwd", lambda *a: fast_calls.append(1) or real(*a))
    with torch.set_grad_enabled(not fast):
        records = watched(module, x, **mask)
    assert len(fast_calls) == 2 * fast
    assert len(records) == 1
    inner = module.norm1(x) if norm_first else x
    names = {"src_mask": "attn_mask", "src_key_padding_mask": "key_padding_mask"}
    masks = {names[name]: tensor for name, tensor in mask.items()}
    expected = torch_weights(module.self_attn, inner, inner, inner, **masks)
    torch.testing.assert_close(records["self_attn"].weights, expected)


@pytest.mark.parametrize("nested", [True, False])
def test_an_encoder_with_nested_tensors(nested):
    model = nn.TransformerEncoder(layer(), 3, enable_nested_tensor=nested).eval()
    x = torch.randn(BATCH, KEYS, DIM)
    with torch.no_grad():
        records = watched(model, x, src_key_padding_mask=HIDDEN)
    assert records.layers() == [f"layers.{i}.self_attn" for i in range(3)]
    expected = torch_weights(model.layers[0].self_attn, x, x, x, key_padding_mask=HIDDEN)
    rows = ~HIDDEN[:, None, :, None]  # a nested tensor has no padded queries
    torch.testing.assert_close(records[0].weights * rows, expected * rows)
    with torch.no_grad(), watch(model, layers=1) as one:
        model(x, src_key_padding_mask=HIDDEN)
    assert torch.equal(one[0].weights, records[1].weights)


def test_a_layer_with_a_nested_tensor():
    module = layer()
    rows = [torch.randn(n, DIM) for n in (7, 4, 2)]
    with torch.no_grad():
        plain = module(torch.nested.nested_tensor(rows)).to_padded_tensor(0.0)
        with watch(module) as records:
            output = module(torch.nested.nested_tensor(rows)).to_padded_tensor(0.0)
    assert torch.equal(plain, output)
    for row, x in enumerate(rows):
        n = len(x)
        torch.testing.assert_close(records[0].weights[row, :, :n, :n], torch_weights(module.self_attn, x, x, x)[0])
        assert not records[0].weights[row, :, n:].any()


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("norm_first", [True, False])
def test_a_transformer(training, batch_first, norm_first):
    torch.manual_seed(2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = nn.Transformer(DIM, HEADS, 2, 2, 16, batch_first=batch_first, norm_first=norm_first)
    model.train(training)
    source, target = torch.randn(BATCH, KEYS, DIM), torch.randn(BATCH, QUERIES, DIM)
    if not batch_first:
        source, target = source.transpose(0, 1), target.transpose(0, 1)
    causal = nn.Transformer.generate_square_subsequent_mask(QUERIES)
    with torch.set_grad_enabled(training):
        records = watched(model, source, target, tgt_mask=causal, tgt_is_causal=True)
    assert [tuple(record.weights.shape[2:]) for record in records] == [(KEYS, KEYS)] * 2 + [
        (QUERIES, QUERIES),
        (QUERIES, KEYS),
    ] * 2
    assert not records["decoder.layers.0.self_attn"].weights.triu(1).any()
    for record in records:
        torch.testing.assert_close(record.weights.sum(-1), torch.ones(record.weights.shape[:-1]))


def test_a_copy_during_a_watch_is_independent():
    model, x = layer(), torch.randn(BATCH, KEYS, DIM)
    with torch.no_grad(), watch(model) as records:
        other = copy.deepcopy(model)
        nn.init.zeros_(other.linear2.weight)
        nn.init.zeros_(other.norm2.bias)
        changed = other(x)
        assert not records
        assert not torch.equal(model(x), changed)
    with torch.no_grad():
        assert torch.equal(other(x), changed)
    assert "forward" not in model.__dict__


def test_a_replaced_forward_is_restored():
    model, x, calls = attention(), torch.randn(1, 3, DIM), []
    real = model.forward

    def replacement(*args, **kwargs):
        calls.append(1)
        return real(*args, **kwargs)

    model.forward = replacement
    with watch(model) as records:
        model(x, x, x)
    assert model.forward is replacement
    assert (len(calls), len(records)) == (1, 1)


def test_a_forward_replaced_during_a_watch_stays():
    model, x = attention(), torch.randn(1, 3, DIM)
    with watch(model) as records:
        model(x, x, x)
        model.forward = len
    assert model.forward is len
    assert len(records) == 1


def test_an_overridden_forward_is_not_recorded():
    class CustomModule(nn.MultiheadAttention):
        def forward(self, x):
            return super().forward(x, x, x)[0]

    model = CustomModule(DIM, HEADS)
    with pytest.warns(UserWarning, match="nothing was recorded"), watch(model):
        model(torch.randn(2, 3, DIM))


def test_a_layer_with_another_attention_is_not_recorded():
    class CustomModule(nn.MultiheadAttention):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    model, x = layer(), torch.randn(BATCH, KEYS, DIM)
    model.self_attn = CustomModule(DIM, HEADS, batch_first=True)
    plain = model(x)
    with pytest.warns(UserWarning, match="nothing was recorded"), watch(model):
        assert torch.equal(model(x), plain)


def test_an_overridden_block_is_not_recorded():
    class CustomModule(nn.TransformerEncoderLayer):
        def _sa_block(self, x, *others, **more):
            return torch.zeros_like(x)

    model = CustomModule(DIM, HEADS, 16, batch_first=True)
    with pytest.warns(UserWarning, match="nothing was recorded"), watch(model):
        model(torch.randn(BATCH, KEYS, DIM))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_scripted_modules_are_skipped():
    model, x = nn.Sequential(torch.jit.script(nn.Linear(DIM, DIM)), layer()), torch.randn(BATCH, KEYS, DIM)
    with torch.no_grad():
        assert watched(model, x).layers() == ["1.self_attn"]


def test_without_fast_paths():
    model, x = nn.TransformerEncoder(layer(), 2).eval(), torch.randn(BATCH, KEYS, DIM)
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.no_grad():
            slow = watched(model, x, src_key_padding_mask=HIDDEN)
    finally:
        torch.backends.mha.set_fastpath_enabled(True)
    with torch.no_grad():
        fast = watched(model, x, src_key_padding_mask=HIDDEN)
    rows = ~HIDDEN[:, None, :, None]
    for a, b in zip(slow, fast, strict=True):
        torch.testing.assert_close(a.weights * rows, b.weights * rows)


def test_other_hooks_still_run():
    module, (query, key, value) = attention(), inputs()
    module.register_forward_pre_hook(lambda module, args: (2 * args[0], *args[1:]))
    records = watched(module, query, key, value)
    module._forward_pre_hooks.clear()
    torch.testing.assert_close(records[0].weights, torch_weights(module, 2 * query, key, value))
