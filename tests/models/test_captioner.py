"""Show, attend and tell: against the paper's formulas, and the laws of writing word by word."""

import pytest
import torch

from regard.attention import Additive, Attention, Bilinear, Constant, Sample
from regard.models import ShowAttendTell
from regard.models.captioner import PartiallySampled, doubly_stochastic_penalty
from regard.models.image_models import ConvBackbone


def model(attention=None, **more):
    attention = Attention(Additive(12, 6, 5)) if attention is None else attention
    return ShowAttendTell(9, attention, **{"grid_dim": 6, "embed_dim": 7, "dim": 12, **more})


@pytest.fixture
def grid():
    return torch.randn(3, 16, 6)


@pytest.fixture
def target():
    return torch.randint(4, 9, (3, 5))


def by_the_paper(net, grid, target):
    """One word after the other, one caption after the other, by the paper's letters."""
    score, cell, every = net.attention.score, net.cell, []
    for a, words in zip(grid, target, strict=True):
        h, c = torch.tanh(net.start.weight @ a.mean(0) + net.start.bias).chunk(2)
        rows = []
        for word in words:
            e = torch.stack(
                [score.energy @ torch.tanh(score.W.weight @ h + score.key_proj.weight @ cell_) for cell_ in a]
            )
            alpha = torch.exp(e) / torch.exp(e).sum()
            z = torch.sigmoid(net.gate.weight[0] @ h + net.gate.bias[0]) * (alpha[:, None] * a).sum(0)
            y = net.write.weight[word]
            given = cell.early.weight @ y + cell.early.bias + cell.late.weight @ z
            i, f, g, o = (given + cell.past.weight @ h + cell.past.bias).chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            rows.append(torch.tanh(y + net.join.weight @ torch.cat([h, z]) + net.join.bias))
        every.append(torch.stack(rows))
    return torch.stack(every)


def test_it_is_the_paper(grid, target):
    net = model().eval()
    torch.testing.assert_close(net(grid, target), by_the_paper(net, grid, target), atol=1e-5, rtol=1e-4)


def test_word_by_word_is_all_at_once(grid, target):
    net = model().eval()
    whole, weights = net.output(net(grid, target)), net.looks(grid, target)
    steps = net.begin(grid)
    for t in range(5):
        torch.testing.assert_close(steps.step(target[:, t]), whole[:, t])
        if t < 4:
            torch.testing.assert_close(steps.weights(), weights[:, t])
    assert weights.shape == (3, 4, 16)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))


def test_rows_can_be_taken_twice_and_left_out(grid, target):
    net = model().eval()
    rows = torch.tensor([2, 0, 0])
    steps = net.begin(grid)
    steps.step(target[:, 0])
    steps.select(rows)
    found = steps.step(target[rows, 1])
    torch.testing.assert_close(found, net.output(net(grid, target))[rows, 1])


def test_a_word_knows_nothing_of_those_after_it(grid, target):
    net = model().eval()
    other = target.clone()
    other[:, 3:] = 4
    torch.testing.assert_close(net(grid, target)[:, :3], net(grid, other)[:, :3])


def test_without_attention_it_sees_the_mean_of_the_grid(grid, target):
    net = model(Attention(Constant())).eval()
    flat = grid.mean(1, keepdim=True).expand_as(grid)
    torch.testing.assert_close(net(grid, target), net(flat, target))


def test_the_order_of_the_cells_does_not_matter(grid, target):
    net, order = model().eval(), torch.randperm(16)
    torch.testing.assert_close(net(grid, target), net(grid[:, order], target))


def test_hard_attention_sees_one_cell_and_the_same_one_at_rest(grid, target):
    net = model(Attention(Additive(12, 6, 5), Sample()), expected=0.0)
    told = net.decode(grid, target)
    for look in told.attention:
        assert set(look.weights.unique().tolist()) == {0.0, 1.0}
        assert look.log_prob.shape == look.entropy.shape == (3, 1)
        assert bool((look.log_prob < 0).all())
    net.eval()
    assert torch.equal(net.attention_weights(grid, target), net.attention_weights(grid, target))


def test_some_rows_see_what_is_expected(grid, target):
    net = model(Attention(Additive(12, 6, 5), Sample()), expected=1.0)
    soft = model()
    soft.load_state_dict(net.state_dict())
    told = net.decode(grid, target)
    torch.testing.assert_close(told.hidden, soft(grid, target))
    assert all(bool((look.log_prob == 0).all()) for look in told.attention)


def test_half_the_rows_choose():
    net = model(Attention(Additive(12, 6, 5), Sample()), expected=0.5)
    told = net.decode(torch.randn(400, 16, 6), torch.randint(4, 9, (400, 2)))
    chose = [(look.weights.amax(-1) == 1).squeeze(1) for look in told.attention]
    assert torch.equal(*chose)  # a row chooses for all of its words, or for none
    assert 140 < int(chose[0].sum()) < 260
    zero = (told.attention[0].log_prob == 0).squeeze(1)
    assert torch.equal(zero, ~chose[0])


def test_the_gradient_of_a_mix_is_that_of_its_soft_rows():
    scores = torch.randn(2, 1, 5, requires_grad=True)
    weights = PartiallySampled(Sample(), torch.tensor([True, False]))(scores)
    weights[..., 0].sum().backward()
    assert float(scores.grad[0].abs().sum()) > 0
    assert float(scores.grad[1].abs().sum()) == 0


def test_doubly_stochastic(grid, target):
    seen = model().decode(grid, target).attention
    words = torch.ones(3, 5, dtype=torch.bool)
    words[1, 2:] = False  # what fills a caption up does not count
    found = doubly_stochastic_penalty(seen, words)
    weights = torch.cat([look.weights for look in seen], 1)
    for row, length in ((0, 5), (1, 2)):
        by_hand = sum((1 - sum(weights[row, t, i] for t in range(length))) ** 2 for i in range(16))
        torch.testing.assert_close(found[row], by_hand)
    found.sum().backward()


def test_other_scores(grid, target):
    assert model(Attention(Bilinear(12, 6)))(grid, target).shape == (3, 5, 7)


def test_convolutions_know_where_they_are():
    grid = ConvBackbone(1, 20, 4)(torch.zeros(2, 1, 32, 24))
    assert grid.shape == (2, 12, 20)
    assert len({tuple(cell[-16:].tolist()) for cell in grid[0].detach()}) == 12


def test_convolutions_and_telling_learn_together():
    net = model(Attention(Additive(12, 20, 5)), eyes=ConvBackbone(3, 20, 4), grid_dim=20)
    net(torch.rand(2, 3, 32, 32), torch.randint(4, 9, (2, 3))).sum().backward()
    assert all(p.grad is not None for name, p in net.named_parameters() if not name.startswith("output"))


@pytest.mark.bare
def test_what_does_not_fit_is_said():
    with pytest.raises(ValueError, match=r"a grid is \(rows, cells, 6\) here, got \(2, 16, 5\)"):
        model()(torch.randn(2, 16, 5), torch.randint(4, 9, (2, 3)))
    with pytest.raises(ValueError, match="takes images"):
        ConvBackbone(3, 20)(torch.rand(2, 1, 32, 32))
    with pytest.raises(ValueError, match="dim=16 is too small"):
        ConvBackbone(3, 16)
    with pytest.raises(ValueError, match="expected=2 must be from 0 to 1"):
        model(expected=2)
