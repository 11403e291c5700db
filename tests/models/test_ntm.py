"""The Neural Turing Machine: what its state promises, and that nothing extreme breaks it."""

import dataclasses
from functools import partial

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cost

from regard.attention import addressing
from regard.models import LSTMBaseline, NeuralTuringMachine
from regard.models.ntm import INITIAL_MEMORY
from regard.models.ntm_fast import MAX_STRENGTH, bounded_softplus

KINDS = [
    {},
    {"controller": "feedforward"},
    {"read_heads": 2, "write_heads": 3},
    {"shift": 0},
    {"shift": 3, "rows": 5},  # seven offsets over five rows
]


def machine(**options):
    return NeuralTuringMachine(4, 3, **{"rows": 8, "width": 5, "hidden_dim": 10, **options})


@pytest.mark.parametrize("options", KINDS)
def test_weights_are_distributions_at_every_step(options):
    model = machine(**options)
    _, state = model(3 * torch.randn(2, 6, 4))
    for weights in (state.read_weights, state.write_weights):
        assert (weights >= 0).all()
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize("options", KINDS)
def test_a_sequence_in_parts_is_the_same_as_whole(options):
    model, inputs = machine(**options), torch.randn(2, 6, 4)
    whole, end = model(inputs)
    first, state = model(inputs[:, :2])
    rest, last = model(inputs[:, 2:], state)
    torch.testing.assert_close(torch.cat((first, rest), 1), whole)
    torch.testing.assert_close(last.memory, end.memory)


def test_single_steps_are_the_same_as_the_loop():
    model, inputs = machine(read_heads=2), torch.randn(2, 4, 4)
    whole, end = model(inputs)
    state, outputs = model.init_state(2), []
    for now in inputs.unbind(1):
        outputs.append(step := model.step(now, state))
        state = step.state
    torch.testing.assert_close(torch.stack([step.output for step in outputs], 1), whole)
    torch.testing.assert_close(state.memory, end.memory)
    assert outputs[0].erase.shape == outputs[0].add.shape == (2, 1, 5)


