"""The laws of normalizers, and each of them against a plain loop."""

import copy
import math
import pickle

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.autograd import gradcheck

from regard.attention.normalizers import (
    Bell,
    Dropout,
    Entmax,
    Gumbel,
    Normalizer,
    Sample,
    SigmoidSum,
    StraightThrough,
    Temperature,
    TopK,
    entmax15,
    hardmax,
    is_random,
    kernel_sum,
    over_visible,
    sigmoid,
    softmax,
    sparsemax,
    takes,
)

INF = math.inf


def called(normalize: object) -> str:
    """A name for a test that is the same in every process."""
    return getattr(normalize, "__name__", str(normalize))


@over_visible
def _foreign(scores):
    """A careless function: NaN at every hidden key, and NaN gradients there."""
    return scores * torch.sigmoid(scores)


SMOOTH = {
    "softmax": lambda: softmax,
    "sigmoid": lambda: sigmoid,
    "sparsemax": lambda: sparsemax,
    "entmax15": lambda: entmax15,
    "temperature": lambda: Temperature(0.7),
    "sigmoid_sum": lambda: SigmoidSum(),
    "entmax_1": lambda: Entmax(1),
    "entmax_1.3": lambda: Entmax(1.3),
    "entmax_3": lambda: Entmax(3.0),
    "gumbel_eval": lambda: Gumbel(0.5).eval(),
    "topk": lambda: TopK(3),
    "bell": lambda: Bell(softmax, 1.5, 2.0),
    "foreign": lambda: _foreign,
}
HARD = {
    "hardmax": lambda: hardmax,
    "sample_eval": lambda: Sample().eval(),
    "straight_softmax": lambda: StraightThrough(softmax),
    "straight_hardmax": lambda: StraightThrough(hardmax),
    "straight_sparsemax": lambda: StraightThrough(sparsemax),
}
RANDOM = {
    "sample": lambda: Sample(),
    "gumbel": lambda: Gumbel(0.5),
    "dropout": lambda: Dropout(softmax, 0.5),
    "straight_sample": lambda: StraightThrough(Sample()),
    "straight_gumbel": lambda: StraightThrough(Gumbel()),
}
KERNEL = {"kernel_sum": lambda: kernel_sum, "bell_kernel": lambda: Bell(kernel_sum, 1.5, 2.0)}
ALL = SMOOTH | HARD | RANDOM | KERNEL
SUMS_TO_ONE = [
    *(SMOOTH.keys() - {"sigmoid", "bell", "foreign"}),
    *HARD,
    "sample",
    "gumbel",
    "straight_sample",
    "straight_gumbel",
    "kernel_sum",
]

every = pytest.mark.parametrize("name", ALL)


def scores_for(name, *shape, dtype=torch.float32):
    """Scores with some keys hidden, and all of them in the last row."""
    scores = torch.randn(*shape, dtype=dtype)
    if name in KERNEL:
        scores = scores.abs() + 0.1
    scores[torch.rand(shape) < 0.3] = -INF
    scores[..., -1, :] = -INF
    scores[..., 0, 0] = 0.5
    return scores


# --- laws -----------------------------------------------------------------------------------------


@every
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_hidden_keys_get_nothing(name, dtype):
    scores = scores_for(name, 2, 4, 6, dtype=dtype).requires_grad_()
    weights = ALL[name]()(scores)
    assert weights.dtype == dtype
    assert weights.shape == scores.shape
    assert weights.isfinite().all()
    assert (weights[scores == -INF] == 0).all()
    if not weights.requires_grad:  # the hard ones: no gradient, and no harm to others
        weights = weights * torch.ones_like(weights, requires_grad=True)
    (gradient,) = torch.autograd.grad((weights * torch.randn(6)).sum(), scores, allow_unused=True)
    if gradient is not None:
        assert gradient.isfinite().all()
        assert (gradient[scores == -INF] == 0).all()


@pytest.mark.parametrize("name", sorted(SUMS_TO_ONE))
def test_weights_sum_to_one_or_nothing(name):
    scores = scores_for(name, 3, 5, 7)
    weights = ALL[name]()(scores)
    seen = (scores > -INF).any(-1)
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), seen.float())


@every
@pytest.mark.parametrize("shape", [(2, 3, 0), (3, 0), (0, 3, 4), (2, 0, 4), (2, 1, 1)])
def test_small_shapes(name, shape):
    scores = torch.ones(shape, requires_grad=True)
    weights = ALL[name]()(scores)
    assert weights.shape == shape
    if name in SUMS_TO_ONE and shape[-1] == 1:
        assert (weights == 1).all()


