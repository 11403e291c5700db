"""torch.export with a dynamic batch and length, and packages of AOTInductor."""

import pytest
import torch
from torch.export import Dim, export

import regard.nn
from regard.attention import (
    Additive,
    Alibi,
    Entmax,
    Gaussian,
    LocalM,
    LocalP,
    MultiHead,
    RelativeBias,
    Rotary,
    ScaledDot,
    SigmoidSum,
    SoftCap,
    causal,
    dense,
    padding,
    sparsemax,
    window,
)
from regard.attention.fast import blocked, fused

pytestmark = [
    pytest.mark.bare,
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning"),  # torch's own
]
DIM = 16
YARN, DYNAMIC = (
    {"rope_type": kind, "factor": 2.0, "original_max_position_embeddings": 16} for kind in ("yarn", "dynamic")
)


class SelfAttention(torch.nn.Module):
    """Context and weights, or the context alone, of an attention over its own positions."""

    def __init__(self, attention, build_mask=None, has_weights=True):
        super().__init__()
        self.attention, self.build_mask, self.has_weights = attention, build_mask, has_weights

    def forward(self, x, tensor=None):
        arguments = () if tensor is None else (tensor,)
        mask = None if self.build_mask is None else self.build_mask(*arguments)
        output = self.attention(x, x, x, mask)
        return (output.context, output.weights) if self.has_weights else output.context


class TorchAttention(torch.nn.Module):
    """The results of regard.nn.MultiheadAttention."""

    def __init__(self, has_weights=True, **options):
        super().__init__()
        self.attention = regard.nn.MultiheadAttention(DIM, 4, **{"batch_first": True, **options})
        self.has_weights = has_weights

    def forward(self, x, key_padding_mask=None):
        output, weights = self.attention(x, x, x, key_padding_mask, need_weights=self.has_weights)
        return (output, weights) if self.has_weights else output


def heads(build_mask=None, has_weights=True, **options):
    return SelfAttention(MultiHead(DIM, 4, **options), build_mask, has_weights)


def make_lengths(batch, length):
    return torch.randint(0, length + 1, (batch,))


def make_visible(batch, length):
    return torch.arange(length) < torch.randint(1, length + 1, (batch, 1))


def make_matrix(batch, length):
    return torch.rand(batch, 1, length, length) > 0.3


B, L = "batch", "length"
LENGTHS, VISIBLE, MATRIX = (make_lengths, {0: B}), (make_visible, {0: B, 1: L}), (make_matrix, {0: B, 2: L, 3: L})

# The module, and what makes its second argument.
CASES = {
    "default": (lambda: heads(), None),
    "context": (lambda: heads(has_weights=False), None),
    "causal": (lambda: heads(causal, has_weights=False), None),
    "window": (lambda: heads(lambda: window(2, 1)), None),
    "lengths": (lambda: heads(lambda lengths: causal() & padding(lengths)), LENGTHS),
    "tokenizer mask": (lambda: heads(lambda mask: padding(attention_mask=mask)), VISIBLE),
    "dense": (lambda: heads(dense), MATRIX),
    "grouped": (lambda: SelfAttention(MultiHead(DIM, 4, 2), causal), None),
    "one head of keys": (lambda: SelfAttention(MultiHead(DIM, 4, 1), causal, False), None),
    "extra keys": (lambda: heads(causal, add_bias_kv=True, add_zero_attn=True), None),
    "additive": (lambda: heads(score=Additive(4, 4, 5)), None),
    "rotary": (lambda: heads(causal, score=Rotary()), None),
    "yarn": (lambda: heads(score=Rotary(scaling=YARN)), None),
    "dynamic NTK": (lambda: heads(score=Rotary(scaling=DYNAMIC)), None),
    "alibi": (lambda: heads(causal, score=ScaledDot() + Alibi(4)), None),
    "relative bias": (lambda: heads(score=ScaledDot() + RelativeBias(4)), None),
    "relative bias, context": (lambda: heads(causal, False, score=ScaledDot() + RelativeBias(4)), None),
    "gaussian": (lambda: heads(score=Gaussian()), None),
    "soft cap": (lambda: heads(score=SoftCap(ScaledDot(), 5.0)), None),
    "sparsemax": (lambda: heads(causal, normalize=sparsemax), None),
    "entmax": (lambda: heads(normalize=Entmax(1.3)), None),
    "sigmoid": (lambda: heads(normalize=SigmoidSum()), None),
    "local-m": (lambda: SelfAttention(LocalM(ScaledDot(), 2)), None),
    "local-p": (lambda: SelfAttention(LocalP(ScaledDot(), DIM, 8, 2)), None),
    "nn": (lambda: TorchAttention(), None),
    "nn, context": (lambda: TorchAttention(False), None),
    "nn, padding": (lambda: TorchAttention(), (lambda *sizes: ~make_visible(*sizes), VISIBLE[1])),
    "nn, extra keys": (lambda: TorchAttention(add_bias_kv=True, add_zero_attn=True), None),
    "nn, length first": (lambda: TorchAttention(batch_first=False), None),
}


