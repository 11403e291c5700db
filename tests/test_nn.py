"""`regard.nn.MultiheadAttention` against PyTorch's, alone and inside of PyTorch's models.

The cases are those that PyTorch tests its module for. Rows without a visible key are NaN there and 0 here; all other
numbers are equal.
"""

import copy
import itertools
import math
import pickle

import pytest
import torch
import torch._dynamo.testing
from torch import nn

import regard
from regard.errors import DtypeError, ShapeError, UsageError
from regard.nn import MultiheadAttention, convert

BATCH, QUERIES, KEYS = 3, 4, 6
pytestmark = pytest.mark.filterwarnings(
    "ignore:Support for mismatched", "ignore:The PyTorch API of nested", "ignore:enable_nested_tensor"
)


def pair(*args, **options):
    """PyTorch's module and ours, with equal weights."""
    theirs = nn.MultiheadAttention(*args, **options)
    ours = MultiheadAttention(*args, **options)
    with torch.no_grad():
        for parameter in theirs.parameters():  # biases are zeros at first
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(kdim=16, vdim=16, batch_first=True, dtype=torch.float32):
    shapes = (BATCH, QUERIES, 16), (BATCH, KEYS, kdim), (BATCH, KEYS, vdim)
    tensors = [torch.randn(shape, dtype=dtype) for shape in shapes]
    return tensors if batch_first else [tensor.transpose(0, 1) for tensor in tensors]


def assert_equal_where_numbers(actual, expected):
    assert actual.shape == expected.shape
    assert not actual.isnan().any()
    is_number = ~expected.isnan()
    torch.testing.assert_close(actual[is_number], expected[is_number], atol=1e-5, rtol=1e-5)


CONSTRUCTIONS = [
    dict(zip(("bias", "add_bias_kv", "add_zero_attn", "batch_first"), values, strict=True)) | sizes
    for values in itertools.product((True, False), repeat=4)
    for sizes in ({}, {"kdim": 12, "vdim": 10})
]
PADDING = torch.tensor([[False] * 6, [False] * 2 + [True] * 4, [True] * 6])
HIDDEN = torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(1)) < 0.3
MASKS = {
    "none": {},
    "padding": {"key_padding_mask": PADDING},
    "added padding": {"key_padding_mask": torch.zeros(BATCH, KEYS).masked_fill(PADDING, -math.inf)},
    "mask": {"attn_mask": HIDDEN},
    "added": {"attn_mask": torch.randn(QUERIES, KEYS)},
    "of each head": {"attn_mask": torch.rand(BATCH * 4, QUERIES, KEYS) < 0.3},
    "added to each head": {"attn_mask": torch.randn(BATCH * 4, QUERIES, KEYS)},
    "both": {"attn_mask": HIDDEN, "key_padding_mask": PADDING},
    "both added": {"attn_mask": torch.randn(QUERIES, KEYS), "key_padding_mask": torch.randn(BATCH, KEYS)},
    "bool and float": {"attn_mask": torch.randn(QUERIES, KEYS), "key_padding_mask": PADDING},
}


@pytest.mark.parametrize("options", CONSTRUCTIONS, ids=lambda o: ",".join(k for k, v in o.items() if v))
def test_equal_to_pytorch(options):
    theirs, ours = pair(16, 4, **options)
    tensors = inputs(options.get("kdim", 16), options.get("vdim", 16), options["batch_first"])
    for name, masks in MASKS.items():
        for need_weights, average in ((True, True), (True, False), (False, True)):
            arguments = masks | {"need_weights": need_weights, "average_attn_weights": average}
            expected, actual = theirs(*tensors, **arguments), ours(*tensors, **arguments)
            assert_equal_where_numbers(actual[0], expected[0])
            assert (actual[1] is None) == (not need_weights), name
            if need_weights:
                assert_equal_where_numbers(actual[1], expected[1])


