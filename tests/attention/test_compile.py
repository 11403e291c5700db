"""torch.compile without graph breaks, torch.export, and autocast."""

import io
import itertools

import pytest
import torch

from regard.attention import (
    Additive,
    Attention,
    AttentionOutput,
    Gaussian,
    KVCache,
    LocalM,
    LocalP,
    MultiHead,
    RelativeBias,
    Rotary,
    Sample,
    ScaledDot,
    around,
    attend,
    causal,
    padding,
    softmax,
    sparsemax,
    window,
)
from regard.testing.checks import make_inputs
from tests.contract.mechanisms import (
    BATCH,
    COMBINED_SCORES,
    LISTED_NORMALIZERS,
    LISTED_SCORES,
    MASKS,
    SCORES,
    kind,
    matching_pairs,
)

pytestmark = pytest.mark.bare
Q, K = 5, 6


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def tracked(queries=Q, keys=K, batch=BATCH):
    return make_inputs(queries, keys, batch, dtype=torch.float32).requiring_grad()


def same(function, arguments, inputs, backend="aot_eager", dynamic=None, again=(), tolerance=1e-5):
    """Compiled into one graph, function(*arguments) returns the same tensors, with the same gradients."""
    compiled = torch.compile(function, fullgraph=True, backend=backend, dynamic=dynamic)
    for args, leaves in ((arguments, inputs), *again):
        torch.manual_seed(4)
        expected = function(*args)
        torch.manual_seed(4)
        actual = compiled(*args)
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)
        if expected[0].requires_grad:
            factor = torch.randn_like(expected[0])
            pairs = zip(
                torch.autograd.grad(actual[0], leaves, factor, allow_unused=True),
                torch.autograd.grad(expected[0], leaves, factor, allow_unused=True),
                strict=True,
            )
            for a, b in pairs:
                a, b = (torch.zeros(()) if g is None else g for g in (a, b))
                torch.testing.assert_close(*torch.broadcast_tensors(a, b), rtol=10 * tolerance, atol=10 * tolerance)


def attention_function(score, normalize, mask):
    """Context and weights, as a function of three tensors."""

    def compute(query, key, value):
        output = attend(query, key, value, mask, score=score, normalize=normalize)
        return output.context, output.weights

    return compute


def build_parts(score, normalize):
    mechanisms = SCORES[score](), LISTED_NORMALIZERS[normalize]()
    parameters = [p for part in mechanisms if isinstance(part, torch.nn.Module) for p in part.parameters()]
    for part in mechanisms:
        if isinstance(part, torch.nn.Module):
            part.eval()  # random numbers differ under a compiler; they have a test of their own
    return mechanisms, parameters


def pairwise():
    """Every score, every normalizer and every mask at least once, in different combinations."""
    logits = [n for n in LISTED_NORMALIZERS if kind(LISTED_NORMALIZERS[n]()) == "logits"]
    kernels = [n for n in LISTED_NORMALIZERS if n not in logits]
    masks = itertools.cycle(MASKS)
    used = {"logits": itertools.cycle(logits), "kernel": itertools.cycle(kernels)}
    combined = ("Dot + Cosine", "ScaledDot + RelativeBias", "Rotary Additive", "parameter * ", "Additive, pooling")
    scores = [*LISTED_SCORES, *combined]
    scores += ["ScaledDot"] * max(0, len(MASKS) - len(scores))
    return [(score, next(used[kind(SCORES[score]())]), next(masks)) for score in scores]


PAIRWISE = pairwise()


def test_the_selection_covers_every_mechanism():
    scores, normalizers, masks = (set(column) for column in zip(*PAIRWISE, strict=True))
    assert scores >= set(LISTED_SCORES)
    assert normalizers >= set(LISTED_NORMALIZERS)
    assert masks >= set(MASKS)


@pytest.mark.parametrize(("score", "normalize", "mask"), PAIRWISE, ids=[" x ".join(case) for case in PAIRWISE])
def test_one_graph(score, normalize, mask):
    mechanisms, parameters = build_parts(score, normalize)
    sample = tracked()
    same(attention_function(*mechanisms, MASKS[mask](Q, K)), sample, [*sample, *parameters])


