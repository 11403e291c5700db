"""A question as query: read, asked once or twice, answered."""

import pytest
import torch

from regard.attention import Additive, Attention, Constant
from regard.models import VisualQAModel
from regard.models.image_models import BagOfWordsEncoder, GRUEncoder


def model(looks=1, attention=None, read=None, **more):
    look = attention or (lambda: Attention(Additive(12, 6, 5)))
    return VisualQAModel(
        read or GRUEncoder(9, 3, 12), [look() for _ in range(looks)], 4, feature_dim=6, **more
    )


@pytest.fixture
def grid():
    return torch.randn(3, 16, 6)


@pytest.fixture
def questions():
    return torch.randint(1, 9, (3, 2, 5)), torch.tensor([[5, 4], [1, 2], [5, 3]])


def test_shapes(grid, questions):
    for looks in (1, 2):
        net = model(looks)
        assert net(grid, *questions).shape == (3, 2, 4)
        weights = net.attention_weights(grid, *questions)
        assert weights.shape == (3, 2, looks, 16)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, looks))


def test_questions_do_not_hear_one_another(grid, questions):
    net = model(2)
    words, lengths = questions
    both = net(grid, words, lengths)
    alone = net(grid, words[:, 1:], lengths[:, 1:])
    torch.testing.assert_close(both[:, 1:], alone)


def test_what_fills_a_question_up_is_not_read(grid, questions):
    net, (words, lengths) = model(), questions
    other = words.clone()
    other[1, 0, 1:] = 0
    torch.testing.assert_close(net(grid, words, lengths), net(grid, other, lengths))
    other[1, 0, 0] = 9 - words[1, 0, 0]
    assert not torch.allclose(net(grid, words, lengths)[1, 0], net(grid, other, lengths)[1, 0])


def test_a_bag_knows_no_order(grid, questions):
    words, lengths = questions
    turned = words.clone()
    turned[0, 0] = words[0, 0].flip(0)
    bag, in_order = model(read=BagOfWordsEncoder(9, 12)), model()
    torch.testing.assert_close(bag(grid, words, lengths), bag(grid, turned, lengths))
    assert not torch.allclose(in_order(grid, words, lengths)[0, 0], in_order(grid, turned, lengths)[0, 0])
    by_hand = bag.question_encoder.embed(words[1, 1, :2]).mean(0)  # the rest fills it up
    torch.testing.assert_close(bag.encode_questions(words, lengths)[1, 1], by_hand)


def test_the_order_of_the_cells_does_not_matter(grid, questions):
    net, order = model(2), torch.randperm(16)
    torch.testing.assert_close(net(grid, *questions), net(grid[:, order], *questions))


def test_without_attention_it_sees_the_mean(grid, questions):
    net = model(attention=lambda: Attention(Constant()))
    flat = grid.mean(1, keepdim=True).expand_as(grid)
    torch.testing.assert_close(net(grid, *questions), net(flat, *questions))


def test_the_second_look_follows_the_first(questions):
    """Which cell the first look finds decides where the second one goes."""
    net, grid = model(2), torch.randn(3, 16, 6)
    with torch.no_grad():
        net.query_updates[0].weight.mul_(20)
    first = net.forward_with_attention(grid, *questions).attention
    net.attentions[0].score.energy.data.neg_()  # the first look goes elsewhere, over the same grid
    other = net.forward_with_attention(grid, *questions).attention
    assert not torch.allclose(first[1].weights, other[1].weights, atol=1e-3)


def test_everything_learns(grid, questions):
    net = model(2, dropout=0.1)
    net(grid, *questions).square().sum().backward()
    assert all(float(parameter.grad.abs().sum()) > 0 for parameter in net.parameters())


@pytest.mark.bare
def test_what_does_not_fit_is_said(questions):
    with pytest.raises(ValueError, match="looks at least once"):
        VisualQAModel(BagOfWordsEncoder(9, 12), [], 4)
    with pytest.raises(ValueError, match=r"a grid is \(rows, cells, 6\) here, got \(3, 16, 5\)"):
        model()(torch.randn(3, 16, 5), *questions)
