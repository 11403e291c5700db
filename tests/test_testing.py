"""The checks accept valid mechanisms, and name the violated law in one sentence."""

import copy

import pytest
import torch
from torch import nn

from regard.attention import (
    Additive,
    Bilinear,
    Dot,
    Dropout,
    Entmax,
    Gaussian,
    Mask,
    Normalizer,
    Sample,
    ScaledDot,
    Score,
    TopK,
    causal,
    masked_normalizer,
    padding,
    sigmoid,
    softmax,
    window,
)
from regard.testing import LawViolation, check_mask, check_normalizer, check_score


def assert_fails(check, *args, match, **options):
    with pytest.raises(LawViolation, match=match) as error:
        check(*args, **options)
    assert "\n" not in str(error.value)


# ---- valid mechanisms


class Manhattan(Score):
    def forward(self, query, key):
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).abs().sum(-1)


class Recent(Score):
    """Later keys have higher scores; it declares that it is positional."""

    is_positional = True

    def forward(self, query, key):
        scores = query @ key.mT
        return scores + torch.arange(key.shape[-2], dtype=scores.dtype)


@masked_normalizer
def squared(scores):
    return scores.relu().square()


class Power(Normalizer):
    def compute_weights(self, scores):
        return torch.softmax(2 * scores, -1)


class EveryOther(Mask):
    def rule(self, grid):
        return (grid.key_positions - grid.query_positions) % 2 == 0


class Near(Mask):
    """A band that declares its width."""

    def rule(self, grid):
        return (grid.key_positions - grid.query_positions).abs() <= 2

    def band(self, queries, keys):
        return -2, 2


def test_valid_mechanisms_pass():
    check_score(Manhattan)
    check_score(Manhattan(), gradient=False)
    check_score(Recent, gradient=False)
    check_score(lambda query, key: query @ key.mT)
    check_score(Additive, gradient=False)
    check_score(Bilinear(3, 5), query_dim=3, key_dim=5)
    check_score(Gaussian(learned=True), gradient=False)
    check_normalizer(squared)
    check_normalizer(Power)
    check_normalizer(TopK, gradient=False)
    check_normalizer(Entmax, gradient=False)
    check_normalizer(Sample)
    check_normalizer(Dropout(Power(), 0.5))
    check_mask(EveryOther)
    check_mask(Near())
    check_mask(Near() & padding([3, 9]) | ~window(1, 1), queries=9, keys=9)


def test_the_mechanism_is_not_changed():
    score, normalize = Additive(4, 4, 5), Dropout(Power(), 0.5).eval()
    before = copy.deepcopy(score.state_dict())
    torch.manual_seed(3)
    state = torch.get_rng_state()
    check_score(score, gradient=False)
    check_normalizer(normalize, gradient=False)
    assert torch.equal(torch.get_rng_state(), state)
    assert score.energy.dtype == torch.float32
    assert score.training
    assert not normalize.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in score.state_dict().items())
    assert all(parameter.grad is None for parameter in score.parameters())


# ---- invalid scores


def test_a_score_of_the_wrong_shape():
    assert_fails(check_score, lambda query, key: key @ query.mT, match=r"have shape \(2, 3, 6, 5\), not \(2, 3, 5, 6\)")


def test_a_score_that_mixes_batch_entries():
    assert_fails(check_score, lambda q, k: q @ k.mT - (q @ k.mT).mean(0).detach(), match="a batch is not a loop")


def test_a_positional_score_without_is_positional():
    class Undeclared(Recent):
        is_positional = False

    assert_fails(check_score, Undeclared, match="permuting keys does not permute the weights")


def test_a_score_that_depends_on_hidden_keys():
    """Centered by all keys, including hidden ones, with a normalizer that is not shift-invariant."""

    def centered(query, key):
        return query @ (key - key.mean(-2, keepdim=True)).mT

    def detached(query, key):
        return query @ (key - key.mean(-2, keepdim=True).detach()).mT

    assert_fails(
        check_score, centered, normalize=sigmoid, match="hidden from every query has a gradient by the context"
    )
    assert_fails(check_score, detached, normalize=sigmoid, match="additional hidden keys change the weights")


def test_a_score_with_wrong_dot_product_features():
    class Hasty(Dot):
        def dot_product_features(self, query, key, mask):
            features = super().dot_product_features(query, key, mask)
            return features._replace(scale=0.9)

    assert_fails(check_score, Hasty, match=r"the context is not weights @ value: off by .*, allowed")


