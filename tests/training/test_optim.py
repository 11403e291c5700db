"""The optimizer state by parameter name."""

import pytest
import torch
from torch import nn

from regard.errors import WeightsMismatchError
from regard.training import TrainingConfig
from regard.training.optim import make_optimizer, optimizer_tensors, restore_optimizer


def names_of(layer):
    return {parameter: name for name, parameter in layer.named_parameters()}


def after_a_step():
    """A layer and its optimizer after one step."""
    layer = nn.Linear(3, 2)
    optimizer = make_optimizer(layer, TrainingConfig())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return layer, optimizer


def test_the_state_of_frozen_parameters_is_dropped():
    """A checkpoint may have been written before they were frozen."""
    layer, optimizer = after_a_step()
    tensors = optimizer_tensors(optimizer, names_of(layer))
    layer.bias.requires_grad_(False)
    restored = make_optimizer(layer, TrainingConfig())
    restore_optimizer(restored, names_of(layer), tensors)
    state = optimizer_tensors(restored, names_of(layer))
    assert state.keys() == {name for name in tensors if name.endswith("/weight")}
    assert torch.equal(state["exp_avg/weight"], tensors["exp_avg/weight"])


def test_the_state_of_other_parameters_is_refused():
    layer, optimizer = after_a_step()
    with pytest.raises(WeightsMismatchError, match="other is not among the trained parameters"):
        restore_optimizer(optimizer, names_of(layer), {"exp_avg/other": torch.zeros(2)})