def addressed_as_the_paper_has_it(memory, key, strength, gate, shares, sharpness, previous):
    """Equations 5 to 9 for one head."""
    strength, gate, sharpness = strength[:, None], gate[:, None], sharpness[:, None]
    lengths = memory.square().sum(-1).sqrt() * key.square().sum(-1, keepdim=True).sqrt()
    power = torch.exp(strength * (memory * key[:, None]).sum(-1) / lengths)
    blend = gate * power / power.sum(-1, keepdim=True) + (1 - gate) * previous
    moves = enumerate(range(-(shares.shape[-1] // 2), shares.shape[-1] // 2 + 1))
    power = sum(blend.roll(by, -1) * shares[:, at, None] for at, by in moves) ** sharpness
    return power / power.sum(-1, keepdim=True)


def as_the_paper_has_it(model, inputs):
    """Outputs and the last memory by the equations, head by head."""
    heads, state = model.heads, model.begin(len(inputs))
    memory, read, outputs, controller = state.memory, state.read, [], state.controller
    weights = list(torch.cat((state.read_weights, state.write_weights), 1).unbind(1))
    readers, writers = range(heads.read), range(heads.read, len(weights))
    for now in inputs.unbind(1):
        hidden, controller = model.controller(torch.cat((now, read.flatten(1)), -1), controller)
        vectors, opening, positive, shares = model.tell(hidden).split(heads.sizes, -1)
        vectors = vectors.tanh().unflatten(-1, (-1, heads.width)).unbind(1)
        gates = opening.sigmoid()[:, : len(weights)].unbind(1)
        erase = opening.sigmoid()[:, len(weights) :].unflatten(-1, (-1, heads.width)).unbind(1)
        strength, sharpness = (100 * torch.tanh(torch.log1p(positive.exp()) / 100)).split(len(weights), -1)
        shares = shares.unflatten(-1, (len(weights), -1)).softmax(-1).unbind(1)
        told = list(zip(vectors, strength.unbind(1), gates, shares, (1 + sharpness).unbind(1), strict=False))
        for h in writers:
            weights[h] = addressed_as_the_paper_has_it(memory, *told[h], weights[h])
        for h in writers:
            memory = memory * (1 - weights[h][..., None] * erase[h - heads.read][:, None])
        for h in writers:
            memory = memory + weights[h][..., None] * vectors[len(weights) + h - heads.read][:, None]
        for h in readers:
            weights[h] = addressed_as_the_paper_has_it(memory, *told[h], weights[h])
        read = torch.stack([weights[h] for h in readers], 1) @ memory
        outputs.append(model.output(torch.cat((hidden, read.flatten(1)), -1)))
    return torch.stack(outputs, 1), memory


@pytest.mark.parametrize("options", KINDS)
def test_every_way_to_take_a_step_is_that_of_the_paper(options):
    """With gradients, without, by single steps: the same outputs and memory, and gradients."""
    model, inputs = machine(**options).double(), torch.randn(2, 4, 4, dtype=torch.double)
    plain, plain_end = as_the_paper_has_it(model, inputs)
    plain_grads = torch.autograd.grad(plain.square().sum() + plain_end.sum(), list(model.parameters()))
    state, steps = model.begin(2), []
    for now in inputs.unbind(1):
        steps.append(step := model.step(now, state))
        state = step.state
    for output, end in (model(inputs), (torch.stack([step.output for step in steps], 1), state)):
        torch.testing.assert_close(output, plain)
        torch.testing.assert_close(end.memory, plain_end)
        grads = torch.autograd.grad(output.square().sum() + end.memory.sum(), list(model.parameters()))
        torch.testing.assert_close(grads, plain_grads)
    with torch.no_grad():
        output, end = model(inputs)
    torch.testing.assert_close(output, plain.detach())
    torch.testing.assert_close(end.memory, plain_end.detach())


def all_gradients(model, output):
    grads = torch.autograd.grad(output.float().square().mean(), list(model.parameters()))
    return torch.cat([grad.float().flatten() for grad in grads])


def trained_with_autocast(model, inputs, enabled):
    with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
        output, state = model(inputs)
    return all_gradients(model, output), state


@pytest.mark.parametrize("options", KINDS)
def test_autocast_leaves_the_memory_in_float32(options):
    model, inputs = machine(**options), torch.randn(2, 6, 4)
    exact, _ = trained_with_autocast(model, inputs, False)
    found, state = trained_with_autocast(model, inputs, True)
    assert state.memory.dtype == state.read_weights.dtype == torch.float32
    assert (found - exact).norm() < 0.03 * exact.norm()


def test_a_backward_within_autocast_is_the_same():
    model, inputs = machine(), torch.randn(2, 6, 4)
    outside, _ = trained_with_autocast(model, inputs, True)
    with torch.autocast("cpu", torch.bfloat16):
        inside = all_gradients(model, model(inputs)[0])
    assert (inside - outside).norm() < 0.03 * outside.norm()


@pytest.mark.bare
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler looks, not we
def test_autocast_of_a_fused_step(monkeypatch):
    model, inputs = machine(), torch.randn(2, 4, 4)
    exact, _ = trained_with_autocast(model, inputs, False)
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))  # as it is traced
    model.compile_step()
    found, state = trained_with_autocast(model, inputs, True)
    assert state.memory.dtype == torch.float32
    assert (found - exact).norm() < 0.03 * exact.norm()


@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_a_machine_addresses_in_float32(dtype, grad):
    model, inputs = machine(), torch.randn(2, 6, 4)
    exact, _ = model(inputs)
    expected = all_gradients(model, exact)
    half = model.to(dtype)
    with torch.set_grad_enabled(grad):
        output, state = half(inputs.to(dtype))
        step = half.step(inputs[:, 0].to(dtype), half.begin(2))
    assert output.dtype == state.memory.dtype == step.state.memory.dtype == dtype
    torch.testing.assert_close(output.float(), exact, rtol=0.02, atol=0.02, check_dtype=False)
    _, after = half(inputs[:, :1].to(dtype))
    torch.testing.assert_close(after.read_weights, step.state.read_weights)
    if grad:
        assert (all_gradients(half, output) - expected).norm() < 0.05 * expected.norm()


def test_memories_of_almost_nothing_have_finite_gradients():
    for seed in range(20):
        torch.manual_seed(seed)
        model = machine(controller="feedforward")
        with torch.no_grad():
            model.interface_proj.weight.mul_(30)
            model.interface_proj.bias.mul_(30)
        state = dataclasses.replace(model.init_state(2), memory=torch.zeros(2, 8, 5))
        assert all_gradients(model, model(torch.randn(2, 20, 4), state)[0]).isfinite().all(), seed


@pytest.mark.parametrize("options", [{}, {"read_heads": 2, "write_heads": 2}, {"shift": 2, "rows": 3}])
def test_gradients_of_gradients(options):
    model = machine(**{"rows": 4, "width": 3, "hidden_dim": 3, **options}).double()
    inputs = torch.randn(1, 2, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: model(x)[0], inputs)


def test_forward_mode_and_torch_func_follow_the_definition():
    model = machine(rows=4, width=3, hidden_dim=3, controller="feedforward").double()  # no vmap for an LSTM
    inputs = torch.randn(2, 3, 4, dtype=torch.double)

    def one(row):
        return model(row[None])[0]

    backwards = torch.autograd.functional.jacobian(one, inputs[0])
    torch.testing.assert_close(torch.func.jacfwd(one)(inputs[0]), backwards)
    torch.testing.assert_close(torch.func.vmap(torch.func.jacrev(one))(inputs)[0], backwards)


def test_rows_of_a_batch_do_not_see_each_other():
    model, inputs = machine(), torch.randn(3, 5, 4)
    together, _ = model(inputs)
    alone, _ = model(inputs[1:2])
    torch.testing.assert_close(together[1:2], alone)


def test_nothing_stays_on_the_module():
    model, inputs = machine(), torch.randn(2, 5, 4)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    first, _ = model(inputs)
    second, _ = model(inputs)
    assert torch.equal(first, second)
    assert {name: value.tolist() for name, value in model.state_dict().items()} == {
        name: value.tolist() for name, value in before.items()
    }


def test_a_larger_memory_needs_no_other_weights():
    model, inputs = machine(), torch.randn(2, 5, 4)
    small, _ = model(inputs, model.init_state(2, memory_rows=64))
    assert small.shape == (2, 5, 3)
    assert not any(8 in value.shape for value in model.state_dict().values())


def test_the_memory_begins_blank_and_the_heads_on_its_first_row():
    state = machine(read_heads=2).init_state(3)
    assert (state.memory == INITIAL_MEMORY).all()
    assert state.read_weights[..., 0].tolist() == [[1.0, 1.0]] * 3
    assert (state.read_weights.sum(-1) == 1).all()


def test_reading_comes_after_writing():
    """With the write head's focus on one row and the read head there too, a step reads what it wrote."""
    model, now = machine(), torch.randn(1, 4)
    step = model.step(now, model.init_state(1))
    read = addressing.read(step.state.read_weights, step.state.memory)
    torch.testing.assert_close(step.state.read, read)


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("options", KINDS[:3])
def test_extreme_numbers_give_no_nan(scale, options):
    model = machine(**options)
    with torch.no_grad():
        model.interface_proj.weight.mul_(scale)
        model.interface_proj.bias.mul_(scale)
    output, state = model(scale * torch.randn(2, 30, 4))
    cost(output, torch.ones_like(output)).backward()
    assert torch.isfinite(output).all()
    assert torch.isfinite(state.memory).all()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


def test_strengths_are_bounded_and_have_a_slope():
    number = torch.tensor([-30.0, 0.0, 5.0, 500.0, 1e9], requires_grad=True)
    found = bounded_softplus(number)
    assert (found >= 0).all()
    assert (found <= MAX_STRENGTH).all()
    found.sum().backward()
    assert (number.grad[:4] > 0).all()
    assert number.grad[4] == 0  # as the docstring says


@pytest.mark.parametrize("options", KINDS[:3])
def test_gradients(options):
    model = machine(**{**options, "rows": 4, "width": 3, "hidden_dim": 4}).double()
    inputs = torch.randn(1, 3, 4, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: model(x)[0], inputs)


def test_a_detached_state_ends_the_past():
    model, inputs = machine(), torch.randn(1, 3, 4, requires_grad=True)
    _, state = model(inputs)
    model(torch.randn(1, 2, 4), state.detach())[0].sum().backward()
    assert inputs.grad is None


def test_it_learns_to_copy_one_vector():
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
@pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning")  # the compiler looks, not we
def test_a_fused_step_is_the_same():
    model, inputs = machine(), torch.randn(2, 5, 4)
    plain, _ = model(inputs)
    model.compile_step()
    fused, _ = model(inputs)
    torch.testing.assert_close(fused, plain)
    fused.sum().backward()
    assert torch.isfinite(model.interface_proj.weight.grad).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"rows": 0}, "rows=0"),
        ({"read_heads": 0}, "a head to read"),
        ({"shift": -1}, "shift=-1"),
        ({"controller": "gru"}, "controller='gru' must be lstm or feedforward"),
    ],
)
@pytest.mark.bare
def test_what_cannot_be_is_refused(options, word):
    with pytest.raises(ValueError, match=word):
        machine(**options)


