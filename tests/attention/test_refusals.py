"""What does not fit is refused in one sentence."""

import pytest
import torch

from regard.attention import (
    Additive,
    Attention,
    Bilinear,
    Boxcar,
    Concat,
    Cosine,
    Dot,
    Dropout,
    Energy,
    Gaussian,
    Location,
    Rotary,
    Temperature,
    attend,
    causal,
    kernel_sum,
    softmax,
)
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
    "mask function": (lambda: attend(Q, K, V, causal), "got function"),
    "score in words": (lambda: attend(Q, K, V, score="dot"), "score must be a function or module.*got 'dot'"),
    "no score": (lambda: attend(Q, K, V, score=None), "score must be a function or module.*got None"),
    "normalizer in words": (lambda: attend(Q, K, V, normalize="softmax"), "normalize must be .*got 'softmax'"),
    "class with arguments": (
        lambda: attend(Q, K, V, score=Bilinear),
        r"score must be an instance, not a class: write Bilinear\(\.\.\.\)",
    ),
    "normalizer class": (
        lambda: attend(Q, K, V, normalize=Temperature),
        r"normalize must be an instance, not a class: write Temp",
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


def test_a_class_without_arguments_is_instantiated():
    sample = make_inputs(5, 6, (2,))
    assert torch.equal(attend(*sample, score=Dot).context, attend(*sample, score=Dot()).context)
    assert Attention(Dot)(*sample).context.isfinite().all()