@pytest.mark.parametrize("case", CASES)
def test_any_batch_and_length(case, monkeypatch):
    # Paths for large inputs, which are chosen by the size, must not restrict the program to small ones.
    monkeypatch.setattr(blocked, "MAX_SCORES", 20_000)
    monkeypatch.setattr(fused, "MAX_MASK_ENTRIES", 20_000)
    build, extra = CASES[case]
    module = build().eval()
    first = (1, 0) if case == "nn, length first" else (0, 1)
    dims = {B: Dim(B, min=1, max=512), L: Dim(L, min=2, max=4096)}

    def sample(batch, length):
        x = torch.randn(batch, length, DIM)
        return x.permute(*first, 2), *(() if extra is None else (extra[0](batch, length),))

    names = [dict(zip(first, (B, L), strict=True)), *(() if extra is None else (extra[1],))]
    shapes = [{axis: dims[name] for axis, name in axes.items()} for axes in names]
    program = export(module, sample(3, 11), dynamic_shapes=tuple(shapes)).module()
    for batch, length in ((1, 2), (4, 7), (2, 33), (5, 200)):
        arguments = sample(batch, length)
        torch.testing.assert_close(program(*arguments), module(*arguments))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the compiler of the package
def test_a_package_of_aot_inductor(tmp_path):
    module = heads(causal).eval()
    x = torch.randn(3, 11, DIM)
    with torch.no_grad():
        program = export(module, (x,), dynamic_shapes=({0: Dim(B, max=64), 1: Dim(L, min=2, max=512)},))
        path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "attention.pt2"))
        compiled = torch._inductor.aoti_load_package(path)
        for batch, length in ((1, 2), (4, 7), (2, 200)):
            x = torch.randn(batch, length, DIM)
            torch.testing.assert_close(tuple(compiled(x)), module(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_weights", [False, True])
@pytest.mark.filterwarnings("ignore")  # of the exporter
def test_the_onnx_operator_attention(has_weights, tmp_path):
    pytest.importorskip("onnxscript", reason="torch.onnx.export(dynamo=True) needs onnxscript")
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    module, path = heads(causal, has_weights).eval(), str(tmp_path / "attention.onnx")
    shapes = ({0: Dim(B), 1: Dim(L, min=2, max=4096)},)
    options = {"dynamo": True, "opset_version": 23, "verbose": False}
    torch.onnx.export(module, (torch.randn(3, 11, DIM),), dynamic_shapes=shapes, **options).save(path)
    assert [node.op_type for node in onnx.load(path).graph.node].count("Attention") == 1
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for length in (2, 33, 200):
        x = torch.randn(2, length, DIM)
        expected = module(x) if has_weights else (module(x),)
        actual = session.run(None, {session.get_inputs()[0].name: x.numpy()})
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(torch.from_numpy(a), b, rtol=1e-4, atol=1e-5)
