"""Addressing a memory: against plain loops, at extreme values, and properties that always hold."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.testing import assert_close

from regard.attention import Cosine, addressing, attend
from regard.attention.addressing import address, content, interpolate, read, sharpen, shift, write
from tests.attention import reference_addressing

BATCH, HEADS, ROWS, WIDTH = (2, 3), 2, 5, 4
SIZES = st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 9))  # batch, heads, rows
SEEDS = st.integers(0, 10**6)
law = settings(max_examples=30)


def distribution(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, dtype=dtype).softmax(-1)


def example(batch: tuple[int, ...] = BATCH, heads: int = HEADS, rows: int = ROWS, radius: int = 1) -> dict[str, Tensor]:
    """One tensor for every argument of the functions."""
    draw = {"key": (heads, WIDTH), "memory": (rows, WIDTH), "add": (heads, WIDTH)}
    arguments = {name: torch.randn(*batch, *shape, dtype=torch.float64) for name, shape in draw.items()}
    distributions = {"weights": rows, "previous": rows, "offsets": 2 * radius + 1}
    arguments |= {name: distribution(*batch, heads, size) for name, size in distributions.items()}
    return arguments | {
        "strength": 1 + torch.rand(*batch, heads, dtype=torch.float64),
        "gate": torch.rand(*batch, heads, dtype=torch.float64),
        "sharpness": 1 + torch.rand(*batch, heads, dtype=torch.float64),
        "erase": torch.rand(*batch, heads, WIDTH, dtype=torch.float64),
    }


ARGUMENTS = {
    content: ("key", "memory", "strength"),
    interpolate: ("weights", "previous", "gate"),
    shift: ("weights", "offsets"),
    sharpen: ("weights", "sharpness"),
    address: ("key", "strength", "gate", "offsets", "sharpness", "memory", "previous"),
    read: ("weights", "memory"),
    write: ("memory", "weights", "erase", "add"),
}
every_function = pytest.mark.parametrize("function", ARGUMENTS, ids=lambda function: function.__name__)


def arguments_of(function, **sizes) -> list[Tensor]:
    values = example(**sizes)
    return [values[name] for name in ARGUMENTS[function]]


@every_function
@pytest.mark.parametrize("batch", [(), (2,), (2, 1, 3)])
def test_any_number_of_batch_axes_equals_a_loop(function, batch):
    arguments = arguments_of(function, batch=batch)
    slow = getattr(reference_addressing, function.__name__)
    flat = [argument.flatten(0, len(batch) - 1) if batch else argument[None] for argument in arguments]
    loop = [slow(*(argument.tolist() for argument in entry)) for entry in zip(*flat, strict=True)]
    actual = function(*arguments)
    assert_close(actual, torch.tensor(loop, dtype=torch.float64).view_as(actual))


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("radius", [0, 1, 2, 3, 4, 5, 9, 20])
def test_a_shift_of_any_radius_is_cyclic(rows, radius):
    weights, offsets = arguments_of(shift, batch=(), rows=rows, radius=radius)
    loop = reference_addressing.shift(weights.tolist(), offsets.tolist())
    assert_close(shift(weights, offsets), torch.tensor(loop, dtype=torch.float64))


@every_function
def test_gradients(function):
    arguments = [argument.requires_grad_() for argument in arguments_of(function, batch=(), rows=3)]
    assert torch.autograd.gradcheck(function, arguments)


@pytest.mark.parametrize(("rows", "radius"), [(2, 2), (3, 6), (12, 5)])
def test_gradients_of_wide_shifts(rows, radius):
    arguments = arguments_of(shift, batch=(2,), rows=rows, radius=radius)
    assert torch.autograd.gradcheck(shift, [argument.requires_grad_() for argument in arguments])


def test_content_is_attention_with_a_cosine_score():
    key, memory, strength = arguments_of(content)
    output = attend(key, memory, memory, score=Cosine(strength))
    assert_close(content(key, memory, strength), output.weights)
    assert_close(read(content(key, memory, strength), memory), output.context)


# Laws.


@law
@given(SIZES, SEEDS)
def test_weights_stay_a_distribution_after_every_step(sizes, seed):
    torch.manual_seed(seed)
    batch, heads, rows = sizes
    arguments = example((batch,), heads, rows)
    weights = content(arguments["key"], arguments["memory"], 20 * arguments["strength"])
    steps = [weights, interpolate(weights, arguments["previous"], arguments["gate"])]
    steps.append(shift(steps[-1], arguments["offsets"]))
    steps.append(sharpen(steps[-1], 10 * arguments["sharpness"]))
    for step in steps:
        assert (step >= 0).all()
        assert_close(step.sum(-1), torch.ones(batch, heads, dtype=torch.float64))


@law
@given(SIZES, SEEDS, st.integers(-6, 6))
def test_a_pure_shift_rotates(sizes, seed, by):
    torch.manual_seed(seed)
    weights = distribution(*sizes)
    offsets = torch.zeros(*sizes[:2], 13, dtype=torch.float64)
    offsets[..., 6 + by] = 1
    assert torch.equal(shift(weights, offsets), weights.roll(by, -1))


def test_mass_on_plus_one_moves_the_focus_one_row_forward():
    weights = torch.tensor([[0.0, 0.0, 1.0]])
    assert torch.equal(shift(weights, torch.tensor([[0.0, 0.0, 1.0]])), torch.tensor([[1.0, 0.0, 0.0]]))


@law
@given(SIZES, SEEDS)
def test_gate_0_is_the_previous_and_gate_1_the_new_weights(sizes, seed):
    torch.manual_seed(seed)
    weights, previous = distribution(*sizes), distribution(*sizes)
    gate = torch.zeros(sizes[:2], dtype=torch.float64)
    assert torch.equal(interpolate(weights, previous, gate), previous)
    assert torch.equal(interpolate(weights, previous, 1 - gate), weights)


@law
@given(SIZES, SEEDS)
def test_sharpness_one_changes_nothing(sizes, seed):
    torch.manual_seed(seed)
    weights = distribution(*sizes)
    assert_close(sharpen(weights, torch.ones(sizes[:2], dtype=torch.float64)), weights)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_of_sharpen_at_a_zero_weight(dtype):
    # At sharpness 1, d w[i] / d weights[j] = (i == j) - weights[i]: also in the column of the weight 0.
    weights = torch.tensor([[0.0, 0.25, 0.75]], dtype=dtype)
    one, two = torch.ones(1, dtype=dtype), torch.full((1,), 2.0, dtype=dtype)
    slopes = torch.autograd.functional.jacobian(sharpen, (weights, one))
    assert_close(slopes[0][0, :, 0], torch.eye(3, dtype=dtype) - weights.mT)
    # d w[i] / d sharpness = w[i] (log w[i] - sum_j w[j] log w[j]), where 0 log 0 is 0
    logs = torch.xlogy(weights, weights)
    assert_close(slopes[1].squeeze(), (logs - weights * logs.sum()).squeeze())
    assert not torch.autograd.functional.jacobian(sharpen, (weights, two))[0][0, :, 0, 0].any()


@law
@given(SIZES, SEEDS)
def test_full_erasure_clears_the_row_and_leaves_the_others(sizes, seed):
    torch.manual_seed(seed)
    batch, _, rows = sizes
    memory = torch.randn(batch, rows, WIDTH)
    weights = torch.zeros(batch, 1, rows)
    weights[..., 0] = 1
    ones = torch.ones(batch, 1, WIDTH)
    assert torch.equal(write(memory, weights, ones, 0 * ones)[:, 0], torch.zeros(batch, WIDTH))
    assert torch.equal(write(memory, weights, ones, 0 * ones)[:, 1:], memory[:, 1:])
    assert torch.equal(read(weights, write(memory, weights, ones, 3 * ones)), 3 * ones)


@law
@given(SIZES, SEEDS)
def test_every_head_erases_before_any_head_adds(sizes, seed):
    torch.manual_seed(seed)
    batch, heads, rows = sizes
    memory, *others = arguments_of(write, batch=(batch,), heads=heads, rows=rows)
    order = torch.randperm(heads)
    permuted = [other[:, order] for other in others]
    assert_close(write(memory, *permuted), write(memory, *others))
    # One more head that erases everything, wherever it stands, leaves just the sum of what was added.
    weights, erase, add = (torch.cat((other, torch.ones_like(other[:, :1])), 1) for other in others)
    assert_close(write(memory, weights, erase, add), weights.mT @ add)


@law
@given(SIZES, SEEDS)
def test_content_addressing_reads_back_what_was_written(sizes, seed):
    torch.manual_seed(seed)
    batch, _, rows = sizes
    memory = torch.randn(batch, rows + 1, WIDTH, dtype=torch.float64)
    actual = content(memory[:, :1], memory, torch.full((batch, 1), 1e6, dtype=torch.float64))
    assert_close(read(actual, memory), memory[:, :1], atol=1e-2, rtol=1e-2)


# Extremes.


def values_and_gradients_are_finite(function, *arguments: Tensor) -> Tensor:
    arguments = [argument.clone().requires_grad_() for argument in arguments]
    result = function(*arguments)
    gradients = torch.autograd.grad((result * torch.randn_like(result)).sum(), arguments)
    assert result.isfinite().all()
    assert all(gradient.isfinite().all() for gradient in gradients)
    return result.detach()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("strength", [0.0, 1.0, 1e4])
@pytest.mark.parametrize("zero", ["key", "memory", "neither"])
def test_content_of_zero_vectors(dtype, strength, zero):
    key = torch.randn(2, 1, WIDTH, dtype=dtype) * (zero != "key")
    memory = torch.randn(2, ROWS, WIDTH, dtype=dtype) * (zero != "memory")
    actual = values_and_gradients_are_finite(content, key, memory, torch.full((2, 1), strength, dtype=dtype))
    if zero != "neither" or strength == 0:
        assert_close(actual, torch.full((2, 1, ROWS), 1 / ROWS, dtype=dtype))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sharpness", [1.0, 1.001, 1.5, 2.0, 50.0, 100.0])
@pytest.mark.parametrize(
    "weights", [[1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0], [0.25] * 4, [1.0, 1e-38, 1e-30, 1e-20], [0.0] * 4]
)
def test_sharpen_at_extreme_values(dtype, sharpness, weights):
    weights = torch.tensor([weights], dtype=dtype)
    sharp = values_and_gradients_are_finite(sharpen, weights, torch.tensor([sharpness], dtype=dtype))
    assert_close(sharp.sum(-1), torch.ones(1, dtype=dtype))
    assert (sharp.diff() <= 0)[weights.diff() <= 0].all()  # the order of the weights does not change
    if weights.any():
        assert (sharp[weights == 0] < 1e-29).all()


def test_a_small_difference_decides_at_high_sharpness():
    weights = torch.tensor([[0.1 * 1.001, 0.1, 0.0]])
    ratio = sharpen(weights, torch.tensor([100.0])).log().diff()[0, 0]
    assert_close(ratio, torch.tensor(-100 * math.log(1.001)), rtol=1e-3, atol=0)


@pytest.mark.parametrize("strength", [0.0, 1e4])
@pytest.mark.parametrize("gate", [0.0, 1.0])
@pytest.mark.parametrize("sharpness", [1.0, 100.0])
@pytest.mark.parametrize("memory", ["zero", "one row", "random"])
def test_an_address_is_finite_at_extreme_values(strength, gate, sharpness, memory):
    rows = torch.randn(2, ROWS, WIDTH) * (memory != "zero")
    rows[:, 1:] *= memory != "one row"
    previous = torch.eye(ROWS)[:1].expand(2, 1, ROWS)
    offsets = torch.tensor([0.0, 0.0, 1.0]).expand(2, 1, 3)
    one = torch.ones(2, 1)
    weights = values_and_gradients_are_finite(
        address, rows[:, :1], strength * one, gate * one, offsets, sharpness * one, rows, previous
    )
    assert_close(weights.sum(-1), one)
    if gate == 0:
        assert_close(weights, previous.roll(1, -1))


def test_gradients_over_many_steps_neither_explode_nor_vanish():
    weights = torch.eye(20)[:1]
    for _ in range(1000):
        weights = sharpen(shift(weights, torch.tensor([[0.05, 0.05, 0.9]])), torch.tensor([3.0]))
    assert_close(weights.sum(-1), torch.ones(1))
    assert weights.argmax() == 1000 % 20


# Types, devices, compilation, errors.


@every_function
def test_bfloat16_is_computed_in_float32_and_rounded_once(function):
    arguments = [argument.bfloat16() for argument in arguments_of(function)]
    actual, exact = function(*arguments), function(*(argument.float() for argument in arguments))
    assert torch.equal(actual, exact.bfloat16())


@every_function
def test_the_result_has_the_widest_dtype(function):
    first, *others = arguments_of(function)
    assert function(first.float(), *others).dtype == torch.float64
    assert function(first.float(), *(other.bfloat16() for other in others)).dtype == torch.float32


@every_function
def test_inputs_are_not_changed_in_place(function):
    arguments = arguments_of(function)
    before = [argument.clone() for argument in arguments]
    function(*arguments)
    assert all(torch.equal(*pair) for pair in zip(arguments, before, strict=True))


@pytest.mark.bare
@every_function
@pytest.mark.parametrize("radius", [1, 4])
def test_compiles_to_one_graph(function, radius):
    arguments = [argument.requires_grad_() for argument in arguments_of(function, rows=11, radius=radius)]
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    actual, exact = compiled(*arguments), function(*arguments)
    assert_close(actual, exact)
    assert_close(*(torch.autograd.grad(result.square().sum(), arguments) for result in (actual, exact)))


@pytest.mark.bare
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # torch's own, from inside its compiler
def test_compiles_to_machine_code():
    torch.compiler.reset()
    arguments = [argument.float().requires_grad_() for argument in arguments_of(address)]
    actual, exact = torch.compile(address, fullgraph=True)(*arguments), address(*arguments)
    assert_close(actual, exact)
    assert_close(*(torch.autograd.grad(result.square().sum(), arguments) for result in (actual, exact)))


@pytest.mark.bare
@pytest.mark.parametrize(
    ("function", "name", "shape", "words"),
    [
        (content, "key", (2, 3, 2, 7), r"memory .* \(\*batch, rows, width\) with width 7 as in key"),
        (content, "strength", (2, 3, 2, 1), r"strength .* batch \(2, 3\) as in key, .* is \(2, 3, 2, 1\)"),
        (interpolate, "gate", (2, 3, 1), r"gate .* with heads 2 as in weights, but its shape is \(2, 3, 1\)"),
        (shift, "offsets", (2, 3), r"offsets .* with batch \(2, 3\) as in weights, .* is \(2, 3\)"),
        (shift, "offsets", (2, 3, 2, 4), "odd size, for -r..r, but it is 4"),
        (sharpen, "sharpness", (), r"sharpness must be a tensor \(\*batch, heads\), but its shape is \(\)"),
        (read, "memory", (2, 3, 6, 4), "memory .* with rows 5 as in weights"),
        (write, "add", (2, 3, 2, 3), "add .* with width 4 as in memory"),
        (address, "previous", (2, 3, 2, 6), "previous .* with rows 5 as in memory"),
    ],
)
def test_a_wrong_shape_raises_one_line(function, name, shape, words):
    arguments = {key: example()[key] for key in ARGUMENTS[function]} | {name: torch.rand(shape)}
    with pytest.raises(ValueError, match=f"^{function.__name__}: [^.]*{words}") as error:
        function(**arguments)
    assert "\n" not in str(error.value)


@pytest.mark.bare
def test_other_types_than_tensors_are_an_error():
    with pytest.raises(TypeError, match=r"sharpness must be a tensor \(\*batch, heads\), not float"):
        sharpen(torch.ones(1, 1), 1.0)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'sharpness'"):
        sharpen(torch.ones(1, 1))


def test_all_contains_every_function():
    assert set(addressing.__all__) == {function.__name__ for function in ARGUMENTS}