@pytest.mark.bare
def test_inputs_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"\(batch, steps, 4\), got \(2, 5, 3\)"):
        machine()(torch.randn(2, 5, 3))
    for shape in ((4,), (2, 3), (2, 1, 4)):
        with pytest.raises(ValueError, match=r"a step takes inputs \(batch, 4\), got"):
            machine().step(torch.randn(shape), machine().init_state(2))


@pytest.mark.bare
@pytest.mark.parametrize("rows", [0, -1])
def test_a_memory_has_rows(rows):
    with pytest.raises(ValueError, match=f"rows={rows} must be at least 1"):
        machine().init_state(2, memory_rows=rows)


@pytest.mark.bare
def test_a_state_of_others_is_refused():
    with pytest.raises(ValueError, match="the state is of a batch of 3, the inputs of 2"):
        machine()(torch.randn(2, 5, 4), machine().init_state(3))
    with pytest.raises(ValueError, match="the state is of a batch of 1, the inputs of 2"):
        machine().step(torch.randn(2, 4), machine().init_state(1))
    with pytest.raises(
        ValueError, match="the state has width 6, 1 read and 2 write heads, the machine 5, 1 and 1"
    ):
        machine()(torch.randn(2, 5, 4), machine(width=6, write_heads=2).init_state(2))