@every
def test_bfloat16_is_computed_in_float32(name):
    scores = scores_for(name, 2, 4, 30, dtype=torch.bfloat16)
    torch.manual_seed(1)
    half = ALL[name]()(scores)
    torch.manual_seed(1)
    full = ALL[name]()(scores.float())
    assert torch.equal(half, full.bfloat16())


@every
def test_huge_scores(name):
    sign = 1 if name in KERNEL else -1
    scores = torch.tensor(
        [[1e4, sign * 1e4, 0.0, -INF], [sign * 1e4, sign * 1e4, -INF, -INF]], requires_grad=True
    )
    weights = ALL[name]()(scores)
    assert weights.isfinite().all()
    if weights.requires_grad:
        assert torch.autograd.grad(weights[:, 0].sum(), scores)[0].isfinite().all()


@every
def test_autocast(name):
    scores = scores_for(name, 2, 4, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.manual_seed(1)
        weights = ALL[name]()(scores)
    torch.manual_seed(1)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, ALL[name]()(scores))


@every
def test_pickle_and_deepcopy(name):
    normalize = ALL[name]()
    scores = scores_for(name, 2, 4, 6)
    for twin in (copy.deepcopy(normalize), pickle.loads(pickle.dumps(normalize))):
        torch.manual_seed(1)
        first = normalize(scores)
        torch.manual_seed(1)
        assert torch.equal(first, twin(scores))
        if not isinstance(normalize, nn.Module):
            assert twin is normalize


@pytest.mark.parametrize("name", [*SMOOTH, *KERNEL])
def test_gradients(name):
    scores = 2 * torch.randn(3, 5, dtype=torch.float64)
    scores = scores.abs() + 0.1 if name in KERNEL else scores
    hidden = torch.rand(3, 5) < 0.3
    hidden[-1] = True

    def weights(visible):
        return ALL[name]()(visible.masked_fill(hidden, -INF))

    assert gradcheck(weights, scores.requires_grad_())


rows = st.lists(st.floats(-20, 20, width=32) | st.just(-INF), min_size=1, max_size=9)


