"""Encoder blocks: what each position depends on, padding, and equal numbers of parameters."""

import pytest
import torch

from regard.models.hybrid_encoder import ConvBlock, LocalAttentionBlock, RNNBlock, SelfAttentionBlock

DIM, RADIUS = 48, 2
MAKE = {
    "convolution": lambda: ConvBlock(DIM),
    "recurrence": lambda: RNNBlock(DIM),
    "bidirectional": lambda: RNNBlock(DIM, DIM // 2, bidirectional=True),
    "attention": lambda: SelfAttentionBlock(DIM),
    "local": lambda: LocalAttentionBlock(DIM, radius=RADIUS),
}
DEPENDS_ON = {  # positions of 0 .. 8 that the output at position 4 depends on
    "convolution": {3, 4, 5},
    "recurrence": {0, 1, 2, 3, 4},
    "bidirectional": set(range(9)),
    "attention": set(range(9)),
    "local": {2, 3, 4, 5, 6},
}


@pytest.mark.parametrize("name", MAKE)
def test_what_a_position_depends_on(name):
    torch.manual_seed(0)
    layer, x = MAKE[name](), torch.randn(1, 9, DIM, requires_grad=True)
    layer(x)[0, 4].sum().backward()
    assert set(x.grad[0].abs().sum(-1).nonzero().flatten().tolist()) == DEPENDS_ON[name]


@pytest.mark.parametrize("name", MAKE)
def test_padding_is_ignored(name):
    layer, lengths = MAKE[name](), torch.tensor([7, 3, 5])
    x = torch.randn(3, 7, DIM)
    garbage = torch.where((torch.arange(7) < lengths[:, None])[..., None], x, 100 * torch.randn(3, 7, DIM))
    together, other = layer(x, lengths), layer(garbage, lengths)
    for row, length in enumerate(lengths.tolist()):
        alone = layer(x[row : row + 1, :length])[0]
        torch.testing.assert_close(together[row, :length], alone, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(other[row, :length], alone, atol=1e-5, rtol=1e-5)


def test_equal_numbers_of_parameters():
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


def test_kernel_size_must_be_odd():
    with pytest.raises(ValueError, match="invalid value 4 for kernel_size: must be odd"):
        ConvBlock(DIM, kernel_size=4)
