"""What does not fit is refused in one sentence."""

import warnings
from functools import partial

import pytest
import torch
import torch.nn.functional as F

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Bilinear,
    Boxcar,
    Concat,
    Cosine,
    Dot,
    Dropout,
    Energy,
    Gaussian,
    GaussianWindow,
    KVCache,
    LocalM,
    Location,
    MaxPool,
    MultiHead,
    Rotary,
    ScaledDot,
    SigmoidSum,
    Temperature,
    attend,
    causal,
    kernel_sum,
    padding,
    softmax,
    window,
)
from regard.errors import DtypeError, RegardError, ShapeError, UnsupportedError, UsageError
from regard.testing.checks import make_inputs

Q, K, V = torch.zeros(2, 5, 4), torch.zeros(2, 6, 4), torch.zeros(2, 6, 3)
WRONG = {
    "keys and values": (lambda: attend(Q, K, V[:, :5]), r"6 keys and 5 values.*\(2, 6, 4\).*\(2, 5, 3\)"),
    "batch": (lambda: attend(Q, K[:1].expand(3, 6, 4), V), r"broadcast: query \(2, 5, 4\), key \(3, 6, 4\), value"),
    "size": (lambda: attend(Q[..., :3], K, V), r"ScaledDot.*query \(2, 5, 3\) and key \(2, 6, 4\)"),
    "Cosine": (lambda: attend(Q[..., :3], K, V, score=Cosine()), r"Cosine.*\(2, 5, 3\).*\(2, 6, 4\)"),
    "Gaussian": (lambda: attend(Q[..., :3], K, V, score=Gaussian()), r"Gaussian.*\(2, 5, 3\).*\(2, 6, 4\)"),
    "widths": (
        lambda: attend(Q, K, V, score=Gaussian(torch.ones(3))),
        r"expected 3 features, one for each width.*\(2, 5, 4\)",
    ),
    "Boxcar": (lambda: attend(Q[..., :3], K, V, score=Boxcar(1.0)), r"Boxcar.*\(2, 5, 3\)"),
    "Bilinear": (lambda: attend(Q, K, V, score=Bilinear(3, 4)), r"Bilinear expects query_dim=3, got query \(2, 5, 4\)"),
    "Energy": (lambda: attend(Q, K, V, score=Energy(4, 3)), r"Energy expects key_dim=3, got key \(2, 6, 4\)"),
    "Additive": (lambda: attend(Q, K, V, score=Additive(4, 3, 5)), r"Additive expects key_dim=3, got key"),
    "Concat": (lambda: attend(Q, K, V, score=Concat(3, 4, 5)), r"Concat expects query_dim=3, got query"),
    "Location": (lambda: attend(Q, K, V, score=Location(3, 9)), r"Location expects query_dim=3, got query"),
    "Rotary": (lambda: attend(Q, K, V, score=Rotary(Bilinear(3, 4))), r"Bilinear expects query_dim=3"),
    "sum": (lambda: attend(Q, K, V, score=Dot() + Bilinear(3, 4)), r"Bilinear expects query_dim=3"),
    "scaled": (lambda: attend(Q, K, V, score=2 * Bilinear(3, 4)), r"Bilinear expects query_dim=3"),
    "strength": (lambda: attend(Q, K, V, score=Cosine(torch.ones(3))), r"strength.*\(3,\).*query \(2, 5, 4\)"),
    "one axis": (lambda: attend(Q[0, 0], K, V), r"query must be \(\*batch, queries, dim\), got \(4,\)"),
    "one axis of keys": (lambda: attend(Q, K[0, 0], V), r"key must be \(\*batch, keys, dim\), got \(4,\)"),
    "kernel and softmax": (
        lambda: attend(Q, K, V, score=Boxcar(1.0), normalize=softmax),
        "Boxcar returns kernel values, but softmax expects logits",
    ),
    "logits and kernel_sum": (
        lambda: attend(Q, K, V, normalize=kernel_sum),
        "ScaledDot returns logits, but kernel_sum expects kernel values",
    ),
    "wrapped": (
        lambda: attend(Q, K, V, score=Boxcar(1.0), normalize=Dropout(softmax, 0.1)),
        "Boxcar returns kernel values, but Dropout",
    ),
    "over, query": (
        lambda: Attention(Additive(4, 4, 5)).precompute(K, V)(Q[..., :3]),
        r"query_dim=4, got query \(2, 5, 3\)",
    ),
    "over, size": (
        lambda: Attention(Cosine()).precompute(K, V)(Q[..., :3]),
        r"Cosine.*query \(2, 5, 3\) and key \(2, 6, 4\)",
    ),
    "over, key": (lambda: Attention(Additive(4, 3, 5)).precompute(K, V), r"Additive does not accept key \(2, 6, 4\)"),
    "zero width": (lambda: Gaussian(0.0), "Gaussian: width must be above 0"),
    "widths in a table": (lambda: Gaussian(torch.ones(2, 2)), "Gaussian: width must be"),
    "activation": (lambda: Additive(4, 4, 5, activation="gelu"), "must be one of tanh, .* got 'gelu'"),
    "layers": (lambda: Concat(4, 4, 5, num_layers=0), "num_layers must be at least 1, got 0"),
}
WRONG_KINDS = {
    "dtypes": (
        lambda: attend(Q, K.double(), V),
        "one dtype outside of autocast, got query torch.float32, key torch.float64",
    ),
    "integers": (lambda: attend(Q.long(), K.long(), V.long()), "floating point, got query torch.int64"),
    "bool": (lambda: attend(Q > 0, K, V), "floating point, got query torch.bool"),
    "list": (lambda: attend([[1.0]], K, V), "query must be a tensor, got list"),
    "no key": (lambda: attend(Q, None, V), "key must be a tensor, got NoneType"),
    "no query and no key": (lambda: attend(None, None, V), "key must be a tensor, got NoneType"),
    "no query, list": (lambda: attend(None, [1.0], V), "key must be a tensor, got list"),
    "float mask": (
        lambda: attend(Q, K, V, torch.zeros(5, 6)),
        "a mask is a bool tensor, True where .* got torch.float32",
    ),
    "integer mask": (lambda: attend(Q, K, V, torch.ones(5, 6).int()), "a mask is a bool tensor.*got torch.int32"),
    "mask in a list": (lambda: attend(Q, K, V, [[True]]), "a mask is a bool tensor.*got list"),
    "lengths for a mask": (lambda: attend(Q, K, V, torch.tensor([1, 2])), r"padding\(lengths\) for lengths"),
    "score in words": (lambda: attend(Q, K, V, score="dot"), "score must be a function or module.*got 'dot'"),
    "no score": (lambda: attend(Q, K, V, score=None), "score must be a function or module.*got None"),
    "normalizer in words": (lambda: attend(Q, K, V, normalize="softmax"), "normalize must be .*got 'softmax'"),
    "class with arguments": (
        lambda: attend(Q, K, V, score=Bilinear),
        r"score must be an instance, not a class: write Bilinear\(query_dim, key_dim\)",
    ),
    "normalizer class": (
        lambda: attend(Q, K, V, normalize=Temperature),
        r"normalize must be an instance, not a class: write Temperature\(temperature\)",
    ),
}


