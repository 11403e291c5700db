"""Bands and blocks of queries."""

import pytest
import torch
from torch import nn

from regard.attention import Alibi, RelativeBias, ScaledDot, attend, sigmoid, softmax, window
from regard.attention.fast import blocked, fused


@pytest.mark.parametrize("normalize", [softmax, sigmoid])
@pytest.mark.parametrize("bias", [Alibi, RelativeBias])
def test_a_band_in_blocks_has_its_bias(monkeypatch, bias, normalize):
    monkeypatch.setattr(blocked, "MIN_BLOCK_QUERIES", 4)
    monkeypatch.setattr(blocked, "MAX_SCORES", 64)
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 16)
    query, key, value = (torch.randn(2, 3, 21, 4) for _ in range(3))
    output = attend(query, key, value, window(2, 1), score=ScaledDot() + bias(3), normalize=normalize)
    torch.testing.assert_close(output.context, output.weights @ value)


def test_hidden_keys_have_no_weight_with_a_torch_module_as_normalizer():
    leaves = [torch.randn(200, 4, requires_grad=True) for _ in range(3)]
    attend(*leaves, window(4, 4), normalize=nn.Softmax(-1)).context.sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)
    all_hidden = torch.zeros(200, 200, dtype=torch.bool)
    assert (attend(*leaves, all_hidden, normalize=nn.Softmax(-1)).context == 0).all()
