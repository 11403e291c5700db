"""ShowAttendTell against the paper's equations, and the laws of decoding."""

import pytest
import torch

from regard.attention import Additive, Attention, Bilinear, Constant, Sample
from regard.models import ShowAttendTell
from regard.models.captioner import PartialSample, doubly_stochastic_penalty
from regard.models.image_models import ConvBackbone


def model(attention=None, **options):
    attention = Attention(Additive(12, 6, 5)) if attention is None else attention
    return ShowAttendTell(9, attention, **{"feature_dim": 6, "embed_dim": 7, "hidden_dim": 12, **options})


@pytest.fixture
def grid():
    return torch.randn(3, 16, 6)


@pytest.fixture
def target():
    return torch.randint(4, 9, (3, 5))


def reference_hidden(net, grid, target):
    """Hidden states by the paper's equations, one caption and one token at a time."""
    score, cell, captions = net.attention.score, net.cell, []
    for a, tokens in zip(grid, target, strict=True):
        h, c = torch.tanh(net.bridge.weight @ a.mean(0) + net.bridge.bias).chunk(2)
        rows = []
        for token in tokens:
            e = torch.stack(
                [score.energy @ torch.tanh(score.query_proj.weight @ h + score.key_proj.weight @ cell_) for cell_ in a]
            )
            alpha = torch.exp(e) / torch.exp(e).sum()
            z = torch.sigmoid(net.gate.weight[0] @ h + net.gate.bias[0]) * (alpha[:, None] * a).sum(0)
            y = net.tgt_embed.weight[token]
            gates = cell.input_proj.weight @ y + cell.input_proj.bias + cell.context_proj.weight @ z
            i, f, g, o = (gates + cell.hidden_proj.weight @ h + cell.hidden_proj.bias).chunk(4)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            rows.append(torch.tanh(y + net.readout_proj.weight @ torch.cat([h, z]) + net.readout_proj.bias))
        captions.append(torch.stack(rows))
    return torch.stack(captions)


def test_equals_reference(grid, target):
    net, close = model().eval(), torch.testing.assert_close
    expected = reference_hidden(net, grid, target)
    close(net.forward_hidden(grid, target), expected, atol=1e-5, rtol=1e-4)
    close(net(grid, target), net.lm_head(expected), atol=1e-5, rtol=1e-4)


def test_steps_equal_forward(grid, target):
    net = model().eval()
    logits, weights = net(grid, target), net.attention_weights(grid, target)
    state = net.start_decoding(grid)
    for t in range(5):
        torch.testing.assert_close(state.step(target[:, t]), logits[:, t])
        if t < 4:
            torch.testing.assert_close(state.weights(), weights[:, t])
    assert weights.shape == (3, 4, 16)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 4))


def test_reordered_rows_continue(grid, target):
    net = model().eval()
    rows = torch.tensor([2, 0, 0])
    state = net.start_decoding(grid)
    state.step(target[:, 0])
    state.reorder(rows)
    logits = state.step(target[rows, 1])
    torch.testing.assert_close(logits, net(grid, target)[rows, 1])


def test_later_tokens_are_hidden(grid, target):
    net = model().eval()
    other = target.clone()
    other[:, 3:] = 4
    torch.testing.assert_close(net(grid, target)[:, :3], net(grid, other)[:, :3])


def test_constant_score_is_the_mean(grid, target):
    net = model(Attention(Constant())).eval()
    flat = grid.mean(1, keepdim=True).expand_as(grid)
    torch.testing.assert_close(net(grid, target), net(flat, target))


def test_order_of_cells_does_not_matter(grid, target):
    net, order = model().eval(), torch.randperm(16)
    torch.testing.assert_close(net(grid, target), net(grid[:, order], target))


def test_hard_attention_takes_one_cell_and_the_best_one_in_eval(grid, target):
    net = model(Attention(Additive(12, 6, 5), Sample()), soft_fraction=0.0)
    output = net.decode(grid, target)
    for step in output.attention:
        assert set(step.weights.unique().tolist()) == {0.0, 1.0}
        assert step.log_prob.shape == step.entropy.shape == (3, 1)
        assert bool((step.log_prob < 0).all())
    net.eval()
    assert torch.equal(net.attention_weights(grid, target), net.attention_weights(grid, target))


def test_soft_rows_use_softmax(grid, target):
    net = model(Attention(Additive(12, 6, 5), Sample()), soft_fraction=1.0)
    soft = model()
    soft.load_state_dict(net.state_dict())
    output = net.decode(grid, target)
    torch.testing.assert_close(output.hidden, soft.forward_hidden(grid, target))
    assert all(bool((step.log_prob == 0).all()) for step in output.attention)


def test_half_of_the_rows_are_sampled():
    net = model(Attention(Additive(12, 6, 5), Sample()), soft_fraction=0.5)
    output = net.decode(torch.randn(400, 16, 6), torch.randint(4, 9, (400, 2)))
    is_sampled = [(step.weights.amax(-1) == 1).squeeze(1) for step in output.attention]
    assert torch.equal(*is_sampled)  # a row is sampled in all steps or in none
    assert 140 < int(is_sampled[0].sum()) < 260
    is_zero = (output.attention[0].log_prob == 0).squeeze(1)
    assert torch.equal(is_zero, ~is_sampled[0])


def test_partially_sampled_has_gradients_in_soft_rows_only():
    scores = torch.randn(2, 1, 5, requires_grad=True)
    weights = PartialSample(Sample(), torch.tensor([True, False]))(scores)
    weights[..., 0].sum().backward()
    assert float(scores.grad[0].abs().sum()) > 0
    assert float(scores.grad[1].abs().sum()) == 0


def test_doubly_stochastic_penalty(grid, target):
    attention = model().decode(grid, target).attention
    word_mask = torch.ones(3, 5, dtype=torch.bool)
    word_mask[1, 2:] = False  # padding
    penalty = doubly_stochastic_penalty(attention, word_mask)
    weights = torch.cat([step.weights for step in attention], 1)
    for row, length in ((0, 5), (1, 2)):
        expected = sum((1 - sum(weights[row, t, i] for t in range(length))) ** 2 for i in range(16))
        torch.testing.assert_close(penalty[row], expected)
    penalty.sum().backward()


def test_other_scores(grid, target):
    assert model(Attention(Bilinear(12, 6)))(grid, target).shape == (3, 5, 9)


def test_backbone_encodes_positions():
    grid = ConvBackbone(1, 20, width=4)(torch.zeros(2, 1, 32, 24))
    assert grid.shape == (2, 12, 20)
    assert len({tuple(cell[-16:].tolist()) for cell in grid[0].detach()}) == 12


def test_backbone_gets_gradients():
    net = model(Attention(Additive(12, 20, 5)), backbone=ConvBackbone(3, 20, width=4), feature_dim=20)
    net(torch.rand(2, 3, 32, 32), torch.randint(4, 9, (2, 3))).sum().backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.bare
def test_invalid_arguments():
    with pytest.raises(ValueError, match=r"a grid must be \(batch, cells, 6\), got \(2, 16, 5\)"):
        model()(torch.randn(2, 16, 5), torch.randint(4, 9, (2, 3)))
    with pytest.raises(ValueError, match="images must be"):
        ConvBackbone(3, 20)(torch.rand(2, 1, 32, 32))
    with pytest.raises(ValueError, match="invalid value 16 for feature_dim"):
        ConvBackbone(3, 16)
    with pytest.raises(ValueError, match="invalid value 2 for soft_fraction: must be from 0 to 1"):
        model(soft_fraction=2)
