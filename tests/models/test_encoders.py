"""Layers of equal size: what each sees, and that what fills up a row is not seen."""

import pytest
import torch

from regard.models.language_models import ConvBlock, LocalAttentionBlock, RNNBlock, SelfAttentionBlock

DIM, RADIUS = 48, 2
MAKE = {
    "convolution": lambda: ConvBlock(DIM),
    "recurrence": lambda: RNNBlock(DIM),
    "both ways": lambda: RNNBlock(DIM, DIM // 2, bidirectional=True),
    "attention": lambda: SelfAttentionBlock(DIM),
    "local": lambda: LocalAttentionBlock(DIM, radius=RADIUS),
}
SEEN = {  # which positions of 0 .. 8 the answer at position 4 depends on
    "convolution": {3, 4, 5},
    "recurrence": {0, 1, 2, 3, 4},
    "both ways": set(range(9)),
    "attention": set(range(9)),
    "local": {2, 3, 4, 5, 6},
}


@pytest.mark.parametrize("name", MAKE)
def test_what_a_position_depends_on(name):
    torch.manual_seed(0)
    layer, x = MAKE[name](), torch.randn(1, 9, DIM, requires_grad=True)
    layer(x)[0, 4].sum().backward()
    assert set(x.grad[0].abs().sum(-1).nonzero().flatten().tolist()) == SEEN[name]


@pytest.mark.parametrize("name", MAKE)
def test_rows_do_not_see_what_fills_them_up(name):
    layer, lengths = MAKE[name](), torch.tensor([7, 3, 5])
    x = torch.randn(3, 7, DIM)
    garbage = torch.where((torch.arange(7) < lengths[:, None])[..., None], x, 100 * torch.randn(3, 7, DIM))
    together, other = layer(x, lengths), layer(garbage, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, :length])[0]
        torch.testing.assert_close(together[row, :length], alone, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(other[row, :length], alone, atol=1e-5, rtol=1e-5)


def test_all_are_of_one_size():
    sizes = {
        name: sum(p.numel() for p in make().parameters())
        for name, make in {
            "convolution": lambda: ConvBlock(192),
            "recurrence": lambda: RNNBlock(192),
            "attention": lambda: SelfAttentionBlock(192),
            "local": lambda: LocalAttentionBlock(192),
        }.items()
    }
    assert max(sizes.values()) < 1.02 * min(sizes.values())
    assert abs(sizes["attention"] / (4 * 192**2) - 1) < 0.02


def test_a_kernel_has_a_middle():
    with pytest.raises(ValueError, match="kernel must be odd"):
        ConvBlock(DIM, kernel_size=4)
