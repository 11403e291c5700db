"""Local attention against its definition at full width, written as a loop."""

import math

import pytest
import torch
from torch.autograd import gradcheck

from regard.attention import (
    Additive,
    Alibi,
    Boxcar,
    Dot,
    Dropout,
    Gumbel,
    LocalM,
    LocalP,
    Rotary,
    Sample,
    ScaledDot,
    Score,
    Temperature,
    attend,
    causal,
    dense,
    equation,
    padding,
    softmax,
    sparsemax,
    window,
)
from regard.testing.checks import make_inputs
from tests.attention import reference_loops as loops
from tests.attention.reference_loops import dot, times

LENGTHS = torch.tensor([30, 7, 0])
MASKS = {
    "none": lambda q, k: None,
    "padding": lambda q, k: padding(LENGTHS.clamp(max=k)),
    "causal": lambda q, k: causal(),
    "causal from the start": lambda q, k: causal(offset=0),
    "padding and causal": lambda q, k: padding(LENGTHS.clamp(max=k)) & causal(),
    "window": lambda q, k: window(6, 2, offset=3),
    "holes": lambda q, k: dense(torch.rand(q, k, generator=torch.Generator().manual_seed(1)) < 0.6),
}
SIZES = [(4, 30), (12, 30), (5, 5), (4, 2), (1, 30), (3, 1)]


@pytest.fixture
def used_paths(monkeypatch):
    """How often keys were gathered."""
    calls = []

    def spy(*args, _path=equation.gathered_attention):
        context = _path(*args)
        if context is not None:
            calls.append(1)
        return context

    monkeypatch.setattr(equation, "gathered_attention", spy)
    return calls


def full_width(query, key, value, visible, center, radius, has_window):
    """One sequence: softmax over the visible keys near the center, with a Gaussian window, not renormalized."""
    contexts, weights = [], []
    for i, (q, is_visible) in enumerate(zip(query.tolist(), visible.tolist(), strict=True)):
        p = center(i, q, sum(is_visible))
        near = [may and abs(s - p) <= radius for s, may in enumerate(is_visible)]
        row = loops.softmax([dot(q, k) if m else -math.inf for k, m in zip(key.tolist(), near, strict=True)])
        if has_window:
            row = [w * math.exp(-((s - p) ** 2) / (2 * (radius / 2) ** 2)) for s, w in enumerate(row)]
        weights.append(row)
        contexts.append([sum(w * v[c] for w, v in zip(row, value.tolist(), strict=True)) for c in range(3)])
    return torch.tensor(contexts, dtype=torch.float64), torch.tensor(weights, dtype=torch.float64)