@pytest.mark.parametrize("name", MASKS)
def test_gradients_equal_those_of_pytorch(name):
    theirs, ours = pair(16, 4, batch_first=True, add_bias_kv=True, dtype=torch.float64)
    masks = {key: mask if mask.dtype == torch.bool else mask.double() for key, mask in MASKS[name].items()}
    gradients = []
    for module in (theirs, ours):
        torch.manual_seed(2)
        tensors = [tensor.requires_grad_() for tensor in inputs(dtype=torch.float64)]
        output, weights = module(*tensors, **masks)
        (output.square().sum() + weights.square().sum()).backward()
        gradients.append([t.grad for t in (*tensors, *module.parameters())])
    for actual, expected in zip(*reversed(gradients), strict=True):
        torch.testing.assert_close(actual, expected)


def test_self_attention_and_no_batch():
    theirs, ours = pair(16, 4)
    x = torch.randn(QUERIES, 16)
    for masks in (
        {},
        {"attn_mask": HIDDEN[:, :QUERIES]},
        {"key_padding_mask": torch.tensor([False, True, False, True])},
    ):
        for actual, expected in zip(ours(x, x, x, **masks), theirs(x, x, x, **masks), strict=True):
            assert_equal_where_numbers(actual, expected)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("keys", [QUERIES, KEYS])
def test_the_causal_hint(need_weights, keys):
    theirs, ours = pair(16, 4, batch_first=True)
    query, key = torch.randn(BATCH, QUERIES, 16), torch.randn(BATCH, keys, 16)
    mask = torch.ones(QUERIES, keys, dtype=torch.bool).triu(1)
    arguments = {"attn_mask": mask, "is_causal": True, "need_weights": need_weights}
    assert_equal_where_numbers(ours(query, key, key, **arguments)[0], theirs(query, key, key, **arguments)[0])


def test_a_query_without_keys_is_zero_in_every_mode():
    _, ours = pair(16, 4, batch_first=True)
    x = torch.randn(BATCH, KEYS, 16)
    for training, need_weights, grad in itertools.product((True, False), repeat=3):
        with torch.set_grad_enabled(grad):
            output, weights = ours.train(training)(x, x, x, key_padding_mask=PADDING, need_weights=need_weights)
        torch.testing.assert_close(output[2], ours.out_proj.bias.expand(KEYS, 16))
        assert weights is None or not weights[2].any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_dtypes(dtype):
    theirs, ours = pair(16, 4, batch_first=True, dtype=dtype)
    x = torch.randn(BATCH, KEYS, 16, dtype=dtype)
    tolerance = 1e-6 if dtype == torch.float64 else 0.02
    for actual, expected in zip(ours(x, x, x), theirs(x, x, x), strict=True):
        assert actual.dtype == dtype
        torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)


def test_autocast():
    theirs, ours = pair(16, 4, batch_first=True)
    x = torch.randn(BATCH, KEYS, 16)
    with torch.autocast("cpu", torch.bfloat16):
        for actual, expected in zip(ours(x, x, x), theirs(x, x, x), strict=True):
            assert actual.dtype == expected.dtype == torch.bfloat16
            torch.testing.assert_close(actual, expected, atol=0.03, rtol=0.03)


def test_dropout_of_the_returned_weights():
    """The output is that of the returned weights, some of which are dropped."""
    _, ours = pair(16, 4, dropout=0.5, batch_first=True)
    x = torch.randn(2, 64, 16)
    output, weights = ours(x, x, x, average_attn_weights=False)
    assert 0.4 < (weights == 0).float().mean() < 0.6
    value = (
        nn.functional.linear(x, ours.in_proj_weight[32:], ours.in_proj_bias[32:]).unflatten(-1, (4, 4)).transpose(1, 2)
    )
    torch.testing.assert_close(output, ours.out_proj((weights @ value).transpose(1, 2).flatten(2)))
    torch.manual_seed(0)
    mean = torch.stack([ours(x, x, x, need_weights=False)[0] for _ in range(300)]).mean(0)
    torch.testing.assert_close(mean, ours.eval()(x, x, x)[0], atol=0.1, rtol=0)


