"""Rotary, Alibi and RelativeBias against the formulas of their papers, on every path and with a cache."""

import math

import pytest
import torch

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Bilinear,
    Cosine,
    Dot,
    RelativeBias,
    Rotary,
    ScaledDot,
    attend,
    causal,
    equation,
    padding,
    softmax,
    sparsemax,
    window,
)
from regard.testing.checks import make_inputs

# ---- ALiBi


def published_slopes(heads):
    """get_slopes of the authors' code."""

    def power_of_two(n):
        start = 2 ** (-(2 ** -(math.log2(n) - 3)))
        return [start * start**i for i in range(n)]

    if math.log2(heads).is_integer():
        return power_of_two(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return power_of_two(closest) + published_slopes(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 16, 20])
def test_the_slopes_equal_the_published_ones(heads):
    torch.testing.assert_close(Alibi(heads).slopes.tolist(), published_slopes(heads), rtol=1e-6, atol=0)


def test_slopes_of_eight_heads():
    assert Alibi(8).slopes.tolist() == [2.0**-h for h in range(1, 9)]


@pytest.mark.parametrize("offset", [None, 0, 4])
def test_alibi_equals_its_loop(offset):
    sample = make_inputs(4, 7, (2, 3))
    bias = Alibi(3, offset=offset)(sample.query, sample.key)
    first = 7 - 4 if offset is None else offset
    for h, slope in enumerate(published_slopes(3)):
        expected = torch.tensor([[-slope * abs(j - (i + first)) for j in range(7)] for i in range(4)])
        torch.testing.assert_close(bias[1, h], expected.double(), rtol=1e-6, atol=1e-6)


# ---- T5


def t5_bucket(distance, bidirectional, buckets, max_distance):
    """_relative_position_bucket of T5 in plain Python; distance = key - query."""
    bucket, n = 0, -distance
    if bidirectional:
        buckets //= 2
        bucket += buckets if n < 0 else 0
        n = abs(n)
    else:
        n = max(n, 0)
    exact = buckets // 2
    if n < exact:
        return bucket + n
    far = exact + int(math.log(n / exact) / math.log(max_distance / exact) * (buckets - exact))
    return bucket + min(far, buckets - 1)


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (32, 100), (8, 20), (6, 50), (64, 1000)])
def test_the_buckets_equal_those_of_t5(bidirectional, buckets, max_distance):
    bias = RelativeBias(2, buckets, max_distance, bidirectional)
    distances = list(range(-1200, 1201))
    actual = bias.bucket(torch.tensor(distances)).tolist()
    expected = [t5_bucket(d, bidirectional, buckets, max_distance) for d in distances]
    different = [(d, f, t) for d, f, t in zip(distances, actual, expected, strict=True) if f != t]
    assert not different


def test_published_numbers_of_t5():
    """Where T5 itself stands on the edge between two buckets, its float32 decides."""
    distance = torch.arange(-300, 301)
    n = distance.abs()
    far = 8 + (torch.log(n.clamp(min=1).float() / 8) / math.log(128 / 8) * 8).long()
    expected = (distance > 0) * 16 + torch.where(n < 8, n, far.clamp(max=15))
    assert torch.equal(RelativeBias(2).bucket(distance), expected)


@pytest.mark.parametrize("offset", [None, 0, 4])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_relative_bias_equals_its_loop(offset, bidirectional):
    sample = make_inputs(4, 7, (2, 3))
    score = RelativeBias(3, 8, 10, bidirectional, offset).double()
    bias = score(sample.query, sample.key)
    first = 7 - 4 if offset is None else offset
    for h in range(3):
        for i in range(4):
            for j in range(7):
                bucket = t5_bucket(j - (i + first), bidirectional, 8, 10)
                assert bias[0, h, i, j].item() == pytest.approx(score.table[bucket, h].item())


@pytest.mark.bare
def test_invalid_buckets_are_an_error():
    for options in (
        {"num_buckets": 2},
        {"num_buckets": 32, "max_distance": 8},
        {"num_buckets": 1, "bidirectional": False},
    ):
        with pytest.raises(ValueError, match=r"RelativeBias: num_buckets must be at least [24] and max_distance above"):
            RelativeBias(2, **options)
    with pytest.raises(ValueError, match="num_heads must be at least 1"):
        Alibi(0)
    with pytest.raises(ValueError, match=r"expects 4 heads .* got query"):
        attend(*make_inputs(4, 7, (2, 3)), score=Alibi(4))


# ---- on the fast path


@pytest.fixture
def used_paths(monkeypatch):
    names = []
    for path in ("gathered", "banded", "fused", "blocked"):
        function = f"{path}_attention"

        def spy(*args, _path=getattr(equation, function), _name=path):
            context = _path(*args)
            if context is not None:
                names.append(_name)
            return context

        monkeypatch.setattr(equation, function, spy)
    return names


@pytest.mark.parametrize(
    "mask", [None, causal(), padding([40, 3]), causal() & padding([40, 0]), window(3, 1)], ids=repr
)
@pytest.mark.parametrize("heads", [1, 3])
def test_the_table_is_trained_on_the_fused_path_as_by_the_definition(mask, heads, used_paths):
    score = ScaledDot() + 4 * RelativeBias(heads, 8, 20).double()
    sample = make_inputs(30, 40, (2, 3)).requiring_grad()
    output = attend(*sample, mask, score=score)
    assert used_paths == ["fused"]
    inputs = [*sample, *score.parameters()]
    assert len(inputs) == 4
    factor = torch.randn_like(output.context)
    for actual, expected in zip(
        torch.autograd.grad(output.context, inputs, factor, retain_graph=True),
        torch.autograd.grad(output.weights @ sample.value, inputs, factor),
        strict=True,
    ):
        torch.testing.assert_close(actual, expected)
        assert actual.abs().sum() > 0


