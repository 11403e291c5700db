"""The ways to give padding, and lengths of each query."""

import pytest
import torch

from regard.attention import Additive, LocalM, MultiHead, ScaledDot, around, attend, causal, padding, prefix, window
from regard.attention.fast import blocked
from regard.errors import DtypeError, ShapeError, UsageError

LENGTHS = [5, 2, 0]
RIGHT = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])
LEFT = RIGHT.flip(1)


def qkv(heads=()):
    return torch.randn(3, *heads, 4, 6), torch.randn(3, *heads, 5, 6), torch.randn(3, *heads, 5, 6)


@pytest.mark.parametrize(
    "mask",
    [
        padding(attention_mask=RIGHT),
        padding(attention_mask=RIGHT.bool()),
        padding(attention_mask=RIGHT.to(torch.uint8)),
        padding(key_padding_mask=RIGHT == 0),
    ],
    ids=["int64", "bool", "uint8", "key_padding_mask"],
)
@pytest.mark.parametrize("heads", [(), (3,)])  # as many heads as entries of the batch
def test_all_say_the_same(mask, heads):
    expected = attend(*(inputs := qkv(heads)), padding(LENGTHS))
    output = attend(*inputs, mask)
    torch.testing.assert_close(output.context, expected.context)
    torch.testing.assert_close(output.weights, expected.weights)


def test_left_padding_equals_the_text_alone():
    attention, x = MultiHead(6, 2), torch.randn(3, 5, 6)
    output = attention(x, mask=padding(attention_mask=LEFT) & causal())
    torch.testing.assert_close(output.context[1, 3:], attention(x[1, 3:], mask=causal()).context)
    assert not output.weights[1, :, :, :3].any()
    assert not output.weights[2].any()


@pytest.mark.parametrize(
    "mask", [padding(attention_mask=LEFT), prefix([[1, 2, 3, 5], [0, 1, 2, 2], [0, 0, 0, 0]])], ids=str
)
@pytest.mark.parametrize("also", [causal(), window(1, 1), around(2.0, 1.5), ~causal()], ids=str)
@pytest.mark.parametrize("make_score", [ScaledDot, lambda: Additive(6, 6, 4)], ids=["dot", "additive"])
def test_on_every_path(monkeypatch, mask, also, make_score):
    monkeypatch.setattr(blocked, "MAX_SCORES", 32)
    query, key, value = qkv((2,))
    score = make_score()
    visible = mask.materialize(4, 5, 2) & also.materialize(4, 5)
    for combined, expected in (
        (mask & also, visible),
        (mask | also, mask.materialize(4, 5, 2) | also.materialize(4, 5)),
    ):
        weights = torch.where(expected, score(query, key), -torch.inf).softmax(-1).nan_to_num(0.0)
        torch.testing.assert_close(attend(query, key, value, combined, score=score).context, weights @ value)


def test_local_attention_and_precomputed_keys():
    query, key, value = qkv()
    mask, lengths = padding(attention_mask=RIGHT), padding(LENGTHS)
    for attention in (LocalM(ScaledDot(), 1), MultiHead(6, 2)):
        expected = attention.precompute(key, value, lengths)(query)
        torch.testing.assert_close(attention.precompute(key, value, mask)(query).context, expected.context)
        torch.testing.assert_close(attention(query, key, value, mask).weights, expected.weights)


def test_lengths_of_each_query():
    lengths = torch.tensor([[1, 2, 3, 5], [0, 1, 2, 2], [0, 0, 0, 0]])
    expected = torch.arange(5) < lengths[:, None, :, None]
    assert torch.equal(prefix(lengths).materialize(4, 5, 2), expected)
    inputs = qkv((2,))
    assert torch.equal(attend(*inputs, prefix(lengths)).weights, attend(*inputs, expected).weights)


FLOAT = torch.zeros(3, 5).masked_fill(RIGHT == 0, -torch.inf)
REFUSED = {
    "none": (lambda: padding(), UsageError, "give one of lengths, attention_mask, key_padding_mask, got none"),
    "two": (lambda: padding([1], attention_mask=RIGHT), UsageError, "got lengths and attention_mask"),
    "float": (lambda: padding(attention_mask=FLOAT), DtypeError, r"bias, score=ScaledDot\(\) \+ bias"),
    "float key_padding_mask": (
        lambda: padding(key_padding_mask=FLOAT),
        DtypeError,
        "True at padding, got torch.float32",
    ),
    "integer key_padding_mask": (lambda: padding(key_padding_mask=RIGHT), DtypeError, "must be a bool tensor"),
    "ids": (lambda: padding(attention_mask=RIGHT * 7), UsageError, "1 at tokens and 0 at padding, got 0 to 7"),
    "list": (lambda: padding(attention_mask=[[1, 0]]), ShapeError, "must be a tensor"),
    "size": (lambda: attend(*qkv(), padding(attention_mask=RIGHT[:, :4])), ShapeError, "number of keys, 5"),
    "batch": (lambda: attend(*qkv(), padding(attention_mask=RIGHT[:2])), ShapeError, "leading batch axes"),
    "heads for the batch": (
        lambda: MultiHead(6, 2)(torch.randn(5, 6), mask=padding(attention_mask=RIGHT[:2])),
        ShapeError,
        "more axes than the batch, which has 0",
    ),
    "queries of heads": (
        lambda: MultiHead(6, 2)(torch.randn(5, 6), mask=prefix([[5] * 5] * 2)),
        ShapeError,
        "more axes than the batch",
    ),
    "mask of scores": (
        lambda: MultiHead(6, 2)(torch.randn(3, 5, 6), mask=padding(attention_mask=RIGHT[:, None, None])),
        ShapeError,
        "more axes than the batch, which has 1",
    ),
    "batch twice": (
        lambda: attend(*qkv(), padding(attention_mask=RIGHT[:, None])),
        ShapeError,
        "more axes than the batch",
    ),
    "lengths twice": (lambda: attend(*qkv(), padding([[1], [2], [3]])), ShapeError, "more axes than the batch"),
    "no queries": (lambda: prefix(3), ShapeError, r"padding\(length\) is one length"),
    "queries": (lambda: attend(*qkv(), prefix([1, 2, 3])), ShapeError, "number of queries, 4"),
    "too long": (
        lambda: attend(*qkv(), prefix([1, 2, 3, 6])),
        UsageError,
        "from 0 to the number of keys, 5, got 1 to 6",
    ),
    "axes": (lambda: attend(*qkv(), padding([[1] * 4] * 3)), ShapeError, r"prefix\(lengths\) is the mask for lengths"),
}


@pytest.mark.bare
@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    call, error, sentence = REFUSED[name]
    with pytest.raises(error, match=sentence):
        call()
