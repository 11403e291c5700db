"""MultiHead with sizes of its own, norms of queries and keys, and extra keys: parity with PyTorch and definitions."""

import copy

import pytest
import torch
from torch import nn

import regard
from regard.attention import (
    Additive,
    Alibi,
    Dropout,
    GaussianWindow,
    KVCache,
    MultiHead,
    RelativeBias,
    Rotary,
    ScaledDot,
    attend,
    causal,
    dense,
    entmax15,
    padding,
    softmax,
    sparsemax,
    window,
)
from regard.attention.fast import blocked
from regard.errors import ShapeError, StaleStateError, UsageError

EXTRA_KEYS = [{"add_bias_kv": True}, {"add_zero_attn": True}, {"add_bias_kv": True, "add_zero_attn": True}]


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def with_random_parameters(module):
    module = module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def heads_by_definition(ours, query, key=None, value=None, mask=None):
    """Each head from slices of the weights; MultiHead with any sizes, norms and extra keys."""
    key = query if key is None else key
    value = key if value is None else value
    q, k, v = ours.q_proj(query), ours.k_proj(key), ours.v_proj(value)
    contexts = []
    for head in range(ours.num_heads):
        group = head // (ours.num_heads // ours.num_kv_heads)
        own = slice(head * ours.head_dim, (head + 1) * ours.head_dim)
        shared = slice(group * ours.head_dim, (group + 1) * ours.head_dim)
        shared_value = slice(group * ours.value_head_dim, (group + 1) * ours.value_head_dim)
        one_q, one_k, one_v = q[..., own], k[..., shared], v[..., shared_value]
        if ours.q_norm is not None:
            one_q, one_k = ours.q_norm(one_q), ours.k_norm(one_k)
        visible = torch.ones(one_q.shape[-2], one_k.shape[-2]).bool() if mask is None else mask
        if ours.bias_k is not None:
            one_k = torch.cat([one_k, ours.bias_k[..., shared].expand(*one_k.shape[:-2], 1, -1)], -2)
            one_v = torch.cat([one_v, ours.bias_v[..., shared_value].expand(*one_v.shape[:-2], 1, -1)], -2)
        if ours.add_zero_attn:
            one_k = torch.cat([one_k, torch.zeros_like(one_k[..., :1, :])], -2)
            one_v = torch.cat([one_v, torch.zeros_like(one_v[..., :1, :])], -2)
        extra = one_k.shape[-2] - visible.shape[-1]
        visible = torch.cat([visible, torch.ones(*visible.shape[:-1], extra, dtype=torch.bool)], -1)
        contexts.append(attend(one_q, one_k, one_v, visible, score=ours.score, normalize=ours.normalize).context)
    return ours.out_proj(torch.cat(contexts, -1))


# ---- the default is unchanged


def test_the_default_constructor_draws_the_same_numbers():
    """Four linear layers in order, then their Xavier weights: what a seed gave before there were options."""
    torch.manual_seed(3)
    layers = [nn.Linear(8, size) for size in (8, 4, 4, 8)]
    for layer in layers:
        nn.init.xavier_uniform_(layer.weight)
    after = torch.rand(1)
    torch.manual_seed(3)
    attention = MultiHead(8, 4, 2)
    assert torch.equal(torch.rand(1), after)
    names = ["q_proj", "k_proj", "v_proj", "out_proj"]
    assert list(attention.state_dict()) == [f"{name}.{kind}" for name in names for kind in ("weight", "bias")]
    for name, layer in zip(names, layers, strict=True):
        assert torch.equal(getattr(attention, name).weight, layer.weight)


# ---- parity with PyTorch


