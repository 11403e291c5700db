"""Each score against a plain loop, gradcheck, and the rest of its contract."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from regard.attention import (
    Additive,
    Bilinear,
    Boxcar,
    Concat,
    Constant,
    Cosine,
    Dot,
    Energy,
    Epanechnikov,
    Gaussian,
    Location,
    Rotary,
    ScaledDot,
    Score,
    attend,
    padding,
    sparsemax,
    window,
)
from regard.testing.checks import make_inputs
from tests.attention import reference_loops as loops
from tests.attention.reference_loops import dot, norm, times

ACTIVATIONS = {"tanh": math.tanh, "relu": lambda x: max(x, 0.0), "sigmoid": lambda x: 1 / (1 + math.exp(-x))}
PER_QUERY = torch.tensor([0.5, -1.0, 2.0, 3.0], dtype=torch.float64)
WIDTHS = torch.tensor([0.5, 1.0, 2.0, 1.5])


def bilinear(sign):
    return lambda score: lambda q, k, i, j: sign * dot(q, times(score.weight.tolist(), k))


def additive(score):
    W = None if score.query_proj is None else score.query_proj.weight.tolist()
    U, v = score.key_proj.weight.tolist(), score.energy.tolist()
    bias = [0.0] * len(v) if score.key_proj.bias is None else score.key_proj.bias.tolist()

    def pair(q, k, i, j):
        projected = [0.0] * len(v) if W is None else times(W, q)
        hidden = [a + b + c for a, b, c in zip(projected, times(U, k), bias, strict=True)]
        return dot(v, [ACTIVATIONS[score.activation](x) for x in hidden])

    return pair


def concat(score):
    def pair(q, k, i, j):
        hidden = [math.tanh(x) for x in times(score.in_proj.weight.tolist(), q + k)]
        for layer in score.layers:
            total = zip(times(layer.weight.tolist(), hidden), layer.bias.tolist(), strict=True)
            hidden = [math.tanh(x + b) for x, b in total]
        return dot(score.energy.tolist(), hidden)

    return pair


def cosine(strength):
    return lambda score: lambda q, k, i, j: strength(score, i) * dot(q, k) / (norm(q) * norm(k))


def kernel(of):
    def make(score):
        width = score.width
        width = [float(width)] * 4 if not isinstance(width, torch.Tensor) else width.expand(4).tolist()
        return lambda q, k, i, j: of(norm([(a - b) / w for a, b, w in zip(q, k, width, strict=True)]))

    return make


def rotary(inner, offset):
    def rotate(vector, position):
        out = list(vector)
        for pair in range(len(vector) // 2):
            angle = position / 10000 ** (2 * pair / len(vector))
            a, b = vector[2 * pair], vector[2 * pair + 1]
            out[2 * pair] = a * math.cos(angle) - b * math.sin(angle)
            out[2 * pair + 1] = a * math.sin(angle) + b * math.cos(angle)
        return out

    return lambda score: lambda q, k, i, j: inner(rotate(q, i + offset), rotate(k, j))


def gauss(u):
    return -0.5 * u * u


# name: (constructor, plain loop of an instance, size of queries, size of keys); 4 queries and 5 keys
CASES = {
    "Constant": (Constant, lambda s: lambda q, k, i, j: 0.0, 4, 3),
    "Dot": (Dot, lambda s: lambda q, k, i, j: dot(q, k), 4, 4),
    "ScaledDot": (ScaledDot, lambda s: lambda q, k, i, j: dot(q, k) / math.sqrt(4), 4, 4),
    "Bilinear": (lambda: Bilinear(3, 4), bilinear(1), 3, 4),
    "Energy": (lambda: Energy(3, 4), bilinear(-1), 3, 4),
    "Additive": (lambda: Additive(3, 4, 5), additive, 3, 4),
    "Additive relu": (lambda: Additive(3, 4, 5, activation="relu"), additive, 3, 4),
    "Additive sigmoid, bias": (lambda: Additive(3, 4, 5, activation="sigmoid", bias=True), additive, 3, 4),
    "Additive pooling": (lambda: Additive(None, 4, 5), additive, 3, 4),
    "Additive pooling, no bias": (lambda: Additive(None, 4, 5, bias=False), additive, 3, 4),
    "Concat": (lambda: Concat(3, 4, 5), concat, 3, 4),
    "Concat deep": (lambda: Concat(3, 4, 5, num_layers=3), concat, 3, 4),
    "Cosine": (lambda: Cosine(2.5), cosine(lambda s, i: 2.5), 4, 4),
    "Cosine learned": (lambda: Cosine(2.5, learned=True), cosine(lambda s, i: s.strength.item()), 4, 4),
    "Cosine by query": (lambda: Cosine(PER_QUERY), cosine(lambda s, i: PER_QUERY[i].item()), 4, 4),
    "Gaussian": (lambda: Gaussian(0.5), kernel(gauss), 4, 4),
    "Gaussian by feature": (lambda: Gaussian(WIDTHS), kernel(gauss), 4, 4),
    "Gaussian learned": (lambda: Gaussian(0.5, learned=True), kernel(gauss), 4, 4),
    "Gaussian by feature, learned": (lambda: Gaussian(WIDTHS, learned=True), kernel(gauss), 4, 4),
    "Boxcar": (lambda: Boxcar(2.0), kernel(lambda u: float(u <= 1)), 4, 4),
    "Boxcar by feature": (lambda: Boxcar(2 * WIDTHS), kernel(lambda u: float(u <= 1)), 4, 4),
    "Epanechnikov": (lambda: Epanechnikov(3.0), kernel(lambda u: max(0.0, 1 - u * u)), 4, 4),
    "Epanechnikov by feature": (lambda: Epanechnikov(2 * WIDTHS), kernel(lambda u: max(0.0, 1 - u * u)), 4, 4),
    "Location": (lambda: Location(3, 9), lambda s: lambda q, k, i, j: dot(s.weight.tolist()[j], q), 3, 4),
    "Location, few keys": (
        lambda: Location(3, 3),
        lambda s: lambda q, k, i, j: dot(s.weight.tolist()[j], q) if j < 3 else -math.inf,
        3,
        4,
    ),
    "number * Location, few keys": (
        lambda: -2 * Location(3, 3),
        lambda s: lambda q, k, i, j: -2 * dot(s.score.weight.tolist()[j], q) if j < 3 else -math.inf,
        3,
        4,
    ),
    "sum": (
        lambda: Dot() + Cosine(2.0),
        lambda s: lambda q, k, i, j: dot(q, k) + 2 * dot(q, k) / (norm(q) * norm(k)),
        4,
        4,
    ),
    "difference": (
        lambda: 3 * Dot() - 0.5 * Gaussian(2.0),
        lambda s: lambda q, k, i, j: 3 * dot(q, k) + 0.25 * norm([(a - b) / 2 for a, b in zip(q, k, strict=True)]) ** 2,
        4,
        4,
    ),
    "parameter *": (
        lambda: torch.nn.Parameter(torch.tensor(1.5)) * Dot(),
        lambda s: lambda q, k, i, j: 1.5 * dot(q, k),
        4,
        4,
    ),
    "tensor by query *": (
        lambda: PER_QUERY[:, None] * Dot(),
        lambda s: lambda q, k, i, j: PER_QUERY[i].item() * dot(q, k),
        4,
        4,
    ),
    "tensor by key *": (lambda: torch.arange(5.0) * Dot(), lambda s: lambda q, k, i, j: j * dot(q, k), 4, 4),
    "Rotary": (lambda: Rotary(Dot()), rotary(dot, 5 - 4), 4, 4),
    "Rotary, offset": (lambda: Rotary(Dot(), offset=7), rotary(dot, 7), 4, 4),
}
each_case = pytest.mark.parametrize("name", CASES)


def build(name):
    make, loop, query_dim, key_dim = CASES[name]
    score = make().double()
    return score, loop(score), make_inputs(4, 5, (2,), query_dim, key_dim)


@each_case
def test_a_score_equals_its_loop(name):
    score, pair, sample = build(name)
    expected = torch.stack([loops.scores(pair, sample.query[b], sample.key[b]) for b in range(2)])
    torch.testing.assert_close(score(sample.query, sample.key).detach(), expected, rtol=1e-9, atol=1e-9)


@each_case
def test_attention_with_a_score_equals_its_loop(name):
    score, pair, sample = build(name)
    lengths = [5, 2]
    output = attend(*sample, padding(lengths), score=score)
    total = {"kernel": lambda row: _shares([max(s, 0.0) for s in row]), "logits": loops.softmax}[score.output_kind]
    for b in range(2):
        visible = [[j < lengths[b] for j in range(5)]] * 4
        context, weights = loops.attend(pair, sample.query[b], sample.key[b], sample.value[b], visible, total)
        torch.testing.assert_close(output.weights[b].detach(), weights, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(output.context[b].detach(), context, rtol=1e-9, atol=1e-9)


def _shares(values):
    return [v / sum(values) for v in values] if sum(values) else [0.0] * len(values)


@each_case
def test_gradcheck(name):
    score, _, sample = build(name)
    query, key, _ = sample.requiring_grad()
    inputs = (query, key, *score.parameters())
    if not score(query, key).requires_grad:
        assert name in ("Constant", "Boxcar", "Boxcar by feature")
        return

    def finite(*_):
        scores = score(query, key)
        return scores.masked_fill(scores == -math.inf, 0)

    assert gradcheck(finite, inputs)
    assert gradcheck(lambda *_: attend(query, key, sample.value, score=score).context, inputs)


@each_case
def test_leading_axes_broadcast(name):
    score, _, sample = build(name)
    query, key = sample.query[0], torch.stack([sample.key, sample.key + 1])  # (4, dim) and (2, 2, 5, dim)
    scores = score(query, key)
    assert scores.shape == (2, 2, 4, 5)
    torch.testing.assert_close(scores[1, 0], score(query, key[1, 0]))
    output = attend(query, key, sample.value, score=score)
    torch.testing.assert_close(output.context[1, 0], attend(query, key[1, 0], sample.value[0], score=score).context)


@each_case
def test_a_score_can_be_saved_and_loaded(name):
    score, _, sample = build(name)
    other = CASES[name][0]().double()
    other.load_state_dict(score.state_dict())
    assert torch.equal(score(sample.query, sample.key), other(sample.query, sample.key))
    assert isinstance(repr(score), str)


def test_concat_with_one_layer_is_additive():
    concat, additive = Concat(3, 4, 5), Additive(3, 4, 5)
    with torch.no_grad():
        additive.query_proj.weight.copy_(concat.in_proj.weight[:, :3])
        additive.key_proj.weight.copy_(concat.in_proj.weight[:, 3:])
        additive.energy.copy_(concat.energy)
    query, key = torch.randn(2, 4, 3), torch.randn(2, 5, 4)
    torch.testing.assert_close(concat(query, key), additive(query, key))


def test_the_definition_of_additive_equals_the_product():
    score = Additive(6, 7, 40).double()
    query, key = torch.randn(3, 50, 6).double(), torch.randn(3, 60, 7).double()
    torch.testing.assert_close(score(query, key), score.reference_scores(query, key))


def test_pooling_needs_no_query():
    key = torch.randn(2, 5, 4)
    score = Additive(None, 4, 6)
    pooled = attend(None, key, key, padding([5, 3]), score=score)
    projected = attend(torch.randn(2, 1, 9), key, key, padding([5, 3]), score=score)
    assert pooled.context.shape == (2, 1, 4)
    torch.testing.assert_close(pooled.context, projected.context)
    mean = attend(None, key, key, padding([5, 3]), score=Constant()).context
    torch.testing.assert_close(mean[1, 0], key[1, :3].mean(0))


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 3), (2, 1)])
def test_cosine_with_a_strength_for_each_query(shape):
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    strength = torch.rand(shape) * 4
    expected = Cosine()(query, key) * strength.expand(2, 3)[..., None]
    torch.testing.assert_close(Cosine(strength)(query, key), expected)
    context = attend(query, key, key, score=Cosine(strength)).context
    torch.testing.assert_close(context, expected.softmax(-1) @ key)


def test_a_strength_or_factor_of_another_dtype():
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    ones = torch.ones(3, 1).double()
    for score in (Cosine(ones[:, 0]), ones * Dot(), Gaussian(WIDTHS.double())):
        output = attend(query, key, key, score=score)
        assert output.context.dtype == output.weights.dtype == torch.float32


def test_learned_widths_stay_positive():
    score = Gaussian(0.5, learned=True)
    assert score.width.item() == pytest.approx(0.5)
    optimizer = torch.optim.SGD(score.parameters(), lr=100.0)
    query, key = torch.randn(3, 4), torch.randn(5, 4)
    for _ in range(3):
        optimizer.zero_grad()
        attend(query, key, key, score=score).context.sum().backward()
        optimizer.step()
        assert score.width.item() > 0


def test_logits_and_kernel_values_cannot_be_added():
    with pytest.raises(ValueError, match="Dot returns logits and Boxcar returns kernel"):
        Dot() + Boxcar(1.0)
    with pytest.raises(ValueError, match="Boxcar cannot be scaled by -1"):
        -Boxcar(1.0)
    with pytest.raises(TypeError):
        Dot() + 1
    with pytest.raises(TypeError):
        "2" * Dot()


def test_a_user_defined_score_needs_forward_only():
    class Manhattan(Score):
        def forward(self, query, key):
            return -(query.unsqueeze(-2) - key.unsqueeze(-3)).abs().sum(-1)

    sample = make_inputs(80, 200, (2,))
    output = attend(*sample, window(2, 2), score=Manhattan() + Dot(), normalize=sparsemax)
    torch.testing.assert_close(output.context, output.weights @ sample.value)


@pytest.mark.bare
def test_gaussian_under_vmap_uses_the_definition():
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 9, 4), torch.randn(2, 9, 6)
    output = torch.func.vmap(lambda q, k, v: attend(q, k, v, score=Gaussian()).context)(query, key, value)
    torch.testing.assert_close(output, attend(query, key, value, score=Gaussian()).context)


def test_division_and_sum_of_scores():
    query, key = torch.randn(3, 4), torch.randn(5, 4)
    torch.testing.assert_close((Dot() / 2)(query, key), Dot()(query, key) / 2)
    torch.testing.assert_close(sum([Dot(), Dot()])(query, key), 2 * Dot()(query, key))
