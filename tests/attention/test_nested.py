"""Nested tensors: each sequence as if it were attended to alone."""

import pytest
import torch

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    MultiHead,
    Rotary,
    ScaledDot,
    attend,
    causal,
    dense,
    padding,
    sparsemax,
    window,
)

pytestmark = [
    pytest.mark.bare,  # the checker reads the shape of a nested tensor, which has none
    pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors"),
]
DIM, QUERY_LENGTHS, KEY_LENGTHS = 16, (2, 5, 1), (3, 1, 6)


@pytest.fixture(params=[torch.jagged, torch.strided], ids=["jagged", "strided"])
def layout(request):
    return request.param


def make_rows(lengths, requires_grad=False):
    return [torch.randn(length, DIM, requires_grad=requires_grad) for length in lengths]


def nest(rows, layout):
    return torch.nested.as_nested_tensor(rows, layout=layout)


def assert_equal_rows(output, rows, outputs):
    """Context and weights are those of each sequence, and 0 in the padding."""
    assert output.context.is_nested
    total = 0
    for actual, weights, one in zip(output.context.unbind(), output.weights, outputs, strict=True):
        torch.testing.assert_close(actual, one.context)
        queries, keys = one.weights.shape[-2:]
        torch.testing.assert_close(weights[..., :queries, :keys], one.weights)
        total += one.weights.sum()
    torch.testing.assert_close(output.weights.sum(), total)


MODULES = {
    "default": (lambda: MultiHead(DIM, 4), lambda: None),
    "causal": (lambda: MultiHead(DIM, 4), causal),
    "window": (lambda: MultiHead(DIM, 4, 2, score=Rotary()), lambda: window(1, 1)),
    "alibi": (lambda: MultiHead(DIM, 4, score=ScaledDot() + Alibi(4)), causal),
    "additive": (lambda: MultiHead(DIM, 4, score=Additive(4, 4, 5)), lambda: None),
    "sparsemax": (lambda: MultiHead(DIM, 4, normalize=sparsemax), causal),
    "one head": (lambda: Attention(), causal),
}


@pytest.mark.parametrize("name", MODULES)
def test_self_attention(name, layout):
    build, make_mask = MODULES[name]
    attention, rows = build(), make_rows(QUERY_LENGTHS)
    x = nest(rows, layout)
    assert_equal_rows(attention(x, x, x, make_mask()), rows, [attention(row, row, row, make_mask()) for row in rows])


@pytest.mark.parametrize("mask", [None, causal(offset=0)], ids=["all", "causal"])
@pytest.mark.parametrize("name", ["attend", "MultiHead"])
def test_cross_attention(name, mask, layout):
    attention = attend if name == "attend" else MultiHead(DIM, 4)
    queries, keys = make_rows(QUERY_LENGTHS), make_rows(KEY_LENGTHS)
    memory = nest(keys, layout)
    outputs = [attention(query, key, key, mask) for query, key in zip(queries, keys, strict=True)]
    assert_equal_rows(attention(nest(queries, layout), memory, memory, mask), queries, outputs)


def test_further_masks(layout):
    rows, visible = make_rows(QUERY_LENGTHS), torch.rand(3, 5, 5) > 0.4
    x = nest(rows, layout)
    lengths = torch.tensor([1, 3, 1])
    outputs = [
        attend(row, row, row, dense(visible[i, : len(row), : len(row)]) & padding(int(lengths[i])))
        for i, row in enumerate(rows)
    ]
    assert_equal_rows(attend(x, x, x, dense(visible) & padding(lengths)), rows, outputs)


def test_one_of_query_and_key(layout):
    attention, queries, keys = MultiHead(DIM, 4), make_rows(QUERY_LENGTHS), make_rows(KEY_LENGTHS)
    plain = torch.randn(3, 4, DIM)
    output = attention(plain, nest(keys, layout))
    assert output.context.shape == plain.shape
    for query, key, context in zip(plain, keys, output.context, strict=True):
        torch.testing.assert_close(context, attention(query, key).context)
    outputs = [attention(query, key) for query, key in zip(queries, plain, strict=True)]
    assert_equal_rows(attention(nest(queries, layout), plain), queries, outputs)
    memory = Attention().precompute(plain, plain)
    assert_equal_rows(
        memory(nest(queries, layout)), queries, [attend(q, k, k) for q, k in zip(queries, plain, strict=True)]
    )


def test_no_query(layout):
    rows = make_rows(KEY_LENGTHS)
    context = attend(None, nest(rows, layout), nest(rows, layout), score=lambda q, k: k.sum(-1)[..., None, :]).context
    for row, actual in zip(rows, context, strict=True):
        torch.testing.assert_close(actual, torch.softmax(row.sum(-1), -1)[None] @ row)


def test_gradients(layout):
    attention, rows = MultiHead(DIM, 4), make_rows(QUERY_LENGTHS, requires_grad=True)
    torch.cat(
        [row.flatten() for row in attention(nest(rows, layout), mask=causal()).context.unbind()]
    ).square().sum().backward()
    actual = [row.grad.clone() for row in rows]
    expected = torch.autograd.grad(sum(attention(row, mask=causal()).context.square().sum() for row in rows), rows)
    for a, b in zip(actual, expected, strict=True):
        torch.testing.assert_close(a, b)


def test_gaps_between_sequences():
    """A jagged tensor that uses a part of its values only."""
    attention, values = MultiHead(DIM, 4), torch.randn(3, 6, DIM)
    x = torch.nested.narrow(values, 1, 0, torch.tensor([2, 5, 1]), layout=torch.jagged)
    rows = [row[:length] for row, length in zip(values, (2, 5, 1), strict=True)]
    assert_equal_rows(attention(x), rows, [attention(row) for row in rows])
