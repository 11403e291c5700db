"""One glance at an image: a learned query, one for each class, none; and its twins."""

import pytest
import torch

from regard.attention import Additive, Attention, Bilinear, Constant, sparsemax
from regard.attention.pooling import AttentionPool, MaxPool
from regard.models import AttentionPoolClassifier
from regard.models.image_models import ConvBackbone


@pytest.fixture
def grid():
    return torch.randn(3, 16, 6)


def test_nobody_asks(grid):
    net = AttentionPoolClassifier(4, AttentionPool(Attention(Additive(None, 6, 5))), feature_dim=6)
    weights = net.attention_weights(grid)
    assert weights.shape == (3, 1, 16)
    context = (weights @ grid)[:, 0]
    torch.testing.assert_close(net(grid), net.classifier(context))


def test_a_query_for_each_class(grid):
    net = AttentionPoolClassifier(
        4, AttentionPool(Attention(Bilinear(5, 6), sparsemax), query_dim=5, num_queries=4), feature_dim=6
    )
    weights = net.attention_weights(grid)
    assert weights.shape == (3, 4, 16)
    assert bool((weights == 0).any())
    for row in range(3):
        for label in range(4):
            context = weights[row, label] @ grid[row]
            score = net.classifier.weight[label] @ context + net.classifier.bias[label]
            torch.testing.assert_close(net(grid)[row, label], score)


def test_without_attention_it_sees_the_mean(grid):
    net = AttentionPoolClassifier(4, AttentionPool(Attention(Constant())), feature_dim=6)
    torch.testing.assert_close(net(grid), net.classifier(grid.mean(1)))


def test_the_largest(grid):
    net = AttentionPoolClassifier(4, MaxPool(), feature_dim=6)
    torch.testing.assert_close(net(grid), net.classifier(grid.amax(1)))
    with pytest.raises(ValueError, match="a maximum has no weights"):
        net.attention_weights(grid)


def test_it_learns_which_cell_tells():
    """The class stands in the cell that is marked; the others tell another one."""
    random, pool = torch.Generator().manual_seed(0), AttentionPool(Attention(Additive(None, 4, 8)))
    net = AttentionPoolClassifier(3, pool, feature_dim=4)
    optimizer = torch.optim.Adam(net.parameters(), 0.03)
    for _ in range(150):
        grid, labels = marked(random, 64)
        loss = torch.nn.functional.cross_entropy(net(grid), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    grid, labels = marked(random, 300)
    assert float((net(grid).argmax(-1) == labels).float().mean()) > 0.95
    there = net.attention_weights(grid)[torch.arange(300), 0, grid[..., 3].argmax(-1)]
    assert float(there.detach().mean()) > 3 / 9  # by chance, 1 / 9


def marked(random, rows):
    told = torch.randint(3, (rows, 9), generator=random)
    cell, row = torch.randint(9, (rows,), generator=random), torch.arange(rows)
    grid = torch.cat((torch.nn.functional.one_hot(told, 3), torch.zeros(rows, 9, 1)), -1)
    grid[row, cell, 3] = 1
    return grid.float(), told[row, cell]


def test_eyes_learn_too():
    eyes = ConvBackbone(1, 20, 4)
    net = AttentionPoolClassifier(
        4, AttentionPool(Attention(Additive(8, 20, 5)), query_dim=8), backbone=eyes, feature_dim=20
    )
    net(torch.rand(2, 1, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.bare
def test_what_does_not_fit_is_said(grid):
    with pytest.raises(ValueError, match="one query, or one for each of 4 classes, not 3"):
        AttentionPoolClassifier(
            4, AttentionPool(Attention(Bilinear(5, 6)), query_dim=5, num_queries=3), feature_dim=6
        )
    with pytest.raises(ValueError, match="would all be the same one"):
        AttentionPool(Attention(Additive(None, 6, 5)), num_queries=4)
    with pytest.raises(ValueError, match=r"a grid is \(rows, cells, 7\) here, got \(3, 16, 6\)"):
        AttentionPoolClassifier(4, MaxPool(), feature_dim=7)(grid)