def test_an_empty_sequence_gives_an_empty_answer():
    output, state = machine()(torch.randn(2, 0, 4))
    assert output.shape == (2, 0, 3)
    assert (state.memory == INITIAL_MEMORY).all()


def test_the_baseline_goes_on_from_a_state():
    model, inputs = LSTMBaseline(4, 3, hidden_dim=6, num_layers=2), torch.randn(2, 6, 4)
    whole, _ = model(inputs)
    first, state = model(inputs[:, :2])
    rest, _ = model(inputs[:, 2:], state)
    torch.testing.assert_close(torch.cat((first, rest), 1), whole)


@pytest.mark.parametrize("options", KINDS)
def test_a_clipped_gradient_is_exact_below_its_limit(options):
    inputs, found = torch.randn(2, 6, 4), []
    for limit in (None, 1e4):
        torch.manual_seed(0)
        model = machine(state_clip=limit, **options)
        output, _ = model(inputs)
        output.sum().backward()
        found.append([output.detach(), *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(*found, rtol=0, atol=0)


def test_a_gradient_that_grows_with_every_step_stays_a_number():
    norms = {}
    for limit in (None, 1e4):
        torch.manual_seed(0)
        model = machine(state_clip=limit)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter *= 8  # what is written now decides what is found next
        model(torch.randint(2, (1, 1200, 4)).float())[0].sum().backward()
        norms[limit] = torch.stack([parameter.grad.norm() for parameter in model.parameters()]).norm()
    assert not norms[None].isfinite()
    assert norms[1e4].isfinite()


def test_a_limit_must_be_positive():
    with pytest.raises(ValueError, match="state_clip=0 must be greater than 0"):
        machine(state_clip=0)