def compare(output, sample, mask, center, radius, has_window=False):
    visible = torch.ones(sample.num_queries, sample.num_keys, dtype=torch.bool)
    visible = visible if mask is None else mask.materialize(sample.num_queries, sample.num_keys, 1)
    visible = visible.expand(3, sample.num_queries, sample.num_keys)
    for b in range(3):
        context, weights = full_width(
            sample.query[b],
            sample.key[b],
            sample.value[b],
            visible[b],
            lambda *a, b=b: center(b, *a),
            radius,
            has_window,
        )
        torch.testing.assert_close(output.weights[b].detach(), weights, rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(output.context[b].detach(), context, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("radius", [0, 1, 3])
@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_local_m_equals_the_definition(queries, keys, radius, mask):
    sample, mask = make_inputs(queries, keys, (3,)), MASKS[mask](queries, keys)
    output = LocalM(Dot(), radius)(*sample, mask)
    compare(output, sample, mask, lambda b, i, q, S: max(min(i, S - 1), 0), radius)
    assert output.weights.shape == (3, queries, keys)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("radius", [1, 3])
@pytest.mark.parametrize(("queries", "keys"), SIZES)
def test_local_p_equals_the_definition(queries, keys, radius, mask):
    sample, mask = make_inputs(queries, keys, (3,)), MASKS[mask](queries, keys)
    local = LocalP(Dot(), 4, 5, radius).double()
    W, v = local.query_proj.weight.tolist(), local.energy.tolist()

    def center(b, i, q, S):
        return S / (1 + math.exp(-dot(v, [math.tanh(x) for x in times(W, q)])))

    output = local(*sample, mask)
    compare(output, sample, mask, center, radius, has_window=True)
    assert output.weights.shape == (3, queries, keys)


@pytest.mark.parametrize("case", [5, torch.tensor([9, 0, 28, 50]), "batch"], ids=str)
def test_positions_of_the_queries(case):
    sample = make_inputs(4, 30, (3,))
    table = torch.tensor([[9, 0, 28, 50], [1, 1, 1, 1], [29, 3, 2, 1]])
    query_positions = table if isinstance(case, str) else case
    output = LocalM(Dot(), 2)(*sample, padding(LENGTHS), query_positions=query_positions)

    def position(b, i):
        if isinstance(case, str):
            return table[b, i].item()
        return case[i].item() if isinstance(case, torch.Tensor) else 5 + i

    compare(output, sample, padding(LENGTHS), lambda b, i, q, S: max(min(position(b, i), S - 1), 0), 2)


def test_a_decoding_step_is_a_row_of_the_full_call():
    sample = make_inputs(6, 40, (3,))
    for local in (LocalM(ScaledDot(), 2), LocalP(ScaledDot(), 4, 5, 2).double()):
        full = local(*sample, padding(LENGTHS))
        for t in range(6):
            step = local(sample.query[:, t : t + 1], sample.key, sample.value, padding(LENGTHS), query_positions=t)
            torch.testing.assert_close(step.context, full.context[:, t : t + 1])
            torch.testing.assert_close(step.weights, full.weights[:, t : t + 1])


def test_the_gradient_of_the_center_passes_through_the_gaussian_only():
    local = LocalP(Dot(), 4, 5, 3).double()
    sample = make_inputs(6, 30, (3,)).requiring_grad()
    factor = torch.randn(3, 6, 3, dtype=torch.float64)
    output = local(*sample, padding(LENGTHS)).context
    # The definition, at full width: the choice of visible keys has no gradient.
    position = LENGTHS[:, None] * torch.sigmoid(torch.tanh(local.query_proj(sample.query)) @ local.energy)
    away = torch.arange(30) - position[..., None]
    visible = (away.detach().abs() <= 3) & (torch.arange(30) < LENGTHS[:, None, None])
    scores = torch.where(visible, sample.query @ sample.key.mT, -math.inf)
    expected_context = (softmax(scores) * torch.exp(-0.5 * (away / 1.5) ** 2)) @ sample.value
    torch.testing.assert_close(output, expected_context)
    inputs = [*sample, *local.parameters()]
    for actual, expected in zip(
        torch.autograd.grad(output, inputs, factor), torch.autograd.grad(expected_context, inputs, factor), strict=True
    ):
        torch.testing.assert_close(actual, expected)
    assert local.energy.requires_grad


def test_gradcheck():
    local = LocalP(Dot(), 4, 3, 1).double()
    for keys in (3, 7):  # at full width and gathered
        sample = make_inputs(2, keys, (1,)).requiring_grad()
        assert gradcheck(lambda *_, sample=sample: local(*sample).context, (*sample, *local.parameters()))


@pytest.mark.parametrize("make", [lambda s: LocalM(s, 2), lambda s: LocalP(s, 4, 5, 2)], ids=["m", "p"])
@pytest.mark.parametrize("queries", [1, 12])
def test_gathered_keys_agree_with_the_definition(make, queries, used_paths):
    for score in (ScaledDot(), Additive(4, 4, 5), Rotary(ScaledDot()), ScaledDot() + Alibi(2), Boxcar(2.5)):
        local = make(score).double()
        sample = make_inputs(queries, 50, (3, 2))
        output = local(*sample, padding(torch.tensor([50, 20, 0])))
        torch.testing.assert_close(output.context, output.weights @ sample.value)
    assert len(used_paths) >= 4


class Widths(Score):
    """Records the number of keys of each call."""

    def __init__(self):
        super().__init__()
        self.num_keys = []

    def forward(self, query, key):
        self.num_keys.append(key.shape[-2])
        return query @ key.mT


@pytest.mark.parametrize("keys", [50, 5000])
def test_the_cost_of_a_query_does_not_grow_with_the_keys(keys):
    for make in (lambda s: LocalM(s, 3), lambda s: LocalP(s, 4, 5, 3).double()):
        score = Widths()
        make(score)(*make_inputs(2, keys, ()))
        assert score.num_keys == [8]


EITHER = {"m": lambda n: LocalM(Dot(), 2, n), "p": lambda n: LocalP(Dot(), 4, 5, 2, n)}


@pytest.mark.parametrize("make", EITHER.values(), ids=EITHER)
def test_other_normalizers(make):
    sample = make_inputs(6, 30, (3,)).to(torch.float32)
    for normalize in (None, sparsemax, Temperature(0.5), Dropout(softmax, 0.5), Dropout(softmax, 0.5).eval()):
        output = make(normalize)(*sample, padding(LENGTHS))
        assert output.context.isfinite().all()
        if not isinstance(normalize, Dropout) or not normalize.training:
            torch.testing.assert_close(output.context, output.weights @ sample.value)
        else:
            torch.manual_seed(0)
            dropped = make(normalize)
            plain = make(softmax)
            plain.load_state_dict(dropped.state_dict(), strict=False)
            torch.testing.assert_close(dropped(*sample).weights, plain(*sample).weights)
            assert not torch.equal(dropped(*sample).context, plain(*sample).context)


def test_kernel_values_are_divided_by_their_sum():
    sample = make_inputs(6, 30, (3,))
    for local in (LocalM(Boxcar(3.0), 2), LocalP(Boxcar(3.0), 4, 5, 2).double()):
        assert local(*sample).context.isfinite().all()


@pytest.mark.parametrize("make", [lambda s: LocalM(s, 2), lambda s: LocalP(s, 4, 5, 2)], ids=["m", "p"])
def test_precomputed_keys_equal_the_keys(make):
    score = Additive(4, 4, 5)
    local = make(score).double()
    sample = make_inputs(6, 30, (3,))
    calls = []
    score.key_proj.register_forward_hook(lambda *_: calls.append(1))
    again = local.precompute(sample.key, sample.value, padding(LENGTHS))
    steps = [again(sample.query[:, t : t + 1], query_positions=t) for t in range(6)]
    assert len(calls) == 1
    full = local(*sample, padding(LENGTHS))
    torch.testing.assert_close(torch.cat([step.context for step in steps], 1), full.context)
    torch.testing.assert_close(torch.cat([step.weights for step in steps], 1), full.weights)


@pytest.mark.parametrize("make", EITHER.values(), ids=EITHER)
def test_a_query_without_visible_keys_has_context_0(make):
    local = make(None).double()
    sample = make_inputs(6, 30, (3,)).requiring_grad()
    output = local(*sample, padding(LENGTHS))
    assert (output.context[2] == 0).all()
    assert (output.weights[2] == 0).all()
    output.context.square().sum().backward()
    for tensor in (*sample, *local.parameters()):
        assert tensor.grad.isfinite().all()
    assert (sample.query.grad[2] == 0).all()
    for empty in (local(*make_inputs(6, 0, (3,))), local(*make_inputs(0, 30, (3,)))):
        assert (empty.context == 0).all()


def test_local_m_is_a_window_for_aligned_sequences():
    sample = make_inputs(30, 30, (3,))
    expected_context = attend(*sample, window(2, 2), score=Dot()).context
    torch.testing.assert_close(LocalM(Dot(), 2)(*sample).context, expected_context)


def test_large_positions_in_half_precision():
    """bfloat16 cannot represent both 1001 and 1004; positions are computed in float32."""
    sample = make_inputs(4, 2000, (1,)).to(torch.float32)
    local = LocalP(ScaledDot(), 4, 5, 4)
    expected_context = local(*sample).context
    output = local.to(torch.bfloat16)(*sample.to(torch.bfloat16)).context
    positions = local.predict_center(sample.query.to(torch.bfloat16), torch.tensor([[2000]]))
    assert positions.dtype == torch.float32
    assert output.dtype == torch.bfloat16
    assert output.isfinite().all()
    assert expected_context.isfinite().all()


@pytest.mark.bare
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: LocalM(Dot(), -1), "LocalM: radius must be at least 0, got -1"),
        (lambda: LocalP(Dot(), 4, 5, 0), "LocalP: radius must be above 0, got 0"),
        (lambda: LocalP(Dot(), 4, 5, 2)(*(torch.zeros(6, 3),) * 3), r"query_dim=4, got query \(6, 3\)"),
        (lambda: LocalM(Dot(), 1)(torch.zeros(6, 3), *(torch.zeros(6, 4),) * 2), "vectors of equal size"),
        (lambda: LocalM(Dot(), 1)(*(torch.zeros(6, 3),) * 3, query_positions=torch.zeros(5).long()), r"\(5,\).* 6"),
    ],
)
def test_wrong_sizes_raise_one_line(wrong, words):
    with pytest.raises(ValueError, match=words) as error:
        wrong()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("sampler", [Gumbel, Sample])
def test_local_attention_keeps_the_mode_of_its_normalizer(sampler):
    inner = sampler()
    local = LocalP(ScaledDot(), 4, 8, radius=2, normalize=inner).eval()
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 40, 4), torch.randn(2, 40, 6)
    output = local(query, key, value)
    torch.testing.assert_close(output.context, output.weights @ value)
    assert not inner.training
    assert torch.equal(output.context, local(query, key, value).context)


@pytest.mark.bare
def test_wrong_shapes_are_named():
    key = torch.randn(2, 9, 4)
    with pytest.raises(ValueError, match=r"mask \(3, 3, 7\) does not broadcast"):
        LocalP(ScaledDot(), 4, 8, 2)(torch.randn(2, 3, 4), key, key, torch.ones(3, 3, 7) > 0)
    with pytest.raises(ValueError, match=r"query must be \(\*batch, queries, dim\), got \(4,\)"):
        LocalM(ScaledDot(), 2)(torch.randn(4), key, key)
