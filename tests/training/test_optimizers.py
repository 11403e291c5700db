"""What the optimizer remembers, given back to it."""

import pytest
import torch
from torch import nn

from regard.training import TrainingConfig
from regard.training.optim import make_optimizer, optimizer_tensors, restore_optimizer


def after_a_step():
    """A layer and its optimizer, which has made a step."""
    layer = nn.Linear(3, 2)
    optimizer = make_optimizer(layer, TrainingConfig())
    layer(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    return layer, optimizer


def test_what_does_not_learn_any_more_is_not_remembered():
    """A checkpoint may come from a time when it did."""
    layer, optimizer = after_a_step()
    kept = optimizer_tensors(optimizer, layer)
    layer.bias.requires_grad_(False)
    fewer = make_optimizer(layer, TrainingConfig())
    restore_optimizer(fewer, layer, kept)
    assert optimizer_tensors(fewer, layer).keys() == {name for name in kept if name.endswith("/weight")}
    assert torch.equal(optimizer_tensors(fewer, layer)["exp_avg/weight"], kept["exp_avg/weight"])


def test_a_memory_of_something_else_is_refused():
    layer, optimizer = after_a_step()
    with pytest.raises(ValueError, match="other is not among the parameters trained now"):
        restore_optimizer(optimizer, layer, {"exp_avg/other": torch.zeros(2)})
