"""additive_scores against the definition in float64, on every path and on hostile numbers."""

import logging
import threading
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from regard.attention.fast import additive, pairs
from regard.attention.fast import pairs as kernels
from regard.attention.fast.additive import additive_scores

ACTIVATIONS = sorted(additive.ACTIVATIONS)


def oracle(a: Tensor, b: Tensor, v: Tensor, activation: str) -> Tensor:
    wide = a.double()[..., :, None, :] + b.double()[..., None, :, :]
    return getattr(torch, activation)(wide) @ v.double()


def gradients(scores: Tensor, g: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(scores, inputs, g.to(scores.dtype))


def agree(a: Tensor, b: Tensor, v: Tensor, activation: str = "tanh", tolerance: float = 2e-6) -> None:
    """Scores and gradients are the oracle's, each to the precision of the sum that it is."""
    a, b, v = (t.detach().requires_grad_() for t in (a, b, v))
    scores, exact = additive_scores(a, b, v, activation), oracle(a, b, v, activation)
    assert scores.shape == exact.shape
    size = max(1.0, v.abs().sum().item(), exact.abs().amax().item() if exact.numel() else 0.0)
    torch.testing.assert_close(scores.double(), exact, rtol=0, atol=tolerance * size)
    g = torch.randn(exact.shape, dtype=torch.float64).to(scores.dtype)
    for ours, right in zip(gradients(scores, g, a, b, v), gradients(exact, g, a, b, v), strict=True):
        limit = 20 * tolerance * max(1.0, right.abs().amax().item() if right.numel() else 0.0)
        torch.testing.assert_close(ours, right, rtol=0, atol=limit)


def random_inputs(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    *batch, queries, keys, hidden = shape
    a, b = torch.randn(*batch, queries, hidden), torch.randn(*batch, keys, hidden)
    return a.to(dtype), b.to(dtype), torch.randn(hidden).to(dtype)


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Even small work goes through the operator, in several blocks."""
    monkeypatch.setattr(additive, "MAX_REFERENCE_WORK", 0)
    monkeypatch.setattr(pairs, "BLOCK_WORK", 64)
    with kernels.compile_kernels(False):
        yield


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Even small work is compiled, by a compiler that has not failed yet."""
    monkeypatch.setattr(additive, "MAX_REFERENCE_WORK", 0)
    monkeypatch.setattr(pairs, "MIN_COMPILED_WORK", 0)
    monkeypatch.setattr(kernels, "_broken", False)


SHAPES = [(2, 3, 5, 4), (3, 5, 4), (2, 2, 4, 3, 8), (2, 1, 7, 4), (2, 7, 1, 4), (2, 5, 6, 1), (1, 1, 1)]


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_operator_equals_the_definition(operator: None, shape: tuple[int, ...], activation: str) -> None:
    agree(*random_inputs(*shape), activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_float64_stays_exact(operator: None, activation: str) -> None:
    agree(*random_inputs(2, 6, 7, 5, dtype=torch.float64), activation, tolerance=1e-14)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", ["tanh", "sigmoid"])
@pytest.mark.parametrize("spread", [1e-3, 1.0, 8.0, 14.0, 40.0, 250.0, 1e4])
@pytest.mark.parametrize(("left", "right"), [(0.0, 0.0), (1000.0, -1000.0), (1000.0, 1000.0), (-3.0, 30.0)])
def test_extreme_numbers(
    operator: None, dtype: torch.dtype, activation: str, spread: float, left: float, right: float
) -> None:
    a, b, v = random_inputs(2, 6, 9, 4, dtype=dtype)
    tolerance = 2e-6 if dtype == torch.float32 else 1e-14
    tolerance *= 5 if spread > 10 else 1  # exp(x) is as exact as x, and x is rounded at its size
    for x, y in ((spread * a, spread * b), (spread * a, b), (a, spread * b), (spread * a[:, :1], b)):
        agree(x + left, y + right, v, activation, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_product_is_used_up_to_its_limit(operator: None, dtype: torch.dtype) -> None:
    limit, tolerance = additive.FACTOR_REACH[dtype] / 2, (1e-5 if dtype == torch.float32 else 1e-13)
    for factor, expected in ((0.999, True), (1.001, False)):
        a = torch.linspace(-limit, limit, 41, dtype=dtype)[None, :, None] * factor
        b = 3 * torch.linspace(-limit, limit, 123, dtype=dtype)[None, :, None] * factor
        v = torch.ones(1, dtype=dtype)
        *_, fits = additive.forward_op(a, b, v, "tanh")
        assert bool(fits) is expected
        agree(a, b, v, tolerance=tolerance)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("poison", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("where", ["a", "b", "v", "both"])
def test_nan_and_infinity_agree_with_the_definition(operator: None, activation: str, poison: float, where: str) -> None:
    a, b, v = random_inputs(2, 3, 4, 5)
    for tensor, names in ((a, ("a", "both")), (b, ("b", "both")), (v, ("v",))):
        if where in names:
            tensor.view(-1)[1] = poison if tensor is not b else -poison
    for tensor in (a, b, v):
        tensor.requires_grad_()
    ours, right = additive_scores(a, b, v, activation), oracle(a, b, v, activation).float()
    torch.testing.assert_close(ours, right, equal_nan=True, rtol=1e-5, atol=1e-5)
    if where == "v" and activation == "relu":
        return  # where no pair is active our gradient is 0 x inf, the definition's is 0
    plain = additive.reference_additive_scores(a, b, v, activation)
    for x, y in zip(*(gradients(s, torch.ones(2, 3, 4), a, b, v) for s in (ours, plain)), strict=True):
        torch.testing.assert_close(x, y, equal_nan=True, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("shape", [(2, 0, 3, 4), (2, 3, 0, 4), (0, 3, 4, 5), (2, 3, 4, 0)])
def test_empty_axes(operator: None, shape: tuple[int, ...], activation: str) -> None:
    a, b, v = random_inputs(*shape)
    agree(a, b, v, activation)
    agree(*(t.double() for t in (a, b, v)), activation)
    # torch.compile hands the operator what is small or empty, too
    scores, *_ = additive.forward_op(a.requires_grad_(), b, v, activation)
    assert gradients(scores, torch.ones_like(scores), a)[0].shape == a.shape


def test_leading_axes_broadcast_with_any_strides(operator: None) -> None:
    v = torch.randn(4)
    agree(torch.randn(3, 1, 5, 4), torch.randn(1, 2, 6, 4), v)
    agree(torch.randn(5, 4), torch.randn(2, 6, 4), v)
    agree(torch.randn(1, 1, 4).expand(3, 5, 4), torch.randn(3, 4, 6).mT, torch.randn(8)[::2])


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_first_and_second_derivatives(operator: None, activation: str) -> None:
    inputs = tuple(t.requires_grad_() for t in random_inputs(2, 3, 4, 2, dtype=torch.float64))

    def function(*tensors: Tensor) -> Tensor:
        return additive_scores(*tensors, activation=activation)

    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


def test_only_the_required_gradients(operator: None) -> None:
    a, b, v = random_inputs(2, 3, 4, 5)
    b.requires_grad_()
    (first,) = torch.autograd.grad(additive_scores(a, b, v).pow(2).sum(), b, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), b)
    assert second.isfinite().all()
    assert a.grad is None


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_operators_pass_opcheck(activation: str) -> None:
    a, b, v = (t.requires_grad_() for t in random_inputs(2, 3, 5, 4))
    torch.library.opcheck(additive.forward_op, (a, b, v, activation))
    _, *saved = additive.forward_op(a, b, v, activation)
    arguments = [t.detach() for t in (torch.randn(2, 3, 5), a, b, v, *saved)]
    torch.library.opcheck(additive.backward_op, (*arguments, activation))


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, small: bool
) -> None:
    monkeypatch.setattr(additive, "MAX_REFERENCE_WORK", additive.MAX_REFERENCE_WORK if small else 0)
    a, b, v = random_inputs(2, 3, 4, 8, dtype=dtype)
    scores = additive_scores(a, b, v)
    assert scores.dtype == torch.float32
    assert torch.equal(scores, additive_scores(a.float(), b.float(), v.float()))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(additive_scores(a, b, v.float()), scores)
    a.requires_grad_()
    assert gradients(additive_scores(a, b, v), scores, a)[0].dtype == dtype


def test_grad_mode_does_not_change_the_result(operator: None) -> None:
    a, b, v = random_inputs(2, 6, 7, 8)
    with torch.no_grad():
        without = additive_scores(a, b, v)
    with torch.inference_mode():
        inference = additive_scores(a, b, v)
    assert torch.equal(additive_scores(a.requires_grad_(), b, v), without)
    assert torch.equal(inference, without)


def test_small_work_is_the_definition_itself() -> None:
    a, b, v = random_inputs(8, 1, 30, 64)
    assert torch.equal(additive_scores(a, b, v), torch.tanh(a[:, :, None] + b[:, None]) @ v)


def test_an_unknown_activation_is_an_error() -> None:
    with pytest.raises(ValueError, match="tanh, sigmoid, relu, got 'gelu'"):
        additive_scores(*random_inputs(2, 3, 4), activation="gelu")


def test_blocks_cover_every_pair_once_and_stay_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairs, "BLOCK_WORK", 100)
    for count, queries, keys, hidden in ((3, 5, 7, 4), (20, 1, 2, 3), (1, 1, 90, 9), (2, 3, 4, 101)):
        output = torch.zeros(count, queries, keys)
        for i, q, k in pairs.iter_blocks(torch.empty(count, queries, hidden), torch.empty(count, keys, hidden)):
            assert output[i, q, k].numel() * hidden <= max(100, hidden)
            output[i, q, k] += 1
        assert torch.equal(output, torch.ones_like(output))


def test_without_a_compiler_blocks_are_used(
    large: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried = []

    def broken(*args: object, **options: object) -> None:
        tried.append(args)
        raise RuntimeError("no C++ compiler")

    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(torch, "compile", broken)
    with caplog.at_level(logging.INFO, "regard"):
        agree(*random_inputs(3, 5, 6, 4))
        agree(*random_inputs(3, 5, 6, 4))
    assert len(tried) == 1  # and never again
    assert ["computing in blocks" in m for m in caplog.messages] == [False, True]


def test_a_kernel_that_torch_left_uncompiled_is_not_run(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(torch, "compile", lambda function, **options: function)
    agree(*random_inputs(3, 5, 6, 4))
    assert kernels._broken


def test_a_forked_process_does_not_compile(large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_lock", threading.Lock())
    monkeypatch.setattr(torch, "compile", lambda *args, **options: pytest.fail("compiled after a fork"))
    kernels._lock.acquire()
    kernels._after_fork()
    assert kernels.compiled_or_none("product", torch.bmm, torch.ones(2, 2, 2), torch.ones(2, 2, 2)) is None
    assert kernels._lock.acquire(blocking=False)


@pytest.mark.bare
def test_compiled_loops_serve_all_shapes_and_threads(
    large: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kernels, "_kernels", {})
    failures: list[BaseException] = []

    def work() -> None:
        try:
            agree(*random_inputs(4, 5, 6, 7))
        except BaseException as error:  # a thread's failure must reach the test
            failures.append(error)

    with caplog.at_level(logging.INFO, "regard"):
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not failures
    assert len(caplog.messages) == 1
    with torch._dynamo.config.patch(error_on_recompile=True):
        for shape in ((64, 30, 30, 32), (2, 40, 3, 257), (5, 2, 9, 8), (9, 9, 9, 9)):
            agree(*random_inputs(*shape))
        a, _, v = random_inputs(3, 20, 20, 16)
        agree(a, a, v)
        agree(a.mT.contiguous().mT, a.expand(3, 20, 16), v)
        agree(1e4 * a[:, :1], a, v)  # one query: in blocks
        with torch.autocast("cpu", dtype=torch.bfloat16):
            agree(a, a + 1000, v)
    assert len(kernels._kernels) == 3
    assert not kernels._broken


@pytest.mark.bare
@pytest.mark.filterwarnings("ignore:.*deprecated:DeprecationWarning")
def test_inside_a_compiled_or_exported_model() -> None:
    compiled = torch.compile(additive_scores, fullgraph=True, backend="aot_eager", dynamic=True)
    for scale in (1.0, 1e4):  # the branch on data lies inside the operator
        a, b, v = ((scale * t).requires_grad_() for t in random_inputs(2, 5, 6, 8))
        ours, right = compiled(a, b, v), oracle(a, b, v, "tanh")
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-5)
        for x, y in zip(*(gradients(s, torch.ones(2, 5, 6), a, b, v) for s in (ours, right)), strict=True):
            torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-3)

    class Scores(torch.nn.Module):
        def forward(self, a: Tensor, b: Tensor, v: Tensor) -> Tensor:
            return additive_scores(a, b, v)

    batch, queries, keys = (torch.export.Dim(name) for name in ("batch", "queries", "keys"))
    shapes = ({0: batch, 1: queries}, {0: batch, 1: keys}, None)
    program = torch.export.export(Scores(), random_inputs(2, 5, 6, 8), dynamic_shapes=shapes)
    a, b, v = random_inputs(3, 7, 4, 8)
    torch.testing.assert_close(program.module()(a, b, v).double(), oracle(a, b, v, "tanh"), rtol=0, atol=1e-5)
