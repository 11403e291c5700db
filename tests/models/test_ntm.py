"""The Neural Turing Machine against the paper's equations, its state, and extreme values."""

import dataclasses
from functools import partial

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cost

from regard.attention import addressing
from regard.models import LSTMBaseline, NeuralTuringMachine
from regard.models.ntm import INITIAL_MEMORY
from regard.models.ntm_fast import MAX_STRENGTH, bounded_softplus

OPTIONS = [
    {},
    {"controller": "feedforward"},
    {"num_read_heads": 2, "num_write_heads": 3},
    {"max_shift": 0},
    {"max_shift": 3, "memory_rows": 5},  # seven offsets over five rows
]


def build(**options):
    return NeuralTuringMachine(4, 3, **{"memory_rows": 8, "memory_width": 5, "hidden_dim": 10, **options})


@pytest.mark.parametrize("options", OPTIONS)
def test_weights_are_distributions_at_every_step(options):
    model = build(**options)
    _, state = model(3 * torch.randn(2, 6, 4))
    for weights in (state.read_weights, state.write_weights):
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize("options", OPTIONS)
def test_parts_of_a_sequence_equal_the_full_sequence(options):
    model, inputs = build(**options), torch.randn(2, 6, 4)
    expected, end = model(inputs)
    first, state = model(inputs[:, :2])
    rest, last = model(inputs[:, 2:], state)
    torch.testing.assert_close(torch.cat((first, rest), 1), expected)
    torch.testing.assert_close(last.memory, end.memory)


def test_steps_equal_forward():
    model, inputs = build(num_read_heads=2), torch.randn(2, 4, 4)
    expected, end = model(inputs)
    state, outputs = model.init_state(2), []
    for x in inputs.unbind(1):
        outputs.append(step := model.step(x, state))
        state = step.state
    torch.testing.assert_close(torch.stack([step.output for step in outputs], 1), expected)
    torch.testing.assert_close(state.memory, end.memory)
    assert outputs[0].erase.shape == outputs[0].add.shape == (2, 1, 5)


