"""Grouped-query attention: heads of queries that share heads of keys and values, without a copy of them."""

import pytest
import torch
import torch.nn.functional as F

from regard.attention import (
    Additive,
    Alibi,
    Bilinear,
    Cosine,
    Gaussian,
    KVCache,
    MultiHead,
    RelativeBias,
    Rotary,
    ScaledDot,
    Temperature,
    attend,
    causal,
    padding,
    softmax,
    sparsemax,
    window,
)
from regard.attention.observers import register_watcher

HEADS, KV_HEADS, LENGTH, DIM = 6, 2, 40, 24
MASKS = {
    "none": None,
    "causal": causal(),
    "causal from the start": causal(offset=0),
    "padding": padding([40, 7]),
    "causal and padding": causal() & padding([40, 0]),
    "window": window(3, 1),
    "dense": torch.rand(LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)) < 0.7,
    "dense by head": torch.rand(1, HEADS, LENGTH, LENGTH, generator=torch.Generator().manual_seed(0)) < 0.7,
    "dense by batch and head": torch.rand(2, 1, 1, LENGTH, generator=torch.Generator().manual_seed(0)) < 0.7,
}
SCORES = {
    "dot": ScaledDot,
    "rotary": lambda: Rotary(ScaledDot()),
    "bias": lambda: ScaledDot() + Alibi(HEADS),
    "gaussian": Gaussian,
    "cosine": Cosine,
}
NORMALIZERS = {"softmax": softmax, "temperature": Temperature(0.5), "sparsemax": sparsemax}


