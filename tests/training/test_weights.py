"""Weights as files: tied ones once, averages in float64, and sentences for what does not fit."""

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

from regard.training import RunFolder, average_weights, load_into, load_weights, save_weights
from tests.training.toy import objective, train


def test_tied_weights_are_written_once_and_come_back_under_both_names(tmp_path):
    model = objective()
    save_weights(model.state_dict(), tmp_path / "w.safetensors")
    assert "output.weight" not in load_file(tmp_path / "w.safetensors")
    found = load_weights(tmp_path / "w.safetensors")
    assert found.keys() == model.state_dict().keys()
    assert found["output.weight"] is found["embedding.weight"]
    assert all(torch.equal(found[name], tensor) for name, tensor in model.state_dict().items())


def test_views_empty_tensors_and_numbers_are_kept(tmp_path):
    whole = torch.arange(12.0).view(3, 4)
    tensors = {
        "whole": whole,
        "part": whole[1],
        "turned": whole.T,
        "none": torch.zeros(0, 3),
        "nothing": torch.zeros(0),
        "number": torch.tensor(7),
    }
    save_weights(tensors, tmp_path / "w.safetensors")
    found = load_weights(tmp_path / "w.safetensors")
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_part_of_the_names(tmp_path):
    save_weights(
        {"model.a": torch.ones(2), "model.b.c": torch.ones(1), "other": torch.ones(3)}, tmp_path / "w"
    )
    assert set(load_weights(tmp_path / "w", prefix="model")) == {"a", "b.c"}


def test_the_average_is_the_mean_and_loses_no_digits(tmp_path):
    values = [1e8, 1.0, -1e8, 3.0]  # in float32 the 1 would be lost on the way
    for index, value in enumerate(values):
        tied = torch.full((2, 2), value)
        save_weights({"a": tied, "b": tied, "seen": torch.tensor(index)}, tmp_path / f"{index}")
    mean = average_weights([tmp_path / f"{index}" for index in range(4)])
    assert torch.equal(mean["a"], torch.ones(2, 2))
    assert mean["a"].dtype == torch.float32
    assert mean["b"] is mean["a"], "tied weights stay tied"
    assert mean["seen"] == 3


def test_weights_of_different_models_are_not_averaged(tmp_path):
    save_weights({"a": torch.ones(2)}, tmp_path / "1")
    save_weights({"a": torch.ones(3)}, tmp_path / "2")
    with pytest.raises(ValueError, match=r"cannot be averaged: their names or shapes differ"):
        average_weights([tmp_path / "1", tmp_path / "2"])
    with pytest.raises(ValueError, match=r"nothing to average"):
        average_weights([])


def test_what_does_not_fit_is_listed():
    model = nn.Linear(3, 2)
    with pytest.raises(
        ValueError,
        match=r"of old do not fit: bias is missing there; extra is not in this model; "
        "weight is 4x2 there and 2x3 here$",
    ):
        load_into(model, {"weight": torch.ones(4, 2), "extra": torch.ones(1)}, "old")
    with pytest.raises(ValueError, match=r"and 95 more$"):
        load_into(model, {**model.state_dict(), **{str(n): torch.ones(1) for n in range(100)}}, "old")


def test_a_damaged_file_of_weights_is_named(tmp_path):
    path = tmp_path / "w.safetensors"
    with pytest.raises(FileNotFoundError, match=r"there are no weights in .*w.safetensors"):
        load_weights(path)
    for content in (b"", b"nothing of the kind", b"\xff" * 100):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"w\.safetensors is damaged or not a safetensors file"):
            load_weights(path)


def test_another_run_can_be_the_beginning(tmp_path):
    """The weights of a run in another model: exactly there, and kept from the first checkpoint on."""
    train(tmp_path / "first")
    second = objective(seed=5)
    RunFolder.open(tmp_path / "first").load_into(second)
    best = load_weights(tmp_path / "first" / "weights" / "best.safetensors")
    assert all(torch.equal(best[name], tensor) for name, tensor in second.state_dict().items())
    with pytest.raises(ValueError, match=r"first do not fit: embedding.weight is 11x8 there and 11x4 here"):
        RunFolder.open(tmp_path / "first").load_into(objective(dim=4))