def test_constructor_and_state():
    torch.manual_seed(3)
    theirs = nn.MultiheadAttention(16, 4, add_bias_kv=True)
    torch.manual_seed(3)
    ours = MultiheadAttention(16, 4, add_bias_kv=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert all(torch.equal(a, b) for a, b in zip(ours.parameters(), theirs.parameters(), strict=True))
    assert isinstance(ours, nn.MultiheadAttention)
    x = torch.randn(QUERIES, BATCH, 16)
    for copied in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours))):
        assert torch.equal(copied(x, x, x)[0], ours(x, x, x)[0])


@pytest.mark.parametrize("sizes", [{}, {"kdim": 12, "vdim": 10}])
def test_reset_parameters_equals_construction(sizes):
    with torch.device("meta"):
        module = MultiheadAttention(16, 4, add_bias_kv=True, **sizes)
    module.to_empty(device="cpu")
    torch.manual_seed(5)
    module.reset_parameters()
    torch.manual_seed(5)
    expected = MultiheadAttention(16, 4, add_bias_kv=True, **sizes)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), expected.parameters(), strict=True))


# ---- inside of PyTorch's models


def transformer(**options):
    return nn.Transformer(16, 2, 2, 2, 32, batch_first=True, dropout=0.0, **options)


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("grad", [True, False])
def test_a_converted_transformer_gives_the_same(norm_first, training, grad):
    theirs = transformer(norm_first=norm_first).train(training)
    ours = convert(copy.deepcopy(theirs))
    source, target = torch.randn(BATCH, KEYS, 16), torch.randn(BATCH, QUERIES, 16)
    padding = torch.arange(KEYS) >= torch.tensor([KEYS, 2, 4])[:, None]
    masks = {"src_key_padding_mask": padding, "memory_key_padding_mask": padding}
    masks["tgt_mask"] = nn.Transformer.generate_square_subsequent_mask(QUERIES)
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(ours(source, target, **masks), theirs(source, target, **masks), atol=2e-6, rtol=1e-4)


