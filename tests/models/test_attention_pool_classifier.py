"""Image classification by attention pooling: with no query, with one, with one per class, and without attention."""

import pytest
import torch

from regard.attention import Additive, Attention, AttentionPool, Bilinear, Constant, MaxPool, sparsemax
from regard.models import AttentionPoolClassifier
from regard.models.image_models import ConvBackbone


@pytest.fixture
def grid():
    return torch.randn(3, 16, 6)


def test_pool_without_query(grid):
    net = AttentionPoolClassifier(4, AttentionPool(Attention(Additive(None, 6, 5))), feature_dim=6)
    weights = net.attention_weights(grid)
    assert weights.shape == (3, 1, 16)
    context = (weights @ grid)[:, 0]
    torch.testing.assert_close(net(grid), net.classifier(context))


def test_query_per_class(grid):
    net = AttentionPoolClassifier(
        4, AttentionPool(Attention(Bilinear(5, 6), sparsemax), query_dim=5, num_queries=4), feature_dim=6
    )
    weights = net.attention_weights(grid)
    assert weights.shape == (3, 4, 16)
    assert bool((weights == 0).any())
    for row in range(3):
        for label in range(4):
            context = weights[row, label] @ grid[row]
            logit = net.classifier.weight[label] @ context + net.classifier.bias[label]
            torch.testing.assert_close(net(grid)[row, label], logit)


def test_constant_score_is_the_mean(grid):
    net = AttentionPoolClassifier(4, AttentionPool(Attention(Constant())), feature_dim=6)
    torch.testing.assert_close(net(grid), net.classifier(grid.mean(1)))


def test_max_pool(grid):
    net = AttentionPoolClassifier(4, MaxPool(), feature_dim=6)
    torch.testing.assert_close(net(grid), net.classifier(grid.amax(1)))
    with pytest.raises(ValueError, match="a maximum has no weights"):
        net.attention_weights(grid)


def test_learns_which_cell_has_the_label():
    """The label is in the marked cell; the other cells have random labels."""
    generator, pool = torch.Generator().manual_seed(0), AttentionPool(Attention(Additive(None, 4, 8)))
    net = AttentionPoolClassifier(3, pool, feature_dim=4)
    optimizer = torch.optim.Adam(net.parameters(), 0.03)
    for _ in range(150):
        grid, labels = marked_grids(generator, 64)
        loss = torch.nn.functional.cross_entropy(net(grid), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    grid, labels = marked_grids(generator, 300)
    assert float((net(grid).argmax(-1) == labels).float().mean()) > 0.95
    weights = net.attention_weights(grid)[torch.arange(300), 0, grid[..., 3].argmax(-1)]
    assert float(weights.detach().mean()) > 3 / 9  # uniform weights: 1 / 9


def marked_grids(generator, rows):
    labels = torch.randint(3, (rows, 9), generator=generator)
    cell, row = torch.randint(9, (rows,), generator=generator), torch.arange(rows)
    grid = torch.cat((torch.nn.functional.one_hot(labels, 3), torch.zeros(rows, 9, 1)), -1)
    grid[row, cell, 3] = 1
    return grid.float(), labels[row, cell]


def test_backbone_gets_gradients():
    backbone = ConvBackbone(1, 20, width=4)
    net = AttentionPoolClassifier(
        4, AttentionPool(Attention(Additive(8, 20, 5)), query_dim=8), backbone=backbone, feature_dim=20
    )
    net(torch.rand(2, 1, 32, 32)).sum().backward()
    assert all(parameter.grad is not None for parameter in net.parameters())


@pytest.mark.bare
def test_invalid_arguments(grid):
    with pytest.raises(ValueError, match="pool must have 1 query or one for each of 4 classes, got 3"):
        AttentionPoolClassifier(4, AttentionPool(Attention(Bilinear(5, 6)), query_dim=5, num_queries=3), feature_dim=6)
    with pytest.raises(ValueError, match="num_queries=4 needs a query_dim"):
        AttentionPool(Attention(Additive(None, 6, 5)), num_queries=4)
    with pytest.raises(ValueError, match=r"a grid must be \(batch, cells, 7\), got \(3, 16, 6\)"):
        AttentionPoolClassifier(4, MaxPool(), feature_dim=7)(grid)
