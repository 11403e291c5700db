"""Several heads: parity with nn.MultiheadAttention, grouped heads, the cache."""

import copy
import gc

import pytest
import torch
from torch import nn

from regard.attention import (
    Additive,
    Alibi,
    Boxcar,
    Dot,
    KVCache,
    MultiHead,
    RelativeBias,
    Rotary,
    ScaledDot,
    attend,
    causal,
    dense,
    padding,
    sigmoid,
    softmax,
    sparsemax,
    window,
)


def theirs_and_ours(dim=12, heads=3, **options):
    theirs = nn.MultiheadAttention(dim, heads, batch_first=True, **options).double()
    with torch.no_grad():
        for parameter in theirs.parameters():  # the initial biases are zeros
            parameter.add_(0.1 * torch.randn_like(parameter))
    return theirs, MultiHead.from_torch(theirs)


def randn(*shape):
    return torch.randn(*shape, dtype=torch.float64)


# ---- parity


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(2, 5), (5,)], ids=["batch", "no batch"])
def test_self_attention_equals_torch(shape, bias):
    theirs, ours = theirs_and_ours(bias=bias)
    x = randn(*shape, 12)
    context, weights = theirs(x, x, x, average_attn_weights=False)
    output = ours(x)
    torch.testing.assert_close(output.context, context)
    torch.testing.assert_close(output.weights, weights)
    averaged = theirs(x, x, x)[1]
    torch.testing.assert_close(output.weights.mean(-3), averaged)


@pytest.mark.parametrize("sizes", [{}, {"kdim": 7, "vdim": 9}, {"kdim": 12, "vdim": 9}], ids=repr)
def test_cross_attention_equals_torch(sizes):
    theirs, ours = theirs_and_ours(**sizes)
    query, key, value = randn(2, 4, 12), randn(2, 6, theirs.kdim), randn(2, 6, theirs.vdim)
    context, weights = theirs(query, key, value, average_attn_weights=False)
    output = ours(query, key, value)
    torch.testing.assert_close(output.context, context)
    torch.testing.assert_close(output.weights, weights)


def test_padding_equals_key_padding_mask():
    theirs, ours = theirs_and_ours()
    query, key, lengths = randn(3, 4, 12), randn(3, 6, 12), torch.tensor([6, 1, 3])
    hidden = torch.arange(6) >= lengths[:, None]
    context, weights = theirs(query, key, key, key_padding_mask=hidden, average_attn_weights=False)
    output = ours(query, key, mask=padding(lengths))
    torch.testing.assert_close(output.context, context)
    torch.testing.assert_close(output.weights, weights)


def test_dense_is_the_complement_of_attn_mask():
    theirs, ours = theirs_and_ours()
    x = randn(2, 5, 12)
    hidden = torch.rand(5, 5) < 0.4
    hidden.fill_diagonal_(False)
    context, weights = theirs(x, x, x, attn_mask=hidden, average_attn_weights=False)
    output = ours(x, mask=dense(~hidden))
    torch.testing.assert_close(output.context, context)
    torch.testing.assert_close(output.weights, weights)
    by_head = torch.rand(2 * 3, 5, 5) < 0.4
    by_head.diagonal(dim1=-2, dim2=-1).fill_(False)
    context = theirs(x, x, x, attn_mask=by_head)[0]
    torch.testing.assert_close(ours(x, mask=~by_head.reshape(2, 3, 5, 5)).context, context)


def test_causal_equals_the_triangular_attn_mask():
    theirs, ours = theirs_and_ours()
    x = randn(2, 5, 12)
    triangle = nn.Transformer.generate_square_subsequent_mask(5).double()
    torch.testing.assert_close(ours(x, mask=causal()).context, theirs(x, x, x, attn_mask=triangle)[0])


def test_gradients_equal_torch():
    theirs, ours = theirs_and_ours()
    x = randn(2, 5, 12).requires_grad_()
    factor = randn(2, 5, 12)
    (expected,) = torch.autograd.grad(theirs(x, x, x)[0], x, factor)
    (actual,) = torch.autograd.grad(ours(x).context, x, factor)
    torch.testing.assert_close(actual, expected)
    theirs(x, x, x)[0].backward(factor)
    ours(x).context.backward(factor)
    in_proj_grad = torch.cat([ours.q_proj.weight.grad, ours.k_proj.weight.grad, ours.v_proj.weight.grad])
    torch.testing.assert_close(in_proj_grad, theirs.in_proj_weight.grad)