@pytest.mark.parametrize("options", EXTRA_KEYS, ids=repr)
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 5), (5,)], ids=["batch", "no batch"])
def test_extra_keys_equal_torch(options, bias, shape):
    theirs = with_random_parameters(nn.MultiheadAttention(12, 3, batch_first=True, bias=bias, **options))
    ours = MultiHead.from_torch(theirs)
    x = randn(*shape, 12).requires_grad_()
    context, weights = theirs(x, x, x, average_attn_weights=False)
    output = ours(x)
    torch.testing.assert_close(output.context, context)
    torch.testing.assert_close(output.weights, weights)
    expected = torch.autograd.grad(context.square().sum(), [x, *theirs.parameters()])
    actual = dict(
        zip(
            ["x", *dict(ours.named_parameters())],
            torch.autograd.grad(output.context.square().sum(), [x, *ours.parameters()]),
            strict=True,
        )
    )
    torch.testing.assert_close(actual["x"], expected[0])
    if "add_bias_kv" in options:
        for name in ("bias_k", "bias_v"):
            index = 1 + list(dict(theirs.named_parameters())).index(name)
            torch.testing.assert_close(actual[name], expected[index])


@pytest.mark.parametrize("options", EXTRA_KEYS, ids=repr)
@pytest.mark.parametrize("sizes", [{}, {"kdim": 7, "vdim": 9}], ids=repr)
def test_masks_see_extra_keys_as_torch_does(options, sizes):
    theirs = with_random_parameters(nn.MultiheadAttention(12, 3, batch_first=True, **sizes, **options))
    ours = MultiHead.from_torch(theirs)
    x, memory = randn(2, 5, 12), randn(2, 6, ours.k_proj.in_features)
    value = randn(2, 6, ours.v_proj.in_features)
    hidden = torch.tensor([[False] * 6, [False] * 2 + [True] * 4])
    random = torch.rand(5, 6) < 0.5
    random[1] = True  # a query that sees no key of the input: torch is right here, as the extra ones are visible
    for mask, arguments in (
        (padding([6, 2]), {"key_padding_mask": hidden}),
        (dense(~random), {"attn_mask": random}),
        (padding([6, 2]) & ~random, {"key_padding_mask": hidden, "attn_mask": random}),
    ):
        expected, weights = theirs(x, memory, value, average_attn_weights=False, **arguments)
        output = ours(x, memory, value, mask)
        torch.testing.assert_close(output.context, expected)
        torch.testing.assert_close(output.weights, weights)
        torch.testing.assert_close(ours.precompute(memory, value, mask)(x).context, expected)


@pytest.mark.parametrize("options", EXTRA_KEYS, ids=repr)
def test_causal_masks_keep_their_diagonal(options):
    theirs = with_random_parameters(nn.MultiheadAttention(12, 3, batch_first=True, **options))
    ours, x = MultiHead.from_torch(theirs), randn(2, 5, 12)
    hidden = torch.ones(5, 5).triu(1).bool()
    torch.testing.assert_close(ours(x, mask=causal()).context, theirs(x, x, x, attn_mask=hidden)[0])
    wide = MultiHead.from_torch(theirs)
    narrow = ~window(1, 0).materialize(5, 5)
    torch.testing.assert_close(wide(x, mask=window(1, 0)).context, theirs(x, x, x, attn_mask=narrow)[0])


def test_extra_parameters_are_drawn_as_those_of_torch():
    torch.manual_seed(5)
    theirs = nn.MultiheadAttention(256, 4, add_bias_kv=True)
    ours = MultiHead(256, 4, add_bias_kv=True)
    for name in ("bias_k", "bias_v"):
        assert getattr(ours, name).shape == getattr(theirs, name).shape == (1, 1, 256)
        assert getattr(ours, name).std().item() == pytest.approx(getattr(theirs, name).std().item(), rel=0.2)
    assert {"bias_k", "bias_v"} <= set(ours.state_dict())


# ---- sizes, norms, extra keys by the definition

OPTIONS = {
    "head_dim": {"head_dim": 7},
    "one head of another size": {"head_dim": 3, "num_kv_heads": 1},
    "value_head_dim": {"value_head_dim": 5, "num_kv_heads": 2},
    "query_dim": {"query_dim": 9, "key_dim": 9},
    "qk_norm": {"qk_norm": nn.RMSNorm},
    "qk_norm, grouped": {"qk_norm": lambda size: nn.LayerNorm(size, bias=False), "num_kv_heads": 2},
    "extra keys, grouped": {"add_bias_kv": True, "add_zero_attn": True, "num_kv_heads": 2},
    "extra keys, multi-query": {"add_bias_kv": True, "num_kv_heads": 1},
    "no bias at the end": {"out_bias": False},
    "no bias but at the end": {"bias": False, "out_bias": True},
    "all": {
        "head_dim": 6,
        "value_head_dim": 2,
        "query_dim": 9,
        "num_kv_heads": 2,
        "qk_norm": nn.RMSNorm,
        "add_bias_kv": True,
        "add_zero_attn": True,
    },
}