def test_a_score_with_a_wrong_gradient():
    class Wrong(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, g):
            return 2 * g

    assert_fails(check_score, lambda q, k: Wrong.apply(q) @ k.mT, match="gradcheck fails")
    check_score(lambda q, k: Wrong.apply(q) @ k.mT, gradient=False)


def test_a_score_with_infinite_gradients():
    def square_root(query, key):
        return -(query.unsqueeze(-2) - key.unsqueeze(-3)).abs().sum(-1).mul(0).sqrt()

    assert_fails(check_score, square_root, match="a gradient of the .* is not finite")


def test_a_score_that_rounds():
    assert_fails(check_score, lambda q, k: (q @ k.mT).bfloat16().to(q.dtype), match="disagree|gradcheck", gradient=True)


# ---- invalid normalizers


def test_a_softmax_without_a_mask():
    assert_fails(check_normalizer, nn.Softmax(-1), match="where every key is hidden, weights are not 0")


def test_a_normalizer_with_weights_for_hidden_keys():
    def even(scores):
        output = (scores > -torch.inf).any(-1, keepdim=True)
        return torch.ones_like(scores) / scores.shape[-1] * output

    assert_fails(check_normalizer, even, match="a hidden key has weight")


def test_a_normalizer_that_mixes_batch_entries():
    @masked_normalizer
    def over_everything(scores):
        return torch.softmax(scores, 0)

    assert_fails(check_normalizer, over_everything, match="a batch is not a loop")


def test_a_random_normalizer_without_is_random():
    @masked_normalizer
    def noisy(scores):
        return torch.softmax(scores + torch.randn_like(scores), -1)

    assert_fails(check_normalizer, noisy, match="context|loop|permut")

    @masked_normalizer(is_random=True)
    def honest(scores):
        return torch.softmax(scores + torch.randn_like(scores), -1)

    check_normalizer(honest)


def test_a_normalizer_with_a_state():
    class Drifting(Normalizer):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def compute_weights(self, scores):
            self.calls += 1
            return torch.softmax(scores * self.calls, -1)

    assert_fails(check_normalizer, Drifting, match="the same call gave a different context")


def test_a_normalizer_of_the_wrong_shape():
    assert_fails(check_normalizer, lambda scores: scores.exp().sum(-1), match=r"scores \(2, 3\) became weights \(2,\)")


# ---- invalid masks


@pytest.mark.bare
def test_a_mask_of_numbers():
    class Numbers(Mask):
        def rule(self, grid):
            return (grid.key_positions <= grid.query_positions).float()

    assert_fails(check_mask, Numbers, match="a mask is bool, not torch.float32")


def test_a_mask_that_ignores_the_grid():
    class Corner(Mask):
        def rule(self, grid):
            queries, keys = grid.query_positions.shape[-2], grid.key_positions.shape[-1]
            return torch.ones(queries, keys).tril().bool()

    assert_fails(check_mask, Corner, match="for a part of the positions the rule differs")


def test_a_mask_with_too_narrow_a_band():
    class Narrow(Near):
        def band(self, queries, keys):
            return -1, 1

    assert_fails(check_mask, Narrow, match="outside of the band is visible")


def test_a_mask_with_a_wrong_prefix():
    class Wrong(Mask):
        def rule(self, grid):
            return grid.key_positions <= grid.query_positions

        def prefix_lengths(self, grid):
            return grid.query_positions

    assert_fails(check_mask, Wrong, match="prefix|count")


def test_a_mask_without_num_batch_axes():
    class Batched(Mask):
        def rule(self, grid):
            return (grid.key_positions < torch.tensor([2, 5])[:, None, None]) & (grid.query_positions >= 0)

    assert_fails(check_mask, Batched, match=r"num_batch_axes\(\) is 0, but the mask has shape \(2, 7, 9\)")


# ---- messages


def test_a_class_that_cannot_be_constructed_is_named():
    class Needy(Score):
        def __init__(self, unknown_argument):
            super().__init__()

    with pytest.raises(TypeError, match=r"Needy could not be constructed .*pass an instance instead of the class"):
        check_score(Needy)


def test_a_violation_is_an_assertion_error():
    assert issubclass(LawViolation, AssertionError)
    assert softmax is not None
    check_mask(causal())
    check_score(ScaledDot, gradient=False)