@pytest.mark.bare
@pytest.mark.parametrize("case", WRONG)
def test_invalid_arguments_raise_one_line(case):
    wrong, words = WRONG[case]
    with pytest.raises(ValueError, match=words) as error:
        wrong()
    assert "\n" not in str(error.value)


@pytest.mark.bare
@pytest.mark.parametrize("case", WRONG_KINDS)
def test_invalid_types_raise_one_line(case):
    wrong, words = WRONG_KINDS[case]
    with pytest.raises(TypeError, match=words) as error:
        wrong()
    assert "\n" not in str(error.value)


with warnings.catch_warnings():  # nested tensors are a prototype
    warnings.simplefilter("ignore")
    PADDED, JAGGED = (
        torch.nested.nested_tensor([torch.zeros(2, 4), torch.zeros(3, 4)], layout=layout)
        for layout in (torch.strided, torch.jagged)
    )
    MEMORY = torch.nested.nested_tensor([torch.zeros(4, 4), torch.zeros(1, 4)], layout=torch.jagged)
    HEADS = JAGGED.unflatten(-1, (2, 2)).transpose(1, 2)
H, M = torch.zeros(2, 2, 5, 4), MultiHead(8, 2)  # as many heads as batch entries
X, CACHE = torch.zeros(2, 5, 8), KVCache()
REFUSED = {
    "log_softmax": (lambda: attend(Q, K, V, normalize=F.log_softmax), UsageError, "use softmax"),
    "softmin": (lambda: attend(Q, K, V, normalize=torch.nn.Softmin(-1)), UsageError, "score=-Dot"),
    "gumbel_softmax": (lambda: Attention(normalize=F.gumbel_softmax), UsageError, r"use Gumbel\(\)"),
    "normalize": (lambda: attend(Q, K, V, normalize=F.normalize), UsageError, "normalize=normalize"),
    "another axis": (lambda: attend(Q, K, V, normalize=torch.nn.Softmax(1)), UsageError, "dim=-1, .* place of dim=1"),
    "axis by number": (lambda: attend(Q, K, V, normalize=torch.nn.Softmax(2)), UsageError, "place of dim=2"),
    "partial": (lambda: MultiHead(8, 2, normalize=partial(torch.softmax, dim=-2)), UsageError, "place of dim=-2"),
    "wrapped axis": (lambda: Dropout(torch.nn.Softmax(0), 0.1), UsageError, "place of dim=0"),
    "shape of weights": (
        lambda: attend(Q, K, V, normalize=lambda s: s.sum(-1)),
        ShapeError,
        r"\(2, 5, 6\), got .*\(2, 5\)",
    ),
    "dtype of weights": (lambda: attend(Q, K, V, normalize=lambda s: s > 0), ShapeError, "got torch.bool"),
    "shape of scores": (lambda: attend(Q, K, V, score=lambda q, k: k @ q.mT), ShapeError, r"\(2, 5, 6\), got .*6, 5\)"),
    "batch of scores": (lambda: attend(Q, K, V, score=lambda q, k: (q @ k.mT)[0]), ShapeError, "score=<lambda>"),
    "dtype of scores": (lambda: attend(Q, K, V, score=lambda q, k: (q @ k.mT).int()), ShapeError, "got torch.int32"),
    "no scores": (lambda: attend(Q, K, V, score=lambda q, k: None), ShapeError, "got None"),
    "normalizer as score": (lambda: attend(Q, K, V, score=softmax), UsageError, "softmax is a normalizer"),
    "score as normalizer": (lambda: attend(Q, K, V, normalize=Dot), UsageError, "Dot is a score"),
    "Alibi": (lambda: MultiHead(8, 2, score=Alibi), DtypeError, r"write Alibi\(num_heads\)"),
    "Dropout": (lambda: Attention(normalize=Dropout), DtypeError, r"write Dropout\(normalize, p\)"),
    "window": (lambda: attend(Q, K, V, causal() & window), DtypeError, r"write window\(left, right\)"),
    "mask function": (lambda: attend(Q, K, V, padding), UsageError, "padding: give one of lengths, attention_mask"),
    "nested, batch": (lambda: attend(torch.zeros(3, 5, 4), JAGGED, JAGGED), ShapeError, "of one batch size"),
    "nested, no batch": (lambda: attend(Q[0], JAGGED, JAGGED), ShapeError, r"must be \(batch, length, dim\)"),
    "nested keys alone": (lambda: attend(Q, JAGGED, V), ShapeError, "keys or values are nested tensors, both must"),
    "nested lengths": (lambda: attend(Q, JAGGED, MEMORY), ShapeError, "one value for each key"),
    "nested, four axes": (lambda: attend(*[HEADS] * 3), ShapeError, "a nested query must be .* only lengths differ"),
    "nested, aligned": (lambda: attend(JAGGED, MEMORY, MEMORY, causal()), UnsupportedError, r"causal\(offset=0\)"),
    "nested, cache": (lambda: MultiHead(4, 2)(JAGGED, cache=CACHE), UnsupportedError, "MultiHead: nested tensors"),
    "nested, size": (lambda: M(JAGGED), ShapeError, r"query must be \(\*batch, positions, 8\)"),
    "nested, fixed keys": (lambda: M.precompute(JAGGED), UnsupportedError, "MultiHead: key is a nested tensor"),
    "nested, local": (lambda: LocalM(Dot, 1)(JAGGED, K, V), UnsupportedError, "query .* nested"),
    "nested mask": (lambda: attend(Q, K, V, PADDED > 0), DtypeError, "got nested torch.bool"),
    "float8": (lambda: attend(*(t.to(torch.float8_e5m2) for t in (Q, K, V))), DtypeError, "got query torch.float8"),
    "bias": (lambda: attend(Q, K, V, torch.zeros(5, 6)), DtypeError, r"score=ScaledDot\(\) \+ bias"),
    "too long": (lambda: attend(Q, K, V, padding([9, 2])), UsageError, "from 0 to the number of keys, 6, got 2 to 9"),
    "negative": (lambda: padding(torch.tensor([-1])).materialize(2, 3), UsageError, "got -1 to -1"),
    "too long, local": (lambda: LocalM(Dot(), 1)(Q, K, V, padding(7)), UsageError, "keys, 6, got 7 to 7"),
    "too long, pooled": (lambda: MaxPool()(K, torch.tensor([7, 1])), UsageError, "got 1 to 7"),
    "lengths by query": (
        lambda: attend(Q, K, V, padding(torch.ones(2, 5).long())),
        ShapeError,
        r"prefix\(lengths\) is the mask",
    ),
    "by query, heads": (
        lambda: M(X, mask=causal() & padding(torch.ones(2, 2).long())),
        ShapeError,
        r"prefix\(lengths\) is the mask",
    ),
    "by query, fixed": (
        lambda: M.precompute(X, mask=padding([[1, 2]] * 2))(X),
        ShapeError,
        r"prefix\(lengths\) is the mask",
    ),
    "no batch, heads": (
        lambda: M(X[0], mask=padding([1, 2])),
        ShapeError,
        "lengths .2,. have more axes than the batch",
    ),
    "mask by batch": (lambda: M(X, mask=torch.ones(2, 5, 5) > 0), ShapeError, r"mask\[:, None\] .* mask\[None\]"),
    "mask by head": (lambda: MultiHead(8, 4)(X, mask=torch.ones(4, 5, 5) > 0), ShapeError, r"mask\[None\]"),
    "mask, fixed keys": (lambda: M.precompute(X, mask=torch.ones(2, 1, 5) > 0)(X), ShapeError, r"mask\[:, None\]"),
    "mask of equal axes": (lambda: attend(H, H, H, torch.ones(2, 5, 5) > 0), ShapeError, "ambiguous"),
    "temperature by query": (lambda: Temperature(torch.ones(5)), ShapeError, r"temperature\[\.\.\., None\]"),
    "cache of other keys": (lambda: M(X, X + 1, cache=CACHE), UsageError, r"precompute\(key, value, mask\)"),
}