def reference_address(memory, key, strength, gate, offsets, sharpness, previous):
    """Equations 5 to 9 for one head."""
    strength, gate, sharpness = strength[:, None], gate[:, None], sharpness[:, None]
    lengths = memory.square().sum(-1).sqrt() * key.square().sum(-1, keepdim=True).sqrt()
    power = torch.exp(strength * (memory * key[:, None]).sum(-1) / lengths)
    blend = gate * power / power.sum(-1, keepdim=True) + (1 - gate) * previous
    moves = enumerate(range(-(offsets.shape[-1] // 2), offsets.shape[-1] // 2 + 1))
    power = sum(blend.roll(by, -1) * offsets[:, index, None] for index, by in moves) ** sharpness
    return power / power.sum(-1, keepdim=True)


def reference(model, inputs):
    """Outputs and the final memory by the equations, head by head."""
    layout, state = model.head_layout, model.init_state(len(inputs))
    memory, read, outputs, controller = state.memory, state.read, [], state.controller
    weights = list(torch.cat((state.read_weights, state.write_weights), 1).unbind(1))
    readers, writers = range(layout.num_read), range(layout.num_read, len(weights))
    for x in inputs.unbind(1):
        hidden, controller = model.controller(torch.cat((x, read.flatten(1)), -1), controller)
        vectors, gates, positive, offsets = model.interface_proj(hidden).split(layout.sizes, -1)
        vectors = vectors.tanh().unflatten(-1, (-1, layout.memory_width)).unbind(1)
        gate = gates.sigmoid()[:, : len(weights)].unbind(1)
        erase = gates.sigmoid()[:, len(weights) :].unflatten(-1, (-1, layout.memory_width)).unbind(1)
        strength, sharpness = (100 * torch.tanh(torch.log1p(positive.exp()) / 100)).split(len(weights), -1)
        offsets = offsets.unflatten(-1, (len(weights), -1)).softmax(-1).unbind(1)
        heads = list(zip(vectors, strength.unbind(1), gate, offsets, (1 + sharpness).unbind(1), strict=False))
        for h in writers:
            weights[h] = reference_address(memory, *heads[h], weights[h])
        for h in writers:
            memory = memory * (1 - weights[h][..., None] * erase[h - layout.num_read][:, None])
        for h in writers:
            memory = memory + weights[h][..., None] * vectors[len(weights) + h - layout.num_read][:, None]
        for h in readers:
            weights[h] = reference_address(memory, *heads[h], weights[h])
        read = torch.stack([weights[h] for h in readers], 1) @ memory
        outputs.append(model.output_proj(torch.cat((hidden, read.flatten(1)), -1)))
    return torch.stack(outputs, 1), memory


@pytest.mark.parametrize("options", OPTIONS)
def test_all_step_functions_equal_reference(options):
    """With gradients, without, and by single steps: equal outputs, memory and gradients."""
    model, inputs = build(**options).double(), torch.randn(2, 4, 4, dtype=torch.double)
    expected, expected_end = reference(model, inputs)
    expected_grads = torch.autograd.grad(expected.square().sum() + expected_end.sum(), list(model.parameters()))
    state, steps = model.init_state(2), []
    for x in inputs.unbind(1):
        steps.append(step := model.step(x, state))
        state = step.state
    for output, end in (model(inputs), (torch.stack([step.output for step in steps], 1), state)):
        torch.testing.assert_close(output, expected)
        torch.testing.assert_close(end.memory, expected_end)
        grads = torch.autograd.grad(output.square().sum() + end.memory.sum(), list(model.parameters()))
        torch.testing.assert_close(grads, expected_grads)
    with torch.no_grad():
        output, end = model(inputs)
    torch.testing.assert_close(output, expected.detach())
    torch.testing.assert_close(end.memory, expected_end.detach())


def all_gradients(model, output):
    grads = torch.autograd.grad(output.float().square().mean(), list(model.parameters()))
    return torch.cat([grad.float().flatten() for grad in grads])


def gradients_with_autocast(model, inputs, enabled):
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        output, state = model(inputs)
    return all_gradients(model, output), state


@pytest.mark.parametrize("options", OPTIONS)
def test_autocast_keeps_the_memory_in_float32(options):
    model, inputs = build(**options), torch.randn(2, 6, 4)
    exact, _ = gradients_with_autocast(model, inputs, False)
    actual, state = gradients_with_autocast(model, inputs, True)
    assert state.memory.dtype == state.read_weights.dtype == torch.float32
    assert (actual - exact).norm() < 0.03 * exact.norm()


def test_backward_within_autocast():
    model, inputs = build(), torch.randn(2, 6, 4)
    outside, _ = gradients_with_autocast(model, inputs, True)
    with torch.autocast("cpu", torch.bfloat16):
        inside = all_gradients(model, model(inputs)[0])
    assert (inside - outside).norm() < 0.03 * outside.norm()


@pytest.mark.bare
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler reads it
def test_autocast_of_a_compiled_step(monkeypatch):
    model, inputs = build(), torch.randn(2, 4, 4)
    exact, _ = gradients_with_autocast(model, inputs, False)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    model.compile_step()
    actual, state = gradients_with_autocast(model, inputs, True)
    assert state.memory.dtype == torch.float32
    assert (actual - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_addresses_in_float32(dtype, grad):
    model, inputs = build(), torch.randn(2, 6, 4)
    exact, _ = model(inputs)
    expected = all_gradients(model, exact)
    half = model.to(dtype)
    with torch.set_grad_enabled(grad):
        output, state = half(inputs.to(dtype))
        step = half.step(inputs[:, 0].to(dtype), half.init_state(2))
    assert output.dtype == state.memory.dtype == step.state.memory.dtype == dtype
    torch.testing.assert_close(output.float(), exact, rtol=0.02, atol=0.02, check_dtype=False)
    _, after = half(inputs[:, :1].to(dtype))
    torch.testing.assert_close(after.read_weights, step.state.read_weights)
    if grad:
        assert (all_gradients(half, output) - expected).norm() < 0.05 * expected.norm()


def test_empty_memory_has_finite_gradients():
    for seed in range(20):
        torch.manual_seed(seed)
        model = build(controller="feedforward")
        with torch.no_grad():
            model.interface_proj.weight.mul_(30)
            model.interface_proj.bias.mul_(30)
        state = dataclasses.replace(model.init_state(2), memory=torch.zeros(2, 8, 5))
        assert all_gradients(model, model(torch.randn(2, 20, 4), state)[0]).isfinite().all(), seed


@pytest.mark.parametrize(
    "options", [{}, {"num_read_heads": 2, "num_write_heads": 2}, {"max_shift": 2, "memory_rows": 3}]
)
def test_gradients_of_gradients(options):
    model = build(**{"memory_rows": 4, "memory_width": 3, "hidden_dim": 3, **options}).double()
    inputs = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: model(x)[0], inputs)


def test_forward_mode_and_torch_func():
    model = build(memory_rows=4, memory_width=3, hidden_dim=3, controller="feedforward").double()  # no vmap for an LSTM
    inputs = torch.randn(2, 3, 4, dtype=torch.double)

    def step_outputs(row):
        return model(row[None])[0]

    backwards = torch.autograd.functional.jacobian(step_outputs, inputs[0])
    torch.testing.assert_close(torch.func.jacfwd(step_outputs)(inputs[0]), backwards)
    torch.testing.assert_close(torch.func.vmap(torch.func.jacrev(step_outputs))(inputs)[0], backwards)


def test_rows_are_independent():
    model, inputs = build(), torch.randn(3, 5, 4)
    together, _ = model(inputs)
    alone, _ = model(inputs[1:2])
    torch.testing.assert_close(together[1:2], alone)


def test_no_state_on_the_module():
    model, inputs = build(), torch.randn(2, 5, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, _ = model(inputs)
    second, _ = model(inputs)
    assert torch.equal(first, second)
    assert {name: value.tolist() for name, value in model.state_dict().items()} == {
        name: value.tolist() for name, value in before.items()
    }


def test_larger_memory_with_the_same_parameters():
    model, inputs = build(), torch.randn(2, 5, 4)
    small, _ = model(inputs, model.init_state(2, memory_rows=64))
    assert small.shape == (2, 5, 3)
    assert not any(8 in value.shape for value in model.state_dict().values())


def test_initial_state():
    state = build(num_read_heads=2).init_state(3)
    assert (state.memory == INITIAL_MEMORY).all()
    assert state.read_weights[..., 0].tolist() == [[1.0, 1.0]] * 3
    assert (state.read_weights.sum(-1) == 1).all()


def test_read_after_write():
    """A step reads from the memory that it has written."""
    model, x = build(), torch.randn(1, 4)
    step = model.step(x, model.init_state(1))
    read = addressing.read(step.state.read_weights, step.state.memory)
    torch.testing.assert_close(step.state.read, read)


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("options", OPTIONS[:3])
def test_extreme_values_give_no_nan(scale, options):
    model = build(**options)
    with torch.no_grad():
        model.interface_proj.weight.mul_(scale)
        model.interface_proj.bias.mul_(scale)
    output, state = model(scale * torch.randn(2, 30, 4))
    cost(output, torch.ones_like(output)).backward()
    assert torch.isfinite(output).all()
    assert torch.isfinite(state.memory).all()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


def test_bounded_softplus_has_a_slope():
    x = torch.tensor([-30.0, 0.0, 5.0, 500.0, 1e9], requires_grad=True)
    y = bounded_softplus(x)
    assert (y >= 0).all()
    assert (y <= MAX_STRENGTH).all()
    y.sum().backward()
    assert (x.grad[:4] > 0).all()
    assert x.grad[4] == 0  # as the docstring says


@pytest.mark.parametrize("options", OPTIONS[:3])
def test_gradients(options):
    model = build(**{**options, "memory_rows": 4, "memory_width": 3, "hidden_dim": 4}).double()
    inputs = torch.randn(1, 3, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: model(x)[0], inputs)


def test_detach_ends_the_graph():
    model, inputs = build(), torch.randn(1, 3, 4, requires_grad=True)
    _, state = model(inputs)
    model(torch.randn(1, 2, 4), state.detach())[0].sum().backward()
    assert inputs.grad is None


def test_learns_to_copy_one_vector():
    model = NeuralTuringMachine(5, 4, memory_rows=6, memory_width=6, hidden_dim=24)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(120):
        vector = torch.randint(2, (16, 1, 4)).float()
        inputs = torch.zeros(16, 3, 5)
        inputs[:, :1, :4], inputs[:, 1, 4] = vector, 1
        loss = cost(model(inputs)[0][:, 2:], vector)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 0.05


@pytest.mark.bare
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler reads it
def test_compiled_step_equals_plain_step():
    model, inputs = build(), torch.randn(2, 5, 4)
    plain, _ = model(inputs)
    model.compile_step()
    fused, _ = model(inputs)
    torch.testing.assert_close(fused, plain)
    fused.sum().backward()
    assert torch.isfinite(model.interface_proj.weight.grad).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"memory_rows": 0}, "invalid value 0 for memory_rows"),
        ({"num_read_heads": 0}, "invalid value 0 for num_read_heads"),
        ({"max_shift": -1}, "invalid value -1 for max_shift"),
        ({"controller": "gru"}, "invalid value 'gru' for controller: must be one of lstm, feedforward"),
    ],
)
@pytest.mark.bare
def test_invalid_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        build(**options)