@pytest.mark.parametrize("mask_first", [True, False])
def test_an_encoder_has_no_nan_for_an_empty_text(mask_first):
    """PyTorch's fast path gives NaN for one whose padding is on the left, and skips texts of length 0 otherwise."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True), 2).eval()
    padding = torch.zeros(BATCH, KEYS, dtype=torch.bool)
    padding[0], padding[1, 0 if mask_first else -1] = True, True
    x = torch.randn(BATCH, KEYS, 16)
    with torch.no_grad():
        expected = encoder(x, src_key_padding_mask=padding)
        actual = convert(encoder)(x, src_key_padding_mask=padding)
    assert mask_first == bool(expected.isnan().any())
    assert not actual.isnan().any()
    torch.testing.assert_close(actual[1:], expected[1:], atol=2e-6, rtol=1e-4)


def test_conversion_keeps_parameters_hooks_and_optimizers_and_is_reversible():
    model = transformer()
    parameters = dict(model.named_parameters())
    hook_calls = []
    model.encoder.layers[0].self_attn.register_forward_hook(lambda *_: hook_calls.append(1))
    assert convert(model) is model
    attentions = [module for module in model.modules() if isinstance(module, nn.MultiheadAttention)]
    assert len(attentions) == 6
    assert all(type(module) is MultiheadAttention for module in attentions)
    model(torch.randn(1, 3, 16), torch.randn(1, 2, 16))
    assert hook_calls == [1]
    assert all(value is parameters[name] for name, value in model.named_parameters())
    convert(model, to="torch")
    assert all(type(module) is nn.MultiheadAttention for module in attentions)
    assert all(module._qkv_same_embed_dim for module in attentions)
    single = nn.MultiheadAttention(16, 4)
    assert type(convert(single)) is MultiheadAttention


def test_a_class_of_the_user_is_left_alone():
    class Own(nn.MultiheadAttention):
        pass

    model = nn.Sequential(Own(16, 4), nn.MultiheadAttention(16, 4))
    convert(model)
    assert [type(module) for module in model] == [Own, MultiheadAttention]


def test_watch_sees_the_weights_of_every_call():
    model = convert(transformer()).eval()
    source, target = torch.randn(1, 3, 16), torch.randn(1, 2, 16)
    with torch.no_grad():
        expected = model(source, target)
        with regard.watch(model) as records:
            assert torch.equal(model(source, target), expected)
    assert [record.weights.shape[-2:] for record in records][:2] == [(3, 3), (3, 3)]
    assert len(records) == 6


@pytest.mark.parametrize("layout", [torch.jagged, torch.strided])
def test_nested_tensors(layout):
    _, ours = pair(16, 4, batch_first=True)
    rows = [torch.randn(length, 16) for length in (2, 5, 1)]
    nested = torch.nested.nested_tensor(rows, layout=layout)
    output, weights = ours(nested, nested, nested)
    assert output.is_nested
    assert weights.shape == (3, 5, 5)
    for row, actual in zip(rows, output.unbind(), strict=True):
        torch.testing.assert_close(actual, ours(row, row, row)[0])


@pytest.mark.bare
def test_a_float_mask_is_compiled_in_one_graph():
    encoder = convert(nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, dropout=0.0), 1))
    x, padding = torch.randn(BATCH, KEYS, 16), PADDING
    compiled = torch.compile(encoder, fullgraph=True, backend="eager")
    actual = compiled(x, src_key_padding_mask=padding)  # which PyTorch makes a float mask
    torch.testing.assert_close(actual, encoder(x, src_key_padding_mask=padding))


@pytest.mark.bare
def test_one_compiled_graph_for_all_lengths():
    _, ours = pair(16, 4, batch_first=True)
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(ours, backend=counter, dynamic=True, fullgraph=True)
    for length in (7, 40, 9):
        x = torch.randn(2, length, 16)
        torch.testing.assert_close(compiled(x, x, x, need_weights=False)[0], ours(x, x, x)[0])
    assert counter.frame_count <= 2


X = torch.zeros(2, 3, 16)
REFUSED = {
    "size": (lambda m: m(X[..., :8], X, X), ShapeError, r"query must be \(batch, length, 16\).*got \(2, 3, 8\)"),
    "no tensor": (lambda m: m(None, X, X), ShapeError, "query must be .*got NoneType"),
    "size of equal inputs": (
        lambda m: MultiheadAttention(16, 4, kdim=16, vdim=6)(X, X, X),
        ShapeError,
        r"value must be \(length, batch, 6\)",
    ),
    "parametrized": (
        lambda m: convert(nn.utils.parametrizations.weight_norm(nn.MultiheadAttention(16, 4), "in_proj_weight")),
        UsageError,
        "convert the model before they are added",
    ),
    "axes": (lambda m: m(X[None], X[None], X[None]), ShapeError, "query must be"),
    "batch": (lambda m: m(X, X[:1], X[:1]), ShapeError, "the same batch size, got 2, 1 and 1"),
    "mixed": (lambda m: m(X, X[0], X[0]), ShapeError, "must all have a batch, or none"),
    "padding": (lambda m: m(X, X, X, torch.zeros(2, 4) > 0), ShapeError, r"key_padding_mask must have shape \(2, 3\)"),
    "mask": (lambda m: m(X, X, X, attn_mask=torch.zeros(4, 3)), ShapeError, r"\(3, 3\) or \(8, 3, 3\), got \(4, 3\)"),
    "integers": (lambda m: m(X, X, X, attn_mask=torch.zeros(3, 3).long()), DtypeError, "True where a key is hidden"),
    "hint": (lambda m: m(X, X, X, is_causal=True), UsageError, "is_causal is a hint, which needs attn_mask"),
    "values": (lambda m: m(X, X, X[:, :2]), ShapeError, "every key has one value"),
    "heads": (lambda m: MultiheadAttention(16, 3), UsageError, "must be a multiple of num_heads"),
    "target": (lambda m: convert(m, to="keras"), UsageError, "must be 'regard' or 'torch'"),
}


@pytest.mark.bare
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, error, sentence = REFUSED[name]
    with pytest.raises(error, match=sentence):
        call(MultiheadAttention(16, 4, batch_first=True))