@pytest.mark.bare
@pytest.mark.parametrize("case", REFUSED)
def test_what_has_no_clear_meaning_raises_one_line(case):
    wrong, kind, words = REFUSED[case]
    with pytest.raises(RegardError, match=words) as error:
        wrong()
    assert type(error.value) is kind
    assert "\n" not in str(error.value)


@pytest.mark.bare
def test_softmax_of_torch_is_that_of_the_last_axis():
    sample = make_inputs(5, 6, (2, 3))
    expected = attend(*sample, padding([6, 0]), normalize=softmax)
    functions = [F.softmax, torch.softmax, torch.Tensor.softmax, torch.special.softmax, partial(F.softmax, dim=-1)]
    for normalize in (*functions, torch.nn.Softmax, torch.nn.Softmax(), torch.nn.Softmax(-1), partial(F.softmax)):
        for output in (
            attend(*sample, padding([6, 0]), normalize=normalize),
            Attention(normalize=normalize).precompute(sample.key, sample.value, padding([6, 0]))(sample.query),
            attend(*sample, padding([6, 0]), normalize=Dropout(normalize, 0.5).eval()),
        ):
            torch.testing.assert_close(output.context, expected.context)
            torch.testing.assert_close(output.weights, expected.weights)
        windows = [GaussianWindow(part, 2.0, 1.0) for part in (normalize, softmax)]
        actual, target = (attend(*sample, padding([6, 0]), normalize=part).context for part in windows)
        torch.testing.assert_close(actual, target)


