"""The Neural Turing Machine: what its state promises, and that nothing extreme breaks it."""

import pytest
import torch
from torch.nn.functional import binary_cross_entropy_with_logits as cost

from regard.attention import addressing
from regard.models import LongShortTerm, NeuralTuringMachine
from regard.models._step import MOST, bounded
from regard.models.ntm import BLANK

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
    state, outputs = model.begin(2), []
    for now in inputs.unbind(1):
        outputs.append(step := model.step(now, state))
        state = step.state
    torch.testing.assert_close(torch.stack([step.output for step in outputs], 1), whole)
    torch.testing.assert_close(state.memory, end.memory)
    assert outputs[0].erase.shape == outputs[0].add.shape == (2, 1, 5)


@pytest.mark.parametrize("options", KINDS)
def test_the_step_that_trains_is_the_definition(options):
    """One node of the graph against the equations: the same outputs, state and gradients."""
    model, inputs = machine(**options).double(), torch.randn(2, 4, 4, dtype=torch.double)
    output, end = model(inputs)
    fast = torch.autograd.grad(output.square().sum() + end.memory.sum(), list(model.parameters()))
    state, outputs = model.begin(2), []
    for now in inputs.unbind(1):
        outputs.append(step := model.step(now, state))
        state = step.state
    plain_output = torch.stack([step.output for step in outputs], 1)
    loss = plain_output.square().sum() + state.memory.sum()
    plain = torch.autograd.grad(loss, list(model.parameters()))
    torch.testing.assert_close(output, plain_output)
    for one, other in zip(fast, plain, strict=True):
        torch.testing.assert_close(one, other)


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
    small, _ = model(inputs, model.begin(2, rows=64))
    assert small.shape == (2, 5, 3)
    assert not any(8 in value.shape for value in model.state_dict().values())


def test_the_memory_begins_blank_and_the_heads_on_its_first_row():
    state = machine(read_heads=2).begin(3)
    assert (state.memory == BLANK).all()
    assert state.read_weights[..., 0].tolist() == [[1.0, 1.0]] * 3
    assert (state.read_weights.sum(-1) == 1).all()


def test_reading_comes_after_writing():
    """With the write head's focus on one row and the read head there too, a step reads what it wrote."""
    model, now = machine(), torch.randn(1, 4)
    step = model.step(now, model.begin(1))
    read = addressing.read(step.state.read_weights, step.state.memory)
    torch.testing.assert_close(step.state.read, read)


@pytest.mark.parametrize("scale", [0.0, 1e3, 1e6])
@pytest.mark.parametrize("options", KINDS[:3])
def test_extreme_numbers_give_no_nan(scale, options):
    model = machine(**options)
    with torch.no_grad():
        model.tell.weight.mul_(scale)
        model.tell.bias.mul_(scale)
    output, state = model(scale * torch.randn(2, 30, 4))
    cost(output, torch.ones_like(output)).backward()
    assert torch.isfinite(output).all()
    assert torch.isfinite(state.memory).all()
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all(), name


def test_strengths_are_bounded_and_have_a_slope():
    number = torch.tensor([-30.0, 0.0, 5.0, 1e9], requires_grad=True)
    found = bounded(number)
    assert (found >= 0).all()
    assert (found <= MOST).all()
    found[1:3].sum().backward()
    assert (number.grad[1:3] > 0).all()


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
    model = NeuralTuringMachine(5, 4, rows=6, width=6, hidden_dim=24)
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
    model.fuse()
    fused, _ = model(inputs)
    torch.testing.assert_close(fused, plain)
    fused.sum().backward()
    assert torch.isfinite(model.tell.weight.grad).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [({"rows": 0}, "rows=0"), ({"read_heads": 0}, "a head to read"), ({"shift": -1}, "shift=-1")],
)
@pytest.mark.bare
def test_what_cannot_be_is_refused(options, word):
    with pytest.raises(ValueError, match=word):
        machine(**options)


@pytest.mark.bare
def test_inputs_of_another_width_are_refused():
    with pytest.raises(ValueError, match=r"\(batch, steps, 4\), got \(2, 5, 3\)"):
        machine()(torch.randn(2, 5, 3))


def test_an_empty_sequence_gives_an_empty_answer():
    output, state = machine()(torch.randn(2, 0, 4))
    assert output.shape == (2, 0, 3)
    assert (state.memory == BLANK).all()


def test_the_baseline_goes_on_from_a_state():
    model, inputs = LongShortTerm(4, 3, hidden_dim=6, layers=2), torch.randn(2, 6, 4)
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
