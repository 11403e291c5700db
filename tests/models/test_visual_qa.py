"""Visual question answering with one attention and with two."""

import pytest
import torch

from regard.attention import Additive, Attention, Constant
from regard.models import VisualQAModel
from regard.models.image_models import BagOfWordsEncoder, GRUEncoder


def model(num_attentions=1, make_attention=None, question_encoder=None, **options):
    make_attention = make_attention or (lambda: Attention(Additive(12, 6, 5)))
    return VisualQAModel(
        question_encoder or GRUEncoder(9, 3, 12),
        [make_attention() for _ in range(num_attentions)],
        4,
        feature_dim=6,
        **options,
    )


@pytest.fixture
def grid():
    return torch.randn(3, 16, 6)


@pytest.fixture
def questions():
    return torch.randint(1, 9, (3, 2, 5)), torch.tensor([[5, 4], [1, 2], [5, 3]])


def test_shapes(grid, questions):
    for num_attentions in (1, 2):
        net = model(num_attentions)
        assert net(grid, *questions).shape == (3, 2, 4)
        weights = net.attention_weights(grid, *questions)
        assert weights.shape == (3, 2, num_attentions, 16)
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, num_attentions))


def test_questions_are_independent(grid, questions):
    net = model(2)
    tokens, lengths = questions
    both = net(grid, tokens, lengths)
    alone = net(grid, tokens[:, 1:], lengths[:, 1:])
    torch.testing.assert_close(both[:, 1:], alone)


def test_padding_is_ignored(grid, questions):
    net, (tokens, lengths) = model(), questions
    other = tokens.clone()
    other[1, 0, 1:] = 0
    torch.testing.assert_close(net(grid, tokens, lengths), net(grid, other, lengths))
    other[1, 0, 0] = 9 - tokens[1, 0, 0]
    assert not torch.allclose(net(grid, tokens, lengths)[1, 0], net(grid, other, lengths)[1, 0])


def test_bag_of_words_ignores_order(grid, questions):
    tokens, lengths = questions
    reversed_tokens = tokens.clone()
    reversed_tokens[0, 0] = tokens[0, 0].flip(0)
    bag, gru = model(question_encoder=BagOfWordsEncoder(9, 12)), model()
    torch.testing.assert_close(bag(grid, tokens, lengths), bag(grid, reversed_tokens, lengths))
    assert not torch.allclose(gru(grid, tokens, lengths)[0, 0], gru(grid, reversed_tokens, lengths)[0, 0])
    expected = bag.question_encoder.embed(tokens[1, 1, :2]).mean(0)  # the other tokens are padding
    torch.testing.assert_close(bag.encode_questions(tokens, lengths)[1, 1], expected)


def test_order_of_cells_does_not_matter(grid, questions):
    net, order = model(2), torch.randperm(16)
    torch.testing.assert_close(net(grid, *questions), net(grid[:, order], *questions))


def test_constant_score_is_the_mean(grid, questions):
    net = model(make_attention=lambda: Attention(Constant()))
    flat = grid.mean(1, keepdim=True).expand_as(grid)
    torch.testing.assert_close(net(grid, *questions), net(flat, *questions))


def test_second_attention_depends_on_the_first(questions):
    """The first context changes the weights of the second attention."""
    net, grid = model(2), torch.randn(3, 16, 6)
    with torch.no_grad():
        net.query_updates[0].weight.mul_(20)
    first = net.forward_with_attention(grid, *questions).attention
    net.attentions[0].score.energy.data.neg_()  # other weights of the first attention, same grid
    other = net.forward_with_attention(grid, *questions).attention
    assert not torch.allclose(first[1].weights, other[1].weights, atol=1e-3)


def test_all_parameters_get_gradients(grid, questions):
    net = model(2, dropout=0.1)
    net(grid, *questions).square().sum().backward()
    assert all(float(parameter.grad.abs().sum()) > 0 for parameter in net.parameters())


@pytest.mark.bare
def test_invalid_arguments(questions):
    with pytest.raises(ValueError, match="attentions must not be empty"):
        VisualQAModel(BagOfWordsEncoder(9, 12), [], 4)
    with pytest.raises(ValueError, match=r"a grid must be \(batch, cells, 6\), got \(3, 16, 5\)"):
        model()(torch.randn(3, 16, 5), *questions)