def build(score="dot", normalize="softmax"):
    """A grouped module, and one with repeated weights that computes the same without groups."""
    options = {"score": SCORES[score](), "normalize": NORMALIZERS[normalize]}
    grouped = MultiHead(DIM, HEADS, KV_HEADS, **options).double()
    repeated = MultiHead(DIM, HEADS, **options).double()
    with torch.no_grad():
        for name in ("q_proj", "out_proj"):
            getattr(repeated, name).load_state_dict(getattr(grouped, name).state_dict())
        for name in ("k_proj", "v_proj"):
            few, many = getattr(grouped, name), getattr(repeated, name)
            weight = few.weight.unflatten(0, (KV_HEADS, -1)).repeat_interleave(HEADS // KV_HEADS, 0)
            many.weight.copy_(weight.flatten(0, 1))
    return grouped, repeated


def assert_equal_with_gradients(grouped, repeated, x, *arguments, **options):
    results = []
    for module in (grouped, repeated):
        leaf = x.clone().requires_grad_()
        output = module(leaf, *arguments, **options)
        factors = torch.randn(output.context.shape, generator=torch.Generator().manual_seed(1)).to(x)
        (gradient,) = torch.autograd.grad((output.context * factors).sum(), leaf)
        results.append((output.context, output.weights, gradient))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("score", SCORES)
def test_grouped_equals_repeated(score, mask):
    grouped, repeated = build(score)
    assert_equal_with_gradients(grouped, repeated, torch.randn(2, LENGTH, DIM).double(), mask=MASKS[mask])


@pytest.mark.parametrize("mask", ["causal", "window", "dense by head"])
@pytest.mark.parametrize("normalize", NORMALIZERS)
def test_any_normalizer(normalize, mask):
    grouped, repeated = build(normalize=normalize)
    assert_equal_with_gradients(grouped, repeated, torch.randn(2, LENGTH, DIM).double(), mask=MASKS[mask])


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
def test_any_batch(batch):
    grouped, repeated = build()
    x, memory = torch.randn(*batch, 5, DIM).double(), torch.randn(*batch, 9, DIM).double()
    assert_equal_with_gradients(grouped, repeated, x, memory)
    assert grouped(x, memory).weights.shape == (*batch, HEADS, 5, 9)


def test_keys_without_a_batch_broadcast():
    grouped, repeated = build()
    assert_equal_with_gradients(grouped, repeated, torch.randn(2, 5, DIM).double(), torch.randn(9, DIM).double())


@pytest.mark.parametrize("mask", [None, causal(), padding([40, 7]), MASKS["dense"]], ids=repr)
def test_the_fused_kernel_gets_the_keys_without_a_copy(monkeypatch, mask):
    kernel, shapes = F.scaled_dot_product_attention, []

    def spy(query, key, value, *arguments, **options):
        shapes.append((query.shape[1], key.shape[1], value.shape[1], options["enable_gqa"]))
        return kernel(query, key, value, *arguments, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    grouped, _ = build()
    with torch.no_grad():
        grouped(torch.randn(2, LENGTH, DIM).double(), mask=mask)
    assert shapes == [(HEADS, KV_HEADS, KV_HEADS, True)]


def test_a_cache_holds_the_few_heads():
    grouped, _ = build()
    x, cache = torch.randn(2, 5, DIM).double(), KVCache()
    with torch.no_grad():
        steps = [grouped(x[:, t : t + 1], mask=causal(), cache=cache) for t in range(5)]
        full = grouped(x, mask=causal())
    torch.testing.assert_close(torch.cat([step.context for step in steps], 1), full.context)
    key, _ = cache.update(torch.zeros(2, KV_HEADS, 0, 4).double(), torch.zeros(2, KV_HEADS, 0, 4).double())
    assert key.shape == (2, KV_HEADS, 5, 4)


@pytest.mark.parametrize("heads", [None, [1], [5, 0]])
def test_watchers_get_the_selected_heads(heads):
    grouped, _ = build()
    x, calls = torch.randn(2, 5, DIM).double(), []
    with register_watcher(lambda module, weights: calls.append((module, weights(heads)))):
        weights = grouped(x).weights
    assert calls[0][0] is grouped
    torch.testing.assert_close(calls[0][1], weights.detach() if heads is None else weights[:, heads].detach())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_other_dtypes(dtype):
    grouped, _ = build()
    x = torch.randn(2, 5, DIM).double()
    expected = grouped(x).context
    output = grouped.to(dtype)(x.to(dtype))
    assert output.context.dtype == output.weights.dtype == dtype
    torch.testing.assert_close(output.context.double(), expected, atol=0.05, rtol=0.05)


@pytest.mark.bare
def test_one_graph_without_breaks():
    grouped, _ = build()
    x = torch.randn(2, 5, DIM).double()
    compiled = torch.compile(lambda x: grouped(x, mask=causal()).context, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x), grouped(x, mask=causal()).context)


@pytest.mark.parametrize("mask", [None, "causal and padding", "dense by head"])
@pytest.mark.parametrize("score", [*SCORES, "additive", "sum of projections"])
@pytest.mark.parametrize("normalize", ["softmax", "sparsemax"])
def test_keys_are_not_repeated(monkeypatch, score, normalize, mask):
    """Neither the context nor the weights need one head of keys for each head of queries."""
    extra = {
        "additive": lambda: Additive(4, 4, 5).double(),
        "sum of projections": lambda: Bilinear(4, 4).double() + 0.5 * Cosine() + RelativeBias(HEADS).double(),
    }
    grouped, _ = build(normalize=normalize)
    grouped.score = (SCORES | extra)[score]()
    x = torch.randn(2, LENGTH, DIM).double()
    repeated = attend(
        grouped._project(grouped.q_proj, x, grouped.head_dim),
        *(
            grouped._project(proj, x, grouped.head_dim).repeat_interleave(3, -3)
            for proj in (grouped.k_proj, grouped.v_proj)
        ),
        None if mask is None else MASKS[mask],
        score=grouped.score,
        normalize=grouped.normalize,
    )
    if (score, normalize) not in {("gaussian", "softmax"), ("cosine", "softmax"), ("sum of projections", "softmax")}:
        # Under softmax the features of these scores are new tensors in any case.
        monkeypatch.setattr(torch.Tensor, "repeat_interleave", None)
    with torch.no_grad():
        output = grouped(x, mask=None if mask is None else MASKS[mask])
        weights = output.weights
    torch.testing.assert_close(weights, repeated.weights)
    context = repeated.context.transpose(-3, -2).flatten(-2)
    torch.testing.assert_close(output.context, grouped.out_proj(context))
