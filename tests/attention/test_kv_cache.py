"""The key-value cache of MultiHead."""

import copy

import pytest
import torch

from regard.attention import KVCache, MultiHead, causal
from regard.errors import UsageError


def test_an_invalid_call_does_not_change_the_cache():
    attention, cache = MultiHead(8, 2), KVCache()
    with pytest.raises(ValueError, match="does not broadcast"):
        attention(torch.randn(2, 5, 8), mask=torch.ones(2, 2) > 0, cache=cache)
    assert len(cache) == 0


@torch.no_grad()
def test_branches_of_a_cache_are_independent():
    attention, cache, x = MultiHead(8, 2), KVCache(), torch.randn(2, 6, 8)
    attention(x[:, :4], mask=causal(), cache=cache)
    branch = copy.copy(cache)
    first = attention(x[:, 4:5], cache=cache)
    second = attention(x[:, 5:6], cache=branch)
    assert len(cache) == len(branch) == 5
    expected = torch.cat([x[:, :4], x[:, 4:5]], 1)
    torch.testing.assert_close(first.context, attention(x[:, 4:5], expected).context)
    expected = torch.cat([x[:, :4], x[:, 5:6]], 1)
    torch.testing.assert_close(second.context, attention(x[:, 5:6], expected).context)


@torch.no_grad()
def test_cross_attention_has_no_cache():
    """Keys that are given in each call would be appended in each call; `precompute` projects them once."""
    attention, cache, x, memory = MultiHead(8, 2), KVCache(), torch.randn(2, 1, 8), torch.randn(2, 3, 8)
    with pytest.raises(UsageError, match=r"precompute\(key, value, mask\)"):
        attention(x, memory, cache=cache)
    assert len(cache) == 0
    torch.testing.assert_close(attention.precompute(memory)(x).context, attention(x, memory).context)
    for _ in range(2):
        attention(x, x, x, cache=cache)
    assert len(cache) == 2


def test_a_cache_from_inference_mode_can_be_extended_outside():
    attention, cache, x = MultiHead(8, 2), KVCache(), torch.randn(2, 5, 8)
    with torch.inference_mode():
        attention(x, cache=cache)
    with torch.no_grad():
        assert attention(x[:, :1], cache=cache).weights.shape[-1] == 6
