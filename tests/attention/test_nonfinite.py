"""NaN and infinity in queries, keys and values: every path has them where the definition has them, never a 0."""

import math

import pytest
import torch

from regard.attention import (
    Additive,
    Alibi,
    Boxcar,
    Constant,
    Cosine,
    Gaussian,
    LocalM,
    LocalP,
    MultiHead,
    Rotary,
    Sample,
    ScaledDot,
    StraightThrough,
    Temperature,
    TopK,
    around,
    attend,
    causal,
    entmax15,
    hardmax,
    padding,
    sigmoid,
    sparsemax,
    window,
)
from regard.attention._common import part_name
from regard.attention.equation import reference_attention, validate
from regard.attention.fast import blocked as blocks

SCORES = {
    "ScaledDot": ScaledDot,
    "Cosine": Cosine,
    "Gaussian": Gaussian,
    "Additive": lambda: Additive(8, 8, 6),
    "Additive, relu": lambda: Additive(8, 8, 6, activation="relu"),
    "Rotary": lambda: Rotary(ScaledDot()),
    "Alibi": lambda: ScaledDot() + Alibi(2),
    "Boxcar": lambda: Boxcar(9.0),
}
NORMALIZERS = [None, sparsemax, entmax15, sigmoid, hardmax, TopK(3), StraightThrough(hardmax), Sample().eval()]
each_score = pytest.mark.parametrize("score", SCORES)
each_length = pytest.mark.parametrize("keys", [1, 3, 15, 16, 17, 40, 515])


def make(queries, keys, dtype=torch.float32):
    return torch.randn(2, 2, queries, 8, dtype=dtype), *torch.randn(2, 2, 2, keys, 8, dtype=dtype).unbind()


def spoil(sample, place, bad):
    """The sample with a bad number in one query, one key, all keys of a head, or one value."""
    sample = [tensor.clone() for tensor in sample]
    which, index = {"query": (0, 0), "key": (1, 0), "keys": (1, slice(None)), "value": (2, 0)}[place]
    sample[which][0, 1, index, 3] = bad
    return sample


def assert_equals_definition(sample, mask=None, score=None, normalize=None):
    inputs = validate(*sample, mask, score or ScaledDot(), normalize)
    output, expected = (
        attend(*sample, mask, score=score or ScaledDot(), normalize=normalize),
        reference_attention(inputs),
    )
    assert torch.equal(output.context.isnan(), expected[2].isnan())
    rtol = 2e-2 if output.context.dtype == torch.bfloat16 else 1e-3
    torch.testing.assert_close(output.context, expected[2], rtol=rtol, atol=rtol, equal_nan=True)
    return output


@each_score
@pytest.mark.parametrize("keys", [1, 15, 17])
@pytest.mark.parametrize("place", ["query", "key", "keys", "value"])
def test_nan_reaches_the_context(score, keys, place):
    part = SCORES[score]()
    for mask in (None, causal(), padding([keys, keys])):
        output = assert_equals_definition(spoil(make(keys, keys), place, math.nan), mask, part)
        assert output.context[0, 1, 0].isnan().any()
        assert output.context[1].isfinite().all()


@each_length
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["query", "key", "keys", "value"])
def test_the_fused_kernel_equals_the_definition(keys, dtype, bad, place):
    # Keys at hidden positions must be finite, and with fewer keys than queries a causal mask hides all from some.
    for mask, normalize in ((None, None), (causal() if keys >= 5 else None, None), (None, Temperature(0.5))):
        assert_equals_definition(spoil(make(5, keys, dtype), place, bad), mask, None, normalize)


@pytest.mark.parametrize("normalize", NORMALIZERS, ids=part_name)
def test_nan_reaches_the_context_with_every_normalizer(normalize):
    for keys in (5, 20):
        for place in ("query", "key"):
            sample = spoil(make(5, keys), place, math.nan)
            assert attend(*sample, normalize=normalize).context[0, 1, 0].isnan().all()


@pytest.mark.parametrize("mask", [window(3, 2), around(torch.linspace(0, 320, 320), 4)], ids=part_name)
@pytest.mark.parametrize("score", ["ScaledDot", "Gaussian", "Additive", "Boxcar"])
def test_nan_in_partial_paths(mask, score, used_paths):
    part = SCORES[score]()
    for place in ("query", "key", "value"):
        context = attend(*spoil(make(320, 320), place, math.nan), mask, score=part).context
        assert context[0, 1, 0].isnan().any()
        assert context[0, 1, 100:].isfinite().all()
        assert context[1].isfinite().all()
    assert {"banded", "gathered"} & set(used_paths)


def test_nan_in_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "MAX_SCORES", 2**12)
    for place in ("query", "key", "value"):
        assert_equals_definition(spoil(make(60, 70), place, math.nan), None, Additive(8, 8, 6))


def test_nan_in_mean_pooling():
    assert_equals_definition(spoil(make(5, 6), "value", math.nan), padding([6, 2]), Constant())
    assert attend(*spoil(make(5, 6), "query", math.nan), score=Constant()).context.isfinite().all()


@pytest.mark.parametrize("keys", [6, 40])
def test_nan_in_modules(keys):
    query, key = torch.randn(2, 4, 8), torch.randn(2, keys, 8)
    query[0, 1, 2] = math.nan
    for heads in (MultiHead(8, 2), MultiHead(8, 4, 2), MultiHead(8, 4, 1)):
        for output in (heads(query, key), heads.precompute(key)(query)):
            assert output.context[0, 1].isnan().all()
            assert output.context[0, 0].isfinite().all()
            assert output.context[1].isfinite().all()
    for local in (LocalM(ScaledDot(), 1), LocalP(ScaledDot(), 8, 4, 1)):
        for output in (local(query, key, key), local.precompute(key, key)(query)):
            assert output.context[0, 1].isnan().all()
            assert output.context[1].isfinite().all()


@pytest.mark.bare
def test_nan_in_a_compiled_call():
    compiled = torch.compile(lambda *sample: attend(*sample).context, backend="aot_eager", fullgraph=True)
    for place in ("query", "key", "keys"):
        sample = spoil(make(5, 6), place, math.nan)
        assert torch.equal(compiled(*sample).isnan(), attend(*sample).context.isnan())
    grouped = MultiHead(8, 4, 2)
    compiled = torch.compile(lambda x: grouped(x).context, backend="aot_eager", fullgraph=True)
    assert compiled(torch.full((2, 3, 8), math.nan)).isnan().all()