@pytest.mark.parametrize(
    "name", sorted((SMOOTH | HARD).keys() - {"foreign", "bell", "sigmoid", "sigmoid_sum"})
)
@settings(max_examples=20)
@given(row=rows, shift=st.floats(-5, 5, width=32))
def test_a_shift_changes_nothing(name, row, shift):
    scores = torch.tensor([row], dtype=torch.float64)
    first, second = ALL[name]()(scores), ALL[name]()(scores + shift)
    if name in HARD or name == "topk":  # a shift may round two scores into one
        first, second = first.sort(-1).values, second.sort(-1).values
    # entmax with alpha > 2 is steep at its edges: w ~ sqrt(s - tau)
    torch.testing.assert_close(first, second, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", sorted((SMOOTH | HARD | KERNEL).keys() - {"bell", "bell_kernel", "foreign"}))
@settings(max_examples=20)
@given(row=rows, order=st.randoms(use_true_random=False))
def test_order_of_keys_does_not_matter(name, row, order):
    scores = torch.tensor([sorted(set(row))])  # no ties
    scores = scores.exp().masked_fill(scores == -INF, -INF) if name in KERNEL else scores
    permutation = list(range(scores.shape[-1]))
    order.shuffle(permutation)
    normalize = ALL[name]()
    if name == "straight_sparsemax" or name == "straight_softmax":
        scores = scores * 8  # weights may tie where scores do not
    first, second = normalize(scores)[:, permutation], normalize(scores[:, permutation])
    torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", [*sorted(SMOOTH.keys() - {"bell"}), "hardmax", "kernel_sum"])
@settings(max_examples=20)
@given(row=rows, more=st.integers(1, 5))
def test_more_hidden_keys_change_nothing(name, row, more):
    scores = torch.tensor([row])
    scores = scores.exp().masked_fill(scores == -INF, -INF) if name in KERNEL else scores
    wider = torch.cat([scores, torch.full((1, more), -INF)], -1)
    expected = nn.functional.pad(ALL[name]()(scores), (0, more))
    torch.testing.assert_close(ALL[name]()(wider), expected, rtol=1e-4, atol=1e-6)


# --- plain loops ----------------------------------------------------------------------------------


def _softmax_row(row):
    top = max(row)
    powers = [math.exp(s - top) for s in row]
    return [power / sum(powers) for power in powers]


def _gate(s):
    return 1 / (1 + math.exp(-s)) if s > -INF else 0.0


def _sparsemax_row(row):
    ranked = sorted(row, reverse=True)
    taus = [(sum(ranked[:k]) - 1) / k for k in range(1, len(row) + 1)]
    return [max(s - max(taus), 0) for s in row]


def _entmax15_row(row):
    low, high = max(row) / 2 - 1, max(row) / 2
    for _ in range(80):
        tau = (low + high) / 2
        low, high = (tau, high) if sum(max(s / 2 - tau, 0) ** 2 for s in row) > 1 else (low, tau)
    return [max(s / 2 - low, 0) ** 2 for s in row]


def _topk_row(row, k):
    best = sorted(range(len(row)), key=lambda i: -row[i])[:k]
    shares = _softmax_row([row[i] for i in best])
    return [shares[best.index(i)] if i in best else 0.0 for i in range(len(row))]


def _over(row, numbers):
    total = sum(numbers)
    return [number / total if total else 0.0 for number in numbers]


ORACLES = {
    softmax: _softmax_row,
    sigmoid: lambda row: [_gate(s) for s in row],
    sparsemax: _sparsemax_row,
    entmax15: _entmax15_row,
    hardmax: lambda row: [float(i == row.index(max(row))) for i in range(len(row))],
    kernel_sum: lambda row: _over(row, [max(s, 0.0) for s in row]),
    Temperature(2.5): lambda row: _softmax_row([s / 2.5 for s in row]),
    SigmoidSum(): lambda row: _over(row, [_gate(s) for s in row]),
    Entmax(2.0): _sparsemax_row,
    Entmax(1.0): _softmax_row,
    Entmax(1.5): _entmax15_row,
    TopK(1): lambda row: _topk_row(row, 1),
    TopK(3): lambda row: _topk_row(row, 3),
    TopK(99): _softmax_row,
    Gumbel(2.0).eval(): lambda row: _softmax_row([s / 2 for s in row]),
    Sample().eval(): lambda row: [float(i == row.index(max(row))) for i in range(len(row))],
    StraightThrough(sparsemax): lambda row: [float(i == row.index(max(row))) for i in range(len(row))],
    Dropout(softmax, 0.3).eval(): _softmax_row,
    Bell(softmax, 2.0, 1.5): lambda row: [
        w * math.exp(-((i - 2.0) ** 2) / (2 * 1.5**2)) for i, w in enumerate(_softmax_row(row))
    ],
}


@pytest.mark.parametrize("normalize", ORACLES, ids=called)
def test_plain_loop(normalize):
    scores = torch.randn(40, 7, dtype=torch.float64).mul(2).round(decimals=1)  # with ties
    scores = scores.abs() if takes(normalize) == "kernel" else scores
    scores[torch.rand(40, 7) < 0.3] = -INF
    scores[:, 3] = 0.0  # each row has a visible key
    expected = torch.tensor([ORACLES[normalize](row) for row in scores.tolist()], dtype=torch.float64)
    torch.testing.assert_close(normalize(scores), expected)


def test_kernel_sum_of_nothing():
    scores = torch.tensor([[0.0, 0.0, -INF], [1e-40, 0.0, 0.0], [1.0, 0.0, 0.0]], requires_grad=True)
    weights = kernel_sum(scores)
    assert weights.tolist() == [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]
    (gradient,) = torch.autograd.grad(weights[:, 0].sum(), scores)
    assert gradient.isfinite().all()
    assert (gradient[:2] == 0).all()


def test_temperature_per_query_and_learned():
    scores = torch.randn(2, 3, 4)
    t = torch.tensor([[0.5], [1.0], [2.0]])
    torch.testing.assert_close(Temperature(t)(scores), torch.softmax(scores / t, -1))
    learned = Temperature(nn.Parameter(torch.tensor(2.0)))
    learned(scores)[..., 0].sum().backward()
    assert list(learned.state_dict()) == ["t"]
    assert learned.t.grad != 0
    assert Temperature(t).to(torch.float64).t.dtype == torch.float64


# --- choosing one key -----------------------------------------------------------------------------


def test_sample_frequencies():
    scores = torch.tensor([[0.0, 1.0, -INF, 2.0, -1.0]])
    draws = 40_000
    counts = Sample(torch.Generator().manual_seed(0))(scores.expand(draws, 5)).sum(0)
    expected = softmax(scores)[0] * draws
    assert counts[2] == 0
    seen = expected > 0
    chi_square = ((counts - expected)[seen] ** 2 / expected[seen]).sum()
    assert chi_square < 16.3  # 3 degrees of freedom: one in a thousand


def test_generators_repeat():
    scores = torch.randn(50, 6)
    for kind in (Sample, lambda generator: Gumbel(1.0, generator)):
        one, two = (kind(torch.Generator().manual_seed(3))(scores) for _ in range(2))
        assert torch.equal(one, two)


def test_log_prob_and_entropy():
    scores = scores_for("sample", 2, 4, 6, dtype=torch.float64).requires_grad_()
    sample = Sample()
    weights = sample(scores)
    assert not weights.requires_grad
    log_prob, entropy = sample.log_prob(scores, weights), sample.entropy(scores)
    assert log_prob.shape == entropy.shape == (2, 4)
    for row, choice, got, openness in zip(
        scores.flatten(0, 1).tolist(),
        weights.flatten(0, 1).tolist(),
        log_prob.flatten(),
        entropy.flatten(),
        strict=True,
    ):
        if max(row) == -INF:
            assert got == openness == 0
            continue
        shares = _softmax_row(row)
        assert math.isclose(got.item(), math.log(shares[choice.index(1.0)]), rel_tol=1e-9, abs_tol=1e-12)
        assert math.isclose(openness.item(), -sum(p * math.log(p) for p in shares if p), abs_tol=1e-12)
    for value in (log_prob, entropy):
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        assert gradient.isfinite().all()
        assert (gradient[scores == -INF] == 0).all()
    hidden = scores.detach() == -INF
    visible = torch.randn(2, 4, 6, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda s: sample.log_prob(s.masked_fill(hidden, -INF), weights), visible)
    assert gradcheck(lambda s: sample.entropy(s.masked_fill(hidden, -INF)), visible)


def test_log_prob_without_keys_and_in_bfloat16():
    empty = torch.zeros(2, 3, 0)
    assert Sample().log_prob(empty, empty).tolist() == Sample().entropy(empty).tolist() == [[0.0] * 3] * 2
    half = torch.tensor([[0.0, 1.0, -INF]], dtype=torch.bfloat16)
    assert Sample().log_prob(half, Sample()(half)).dtype == Sample().entropy(half).dtype == torch.bfloat16


@pytest.mark.parametrize("inner", [softmax, sparsemax, Temperature(0.5), sigmoid, TopK(2)], ids=called)
def test_straight_through_has_the_soft_gradient(inner):
    scores = scores_for("softmax", 2, 4, 6).requires_grad_()
    pull = torch.randn(2, 4, 6)
    hard, soft = StraightThrough(inner)(scores), inner(scores)
    assert set(hard.unique().tolist()) == {0.0, 1.0}
    for row, shares in zip(hard.flatten(0, 1), soft.flatten(0, 1), strict=True):
        assert row.sum() == (shares.max() > 0)
        assert row.max() == 0 or row.argmax() == shares.argmax()
    got, expected = (torch.autograd.grad((w * pull).sum(), scores)[0] for w in (hard, soft))
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("inner", [hardmax, Sample()], ids=called)
def test_straight_through_a_choice_has_the_gradient_of_softmax(inner):
    scores = scores_for("softmax", 2, 4, 6).requires_grad_()
    pull = torch.randn(2, 4, 6)
    torch.manual_seed(2)
    hard = StraightThrough(inner)(scores)
    torch.manual_seed(2)
    assert torch.equal(hard, inner(scores))
    got, expected = (torch.autograd.grad((w * pull).sum(), scores)[0] for w in (hard, softmax(scores)))
    torch.testing.assert_close(got, expected)


def test_straight_through_gumbel_has_its_noisy_gradient():
    scores = torch.randn(3, 5, requires_grad=True)
    torch.manual_seed(2)
    hard = StraightThrough(Gumbel(0.5))(scores)
    torch.manual_seed(2)
    soft = Gumbel(0.5)(scores)
    assert torch.equal(hard.argmax(-1), soft.argmax(-1))
    got, expected = (torch.autograd.grad(w[:, 0].sum(), scores)[0] for w in (hard, soft))
    torch.testing.assert_close(got, expected)


def test_straight_through_sample_can_be_reinforced():
    scores = torch.randn(2, 3, 4)
    straight = copy.deepcopy(StraightThrough(Sample()))
    weights = straight(scores)
    torch.testing.assert_close(straight.log_prob(scores, weights), Sample().log_prob(scores, weights))
    torch.testing.assert_close(straight.entropy(scores), Sample().entropy(scores))
    assert not hasattr(StraightThrough(softmax), "log_prob")


# --- wrappers -------------------------------------------------------------------------------------


def test_dropout_keeps_the_mean():
    drop = Dropout(softmax, 0.25)
    weights = drop(torch.zeros(1, 40_000))
    kept = weights > 0
    assert abs(kept.float().mean() - 0.75) < 0.01
    torch.testing.assert_close(weights[kept], torch.full_like(weights[kept], 1 / 40_000 / 0.75))
    assert (Dropout(softmax, 1)(torch.zeros(2, 3)) == 0).all()
    assert torch.equal(Dropout(softmax, 0.0)(torch.zeros(2, 3)), softmax(torch.zeros(2, 3)))
    assert drop.normalize is softmax
    assert drop.drop(torch.ones(2, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_bell_axes_lead():
    scores = torch.randn(
        2, 2, 2, 5
    )  # batch == heads == queries: nothing but the rule says which axis is which
    centre = torch.tensor([[0.0, 1.0], [2.0, 3.0]], requires_grad=True)
    sigma = torch.tensor([[0.5, 1.0], [1.5, 2.0]])
    weights = Bell(softmax, centre, sigma)(scores)
    shares = softmax(scores)
    for b in range(2):
        for h in range(2):
            for q in range(2):
                distance = torch.arange(5) - centre[b, q]
                expected = shares[b, h, q] * torch.exp(-(distance**2) / (2 * sigma[b, q] ** 2))
                torch.testing.assert_close(weights[b, h, q], expected)
    assert (torch.autograd.grad(weights.sum(), centre)[0] != 0).all()
    full = centre.detach()[:, None, :].expand(2, 2, 2)
    torch.testing.assert_close(Bell(softmax, full, 1.0)(scores), Bell(softmax, centre, 1.0)(scores))
    torch.testing.assert_close(Bell(softmax, torch.tensor(1.0), 1.0)(scores), Bell(softmax, 1.0, 1.0)(scores))


def test_bell_gradient_of_the_centre():
    scores = torch.randn(2, 2, 2, 3, dtype=torch.float64, requires_grad=True)
    centre = torch.rand(2, 2, dtype=torch.float64, requires_grad=True)
    sigma = (torch.rand(2, 2, dtype=torch.float64) + 0.5).requires_grad_()
    assert gradcheck(lambda s, c, w: Bell(softmax, c, w)(s), (scores, centre, sigma))


def test_bell_at_positions():
    scores = torch.randn(2, 3, 4)
    bell = Bell(softmax, torch.rand(2, 3), 2.0).eval()
    there = bell.at(torch.arange(4) + 10)
    assert not there.training
    torch.testing.assert_close(there(scores), Bell(softmax, bell.centre - 10, 2.0)(scores))
    per_query = torch.randint(0, 9, (2, 3, 4))
    expected = softmax(scores) * torch.exp(-((per_query - bell.centre[..., None]) ** 2) / 8)
    torch.testing.assert_close(bell.at(per_query)(scores), expected)


def test_bell_counts_beyond_the_whole_numbers_of_bfloat16():
    scores = torch.zeros(1, 1000, dtype=torch.bfloat16)
    weights = Bell(sigmoid, 999.0, 1.0)(scores)
    torch.testing.assert_close(
        weights[0, 997:].float(), 0.5 * torch.exp(-torch.tensor([2.0, 0.5, 0.0])), rtol=0.01, atol=0
    )


def test_what_normalizers_say_of_themselves():
    assert takes(softmax) == takes(Temperature(1.0)) == takes(lambda s: s) == "logits"
    assert (
        takes(kernel_sum) == takes(Dropout(kernel_sum, 0.1)) == takes(Bell(kernel_sum, 0.0, 1.0)) == "kernel"
    )
    assert not any(map(is_random, (softmax, hardmax, Entmax(1.5), lambda s: s, Dropout(softmax, 0.0))))
    for normalize in (
        Sample(),
        Gumbel(),
        Dropout(softmax, 0.1),
        StraightThrough(Sample()),
        Bell(Gumbel(), 0.0, 1.0),
    ):
        assert is_random(normalize)
        assert not is_random(normalize.eval())
    assert is_random(over_visible(takes="logits", random=True)(lambda s: s))


def test_a_normalizer_of_ones_own():
    class Careless(Normalizer):
        def share(self, scores):
            assert (scores > -INF).any(-1).all()
            assert scores.dtype == torch.float32
            return torch.full_like(scores, torch.nan).where(scores == -INF, torch.ones(()))

    scores = scores_for("softmax", 2, 4, 6, dtype=torch.bfloat16)
    assert torch.equal(Careless()(scores), (scores > -INF).bfloat16())
    with pytest.raises(NotImplementedError, match="share"):
        Normalizer()(torch.zeros(1, 2))


# --- words ----------------------------------------------------------------------------------------


@pytest.mark.bare
@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: Dropout(softmax, 2), ValueError, "Dropout: p must be .* not 2"),
        (lambda: Dropout(softmax, math.nan), ValueError, "p must be .* not nan"),
        (lambda: Dropout(None, 0.1), TypeError, "Dropout: normalize must be a callable .* not None"),
        (lambda: StraightThrough("softmax"), TypeError, "normalize must be a callable .* not 'softmax'"),
        (lambda: StraightThrough(Sample), TypeError, "normalize must be a callable .* not <class"),
        (lambda: Entmax(0.5), ValueError, "Entmax: alpha must be .* not 0.5"),
        (lambda: TopK(0), ValueError, "TopK: k must be .* not 0"),
        (lambda: TopK(2.5), ValueError, "TopK: k must be .* not 2.5"),
        (lambda: Temperature(0), ValueError, "Temperature: t must be .* not 0"),
        (lambda: Temperature("warm"), TypeError, "Temperature: t must be .* not 'warm'"),
        (lambda: Gumbel(-1.0), ValueError, "Gumbel: temperature must be .* not -1.0"),
        (lambda: Bell(softmax, 0.0, 0.0), ValueError, "Bell: sigma must be .* not 0.0"),
        (lambda: Bell(Dropout(softmax, 0.1), 0.0, 1.0), ValueError, r"write Dropout\(Bell"),
        (lambda: StraightThrough(Dropout(softmax, 0.1)), ValueError, r"write Dropout\(StraightThrough"),
        (
            lambda: Bell(softmax, torch.zeros(2, 3), 1.0)(torch.zeros(3, 4)),
            ValueError,
            r"centre .* not \(2, 3\)",
        ),
    ],
)
def test_wrong_arguments(make, error, words):
    with pytest.raises(error, match=words) as caught:
        make()
    assert "\n" not in str(caught.value)