def build(name, **others):
    return with_random_parameters(MultiHead(12, 4, **OPTIONS[name], **others))


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("score", [None, "additive"])
@pytest.mark.parametrize("normalize", [None, entmax15])
def test_every_option_equals_its_definition(name, score, normalize):
    head_dim = OPTIONS[name].get("head_dim", 3)
    score = Additive(head_dim, head_dim, 5) if score else None
    ours = build(name, score=score, normalize=normalize)
    x = randn(2, 5, ours.q_proj.in_features)
    mask = torch.rand(5, 5) < 0.6
    for visible in (None, mask):
        output = ours(x, mask=visible)
        assert output.context.shape == (2, 5, 12)
        assert output.weights.shape == (2, 4, 5, 5 + ours.num_extra_keys)
        torch.testing.assert_close(output.context, heads_by_definition(ours, x, mask=visible))
        torch.testing.assert_close(ours.precompute(x, mask=visible)(x).context, output.context)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("mask", [causal(), causal() & padding([9, 4]), window(2, 0)], ids=repr)
def test_steps_with_a_cache_equal_one_pass(name, mask):
    ours, cache = build(name).eval(), KVCache()
    x = randn(2, 9, ours.q_proj.in_features)
    with torch.no_grad():
        full = ours(x, mask=mask).context
        for at in range(9):
            now = (
                mask
                if not isinstance(mask, type(causal() & causal()))
                else causal() & padding([at + 1, min(at + 1, 4)])
            )
            step = ours(x[:, at : at + 1], mask=now, cache=cache)
            torch.testing.assert_close(step.context[:, 0], full[:, at])
    assert len(cache) == 9  # extra keys are not stored


@pytest.mark.parametrize("name", OPTIONS)
def test_reset_parameters_repeats_the_constructor(name):
    torch.manual_seed(4)
    ours = MultiHead(12, 4, **OPTIONS[name])
    expected = copy.deepcopy(ours.state_dict())
    with torch.no_grad():
        for parameter in ours.parameters():
            parameter.fill_(7.0)
    torch.manual_seed(4)
    ours.reset_parameters()
    torch.testing.assert_close(ours.state_dict(), expected, rtol=0, atol=0)


def test_fixed_keys_of_selected_rows():
    ours, memory, x = build("all"), randn(3, 6, 9), randn(2, 2, 9)
    rows = torch.tensor([2, 0])
    fixed = ours.precompute(memory, mask=padding([6, 2, 4])).reorder(rows, padding([4, 6]))
    torch.testing.assert_close(fixed(x).context, ours(x, memory[rows], mask=padding([4, 6])).context)


@pytest.mark.parametrize("name", ["qk_norm", "extra keys, grouped"])
def test_fixed_keys_notice_that_norms_and_extra_keys_were_trained(name):
    ours, x = build(name), randn(2, 2, 12)
    fixed = ours.precompute(randn(2, 6, 12))
    fixed(x)
    changed = ours.k_norm.weight if name == "qk_norm" else ours.bias_k
    with torch.no_grad():
        changed.add_(1.0)
    with pytest.raises(StaleStateError):
        fixed(x)


@pytest.mark.parametrize("mask", [None, causal(), padding([40, 7]), window(3, 2)], ids=repr)
def test_blocks_and_bands_with_extra_keys(mask, monkeypatch, used_paths):
    ours, x = build("extra keys, grouped", normalize=sparsemax), randn(2, 40, 12)
    expected = ours(x, mask=mask)
    assert used_paths == []
    monkeypatch.setattr(blocked, "MAX_SCORES", 1000)
    torch.testing.assert_close(ours(x, mask=mask).context, expected.context)
    assert used_paths == ["blocked"]