def test_the_table_is_trained_in_bands(used_paths):
    score = ScaledDot() + RelativeBias(3, 8, 20).double()
    sample = make_inputs(200, 210, (2, 3)).requiring_grad()
    output = attend(*sample, window(5, 3), score=score)
    assert used_paths == ["fused", "banded"]
    (actual,) = torch.autograd.grad(output.context.square().sum(), [score.right.table], retain_graph=True)
    (expected,) = torch.autograd.grad((output.weights @ sample.value).square().sum(), [score.right.table])
    torch.testing.assert_close(actual, expected)


def test_a_bias_alone_needs_no_dot_product(used_paths):
    sample = make_inputs(6, 8, (2, 3))
    output = attend(*sample, score=Alibi(3))
    torch.testing.assert_close(output.context, softmax(Alibi(3)(sample.query, sample.key)) @ sample.value)


def test_large_biases_are_accurate_in_half_precision():
    """-0.5 * 301 is not a bfloat16; rounded, neighbors far away would change places."""
    sample = make_inputs(2, 600, (1, 8)).to(torch.bfloat16)
    score = ScaledDot() + Alibi(8, offset=0)
    expected = attend(*sample.to(torch.float64), score=score.double()).context
    output = attend(*sample, score=(ScaledDot() + Alibi(8, offset=0))).context
    torch.testing.assert_close(output.double(), expected, rtol=0.03, atol=0.03)


# ---- the cache


@pytest.mark.parametrize(
    "make",
    [
        lambda offset: Rotary(ScaledDot(), offset=offset),
        lambda offset: Rotary(Additive(4, 4, 5), offset=offset),
        lambda offset: ScaledDot() + Alibi(3, offset=offset),
        lambda offset: ScaledDot() + RelativeBias(3, 8, 20, offset=offset),
    ],
)
def test_a_decoding_step_has_the_position_of_the_full_call(make):
    """By default the last query stands at the last key; an offset says otherwise."""
    torch.manual_seed(1)
    score = make(None).double()
    torch.manual_seed(1)
    sample = make_inputs(9, 9, (2, 3))
    full = attend(*sample, causal(), score=score)
    for at in range(9):
        step = attend(
            sample.query[..., at : at + 1, :], sample.key[..., : at + 1, :], sample.value[..., : at + 1, :], score=score
        )
        torch.testing.assert_close(step.context, full.context[..., at : at + 1, :])
    torch.manual_seed(1)
    shifted = make(4).double()
    shifted.load_state_dict(score.state_dict())
    part = attend(sample.query[..., 4:6, :], sample.key, sample.value, causal(offset=4), score=shifted)
    torch.testing.assert_close(part.context, full.context[..., 4:6, :])


# ---- Rotary


def test_rotary_depends_on_the_distance_only():
    q, k = torch.randn(4, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    scores = Rotary(Dot())(q.expand(50, 4), k.expand(50, 4))
    for step in range(-49, 50):
        along = scores.diagonal(step)
        torch.testing.assert_close(along, along[:1].expand_as(along))
    assert scores[0, 0] == pytest.approx(dot := (q @ k).item())
    assert scores.std() > 0.01 * abs(dot)


def test_rotation_preserves_norms():
    x = torch.randn(2, 9, 6, dtype=torch.float64)
    turned = Rotary(Dot()).project_key(x)
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))
    assert torch.equal(turned[:, 0], x[:, 0])
    assert not torch.allclose(turned[:, 1], x[:, 1])


@pytest.mark.parametrize("inner", [ScaledDot(), Bilinear(4, 4), Cosine(2.0), Additive(4, 4, 5)], ids=repr)
def test_rotary_rotates_before_any_score(inner):
    inner = inner.double()
    sample = make_inputs(5, 7, (2,))
    rotary = Rotary(inner)
    rotation = Rotary(Dot())
    turned = rotation.project_query(sample.query, 7), rotation.project_key(sample.key)
    torch.testing.assert_close(rotary(sample.query, sample.key), inner(*turned))
    torch.testing.assert_close(Attention(rotary)(*sample).context, Attention(inner)(*turned, sample.value).context)
    output = attend(*sample, score=rotary, normalize=sparsemax)
    torch.testing.assert_close(output.context, sparsemax(inner(*turned)) @ sample.value)


def test_large_positions_are_accurate():
    q, k = torch.randn(1, 4, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
    near = Rotary(Dot(), offset=3)(q, k)
    far = Rotary(Dot(), offset=100_003)(q, torch.cat([torch.zeros(100_000, 4, dtype=torch.float64), k]))
    torch.testing.assert_close(far[..., -1:], near, rtol=1e-8, atol=1e-8)


@pytest.mark.bare
def test_odd_sizes_are_an_error():
    with pytest.raises(ValueError, match=r"Rotary rotates pairs of features, got query \(5, 3\) of odd size"):
        attend(torch.zeros(5, 3), torch.zeros(7, 3), torch.zeros(7, 3), score=Rotary(Dot()))


def test_rotary_at_large_positions_depends_on_the_distance_only():
    vector = 3 * torch.randn(1, 8)
    near, far = (Rotary(Dot(), offset=position) for position in (0, 200_000))
    first = near(vector, vector)
    second = torch.einsum("qd,kd->qk", far.project_query(vector, 1), far.project_query(vector, 1))
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)