# --- compiling ------------------------------------------------------------------------------------


def _compiled_agrees(name, backend, dynamic):
    normalize = ALL[name]()
    compiled = torch.compile(normalize, backend=backend, fullgraph=True, dynamic=dynamic)
    for shape in ((2, 4, 6), (3, 5, 8)):
        scores = scores_for(name, *shape).requires_grad_()
        weights = compiled(scores)
        if name not in RANDOM:
            torch.testing.assert_close(weights, normalize(scores))
        assert (weights[scores == -INF] == 0).all()
        if weights.requires_grad:
            (gradient,) = torch.autograd.grad(weights[..., 0].sum(), scores)
            assert gradient.isfinite().all()


@pytest.mark.bare
@every
@pytest.mark.parametrize("dynamic", [None, True])
def test_compile(name, dynamic):
    torch.compiler.reset()
    _compiled_agrees(name, "eager", dynamic)


@pytest.mark.bare
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # inductor's own
@pytest.mark.parametrize("name", ["softmax", "entmax15", "straight_sample"])
def test_compile_with_inductor(name):
    torch.compiler.reset()
    _compiled_agrees(name, "inductor", True)


@pytest.mark.bare
def test_bound_inside_a_compiled_function():
    @torch.compile(backend="aot_eager", fullgraph=True)
    def look(scores, centre, t):
        assert takes(Dropout(softmax, 0.1)) == "logits"
        straight = StraightThrough(Sample())
        weights = straight(scores)
        local = Bell(Temperature(t.exp()), centre * 2, 1.0).at(torch.arange(5) * 2)
        return local(scores), straight.log_prob(scores, weights) + straight.entropy(scores)

    scores, centre, t = torch.randn(2, 3, 5), torch.rand(2, 3, requires_grad=True), torch.zeros(3, 1)
    weights, log_prob = look(scores, centre, t)
    expected = Bell(softmax, centre * 2, 1.0).at(torch.arange(5) * 2)(scores)
    torch.testing.assert_close(weights, expected)
    assert log_prob.shape == (2, 3)
    weights.sum().backward()
    assert (centre.grad != 0).any()