@pytest.mark.parametrize("options", [{}, {"qk_norm": nn.RMSNorm}, {"head_dim": 8}, *EXTRA_KEYS], ids=repr)
def test_the_fused_path_is_kept(options, used_paths):
    MultiHead(16, 4, **options)(torch.randn(2, 6, 16), mask=padding([6, 3]))
    assert used_paths == ["fused"]


@pytest.mark.parametrize("name", OPTIONS)
def test_watchers_see_all_weights(name):
    ours = build(name)
    x = randn(1, 5, ours.q_proj.in_features)
    with regard.watch(ours) as records:
        context = ours(x).context
    (record,) = records
    assert record.weights.shape[-2:] == (5, 5 + ours.num_extra_keys)
    torch.testing.assert_close(context, ours(x).context)


def test_a_key_bias_is_redundant_only_without_norm_and_extra_keys():
    assert MultiHead(8, 2).is_key_bias_redundant
    for options in ({"qk_norm": nn.RMSNorm}, *EXTRA_KEYS):
        assert not MultiHead(8, 2, **options).is_key_bias_redundant


def test_norms_are_as_in_qwen3():
    """The norm is over the features of one head; its names are q_norm and k_norm."""
    ours = MultiHead(16, 2, qk_norm=lambda size: nn.RMSNorm(size, eps=1e-6), head_dim=4, dtype=torch.float64)
    assert ours.q_norm.weight.shape == (4,)
    assert ours.q_norm.weight.dtype == torch.float64
    assert {"q_norm.weight", "k_norm.weight"} <= set(ours.state_dict())
    assert ours.q_norm is not ours.k_norm
    x = randn(2, 3, 16)
    query = nn.functional.rms_norm(ours.q_proj(x).view(2, 3, 2, 4), (4,), eps=1e-6).transpose(1, 2)
    key = nn.functional.rms_norm(ours.k_proj(x).view(2, 3, 2, 4), (4,), eps=1e-6).transpose(1, 2)
    torch.testing.assert_close(ours(x).scores, ScaledDot()(query, key))


def test_rotation_follows_the_norm():
    ours, x = build("qk_norm", score=Rotary(ScaledDot(), interleaved=False, rotary_dim=2)), randn(2, 5, 12)
    torch.testing.assert_close(
        ours(x, mask=causal()).context, heads_by_definition(ours, x, mask=torch.ones(5, 5).tril() > 0)
    )


@pytest.mark.bare
def test_unusable_options_are_refused():
    for score in (Rotary(ScaledDot()), ScaledDot() + Alibi(4), RelativeBias(4)):
        for options in EXTRA_KEYS:
            with pytest.raises(UsageError, match="needs the position of every key, and add_bias_kv"):
                MultiHead(12, 4, score=score, **options)
    for normalize in (GaussianWindow(softmax, 1.0, 1.0), Dropout(GaussianWindow(softmax, 1.0, 1.0), 0.1)):
        with pytest.raises(UsageError, match="needs the position of every key"):
            MultiHead(12, 4, normalize=normalize, add_zero_attn=True)
    for options in ({"head_dim": 0}, {"value_head_dim": -1}):
        with pytest.raises(UsageError, match=r"head_dim must be at least 1, got (0|-1)"):
            MultiHead(12, 4, **options)
    with pytest.raises(
        UsageError, match="num_heads must be a multiple of num_kv_heads, got num_heads=4, num_kv_heads=3"
    ):
        MultiHead(10, 4, 3, head_dim=5)
    with pytest.raises(UsageError, match="embed_dim must be a multiple of num_heads, got embed_dim=10, num_heads=4"):
        MultiHead(10, 4)
    with pytest.raises(ShapeError, match=r"query must be \(\*batch, positions, 9\), got \(2, 5, 12\)"):
        MultiHead(12, 4, query_dim=9)(torch.zeros(2, 5, 12))
    with pytest.raises(ShapeError):  # a mask is that of the keys of the input
        MultiHead(12, 4, add_zero_attn=True)(torch.zeros(2, 5, 12), mask=torch.ones(5, 6) > 0)