@pytest.mark.bare
def test_masks_and_lengths_with_one_meaning():
    sample, heads, x = make_inputs(5, 6, (2, 4)), MultiHead(8, 2), torch.randn(2, 5, 8)
    expected = attend(*sample, causal())
    assert torch.equal(attend(*sample, causal).context, expected.context)
    assert torch.equal(
        attend(*sample, causal & padding([6, 6])).context, attend(*sample, causal() & padding(6)).context
    )
    by_batch = torch.rand(2, 5, 5) < 0.7
    for mask, visible in ((by_batch[:, None], by_batch[:, None]), (by_batch[None], by_batch[None])):
        weights = heads(x, mask=mask).weights
        assert torch.equal(weights > 0, visible.expand(2, 2, 5, 5))
    for lengths in (3, [3], [3, 3], [[3], [3]]):
        assert torch.equal(heads(x, mask=padding(lengths)).context, heads(x, mask=padding([3, 3])).context)
    cache, again = KVCache(), KVCache()
    assert torch.equal(heads(x, x, x, cache=cache).context, heads(x, cache=again).context)


def test_a_class_without_arguments_is_instantiated():
    sample = make_inputs(5, 6, (2,))
    assert torch.equal(attend(*sample, score=Dot).context, attend(*sample, score=Dot()).context)
    assert Attention(Dot)(*sample).context.isfinite().all()
    rotated = attend(*sample, score=Rotary(ScaledDot), normalize=Dropout(SigmoidSum, 0.5).eval())
    assert torch.equal(rotated.context, attend(*sample, score=Rotary(ScaledDot()), normalize=SigmoidSum()).context)
    assert LocalM(Dot, 1, SigmoidSum)(*sample).context.isfinite().all()