def test_weights_are_copied_with_mode_and_dropout():
    theirs, ours = theirs_and_ours(dropout=0.3)
    assert ours.training
    assert ours.normalize.p == 0.3
    assert not MultiHead.from_torch(theirs.eval()).training
    x = randn(2, 5, 12)
    expected = theirs(x, x, x)[0]
    torch.testing.assert_close(ours.eval()(x).context, expected)
    with torch.no_grad():
        ours.q_proj.weight.zero_()
    assert theirs.in_proj_weight.abs().min() > 0


# ---- grouped heads


@pytest.mark.parametrize("kv_heads", [1, 2, 6])
@pytest.mark.parametrize("mask", [None, causal(), padding([5, 2]), window(1, 1)], ids=repr)
def test_grouped_heads_equal_repeated_heads(kv_heads, mask):
    few = MultiHead(12, 6, kv_heads).double()
    many = MultiHead(12, 6).double()
    with torch.no_grad():
        for name in ("q_proj", "out_proj"):
            getattr(many, name).load_state_dict(getattr(few, name).state_dict())
        for name in ("k_proj", "v_proj"):
            layer = getattr(few, name)
            repeated = layer.weight.unflatten(0, (kv_heads, 2)).repeat_interleave(6 // kv_heads, 0)
            getattr(many, name).weight.copy_(repeated.flatten(0, 1))
    x = randn(2, 5, 12)
    output, expected = few(x, mask=mask), many(x, mask=mask)
    torch.testing.assert_close(output.context, expected.context)
    torch.testing.assert_close(output.weights, expected.weights)
    assert output.weights.shape == (2, 6, 5, 5)


@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_any_batch(batch):
    heads = MultiHead(12, 3).double()
    x = randn(*batch, 5, 12)
    output = heads(x, mask=causal())
    assert output.context.shape == (*batch, 5, 12)
    assert output.weights.shape == (*batch, 3, 5, 5)
    flat = heads(x.reshape(-1, 5, 12), mask=causal())
    torch.testing.assert_close(output.context.reshape(-1, 5, 12), flat.context)


@pytest.mark.parametrize(("batch", "heads"), [(2, 3), (3, 3)])
def test_each_head_is_a_separate_attention(batch, heads):
    module = MultiHead(12, heads).double()
    x, lengths = randn(batch, 5, 12), torch.tensor([5, 2, 3])[:batch]
    output = module(x, mask=padding(lengths) & causal())
    parts = []
    for h in range(heads):
        rows = slice(h * module.head_dim, (h + 1) * module.head_dim)
        query, key, value = (layer(x)[..., rows] for layer in (module.q_proj, module.k_proj, module.v_proj))
        head = attend(query, key, value, padding(lengths) & causal())
        torch.testing.assert_close(output.weights[:, h], head.weights)
        parts.append(head.context)
    torch.testing.assert_close(output.context, module.out_proj(torch.cat(parts, -1)))


@pytest.mark.parametrize(
    "score",
    [Additive(4, 4, 5), Rotary(ScaledDot()), ScaledDot() + Alibi(3), ScaledDot() + RelativeBias(3), Boxcar(2.0)],
    ids=lambda score: " ".join(repr(score).split()),
)
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_any_score_and_normalizer(score, kv_heads):
    normalize = None if isinstance(score, Boxcar) else sparsemax
    heads = MultiHead(12, 3, kv_heads, score=score, normalize=normalize).double()
    x = randn(2, 5, 12)
    output = heads(x, mask=causal())
    hidden = ~causal().materialize(5, 5)
    assert (output.weights[..., hidden] == 0).all()
    value = heads.v_proj(x).unflatten(-1, (kv_heads, 4)).transpose(1, 2).expand(2, 3, 5, 4)
    expected = heads.out_proj((output.weights @ value).transpose(1, 2).flatten(-2))
    torch.testing.assert_close(output.context, expected)


def test_dropout_with_every_score():
    x = torch.randn(2, 5, 12)
    for score in (None, Boxcar(2.0), Additive(4, 4, 5)):
        heads = MultiHead(12, 3, score=score, dropout=0.5)
        plain = MultiHead(12, 3, score=score)
        plain.load_state_dict(heads.state_dict())
        torch.testing.assert_close(heads.eval()(x).context, plain(x).context)
        torch.testing.assert_close(heads.train()(x).weights, plain(x).weights)


# ---- fixed keys


@pytest.mark.parametrize("score", [None, Additive(4, 4, 5), Rotary(ScaledDot())], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("kv_heads", [1, 3])
def test_precomputed_keys_equal_the_keys_and_are_projected_once(score, kv_heads):
    heads = MultiHead(12, 3, kv_heads, key_dim=7, value_dim=7, score=score).double()
    memory = randn(2, 6, 7)
    calls = []
    handle = heads.k_proj.register_forward_hook(lambda *_: calls.append(1))
    again = heads.precompute(memory, mask=padding([6, 2]))
    x = randn(3, 2, 1, 12)
    output = [again(query) for query in x]
    assert len(calls) == 1
    handle.remove()
    for query, one in zip(x, output, strict=True):
        expected = heads(query, memory, mask=padding([6, 2]))
        torch.testing.assert_close(one.context, expected.context)
        torch.testing.assert_close(one.weights, expected.weights)


# ---- the cache


def named_part(options):
    """A name that is the same in every process: no address of a function."""
    return " ".join(f"{name} {getattr(part, '__name__', type(part).__name__)}" for name, part in options.items())


@pytest.mark.parametrize("options", [{}, {"normalize": softmax}, {"dropout": 0.1}, {"score": Dot()}], ids=named_part)
def test_a_redundant_key_bias(options):
    heads = MultiHead(12, 3, **options)
    assert heads.is_key_bias_redundant
    x = torch.randn(2, 5, 12)
    before = heads.eval()(x).weights
    with torch.no_grad():
        heads.k_proj.bias.add_(1.0)
    torch.testing.assert_close(heads(x).weights, before)


@pytest.mark.parametrize("options", [{"normalize": sigmoid}, {"score": Rotary(ScaledDot())}], ids=named_part)
def test_a_key_bias_that_has_influence(options):
    heads = MultiHead(12, 3, **options)
    assert not heads.is_key_bias_redundant
    x = torch.randn(2, 5, 12)
    before = heads.eval()(x).weights
    with torch.no_grad():
        heads.k_proj.bias.add_(1.0)
    assert not torch.allclose(heads(x).weights, before)


SCORES = {
    "plain": lambda: None,
    "Rotary": lambda: Rotary(ScaledDot()),
    "Alibi": lambda: ScaledDot() + Alibi(3),
    "RelativeBias": lambda: ScaledDot() + 10 * RelativeBias(3),
    "Additive": lambda: Additive(4, 4, 5),
}


@pytest.mark.parametrize("score", SCORES)
@pytest.mark.parametrize("kv_heads", [1, 3])
@pytest.mark.parametrize("grad", [False, True])
def test_steps_with_a_cache_equal_one_causal_pass(score, kv_heads, grad):
    heads = MultiHead(12, 3, kv_heads, score=SCORES[score]()).double()
    x = randn(2, 20, 12).requires_grad_(grad)
    full = heads(x, mask=causal())
    with torch.set_grad_enabled(grad):
        cache = KVCache()
        steps = []
        for start, stop in [(0, 3), *((i, i + 1) for i in range(3, 20))]:  # a prompt, then word by word
            steps.append(heads(x[:, start:stop], mask=causal(), cache=cache))
            assert len(cache) == stop
    context = torch.cat([step.context for step in steps], -2)
    torch.testing.assert_close(context, full.context)
    for at, step in enumerate(steps[1:], 3):  # read late, when the cache has grown past it
        assert step.weights.shape[-1] == at + 1
        torch.testing.assert_close(step.weights[..., 0, :], full.weights[..., at, : at + 1])
    if grad:
        factor = torch.randn_like(context)
        inputs = [x, *(p for p in heads.parameters() if p.requires_grad)]
        for actual, expected in zip(
            torch.autograd.grad(context, inputs, factor), torch.autograd.grad(full.context, inputs, factor), strict=True
        ):
            torch.testing.assert_close(actual, expected)


def test_a_windowed_decoder_with_a_cache():
    heads = MultiHead(12, 3).double()
    x = randn(2, 10, 12)
    expected = heads(x, mask=window(2, 0)).context
    cache = KVCache()
    with torch.no_grad():
        steps = [heads(x[:, i : i + 1], mask=window(2, 0), cache=cache).context for i in range(10)]
    torch.testing.assert_close(torch.cat(steps, -2), expected)


@pytest.mark.parametrize("grad", [False, True])
def test_reorder_for_beam_search(grad):
    heads = MultiHead(12, 3).double()
    x, rows = randn(3, 6, 12), torch.tensor([2, 0, 0])
    with torch.set_grad_enabled(grad):
        cache = KVCache()
        heads(x[:, :4], mask=causal(), cache=cache)
        cache.reorder(rows)
        moved = torch.cat([x[rows, :4], x[:, 4:]], 1)
        steps = [heads(x[:, i : i + 1], mask=causal(), cache=cache).context for i in (4, 5)]
    expected = heads(moved, mask=causal()).context[:, 4:]
    torch.testing.assert_close(torch.cat(steps, -2), expected)
    KVCache().reorder(rows)  # an empty cache has no rows to move


def test_two_caches_of_one_prompt_are_independent():
    heads = MultiHead(12, 3).double()
    x = randn(2, 6, 12)
    with torch.no_grad():
        cache = KVCache()
        heads(x[:, :3], mask=causal(), cache=cache)
        other = copy.deepcopy(cache)
        one = heads(x[:, 3:4], mask=causal(), cache=cache)
        two = heads(x[:, 4:5], mask=causal(), cache=other)
    torch.testing.assert_close(one.context, heads(x[:, :4], mask=causal()).context[:, 3:])
    again = torch.cat([x[:, :3], x[:, 4:5]], 1)
    torch.testing.assert_close(two.context, heads(again, mask=causal()).context[:, 3:])


def test_a_step_without_gradients_copies_no_earlier_keys():
    heads, cache = MultiHead(12, 3), KVCache()
    storages = set()
    with torch.no_grad():
        for _ in range(64):
            output = heads(torch.randn(1, 1, 12), mask=causal(), cache=cache)
            storages.add(output._inputs.key.untyped_storage().data_ptr())
    assert len(storages) <= 4


# ---- messages


@pytest.mark.bare
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: MultiHead(10, 3), "embed_dim must be a multiple of num_heads, got embed_dim=10, num_heads=3"),
        (lambda: MultiHead(12, 0), "got embed_dim=12, num_heads=0"),
        (lambda: MultiHead(12, 6, 4), "num_heads must be a multiple of num_kv_heads, got num_heads=6, num_kv_heads=4"),
        (
            lambda: MultiHead(12, 3)(torch.zeros(2, 5, 11)),
            r"query must be \(\*batch, positions, 12\), got \(2, 5, 11\)",
        ),
        (lambda: MultiHead(12, 3)(torch.zeros(12)), r"got \(12,\)"),
        (lambda: MultiHead(12, 3)(torch.zeros(5, 12), torch.zeros(5, 3)), r"key .* got \(5, 3\)"),
        (lambda: MultiHead(12, 3).precompute(torch.zeros(5, 3)), r"key .* got \(5, 3\)"),
        (lambda: MultiHead(12, 3).precompute(torch.zeros(5, 12))(torch.zeros(5, 3)), r"query .* got \(5, 3\)"),
        (lambda: MultiHead(12, 3)(torch.zeros(2, 5, 12), torch.zeros(3, 5, 12)), "leading axes do not broadcast"),
        (lambda: MultiHead(12, 3, score=Alibi(4) + ScaledDot())(torch.zeros(2, 5, 12)), "expects 4 heads"),
    ],
)
def test_wrong_sizes_raise_one_line(wrong, words):
    with pytest.raises(ValueError, match=words) as error:
        wrong()
    assert "\n" not in str(error.value)


@pytest.mark.bare
def test_a_cache_of_another_batch_raises_one_line():
    heads, cache = MultiHead(12, 3), KVCache()
    with torch.no_grad():
        heads(torch.zeros(2, 1, 12), cache=cache)
    for grad in (False, True):
        words = r"cache.*\(2, 3, 1, 4\).*\(5, 3, 1, 4\)"
        with torch.set_grad_enabled(grad), pytest.raises(ValueError, match=words) as error:
            heads(torch.zeros(5, 1, 12), cache=cache)
        assert "\n" not in str(error.value)
    assert len(cache) == 1


@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch was built without distributed training")
def test_the_output_works_with_distributed_data_parallel(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meet", rank=0, world_size=1)
    try:
        attention = nn.parallel.DistributedDataParallel(MultiHead(8, 2), find_unused_parameters=True)
        attention(torch.randn(2, 3, 8)).context.sum().backward()
        assert all(parameter.grad is not None for parameter in attention.parameters())
        del attention  # before its process group, whose last owner would wait for threads that wait for it
        gc.collect()
    finally:
        torch.distributed.destroy_process_group()
