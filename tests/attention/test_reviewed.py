"""Findings of reviews, each once wrong, now kept right."""

import copy
import gc

import pytest
import torch
from torch import nn

from regard.attention import (
    Additive,
    Alibi,
    Attention,
    Dot,
    Gaussian,
    Gumbel,
    KVCache,
    LocalM,
    LocalP,
    MultiHead,
    RelativeBias,
    Rotary,
    Sample,
    ScaledDot,
    Temperature,
    around,
    attend,
    causal,
    sigmoid,
    softmax,
    window,
)
from regard.attention.fast import blocked as blocks
from regard.attention.fast import fused


@pytest.mark.parametrize("normalize", [softmax, sigmoid])
@pytest.mark.parametrize("bias", [Alibi, RelativeBias])
def test_a_band_too_large_for_one_matrix_keeps_its_bias(monkeypatch, bias, normalize):
    monkeypatch.setattr(blocks, "MIN_BLOCK_QUERIES", 4)
    monkeypatch.setattr(blocks, "MAX_SCORES", 64)
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 16)
    query, key, value = (torch.randn(2, 3, 21, 4) for _ in range(3))
    seen = attend(query, key, value, window(2, 1), score=ScaledDot() + bias(3), normalize=normalize)
    torch.testing.assert_close(seen.context, seen.weights @ value)


@pytest.mark.parametrize("chance", [Gumbel, Sample])
def test_local_attention_leaves_the_modes_of_what_is_inside_alone(chance):
    inside = chance()
    local = LocalP(ScaledDot(), 4, 8, radius=2, normalize=inside).eval()
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 40, 4), torch.randn(2, 40, 6)
    seen = local(query, key, value)
    torch.testing.assert_close(seen.context, seen.weights @ value)
    assert not inside.training
    assert torch.equal(seen.context, local(query, key, value).context)


def test_a_foreign_normalizer_is_put_under_the_law_of_hidden_keys():
    leaves = [torch.randn(200, 4, requires_grad=True) for _ in range(3)]
    attend(*leaves, window(4, 4), normalize=nn.Softmax(-1)).context.sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)
    none = torch.zeros(200, 200, dtype=torch.bool)
    assert (attend(*leaves, none, normalize=nn.Softmax(-1)).context == 0).all()


def test_one_centre_for_all_changed_in_place_is_noticed():
    centre = torch.tensor(1.0)
    seen = attend(*(torch.randn(9, 4) for _ in range(3)), around(centre, 1))
    centre.fill_(6.0)
    with pytest.raises(RuntimeError, match="can no longer be read"):
        _ = seen.weights


def test_a_whole_number_changed_since_is_noticed():
    temperature = Temperature(2)
    seen = attend(*(torch.randn(9, 4) for _ in range(3)), normalize=temperature)
    temperature.temperature = 5
    with pytest.raises(RuntimeError, match="can no longer be read"):
        _ = seen.weights


@pytest.mark.parametrize("attention", [Attention(Additive(4, 4, 8)), MultiHead(4, 2)], ids=["one", "heads"])
def test_keys_projected_by_other_parameters_are_refused(attention):
    key = torch.randn(2, 5, 4)
    memory = attention.precompute(key, key)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.mul_(-3)
    with pytest.raises(RuntimeError, match=r"call precompute\(\) again"):
        memory(torch.randn(2, 3, 4))


@pytest.mark.skipif(
    not torch.distributed.is_available(), reason="torch was built without distributed training"
)
def test_what_attend_returns_goes_through_distributed_training(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        heads = nn.parallel.DistributedDataParallel(MultiHead(8, 2), find_unused_parameters=True)
        heads(torch.randn(2, 3, 8)).context.sum().backward()
        assert all(parameter.grad is not None for parameter in heads.parameters())
        del heads  # before its group: who is the last to hold a group waits for threads that may wait for it
        gc.collect()
    finally:
        torch.distributed.destroy_process_group()


def test_a_refused_call_does_not_grow_the_cache():
    heads, cache = MultiHead(8, 2), KVCache()
    with pytest.raises(ValueError, match="does not broadcast"):
        heads(torch.randn(2, 5, 8), mask=torch.ones(2, 2) > 0, cache=cache)
    assert len(cache) == 0


@torch.no_grad()
def test_branches_of_a_cache_do_not_write_over_each_other():
    heads, cache, x = MultiHead(8, 2), KVCache(), torch.randn(2, 6, 8)
    heads(x[:, :4], mask=causal(), cache=cache)
    branch = copy.copy(cache)
    here = heads(x[:, 4:5], cache=cache)
    there = heads(x[:, 5:6], cache=branch)
    assert len(cache) == len(branch) == 5
    both = torch.cat([x[:, :4], x[:, 4:5]], 1)
    torch.testing.assert_close(here.context, heads(x[:, 4:5], both).context)
    both = torch.cat([x[:, :4], x[:, 5:6]], 1)
    torch.testing.assert_close(there.context, heads(x[:, 5:6], both).context)


def test_a_cache_filled_in_inference_mode_goes_on_outside():
    heads, cache, x = MultiHead(8, 2), KVCache(), torch.randn(2, 5, 8)
    with torch.inference_mode():
        heads(x, cache=cache)
    with torch.no_grad():
        assert heads(x[:, :1], cache=cache).weights.shape[-1] == 6


@pytest.mark.bare
def test_local_attention_answers_mistakes_in_words():
    key = torch.randn(2, 9, 4)
    with pytest.raises(ValueError, match=r"mask \(3, 3, 7\) does not broadcast"):
        LocalP(ScaledDot(), 4, 8, 2)(torch.randn(2, 3, 4), key, key, torch.ones(3, 3, 7) > 0)
    with pytest.raises(ValueError, match=r"query must be \(\*batch, queries, dim\), got \(4,\)"):
        LocalM(ScaledDot(), 2)(torch.randn(4), key, key)


def test_rotary_feels_the_same_distance_far_out():
    vector = 3 * torch.randn(1, 8)
    near, far = (Rotary(Dot(), offset=place) for place in (0, 200_000))
    here = near(vector, vector)
    there = torch.einsum("qd,kd->qk", far.project_query(vector, 1), far.project_query(vector, 1))
    torch.testing.assert_close(here, there, rtol=1e-6, atol=1e-6)


@pytest.mark.bare
def test_gaussian_under_vmap_takes_the_definition():
    query, key, value = torch.randn(2, 3, 4), torch.randn(2, 9, 4), torch.randn(2, 9, 6)
    seen = torch.func.vmap(lambda q, k, v: attend(q, k, v, score=Gaussian()).context)(query, key, value)
    torch.testing.assert_close(seen, attend(query, key, value, score=Gaussian()).context)


def test_scores_divide_and_sum():
    query, key = torch.randn(3, 4), torch.randn(5, 4)
    torch.testing.assert_close((Dot() / 2)(query, key), Dot()(query, key) / 2)
    torch.testing.assert_close(sum([Dot(), Dot()])(query, key), 2 * Dot()(query, key))