@pytest.mark.bare
def test_input_shapes_are_checked():
    with pytest.raises(ValueError, match=r"\(batch, steps, 4\), got \(2, 5, 3\)"):
        build()(torch.randn(2, 5, 3))
    for shape in ((4,), (2, 3), (2, 1, 4)):
        with pytest.raises(ValueError, match=r"inputs of a step must be \(batch, 4\), got"):
            build().step(torch.randn(shape), build().init_state(2))


@pytest.mark.bare
@pytest.mark.parametrize("rows", [0, -1])
def test_memory_rows_must_be_positive(rows):
    with pytest.raises(ValueError, match=f"invalid value {rows} for memory_rows: must be at least 1"):
        build().init_state(2, memory_rows=rows)


@pytest.mark.bare
def test_states_of_other_shapes_are_invalid():
    with pytest.raises(
        ValueError, match=r"\(batch, width, read heads, write heads\) \(3, 5, 1, 1\), expected \(2, 5, 1, 1\)"
    ):
        build()(torch.randn(2, 5, 4), build().init_state(3))
    with pytest.raises(ValueError, match=r"\(1, 5, 1, 1\), expected \(2, 5, 1, 1\)"):
        build().step(torch.randn(2, 4), build().init_state(1))
    with pytest.raises(ValueError, match=r"\(2, 6, 1, 2\), expected \(2, 5, 1, 1\)"):
        build()(torch.randn(2, 5, 4), build(memory_width=6, num_write_heads=2).init_state(2))