GRID = [*matching_pairs(LISTED_SCORES, LISTED_NORMALIZERS), *matching_pairs(COMBINED_SCORES, ["softmax", "kernel_sum"])]


@pytest.mark.slow
@pytest.mark.parametrize(("score", "normalize"), GRID, ids=[" x ".join(case) for case in GRID])
def test_one_graph_for_every_combination(score, normalize):
    mechanisms, parameters = build_parts(score, normalize)
    sample = tracked()
    for mask in MASKS.values():
        torch.compiler.reset()
        same(attention_function(*mechanisms, mask(Q, K)), sample, [*sample, *parameters], backend="eager")


@pytest.mark.parametrize(
    ("score", "normalize", "mask"),
    [
        (ScaledDot(), softmax, causal()),
        (Additive(4, 4, 8), softmax, padding([K, 2, 0])),
        (Gaussian(), sparsemax, None),
        (ScaledDot() + RelativeBias(2), softmax, window(1, 1)),
    ],
    ids=["dot", "additive", "gaussian", "bias"],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, when it first compiles
def test_compiled_loops(score, normalize, mask):
    sample = tracked()
    same(attention_function(score, normalize, mask), sample, [*sample, *score.parameters()], backend="inductor")


@pytest.mark.parametrize(
    ("score", "mask", "backend"),
    [
        (ScaledDot(), causal(), "aot_eager"),
        (Additive(4, 4, 8), padding([5, 2, 0]), "aot_eager"),
        (Gaussian(), None, "eager"),
        (Rotary(ScaledDot()), None, "eager"),
        (ScaledDot() + RelativeBias(2), causal(), "eager"),
    ],
    ids=["dot", "additive", "gaussian", "rotary", "bias"],
)
def test_dynamic_sizes(score, mask, backend):
    first, *others = tracked(5, 6), tracked(7, 9), tracked(8, 8)
    again = [(w, [*w, *score.parameters()]) for w in others]
    inputs = [*first, *score.parameters()]
    same(attention_function(score, None, mask), first, inputs, backend=backend, dynamic=True, again=again)


def test_one_graph_serves_every_length():
    from torch._dynamo.testing import CompileCounter

    counter = CompileCounter()
    compute = torch.compile(
        attention_function(ScaledDot(), None, causal()), backend=counter, fullgraph=True, dynamic=True
    )
    for length in (5, 9, 12, 17):
        compute(*make_inputs(length, length, BATCH, dtype=torch.float32))
    assert counter.frame_count == 1


@pytest.mark.parametrize("mask", [window(2, 1), around(torch.arange(80.0), 2), window(2, 1) & padding([80, 9, 0])])
def test_partial_paths(mask):
    sample = tracked(80, 160)
    same(attention_function(ScaledDot(), None, mask), sample, list(sample), backend="eager")


MODULES = {
    "Attention": lambda: Attention(Additive(4, 4, 5)),
    "LocalM": lambda: LocalM(ScaledDot(), 2),
    "LocalP": lambda: LocalP(ScaledDot(), 4, 5, 2),
    "MultiHead": lambda: MultiHead(4, 2),
    "MultiHead, grouped": lambda: MultiHead(4, 2, 1, score=Rotary(ScaledDot())),
}


@pytest.mark.parametrize("name", MODULES)
def test_modules(name):
    module = MODULES[name]()
    query, key, value = tracked(7, 12, (3,))
    value = torch.randn(3, 12, 4, requires_grad=True)

    def compute(query, key, value):
        output = module(query, key, value, padding([12, 5, 0]))
        return output.context, output.weights

    same(compute, (query, key, value), [query, key, value, *module.parameters()])


def test_context_alone():
    """Weights that nobody reads are not computed in the graph either."""
    sample = tracked()
    graphs = []

    def store_graph(graph, _):
        graphs.append(graph)
        return graph

    compiled = torch.compile(lambda *arguments: attend(*arguments).context, fullgraph=True, backend=store_graph)
    torch.testing.assert_close(compiled(*sample), attend(*sample).context)
    names = [str(node.target) for node in graphs[0].graph.nodes]
    assert any("scaled_dot_product" in name for name in names)
    assert not any("softmax" in name for name in names)


def test_a_module_that_returns_the_output():
    """Weights of a compiled call can be read outside of the graph too."""
    module = torch.compile(Attention(), backend="eager")
    sample = tracked()
    output = module(*sample)
    assert isinstance(output, AttentionOutput)
    torch.testing.assert_close(output.weights, attend(*sample).weights)


def test_sampling_compiles():
    sample = tracked()

    def compute(query, key, value):
        output = attend(query, key, value, normalize=Sample())
        return output.context, output.weights, output.log_prob, output.entropy

    context, weights, log_prob, entropy = torch.compile(compute, fullgraph=True, backend="aot_eager")(*sample)
    assert (weights.sum(-1) == 1).all()
    torch.testing.assert_close(context, weights @ sample.value)
    torch.testing.assert_close(log_prob, (weights * attend(*sample).weights).sum(-1).log())
    assert (entropy > 0).all()


def test_training_steps_compile():
    module = MultiHead(8, 2, dropout=0.1)
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 5, 8)
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (compiled(x, mask=causal()).context - x).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_a_decoding_step_compiles():
    heads = MultiHead(8, 2)
    x = torch.randn(2, 6, 8)
    expected = heads(x, mask=causal()).context

    def step(word, cache):
        return heads(word, mask=causal(), cache=cache).context

    compiled = torch.compile(step, backend="eager")
    with torch.no_grad():
        cache = KVCache()
        steps = [compiled(x[:, i : i + 1], cache) for i in range(6)]
    torch.testing.assert_close(torch.cat(steps, 1), expected)


