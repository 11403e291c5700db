"""Entmax with a tensor of alphas or a learned one, and the Fenchel-Young losses, against derivatives and entmax 1.3."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck

from regard.attention import (
    Dot,
    Entmax,
    MultiHead,
    attend,
    causal,
    entmax15,
    entmax15_loss,
    entmax_loss,
    softmax,
    sparsemax,
    sparsemax_loss,
)
from regard.errors import DtypeError, ShapeError, UsageError
from regard.testing.checks import make_inputs

ALPHAS = [1.001, 1.05, 1.3, 1.5, 1.7, 2.0, 2.5, 4.0, 10.0]


def scores_of(*shape, spread=1.0):
    return spread * torch.randn(*shape, dtype=torch.float64)


# ---- a tensor of alphas


@pytest.mark.parametrize("keys", [1, 2, 7, 300])
@pytest.mark.parametrize("spread", [0.1, 1.0, 10.0])
def test_each_row_has_its_own_alpha(keys, spread):
    scores = scores_of(len(ALPHAS), keys, spread=spread)
    weights = Entmax(torch.tensor(ALPHAS, dtype=torch.float64)[:, None])(scores)
    for row, alpha in enumerate(ALPHAS):
        torch.testing.assert_close(weights[row], Entmax(alpha)(scores[row : row + 1])[0], rtol=1e-7, atol=1e-10)
        single = Entmax(torch.tensor(alpha))(scores[row : row + 1].float())
        torch.testing.assert_close(single[0].double(), weights[row], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("alpha", ALPHAS)
def test_gradients_of_scores_and_alpha_are_exact(alpha):
    scores = scores_of(3, 6).requires_grad_()
    rows = torch.full((3, 1), alpha, dtype=torch.float64).requires_grad_()
    weights = Entmax(rows)(scores)
    factor = torch.randn_like(weights)
    by_scores = torch.autograd.grad(weights, scores, factor, retain_graph=True)[0]
    expected = torch.autograd.grad(Entmax(alpha)(scores), scores, factor)[0]
    torch.testing.assert_close(by_scores, expected, rtol=1e-6, atol=1e-9)
    by_alpha = torch.autograd.grad(weights, rows, factor)[0]
    step = 1e-6
    change = Entmax(rows.detach() + step)(scores) - Entmax(rows.detach() - step)(scores)
    if alpha <= 2.5:  # higher ones have kinks nearly everywhere
        torch.testing.assert_close(by_alpha, (change / (2 * step) * factor).sum(-1, keepdim=True), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 1.8, 2.0, 2.3])
def test_gradcheck(alpha):
    torch.manual_seed(1)
    scores = scores_of(2, 5).requires_grad_()
    for shape in ((), (1,), (2, 1)):
        rows = torch.full(shape, alpha, dtype=torch.float64).requires_grad_()
        assert gradcheck(lambda s, a: Entmax(a)(s), (scores, rows))
    assert gradgradcheck(lambda s: Entmax(rows.detach())(s), scores)


@pytest.mark.parametrize("alpha", [1.25, 1.5, 1.9])
def test_alpha_has_the_gradient_of_the_entmax_package(alpha):
    entmax = pytest.importorskip("entmax")
    scores, factor = scores_of(4, 20).requires_grad_(), scores_of(4, 20)
    ours, theirs = (torch.full((4, 1), alpha, dtype=torch.float64, requires_grad=True) for _ in range(2))
    expected = torch.autograd.grad((entmax.entmax_bisect(scores, theirs) * factor).sum(), [scores, theirs])
    actual = torch.autograd.grad((Entmax(ours)(scores) * factor).sum(), [scores, ours])
    torch.testing.assert_close(actual, expected, rtol=1e-6, atol=1e-8)


def test_the_gradient_of_alpha_stays_finite_near_softmax():
    """The limit at 1 is -w (log^2 w - mean of log^2 w) / 2 + ...: entmax 1.3 divides errors by (alpha - 1)^2."""
    scores = scores_of(1, 9)
    slopes = []
    for excess in (1e-3, 1e-5, 1e-7):
        alpha = torch.tensor([[1 + excess]], dtype=torch.float64, requires_grad=True)
        weights = Entmax(alpha)(scores)
        slopes.append(torch.autograd.grad(weights[0, 0], alpha)[0].item())
    assert slopes[1] == pytest.approx(slopes[0], rel=1e-2)
    assert slopes[2] == pytest.approx(slopes[1], rel=1e-2, abs=1e-6)


def test_hidden_keys_have_no_influence():
    scores = scores_of(2, 3, 6)
    scores[..., 4:] = -torch.inf
    scores[0, 1] = -torch.inf
    alpha = torch.tensor([[1.4], [1.6], [2.5]], dtype=torch.float64, requires_grad=True)
    weights = Entmax(alpha)(scores.requires_grad_())
    assert (weights[..., 4:] == 0).all()
    assert (weights[0, 1] == 0).all()
    torch.testing.assert_close(weights[1, :, :4], Entmax(alpha)(scores[1, :, :4]))
    gradients = torch.autograd.grad(weights.square().sum(), [scores, alpha])
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_transforms():
    scores, alpha = scores_of(4, 5), torch.tensor([1.3, 1.5, 1.8, 2.4], dtype=torch.float64)
    weigh = lambda s, a: Entmax(a)(s[None])[0]  # noqa: E731
    expected = Entmax(alpha[:, None])(scores)
    torch.testing.assert_close(torch.func.vmap(weigh)(scores, alpha), expected)
    torch.testing.assert_close(torch.func.vmap(weigh, (0, None))(scores, alpha[1]), entmax15(scores))
    tangents = torch.randn_like(scores), torch.randn_like(alpha)
    change = torch.func.jvp(lambda s, a: Entmax(a[:, None])(s), (scores, alpha), tangents)[1]
    jacobian = torch.func.jacrev(lambda s, a: Entmax(a[:, None])(s), (0, 1))(scores, alpha)
    by_hand = torch.einsum("ijkl,kl->ij", jacobian[0], tangents[0]) + torch.einsum(
        "ijk,k->ij", jacobian[1], tangents[1]
    )
    torch.testing.assert_close(change, by_hand)


@pytest.mark.bare
def test_a_learned_alpha_compiles():
    normalize, scores = Entmax(1.5, learned=True), torch.randn(3, 6)
    compiled = torch.compile(normalize, fullgraph=True, backend="aot_eager")
    (expected,) = torch.autograd.grad(normalize(scores)[:, 0].sum(), [normalize.log_excess])
    (actual,) = torch.autograd.grad(compiled(scores)[:, 0].sum(), [normalize.log_excess])
    torch.testing.assert_close(actual, expected)


# ---- learned


@pytest.mark.parametrize("alpha", [1.5, torch.tensor([1.2, 1.5, 2.0, 3.0]).view(4, 1, 1)], ids=["one", "each head"])
def test_a_learned_alpha_in_multi_head(alpha):
    attention = MultiHead(16, 4, normalize=Entmax(alpha, learned=True))
    x = torch.randn(2, 6, 16)
    assert "normalize.log_excess" in attention.state_dict()
    before = attention.normalize.alpha.detach().clone()
    torch.testing.assert_close(before, torch.as_tensor(alpha))
    output = attention(x, mask=causal())
    torch.testing.assert_close(output.weights.sum(-1), torch.ones(2, 4, 6))
    output.context.square().sum().backward()
    assert (attention.normalize.log_excess.grad != 0).all()
    for step in (1e3, -1e3):  # far too large, in both directions
        with torch.no_grad():
            attention.normalize.log_excess.fill_(step if step < 0 else 3.0)
        assert (attention.normalize.alpha > 1).all()
        assert attention(x, mask=causal()).context.isfinite().all()
    assert not torch.equal(attention.normalize.alpha, before)
    attention.normalize.reset_parameters()
    torch.testing.assert_close(attention.normalize.alpha.detach(), before)


def test_training_finds_the_alpha_of_the_data():
    torch.manual_seed(0)
    scores = scores_of(200, 8)
    target, normalize = Entmax(1.8)(scores), Entmax(1.2, learned=True)
    optimizer = torch.optim.Adam(normalize.parameters(), 0.05)
    for _ in range(200):
        optimizer.zero_grad()
        (normalize(scores) - target).square().sum().backward()
        optimizer.step()
    assert normalize.alpha.item() == pytest.approx(1.8, abs=1e-3)


def test_alphas_of_heads_in_a_call():
    sample = make_inputs(batch_shape=(2, 3))
    alpha = torch.tensor([1.2, 1.5, 2.5], dtype=torch.float64).view(3, 1, 1)
    output = attend(*sample, score=Dot(), normalize=Entmax(alpha))
    for head, one in enumerate(alpha.flatten().tolist()):
        torch.testing.assert_close(output.weights[:, head], Entmax(one)(output.scores[:, head]), rtol=1e-6, atol=1e-8)


def test_settings_are_those_of_the_constructor():
    assert repr(Entmax(2)) == "Entmax(alpha=2.0)"
    assert "learned=True" in repr(Entmax(2, learned=True))
    assert not list(Entmax(torch.ones(3, 1) * 2).parameters())
    assert Entmax(torch.ones(3, 1) * 2).to("meta").alpha.device.type == "meta"
    assert torch.equal(Entmax(1)(torch.randn(1, 3)).sum(-1).round(), torch.ones(1))


@pytest.mark.bare
def test_unusable_alphas_are_refused():
    for alpha in (1, 0.5, torch.tensor([1.5, 1.0])[:, None], float("nan")):
        with pytest.raises(UsageError, match=r"alpha must (start above 1\.000001, not at|be a number, 1)"):
            Entmax(alpha, learned=True)
    with pytest.raises(ShapeError, match=r"alpha must be a number or \(\*batch, queries, 1\), got \(3,\)"):
        Entmax(torch.ones(3) * 2)
    for alpha in (0.9, True, "2", None):
        with pytest.raises(UsageError, match="alpha must be a number, 1"):
            Entmax(alpha)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_learned_alpha_in_half_precision_stays_above_1(dtype):
    normalize, scores = Entmax(1.0005, learned=True).to(dtype), torch.randn(3, 6)
    assert 1.0003 < normalize.alpha.item() < 1.0007
    torch.testing.assert_close(normalize(scores), scores.softmax(-1), rtol=1e-2, atol=1e-2)
    with torch.no_grad():
        normalize.log_excess.fill_(-100.0)
    assert normalize.alpha.item() == pytest.approx(1.000001, abs=1e-7)
    torch.testing.assert_close(
        normalize(scores.to(dtype)).float(), scores.to(dtype).float().softmax(-1), rtol=1e-2, atol=1e-2
    )


@pytest.mark.bare
def test_a_tensor_of_alphas_at_most_1_is_refused():
    for alpha in (1.0, 0.5, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"Entmax: a tensor alpha must be above 1 and finite everywhere"):
            Entmax(torch.tensor(alpha))
        with pytest.raises(UsageError, match=r"a tensor alpha must be above 1"):
            entmax_loss(torch.randn(2, 3), torch.tensor([0, 1]), torch.tensor(alpha))
    rounded = Entmax(torch.tensor(1.001)).to(torch.bfloat16)
    tiny = Entmax(torch.tensor(1 + 1e-9, dtype=torch.float64))
    for normalize in (rounded, tiny):
        with pytest.raises(UsageError, match=r"Entmax: a tensor alpha must be above 1 .*, also when it is rounded to"):
            normalize(torch.randn(2, 3))
    assert tiny(torch.zeros(1, 2, dtype=torch.float64)).tolist() == [[0.5, 0.5]]


# ---- losses


@pytest.mark.parametrize("excess", [1e-6, 1e-5, 1e-3, 0.1])
def test_losses_near_alpha_1_in_float32_equal_those_in_float64(excess):
    logits, target = scores_of(4, 50), torch.arange(4)
    for dtype in (torch.float32, torch.float64):
        alpha = torch.tensor(1 + excess, dtype=torch.float32).to(dtype).requires_grad_()
        for one in (alpha, alpha.item()):
            torch.testing.assert_close(
                entmax_loss(logits.to(dtype), target, one, reduction="none").double(),
                entmax_loss(logits, target, one, reduction="none").double(),
                rtol=1e-5,
                atol=1e-5,
            )
    slopes = []
    for dtype in (torch.float32, torch.float64):
        alpha = torch.tensor(1 + excess, dtype=torch.float32).to(dtype).requires_grad_()
        slopes += torch.autograd.grad(entmax_loss(logits.to(dtype), target, alpha), alpha)
    low, high = (entmax_loss(logits, target, 1 + excess + step).item() for step in (-excess / 2, excess / 2))
    assert slopes[0].item() == pytest.approx(slopes[1].item(), rel=1e-3)
    assert slopes[1].item() == pytest.approx((high - low) / excess, rel=2e-2)


@pytest.mark.bare
def test_targets_are_integers():
    logits = torch.randn(2, 3)
    for wrong in (torch.tensor([0.0, 1.0]), torch.rand(2, 3), torch.tensor([True, False])):
        with pytest.raises(DtypeError, match=r"entmax_loss: target must be class indices \(integers\), got torch\."):
            entmax_loss(logits, wrong)
    narrow = entmax_loss(logits, torch.tensor([0, 1], dtype=torch.int32))
    assert torch.equal(narrow, entmax_loss(logits, torch.tensor([0, 1])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_losses_equal_the_entmax_package(dtype, spread):
    entmax = pytest.importorskip("entmax")
    logits, target = scores_of(6, 9, spread=spread).to(dtype).requires_grad_(), torch.randint(0, 9, (6,))
    for ours, theirs in (
        (sparsemax_loss, entmax.sparsemax_loss),
        (entmax15_loss, entmax.entmax15_loss),
        (lambda s, y, **o: entmax_loss(s, y, 1.3, **o), lambda s, y: entmax.entmax_bisect_loss(s, y, 1.3)),
        (lambda s, y, **o: entmax_loss(s, y, 1.9, **o), lambda s, y: entmax.entmax_bisect_loss(s, y, 1.9)),
    ):
        actual, expected = ours(logits, target, reduction="none"), theirs(logits.clone(), target)
        tolerance = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 1e-7, "atol": 1e-9}
        torch.testing.assert_close(actual, expected, **tolerance)
        factor = torch.randn_like(actual)
        gradients = [torch.autograd.grad(loss, logits, factor)[0] for loss in (actual, expected)]
        torch.testing.assert_close(*gradients, **tolerance)


def test_ignored_targets_where_the_package_is_wrong():
    """The losses of entmax 1.3 do not ignore the default, -100: they use it as an index."""
    entmax = pytest.importorskip("entmax")
    logits, target = scores_of(4, 5), torch.tensor([1, 3, -100, 0])
    with pytest.raises((RuntimeError, IndexError)):
        entmax.SparsemaxLoss()(logits, target)
    counted = target != -100
    for loss in (sparsemax_loss, entmax15_loss):
        for reduction in ("mean", "sum"):
            expected = loss(logits[counted], target[counted], reduction=reduction)
            torch.testing.assert_close(loss(logits, target, reduction=reduction), expected)
        assert loss(logits, target, reduction="none")[2] == 0
    theirs = entmax.Entmax15Loss(ignore_index=3)(logits[counted], target[counted])
    torch.testing.assert_close(entmax15_loss(logits[counted], target[counted], ignore_index=3), theirs)


def test_alpha_1_is_cross_entropy():
    logits, target = scores_of(2, 4, 5), torch.randint(0, 5, (2, 4))
    expected = nn.functional.cross_entropy(logits.movedim(-1, 1), target)
    torch.testing.assert_close(entmax_loss(logits, target, 1), expected)
    torch.testing.assert_close(entmax_loss(logits, target, 1 + 1e-6), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("alpha", [1.3, 1.5, 2.0, 2.5])
def test_losses_are_convex_with_the_gradient_of_the_definition(alpha):
    torch.manual_seed(2)
    logits, target = scores_of(3, 5).requires_grad_(), torch.tensor([0, 2, 4])
    (gradient,) = torch.autograd.grad(entmax_loss(logits, target, alpha, reduction="sum"), logits)
    torch.testing.assert_close(gradient, Entmax(alpha)(logits) - nn.functional.one_hot(target, 5))
    assert gradcheck(lambda s: entmax_loss(s, target, alpha), logits)
    if alpha <= 2:
        assert gradgradcheck(lambda s: entmax_loss(s, target, alpha), logits)
    assert (entmax_loss(logits, target, alpha, reduction="none") >= -1e-12).all()


def test_alpha_is_trained_by_the_loss():
    """In entmax 1.3 alpha gets no gradient from its losses."""
    logits, target = scores_of(3, 5), torch.tensor([0, 2, 4])
    alpha = torch.tensor([[1.3], [1.5], [1.8]], dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda a: entmax_loss(logits, target, a, reduction="none"), alpha)


def test_a_clear_margin_has_no_loss():
    logits = torch.tensor([[3.0, 0.0, 1.0]])
    for loss, normalize in ((sparsemax_loss, sparsemax), (entmax15_loss, entmax15)):
        assert normalize(logits)[0, 0] == 1
        assert loss(logits, torch.tensor([0])) == pytest.approx(0, abs=1e-6)
    assert softmax(logits)[0, 0] < 1
    hidden = torch.tensor([[3.0, 0.0, -torch.inf]], requires_grad=True)
    loss = entmax15_loss(hidden, torch.tensor([1]))
    loss.backward()
    assert loss.isfinite()
    assert hidden.grad.isfinite().all()


@pytest.mark.bare
def test_unusable_arguments_of_losses_are_refused():
    logits = torch.zeros(2, 3)
    for target, error in (
        (torch.tensor([0, 3]), UsageError),
        (torch.tensor([0, -1]), UsageError),
        (torch.tensor(0), ShapeError),
    ):
        with pytest.raises(error, match=r"entmax_loss"):
            entmax_loss(logits, target)
    with pytest.raises(UsageError, match="reduction must be one of mean, sum, none, not 'elementwise_mean'"):
        sparsemax_loss(logits, torch.tensor([0, 1]), reduction="elementwise_mean")