def test_empty_sequence():
    output, state = build()(torch.randn(2, 0, 4))
    assert output.shape == (2, 0, 3)
    assert (state.memory == INITIAL_MEMORY).all()


def test_baseline_continues_from_a_state():
    model, inputs = LSTMBaseline(4, 3, hidden_dim=6, num_layers=2), torch.randn(2, 6, 4)
    expected, _ = model(inputs)
    first, state = model(inputs[:, :2])
    rest, _ = model(inputs[:, 2:], state)
    torch.testing.assert_close(torch.cat((first, rest), 1), expected)


@pytest.mark.parametrize("options", OPTIONS)
def test_clipped_gradients_are_exact_below_the_limit(options):
    inputs, results = torch.randn(2, 6, 4), []
    for limit in (None, 1e4):
        torch.manual_seed(0)
        model = build(state_grad_clip=limit, **options)
        output, _ = model(inputs)
        output.sum().backward()
        results.append([output.detach(), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*results, rtol=0, atol=0)


def test_clipping_keeps_growing_gradients_finite():
    norms = {}
    for limit in (None, 1e4):
        torch.manual_seed(0)
        model = build(state_grad_clip=limit)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 8  # what is written determines what is read next
        model(torch.randint(2, (1, 1200, 4)).float())[0].sum().backward()
        norms[limit] = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    assert not norms[None].isfinite()
    assert norms[1e4].isfinite()


def test_state_grad_clip_must_be_positive():
    with pytest.raises(ValueError, match="invalid value 0 for state_grad_clip: must be above 0"):
        build(state_grad_clip=0)