# ---- torch.export


@pytest.mark.parametrize(
    "score", [ScaledDot(), Additive(4, 4, 5), Gaussian(), Rotary(ScaledDot()), ScaledDot() + RelativeBias(2)], ids=repr
)
def test_export_saved_and_loaded(score):
    sample = make_inputs(Q, K, BATCH, dtype=torch.float32)

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = Attention(score)

        def forward(self, query, key, value):
            return self.attention(query, key, value, causal())

    model = Model().eval()
    file = io.BytesIO()
    torch.export.save(torch.export.export(model, tuple(sample)), file)
    file.seek(0)
    loaded = torch.export.load(file).module()
    actual, expected = loaded(*sample), model(*sample)
    assert isinstance(actual, AttentionOutput)
    for name in ("context", "weights", "scores"):
        torch.testing.assert_close(getattr(actual, name), getattr(expected, name))
    assert actual.log_prob is None


def test_export_with_any_length():
    sample = make_inputs(Q, K, BATCH, dtype=torch.float32)
    queries, keys = torch.export.Dim("queries", min=2, max=50), torch.export.Dim("keys", min=2, max=50)
    shapes = ({2: queries}, {2: keys}, {2: keys})
    program = torch.export.export(Attention(), tuple(sample), dynamic_shapes=(*shapes, None)[:3])
    other = make_inputs(9, 13, BATCH, dtype=torch.float32)
    torch.testing.assert_close(program.module()(*other).context, attend(*other).context)


# ---- autocast


@pytest.mark.parametrize("score", SCORES)
def test_autocast(score):
    part = SCORES[score]()
    sample = tracked()
    expected = attend(*sample, padding([K, 2, 0]), score=part)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = attend(*sample, padding([K, 2, 0]), score=part)
        mixed = attend(sample.query.bfloat16(), sample.key, sample.value, padding([K, 2, 0]), score=part)
    near = {"rtol": 0.05, "atol": 0.05} if kind(part) == "logits" else {"rtol": 0.5, "atol": 1.0}
    torch.testing.assert_close(output.context.float(), expected.context, **near)
    torch.testing.assert_close(output.weights.float(), expected.weights, **near)
    assert mixed.context.isfinite().all()
    assert mixed.weights.isfinite().all()
    assert (output.context[2] == 0).all()
    if output.context.requires_grad:
        output.context.float().square().sum().backward()
        assert all(t.grad is None or t.grad.isfinite().all() for t in sample)


def test_autocast_under_a_compiler():
    module = MultiHead(8, 2)
    x = torch.randn(2, 5, 8)
    compiled = torch.compile(lambda x: module(x, mask=causal()).context, fullgraph=True, backend="aot_eager")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual, expected = compiled(x), module(x, mask=causal()).context
    torch.testing.assert_close(actual, expected, rtol=0.05, atol=0.05)
